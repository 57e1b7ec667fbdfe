//! Diffs against a dumb array of bytes (T7).

use pagemesh_diff::{Diff, LONGEST, PAGE, Page, encode, merge};
use proptest::prelude::*;

/// A page made from another by storing runs of bytes.
fn stored(page: &Page, stores: &[(usize, Vec<u8>)]) -> Box<Page> {
    let mut page = Box::new(*page);
    for (at, bytes) in stores {
        let end = (at + bytes.len()).min(PAGE);
        page[*at..end].copy_from_slice(&bytes[..end - at]);
    }
    page
}

fn diff(from: &Page, to: &Page) -> Vec<u8> {
    let mut out = Vec::new();
    encode(from, to, &mut out);
    out
}

/// The effect of a diff, byte by byte.
fn patched(page: &Page, from: &Page, to: &Page) -> Box<Page> {
    Box::new(std::array::from_fn(|at| {
        if from[at] == to[at] { page[at] } else { to[at] }
    }))
}

fn stores() -> impl Strategy<Value = Vec<(usize, Vec<u8>)>> {
    let run = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..10),
        prop::collection::vec(any::<u8>(), 1..600),
        Just(vec![7; PAGE]),
    ];
    prop::collection::vec((0..PAGE, run), 0..20)
}

proptest! {
    #[test]
    fn a_diff_changes_what_was_stored_and_nothing_else(a in stores(), b in stores(), c in stores()) {
        let twin = stored(&[0; PAGE], &a);
        let now = stored(&twin, &b);
        let other = stored(&twin, &c);
        let bytes = diff(&twin, &now);
        prop_assert!(bytes.len() <= LONGEST);
        let diff = Diff::check(&bytes).unwrap();
        let mut page = other.clone();
        diff.apply(&mut page);
        prop_assert!(page == patched(&other, &twin, &now));
        let changed = twin.iter().zip(now.iter()).filter(|(a, b)| a != b).count();
        prop_assert_eq!(diff.len(), changed);
        prop_assert_eq!(diff.is_empty(), changed == 0);
    }

    #[test]
    fn bytes_that_both_change_are_found(a in stores(), b in stores()) {
        let twin = [0x55; PAGE];
        let (one, other) = (stored(&twin, &a), stored(&twin, &b));
        let (first, second) = (diff(&twin, &one), diff(&twin, &other));
        let first = Diff::check(&first).unwrap();
        let second = Diff::check(&second).unwrap();
        let found: Vec<usize> = first.overlap(&second).into_iter().flatten().collect();
        let both = |at: &usize| one[*at] != 0x55 && other[*at] != 0x55;
        prop_assert_eq!(found, (0..PAGE).filter(both).collect::<Vec<_>>());
        prop_assert_eq!(first.overlap(&second), second.overlap(&first));
    }

    #[test]
    fn concurrent_writers_of_different_bytes_meet_in_any_order(a in stores(), owner in prop::collection::vec(any::<bool>(), PAGE)) {
        let twin = [0x55; PAGE];
        let wish = stored(&twin, &a);
        let part = |mine: bool| -> Box<Page> {
            Box::new(std::array::from_fn(|at| if owner[at] == mine { wish[at] } else { twin[at] }))
        };
        let (left, right) = (diff(&twin, &part(true)), diff(&twin, &part(false)));
        for order in [[&left, &right], [&right, &left]] {
            let mut page = twin;
            for bytes in order {
                Diff::check(bytes).unwrap().apply(&mut page);
            }
            prop_assert!(page == *wish);
        }
    }

    #[test]
    fn merged_diffs_do_what_both_do(a in stores(), b in stores(), c in stores()) {
        let twin = stored(&[0; PAGE], &a);
        let then = stored(&twin, &b);
        let now = stored(&then, &c);
        let (first, second) = (diff(&twin, &then), diff(&then, &now));
        let (first, second) = (Diff::check(&first).unwrap(), Diff::check(&second).unwrap());
        let mut both = Vec::new();
        merge(&first, &second, &mut both);
        let mut page = [0xee; PAGE];
        let mut expected = page;
        first.apply(&mut expected);
        second.apply(&mut expected);
        Diff::check(&both).unwrap().apply(&mut page);
        prop_assert!(page == expected);
    }

    #[test]
    fn hostile_bytes_are_refused_or_mean_one_thing(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
        if let Ok(diff) = Diff::check(&bytes) {
            let (mut zeros, mut ones) = ([0; PAGE], [0xff; PAGE]);
            diff.apply(&mut zeros);
            diff.apply(&mut ones);
            let again: Vec<u8> = {
                let empty = [0u8; 8];
                let mut out = Vec::new();
                merge(&Diff::check(&empty).unwrap(), &diff, &mut out);
                out
            };
            prop_assert_eq!(again, bytes);
        }
    }
}

#[test]
fn two_nodes_write_neighbouring_bytes_of_one_word() {
    let twin = [0; PAGE];
    let (mut left, mut right) = (twin, twin);
    left[100] = 1;
    right[101] = 2;
    let (left, right) = (diff(&twin, &left), diff(&twin, &right));
    assert_eq!(left.len(), 8 + 1 + 1 + 1);
    let mut page = twin;
    Diff::check(&right).unwrap().apply(&mut page);
    Diff::check(&left).unwrap().apply(&mut page);
    assert_eq!(page[100..102], [1, 2]);
}

#[test]
fn the_longest_and_the_shortest() {
    assert_eq!(diff(&[0; PAGE], &[1; PAGE]).len(), LONGEST);
    let empty = diff(&[0; PAGE], &[0; PAGE]);
    assert_eq!(empty, [0; 8]);
    assert!(Diff::check(&empty).unwrap().is_empty());
}

#[test]
fn what_is_cut_off_or_too_long_is_no_diff() {
    let mut now = [0; PAGE];
    now[9] = 1;
    now[4095] = 1;
    let good = diff(&[0; PAGE], &now);
    for length in 0..good.len() {
        assert!(Diff::check(&good[..length]).is_err(), "{length}");
    }
    assert!(Diff::check(&[good, vec![0]].concat()).is_err());
    assert!(
        Diff::check(&[1, 0, 0, 0, 0, 0, 0, 0, 0]).is_err(),
        "a line without words"
    );
}
