//! Does what a `BTreeMap` does, with leaves of few entries.

use crate::{Entry, LongMap};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;

/// So large that a leaf has the least number of them.
#[derive(Clone, Debug, PartialEq)]
struct Large([u16; 600]);

impl Large {
    fn of(value: u16) -> Self {
        Self([value; 600])
    }
}

/// Something to do with a map.
#[derive(Clone, Debug)]
enum Step {
    Insert(u8),
    Remove(u8),
    RemoveRange(u8, u8),
    Add(u8),
    PopFirst,
    PopLast,
    KeepSome(u8),
    ChangeRange(u8, u8),
    SplitOff(u8),
    Extend(u8, u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = any::<u8>;
    let step = prop_oneof![
        6 => key().prop_map(Step::Insert),
        4 => (key(), 0..60_u8).prop_map(|(from, count)| Step::Extend(from, count)),
        3 => key().prop_map(Step::Remove),
        2 => (key(), 0..60_u8).prop_map(|(from, count)| Step::RemoveRange(from, count)),
        2 => key().prop_map(Step::Add),
        1 => Just(Step::PopFirst),
        1 => Just(Step::PopLast),
        1 => (1..4_u8).prop_map(Step::KeepSome),
        2 => (key(), key()).prop_map(|(from, to)| Step::ChangeRange(from, to)),
        1 => key().prop_map(Step::SplitOff),
    ];
    prop::collection::vec(step, 0..60)
}

type Pair = (LongMap<u8, Large>, BTreeMap<u8, Large>);

/// Does one step with both, which answer alike.
fn both((map, tree): &mut Pair, number: u16, step: Step) {
    let value = Large::of(number);
    match step {
        Step::Insert(key) => {
            assert_eq!(map.insert(key, value.clone()), tree.insert(key, value));
        }
        Step::Remove(key) => assert_eq!(map.remove(&key), tree.remove(&key)),
        Step::RemoveRange(from, count) => {
            for key in from..from.saturating_add(count) {
                let taken = match map.entry(key) {
                    Entry::Occupied(entry) => Some(entry.remove()),
                    Entry::Vacant(_) => None,
                };
                assert_eq!(taken, tree.remove(&key));
            }
        }
        Step::Add(key) => {
            let add = |large: &mut Large| large.0[0] += 1;
            let mine = map.entry(key).and_modify(add).or_insert(value.clone());
            assert_eq!(mine, tree.entry(key).and_modify(add).or_insert(value));
        }
        Step::PopFirst => {
            let mine = map.first_entry().map(|entry| *entry.key());
            assert_eq!(mine, tree.first_entry().map(|entry| *entry.key()));
            assert_eq!(map.pop_first(), tree.pop_first());
        }
        Step::PopLast => assert_eq!(map.pop_last(), tree.pop_last()),
        Step::KeepSome(of) => {
            map.retain(|key, _| key % of == 0);
            tree.retain(|key, _| key % of == 0);
        }
        Step::ChangeRange(from, to) => {
            let range = (Bound::Excluded(from.min(to)), Bound::Included(from.max(to)));
            if from != to {
                map.range_mut(range).for_each(|(_, large)| large.0[1] += 1);
                tree.range_mut(range).for_each(|(_, large)| large.0[1] += 1);
                assert!(map.range(range).eq(tree.range(range)));
                assert!(map.range_mut(range).rev().eq(tree.range_mut(range).rev()));
            }
            assert!(map.range(from..).eq(tree.range(from..)));
            assert!(map.range(..from).rev().eq(tree.range(..from).rev()));
        }
        Step::SplitOff(key) => {
            let (right, of_tree) = (map.split_off(&key), tree.split_off(&key));
            assert!(right.iter().eq(&of_tree) && right.len() == of_tree.len());
            assert!(right.into_iter().eq(of_tree));
        }
        Step::Extend(from, count) => {
            let entries = from..from.saturating_add(count);
            map.extend(entries.clone().map(|key| (key, value.clone())));
            tree.extend(entries.map(|key| (key, value.clone())));
        }
    }
}

/// Leaves are neither empty nor too long, and not many more than the entries need.
fn check_leaves(map: &LongMap<u8, Large>) {
    let most = LongMap::<u8, Large>::MOST;
    assert_eq!(most, 16);
    assert!(
        map.leaves
            .iter()
            .all(|leaf| (1..=most).contains(&leaf.len()))
    );
    assert!(map.leaves.len() <= 2 + map.len() / 2);
}

proptest! {
    #[test]
    fn every_step_does_what_it_does_to_a_tree(steps in steps()) {
        let mut pair = Pair::default();
        for (number, step) in steps.into_iter().enumerate() {
            both(&mut pair, number as u16, step);
            let (map, tree) = &pair;
            check_leaves(map);
            assert_eq!(map.len(), tree.len());
            assert!(map.iter().eq(tree));
            assert!(map.iter().rev().eq(tree.iter().rev()));
            assert_eq!(map.first_key_value(), tree.first_key_value());
            assert_eq!(map.last_key_value(), tree.last_key_value());
            assert!((0..=u8::MAX).all(|key| map.get(&key) == tree.get(&key)));
            let again: LongMap<_, _> = tree.clone().into_iter().rev().collect();
            assert_eq!(*map, again);
        }
        assert!(pair.0.into_iter().rev().eq(pair.1.into_iter().rev()));
    }
}

#[test]
fn entries_are_written_as_those_of_a_tree_and_read_in_any_order() {
    let tree: BTreeMap<u16, u16> = (0..2000).map(|key| (key, key + 1)).collect();
    let map: LongMap<_, _> = tree.clone().into_iter().collect();
    let written = serde_json::to_string(&map).unwrap();
    assert_eq!(written, serde_json::to_string(&tree).unwrap());
    assert_eq!(
        serde_json::from_str::<LongMap<u16, u16>>(&written).unwrap(),
        map
    );
    let read: LongMap<u8, u8> = serde_json::from_str(r#"{"3": 1, "1": 2, "3": 4}"#).unwrap();
    assert_eq!(read, LongMap::from([(1, 2), (3, 4)]));
}
