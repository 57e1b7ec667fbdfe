//! Both forms in which state is kept give back what was written, whatever the types; a document gives
//! it back in whatever order its fields are.

use pagemesh_recorder::schema::{Form, reader, writer};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Kind {
    Nothing,
    Number(i32),
    Pair(Option<u8>, Option<u16>),
    Fields { name: String, share: f64 },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Part {
    yes: bool,
    kinds: Vec<Kind>,
    #[serde(default)]
    sizes: BTreeMap<u64, (i64, Option<[u8; 3]>)>,
    inner: Option<Box<Part>>,
    /// In no former document, as that of a node that is put back lacks it.
    chosen: Option<u64>,
    unit: (),
}

/// What [`Part`] was in another version: in another order, with one field more and one less.
#[derive(Serialize)]
struct Former {
    unit: (),
    #[serde(rename = "gone")]
    more: Vec<Kind>,
    inner: Option<Box<Former>>,
    kinds: Vec<Kind>,
    yes: bool,
}

impl Former {
    fn of(part: &Part) -> Self {
        Self {
            unit: (),
            more: part.kinds.clone(),
            inner: part.inner.as_deref().map(|inner| Box::new(Self::of(inner))),
            kinds: part.kinds.clone(),
            yes: part.yes,
        }
    }
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Nothing),
        any::<i32>().prop_map(Kind::Number),
        any::<(Option<u8>, Option<u16>)>().prop_map(|(low, high)| Kind::Pair(low, high)),
        (".*", -1.0..1.0).prop_map(|(name, share)| Kind::Fields { name, share }),
    ]
}

fn parts() -> impl Strategy<Value = Part> {
    let kinds = || prop::collection::vec(kinds(), 0..4);
    let sizes = || prop::collection::btree_map(any::<u64>(), any::<(i64, Option<[u8; 3]>)>(), 0..3);
    let leaf = move |inner: Option<Box<Part>>| {
        let chosen = any::<Option<u64>>();
        (any::<bool>(), kinds(), sizes(), chosen).prop_map(move |(yes, kinds, sizes, chosen)| {
            Part {
                yes,
                kinds,
                sizes,
                inner: inner.clone(),
                chosen,
                unit: (),
            }
        })
    };
    leaf(None).prop_flat_map(move |inner| leaf(Some(Box::new(inner))))
}

fn without_later_fields(mut part: Part) -> Part {
    part.sizes.clear();
    part.chosen = None;
    part.inner = part
        .inner
        .map(|inner| Box::new(without_later_fields(*inner)));
    part
}

#[test]
fn bytes_that_look_like_nothing_are_something() {
    let looks = [Some(0xc0_u8), Some(0), None, Some(1)];
    for form in [Form::Named, Form::Positional] {
        let bytes = writer::append(&looks[..], form, Vec::new());
        let read: Result<Vec<Option<u8>>, _> = reader::read(&mut bytes.as_slice(), form);
        assert_eq!(read, Ok(looks.to_vec()));
    }
}

proptest! {
    #[test]
    fn both_forms_give_back_what_was_written(parts in prop::collection::vec(parts(), 0..3)) {
        for form in [Form::Named, Form::Positional] {
            let bytes = writer::append(&parts, form, Vec::new());
            let mut left = bytes.as_slice();
            let read: Result<Vec<Part>, _> = reader::read(&mut left, form);
            prop_assert_eq!(read.as_ref(), Ok(&parts));
            prop_assert!(left.is_empty());
        }
    }

    #[test]
    fn fields_of_a_document_have_any_order(part in parts()) {
        let mut bytes = writer::append(&Former::of(&part), Form::Named, Vec::new());
        bytes.push(7);
        let mut left = bytes.as_slice();
        let read: Result<Part, _> = reader::read(&mut left, Form::Named);
        prop_assert_eq!(read, Ok(without_later_fields(part)));
        prop_assert_eq!(left, [7]);
    }

    #[test]
    fn noise_is_refused_or_read_in_both_forms(
        part in parts(),
        places in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        for form in [Form::Named, Form::Positional] {
            let mut bytes = writer::append(&part, form, Vec::new());
            bytes.truncate(1 + cut.index(bytes.len()));
            for (place, byte) in &places {
                let place = place.index(bytes.len());
                bytes[place] = *byte;
            }
            let _: Result<Part, _> = reader::read(&mut bytes.as_slice(), form);
        }
    }
}

#[test]
fn a_field_that_a_document_lacks_is_named() {
    #[derive(Serialize)]
    struct Short {
        yes: bool,
        inner: Option<()>,
    }
    let short = Short {
        yes: true,
        inner: None,
    };
    let bytes = writer::append(&short, Form::Named, Vec::new());
    let read: Result<Part, _> = reader::read(&mut bytes.as_slice(), Form::Named);
    assert_eq!(read.unwrap_err().to_string(), "missing field `kinds`");
}
