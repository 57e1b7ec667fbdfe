use super::*;
use pagemesh_wire::peer::{Policy, SegmentSpec};
use pagemesh_wire::{ByteLen, PageIndex};
use proptest::prelude::*;
use std::collections::BTreeMap;

type Contents = BTreeMap<u32, [u8; PAGE]>;

fn header(pages: u32) -> Header {
    Header {
        name: "grid".to_owned(),
        spec: SegmentSpec {
            size: ByteLen(u64::from(pages) * PAGE as u64 - 7),
            mode: 0o640,
            policy: Policy::default(),
            replicas: 0,
        },
        page_size: PAGE as u32,
        saved: 1_700_000_000_000_000_000,
        consistency: Consistency::Instant,
    }
}

fn page(seed: u32) -> [u8; PAGE] {
    std::array::from_fn(|at| (seed as usize * 31 + at / 7) as u8)
}

fn written(form: Form, pages: u32, indices: &[u32]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header(pages), form).unwrap();
    for (number, index) in indices.iter().enumerate() {
        let contents = page(index + number as u32);
        writer.page(PageIndex(*index), &contents).unwrap();
    }
    let (bytes, summary) = writer.finish().unwrap();
    assert_eq!(summary.pages, indices.len() as u64);
    assert_eq!(summary.bytes, bytes.len() as u64);
    bytes
}

fn contents(bytes: &[u8]) -> Result<Contents, Error> {
    let mut reader = Reader::new(bytes)?;
    let mut all = Contents::new();
    while let Some(piece) = reader.piece()? {
        let pages = piece.contents.chunks_exact(PAGE);
        for (index, page) in (piece.first.0..).zip(pages) {
            all.insert(index, page.try_into().unwrap());
        }
    }
    assert_eq!(reader.offset(), bytes.len() as u64);
    Ok(all)
}

#[test]
fn pages_come_back_and_the_last_of_one_index_counts() {
    for form in [Form::Plain, Form::Lz4] {
        let indices: Vec<u32> = (3..140).chain([500, 7, 8, 499]).collect();
        let bytes = written(form, 501, &indices);
        let all = contents(&bytes).unwrap();
        assert_eq!(all.len(), 139);
        assert!(all[&7] == page(7 + 138) && all[&9] == page(9 + 6));
        assert_eq!(Reader::new(&bytes[..]).unwrap().header(), &header(501));
    }
    assert_eq!(contents(&written(Form::Plain, 1, &[])).unwrap().len(), 0);
}

#[test]
fn packed_pages_take_less_room() {
    let indices: Vec<u32> = (0..64).collect();
    let [plain, packed] = [Form::Plain, Form::Lz4].map(|form| written(form, 64, &indices).len());
    assert!(packed * 4 < plain * 3, "{packed} of {plain}");
}

#[test]
fn every_truncation_is_noticed_with_its_place() {
    let bytes = written(Form::Lz4, 70, &(0..70).collect::<Vec<_>>());
    for length in 0..bytes.len() {
        let error = contents(&bytes[..length]).unwrap_err();
        let foreign = length < MAGIC.len();
        match error.flaw {
            Flaw::Foreign => assert!(foreign, "{length}"),
            Flaw::Truncated => assert_eq!(error.offset, length as u64),
            ref other => panic!("{length}: {other:?}"),
        }
    }
}

#[test]
fn every_changed_bit_is_noticed() {
    let bytes = written(Form::Lz4, 70, &[1, 2, 3, 40]);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        let error = contents(&damaged).expect_err("a bit has changed");
        match (at, &error.flaw) {
            (0..8, Flaw::Foreign) | (8..12, Flaw::Version(_)) => {}
            (12.., Flaw::Damaged(_) | Flaw::Truncated) => {}
            other => panic!("{other:?}"),
        }
        assert!(error.offset <= at as u64 || matches!(error.flaw, Flaw::Truncated));
    }
}

#[test]
fn pieces_that_are_missing_or_moved_are_noticed() {
    let bytes = written(Form::Plain, 300, &[0, 100, 200]);
    let start = bytes.len() - 3 * (PIECE_HEAD + PAGE + 4) - (PIECE_HEAD + 4);
    let piece = |number: usize| {
        let length = PIECE_HEAD + PAGE + 4;
        bytes[start + number * length..][..length].to_vec()
    };
    let end = bytes[bytes.len() - PIECE_HEAD - 4..].to_vec();
    for order in [&[0, 2][..], &[1, 0, 2], &[0, 0, 1, 2], &[0, 1]] {
        let mut other = bytes[..start].to_vec();
        order.iter().for_each(|number| other.extend(piece(*number)));
        other.extend(&end);
        let error = contents(&other).unwrap_err();
        assert!(matches!(error.flaw, Flaw::Damaged(_)), "{order:?}: {error}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    let error = contents(&longer).unwrap_err();
    assert_eq!(error.offset, bytes.len() as u64);
    assert!(error.to_string().contains("follows the end"), "{error}");
}

#[test]
fn errors_name_the_place_and_the_cure() {
    let foreign = contents(b"#!/bin/sh\nexit 0\n................").unwrap_err();
    assert_eq!(
        foreign.to_string(),
        "at byte 0: this is no snapshot; name a file that `pagemesh segment save` wrote"
    );
    let mut newer = written(Form::Plain, 1, &[0]);
    newer[8] = 9;
    let newer = contents(&newer).unwrap_err();
    assert!(newer.to_string().contains("version 9"), "{newer}");
}

#[test]
fn headers_of_version_1_are_read() {
    let new = header(3);
    let spec = (new.spec.size, new.spec.mode, new.spec.policy);
    let old = (&new.name, spec, new.page_size, new.saved, new.consistency);
    let old = postcard::to_allocvec(&old).unwrap();
    assert_eq!(Header::decode(1, &old), Some(new.clone()));
    let misread = Header::decode(VERSION, &old);
    assert_ne!(misread, Some(new.clone()), "it lacks the replicas");
    let replicated = Header {
        spec: SegmentSpec {
            replicas: 1,
            ..new.spec.clone()
        },
        ..new
    };
    let bytes = postcard::to_allocvec(&replicated).unwrap();
    assert_eq!(Header::decode(VERSION, &bytes), Some(replicated));
}

proptest! {
    #[test]
    fn any_pages_come_back(indices in prop::collection::vec(0u32..300, 0..120), lz4: bool) {
        let form = if lz4 { Form::Lz4 } else { Form::Plain };
        let all = contents(&written(form, 300, &indices)).unwrap();
        let last: BTreeMap<u32, usize> =
            indices.iter().enumerate().map(|(number, index)| (*index, number)).collect();
        prop_assert_eq!(all.len(), last.len());
        for (index, number) in last {
            prop_assert!(all[&index] == page(index + number as u32));
        }
    }

    #[test]
    fn any_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut said = MAGIC.to_vec();
        said.extend(VERSION.to_le_bytes());
        said.extend(&bytes);
        prop_assert!(contents(&said).is_err());
    }
}
