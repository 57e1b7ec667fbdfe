//! Does what a `BTreeMap` does.

use crate::{Entry, SortedMap};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Something to do with a map.
#[derive(Clone, Debug)]
enum Step {
    Insert(u8, u16),
    Remove(u8),
    Add(u8, u16),
    Take(u8),
    PopFirst,
    PopLast,
    KeepOdd,
    DoubleRange(u8, u8),
    SplitOff(u8),
    Extend(Vec<(u8, u16)>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (key, value) = (0..12_u8, any::<u16>());
    let step = prop_oneof![
        4 => (key.clone(), value).prop_map(|(key, value)| Step::Insert(key, value)),
        2 => key.clone().prop_map(Step::Remove),
        2 => (key.clone(), value).prop_map(|(key, value)| Step::Add(key, value)),
        1 => key.clone().prop_map(Step::Take),
        1 => Just(Step::PopFirst),
        1 => Just(Step::PopLast),
        1 => Just(Step::KeepOdd),
        1 => (key.clone(), key.clone()).prop_map(|(from, to)| Step::DoubleRange(from, to)),
        1 => key.clone().prop_map(Step::SplitOff),
        1 => prop::collection::vec((key, value), 0..6).prop_map(Step::Extend),
    ];
    prop::collection::vec(step, 0..40)
}

/// Does one step with both, which answer alike.
fn both(map: &mut SortedMap<u8, u16>, tree: &mut BTreeMap<u8, u16>, step: Step) {
    match step {
        Step::Insert(key, value) => assert_eq!(map.insert(key, value), tree.insert(key, value)),
        Step::Remove(key) => assert_eq!(map.remove(&key), tree.remove(&key)),
        Step::Add(key, value) => {
            let add = |sum: &mut u16| *sum = sum.wrapping_add(value);
            map.entry(key).and_modify(add).or_insert(value);
            tree.entry(key).and_modify(add).or_insert(value);
        }
        Step::Take(key) => {
            let taken = match map.entry(key) {
                Entry::Occupied(entry) => Some(entry.remove()),
                Entry::Vacant(_) => None,
            };
            assert_eq!(taken, tree.remove(&key));
        }
        Step::PopFirst => assert_eq!(map.pop_first(), tree.pop_first()),
        Step::PopLast => assert_eq!(map.pop_last(), tree.pop_last()),
        Step::KeepOdd => {
            map.retain(|_, value| *value % 2 == 1);
            tree.retain(|_, value| *value % 2 == 1);
        }
        Step::DoubleRange(from, to) => {
            let range = (
                Bound::Excluded(from.min(to)),
                Bound::Included(from.max(to) + 1),
            );
            map.range_mut(range)
                .for_each(|(_, value)| *value = value.wrapping_mul(2));
            tree.range_mut(range)
                .for_each(|(_, value)| *value = value.wrapping_mul(2));
            assert!(map.range(range).eq(tree.range(range)));
            assert!(map.range(from..).eq(tree.range(from..)));
            assert!(map.range(..from).rev().eq(tree.range(..from).rev()));
        }
        Step::SplitOff(key) => {
            let (right, of_tree) = (map.split_off(&key), tree.split_off(&key));
            assert!(right.into_iter().eq(of_tree));
        }
        Step::Extend(entries) => {
            map.extend(entries.clone());
            tree.extend(entries);
        }
    }
}

proptest! {
    #[test]
    fn every_step_does_what_it_does_to_a_tree(steps in steps()) {
        let (mut map, mut tree) = (SortedMap::new(), BTreeMap::new());
        for step in steps {
            both(&mut map, &mut tree, step);
            assert!(map.iter().eq(&tree));
            assert_eq!(map.first_key_value(), tree.first_key_value());
            assert_eq!(map.last_key_value(), tree.last_key_value());
            assert!((0..12).all(|key| map.get(&key) == tree.get(&key)));
            assert_eq!(format!("{map:?}"), format!("{tree:?}"));
        }
        let written = serde_json::to_string(&map).unwrap();
        assert_eq!(written, serde_json::to_string(&tree).unwrap());
        assert_eq!(serde_json::from_str::<SortedMap<u8, u16>>(&written).unwrap(), map);
        assert!(map.into_iter().eq(tree));
    }
}

#[test]
fn entries_are_read_in_any_order_and_the_last_of_a_key_counts() {
    let read: SortedMap<u8, u8> = serde_json::from_str(r#"{"3": 1, "1": 2, "3": 4}"#).unwrap();
    assert_eq!(read, SortedMap::from([(1, 2), (3, 4)]));
}

#[test]
fn keys_are_found_by_what_they_borrow() {
    let mut map = SortedMap::from([("b".to_owned(), 2), ("a".to_owned(), 1)]);
    assert_eq!(map["a"], 1);
    *map.get_mut("b").unwrap() += 3;
    assert_eq!(map.remove("b"), Some(5));
    assert!(!map.contains_key("b"));
    assert_eq!(map.keys().collect::<Vec<_>>(), ["a"]);
}
