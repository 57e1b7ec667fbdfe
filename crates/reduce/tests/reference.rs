//! Several writers of one page against plain arithmetic.

use pagemesh_diff::{Diff, PAGE, Page};
use pagemesh_reduce::{apply_with, encode_with};
use pagemesh_wire::peer::{Kind, Merge, Rule};
use proptest::prelude::*;

fn rule(start: u16, end: u16, merge: Merge, kind: Kind) -> Rule {
    Rule {
        start,
        end,
        merge,
        kind,
    }
}

fn diff(rules: &[Rule], before: &Page, now: &Page) -> Vec<u8> {
    let mut encoded = Vec::new();
    encode_with(rules, before, now, &mut encoded);
    encoded
}

fn apply(rules: &[Rule], encoded: &[u8], page: &mut Page) {
    apply_with(rules, &Diff::check(encoded).unwrap(), page);
}

fn set<const N: usize>(page: &mut Page, at: usize, bytes: [u8; N]) {
    page[at..at + N].copy_from_slice(&bytes);
}

#[test]
fn without_rules_a_diff_is_what_it_was() {
    let (before, mut now) = ([7; PAGE], [7; PAGE]);
    now[5] = 1;
    now[4095] = 2;
    let mut plain = Vec::new();
    pagemesh_diff::encode(&before, &now, &mut plain);
    assert_eq!(diff(&[], &before, &now), plain);
    let mut page = before;
    apply(&[], &plain, &mut page);
    assert_eq!(page, now);
}

#[test]
fn what_several_added_is_added_up_and_neighbours_are_bytes() {
    let rules = [
        rule(8, 16, Merge::Sum, Kind::I64),
        rule(16, 24, Merge::Sum, Kind::F64),
        rule(24, 28, Merge::Min, Kind::I32),
        rule(28, 32, Merge::Max, Kind::U32),
        rule(32, 34, Merge::Or, Kind::U16),
        rule(40, 48, Merge::Replace, Kind::U64),
    ];
    let mut start = [0; PAGE];
    set(&mut start, 8, 100_i64.to_le_bytes());
    set(&mut start, 24, 50_i32.to_le_bytes());
    let writer = |me: u8| {
        let mut page = start;
        set(&mut page, 8, (100 - 300 * i64::from(me)).to_le_bytes());
        set(&mut page, 16, (0.5 * f64::from(me)).to_le_bytes());
        set(&mut page, 24, (10 - i32::from(me)).to_le_bytes());
        set(&mut page, 28, (1000 + u32::from(me)).to_le_bytes());
        set(&mut page, 32, (1_u16 << (9 * me - 9)).to_le_bytes());
        set(&mut page, 40, (0x0101_u32 << me).to_be_bytes());
        page[usize::from(me)] = me;
        page
    };
    let diffs = [1, 2].map(|me| diff(&rules, &start, &writer(me)));
    for order in [[0, 1], [1, 0]] {
        let mut page = start;
        for which in order {
            apply(&rules, &diffs[which], &mut page);
        }
        assert_eq!(page[8..16], (100_i64 - 900).to_le_bytes());
        assert_eq!(page[16..24], 1.5_f64.to_le_bytes());
        assert_eq!(page[24..28], 8_i32.to_le_bytes());
        assert_eq!(page[28..32], 1002_u32.to_le_bytes());
        assert_eq!(page[32..34], 0x201_u16.to_le_bytes());
        assert_eq!(page[40..48], writer(order[1] as u8 + 1)[40..48], "whole");
        assert_eq!(page[..4], [0, 1, 2, 0]);
    }
}

#[test]
fn part_of_an_element_changes_nothing() {
    let rules = [rule(0, 8, Merge::Sum, Kind::U64)];
    let (before, mut now) = ([0; PAGE], [0; PAGE]);
    now[3] = 1;
    now[9] = 1;
    // The maker of this diff knew of no rule.
    let hostile = diff(&[], &before, &now);
    let mut page = [5; PAGE];
    apply(&rules, &hostile, &mut page);
    assert_eq!(page[..10], [5, 5, 5, 5, 5, 5, 5, 5, 5, 1]);
    let beyond = [rule(4090, u16::MAX, Merge::Max, Kind::U64)];
    apply(&beyond, &diff(&beyond, &before, &now), &mut page);
}

fn kind() -> impl Strategy<Value = (Merge, Kind)> {
    let merge = prop_oneof![
        Just(Merge::Sum),
        Just(Merge::Min),
        Just(Merge::Max),
        Just(Merge::Or)
    ];
    let kind = prop_oneof![
        Just(Kind::U8),
        Just(Kind::U16),
        Just(Kind::U32),
        Just(Kind::I32),
        Just(Kind::U64)
    ];
    (merge, kind)
}

/// The dumb reference: one number.
fn accumulate((merge, kind): (Merge, Kind), old: u64, with: u64) -> u64 {
    let bits = 8 * kind.size() as u32;
    let mask = u64::MAX >> (64 - bits);
    let signed = |value: u64| (value << (64 - bits)) as i64 >> (64 - bits);
    let made = match merge {
        Merge::Sum => old.wrapping_add(with),
        Merge::Or => old | with,
        Merge::Min if kind == Kind::I32 => signed(old).min(signed(with)) as u64,
        Merge::Max if kind == Kind::I32 => signed(old).max(signed(with)) as u64,
        Merge::Min => (old & mask).min(with & mask),
        Merge::Max => (old & mask).max(with & mask),
        Merge::Replace => with,
    };
    made & mask
}

proptest! {
    /// Writers that accumulate without hearing of each other, merged in any order.
    #[test]
    fn merged_writers_are_one_that_did_it_all(
        what in kind(),
        start in any::<u64>(),
        turns in proptest::collection::vec((0..3_usize, any::<u64>()), 0..30),
        at in 0..500_usize,
    ) {
        let size = what.1.size();
        let at = at * size;
        let rules = [rule(at as u16, (at + size) as u16, what.0, what.1)];
        let mut begin = [0xAA; PAGE];
        begin[at..at + size].copy_from_slice(&start.to_le_bytes()[..size]);
        let read = |page: &Page| {
            let mut bytes = [0; 8];
            bytes[..size].copy_from_slice(&page[at..at + size]);
            u64::from_le_bytes(bytes)
        };
        let mut pages = [begin; 3];
        let mut whole = read(&begin);
        for (writer, with) in turns {
            let page = &mut pages[writer];
            let made = accumulate(what, read(page), with);
            page[at..at + size].copy_from_slice(&made.to_le_bytes()[..size]);
            whole = accumulate(what, whole, with);
        }
        let diffs = pages.map(|page| diff(&rules, &begin, &page));
        for order in [[0, 1, 2], [2, 0, 1]] {
            let mut page = begin;
            for which in order {
                apply(&rules, &diffs[which], &mut page);
            }
            prop_assert_eq!(read(&page), whole);
            page[at..at + size].fill(0xAA);
            prop_assert!(page == [0xAA; PAGE] , "elsewhere nothing");
        }
    }
}
