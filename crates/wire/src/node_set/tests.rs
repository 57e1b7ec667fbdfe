use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn set(nodes: &[u16]) -> NodeSet {
    nodes.iter().copied().map(NodeId).collect()
}

fn bytes(set: &NodeSet) -> Vec<u8> {
    postcard::to_extend(set, Vec::new()).unwrap()
}

#[test]
fn behaves_as_a_set() {
    let mut some = set(&[1, 64, 127, 128, 1000]);
    assert_eq!(some.len(), 5);
    assert!(some.contains(NodeId(64)) && !some.contains(NodeId(65)));
    assert!(some.contains(NodeId(1000)) && !some.contains(NodeId(9999)));
    assert!(some.remove(NodeId(64)) && !some.remove(NodeId(64)));
    assert!(!some.remove(NodeId(9999)) && !some.remove(NodeId::NONE));
    let all: Vec<NodeId> = (1..NodeId::LIMIT).map(NodeId).collect();
    let full: NodeSet = all.iter().copied().collect();
    assert_eq!(full.iter().collect::<Vec<_>>(), all);
    assert_eq!(full.len(), all.len());
    assert!(full.without(&full).is_empty());
    assert_eq!(set(&[0]), NodeSet::EMPTY, "number 0 is nobody's");
}

#[test]
fn near_nodes_are_written_as_before_there_were_others() {
    let former = |set: &NodeSet| {
        let bytes = set.near_bytes();
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        postcard::to_extend(&[word(0), word(8)], Vec::new()).unwrap()
    };
    for nodes in [&[][..], &[1], &[63, 64, 127], &[2, 3, 100]] {
        let near = set(nodes);
        assert_eq!(bytes(&near), former(&near));
        assert_eq!(NodeSet::from_near_bytes(&near.near_bytes()), Some(near));
    }
    assert_eq!(NodeSet::from_near_bytes(&[1; 16]), None, "0 is nobody's");
}

#[test]
fn what_is_no_set_is_not_decoded() {
    let decodes = |words: &(u64, u64, Vec<u64>)| {
        let bytes = postcard::to_extend(words, Vec::new()).unwrap();
        postcard::from_bytes::<NodeSet>(&bytes).is_ok()
    };
    assert!(decodes(&(1, 0, vec![0, 4])));
    assert!(!decodes(&(1, 0, vec![])), "there are two forms of one set");
    assert!(
        !decodes(&(1, 0, vec![4, 0])),
        "there are two forms of one set"
    );
    assert!(!decodes(&(1, 0, vec![1; 15])), "no node has such a number");
    assert!(postcard::from_bytes::<NodeSet>(&[1, 0]).is_err());
}

fn numbers() -> impl Strategy<Value = BTreeSet<u16>> {
    let number = prop_oneof![1..128_u16, 1..NodeId::LIMIT];
    prop::collection::btree_set(number, 0..12)
}

proptest! {
    #[test]
    fn is_what_a_sorted_set_is(one in numbers(), other in numbers(), node in 1..NodeId::LIMIT) {
        let of = |numbers: &BTreeSet<u16>| numbers.iter().copied().map(NodeId).collect::<NodeSet>();
        let (mut a, b) = (of(&one), of(&other));
        prop_assert_eq!(a.union(&b), of(&(&one | &other)));
        prop_assert_eq!(a.intersection(&b), of(&(&one & &other)));
        prop_assert_eq!(a.without(&b), of(&(&one - &other)));
        prop_assert_eq!(a.len(), one.len());
        prop_assert_eq!(a == b, one == other);
        prop_assert_eq!(a.is_empty(), one.is_empty());
        let written = bytes(&a);
        prop_assert_eq!(&postcard::from_bytes::<NodeSet>(&written).unwrap(), &a);
        let document = rmp_serde::to_vec_named(&a).unwrap();
        prop_assert_eq!(&rmp_serde::from_slice::<NodeSet>(&document).unwrap(), &a);
        let mut more = one.clone();
        more.insert(node);
        a.insert(NodeId(node));
        prop_assert_eq!(&a, &of(&more));
        more.remove(&node);
        prop_assert!(a.remove(NodeId(node)));
        prop_assert_eq!(&a, &of(&more));
    }
}
