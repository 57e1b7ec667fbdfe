//! A set of nodes, small enough to travel and to sit in every page.

use crate::NodeId;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A set of nodes: a copyset, the acknowledgements still missing.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeSet([u64; 2]);

impl NodeSet {
    /// The empty set.
    pub const EMPTY: Self = Self([0; 2]);

    fn place(node: NodeId) -> (usize, u64) {
        assert!(node.0 < NodeId::LIMIT, "{node} is no node");
        (usize::from(node.0) / 64, 1 << (node.0 % 64))
    }

    /// The set of one node.
    #[must_use]
    pub fn only(node: NodeId) -> Self {
        let mut set = Self::EMPTY;
        set.insert(node);
        set
    }

    /// Adds a node.
    pub fn insert(&mut self, node: NodeId) {
        let (word, bit) = Self::place(node);
        self.0[word] |= bit;
    }

    /// Removes a node; true if it was there.
    pub fn remove(&mut self, node: NodeId) -> bool {
        let (word, bit) = Self::place(node);
        let had = self.0[word] & bit != 0;
        self.0[word] &= !bit;
        had
    }

    /// Whether the node is in the set.
    #[must_use]
    pub fn contains(&self, node: NodeId) -> bool {
        node.0 < NodeId::LIMIT && {
            let (word, bit) = Self::place(node);
            self.0[word] & bit != 0
        }
    }

    /// Whether the set has no node.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 2]
    }

    /// How many nodes the set has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The nodes, in ascending order.
    pub fn iter(self) -> impl Iterator<Item = NodeId> {
        let words = (0u16..).step_by(64).zip(self.0);
        words.flat_map(|(first, word)| Bits(word).map(move |bit| NodeId(first + bit)))
    }

    /// The nodes that are in both sets.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        self.without(self.without(other))
    }

    /// The nodes of this set and of another.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self([self.0[0] | other.0[0], self.0[1] | other.0[1]])
    }

    /// The set as bytes: a bit for each node number, little endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.0[0].to_le_bytes());
        bytes[8..].copy_from_slice(&self.0[1].to_le_bytes());
        bytes
    }

    /// The set of these bytes; none if one of its nodes cannot be.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 16]) -> Option<Self> {
        let all = u128::from_le_bytes(*bytes);
        let set = Self([all as u64, (all >> 64) as u64]);
        (!set.contains(NodeId::NONE)).then_some(set)
    }

    /// This set without the nodes of another.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self([self.0[0] & !other.0[0], self.0[1] & !other.0[1]])
    }
}

/// The numbers of the bits that are set, in ascending order.
struct Bits(u64);

impl Iterator for Bits {
    type Item = u16;

    fn next(&mut self) -> Option<u16> {
        let bit = self.0.trailing_zeros();
        self.0 = self.0.checked_sub(1).map_or(0, |below| self.0 & below);
        (bit < u64::BITS).then_some(bit as u16)
    }
}

impl FromIterator<NodeId> for NodeSet {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> Self {
        let mut set = Self::EMPTY;
        for node in nodes {
            set.insert(node);
        }
        set
    }
}

impl fmt::Debug for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaves_as_a_set() {
        let mut set: NodeSet = [NodeId(1), NodeId(64), NodeId(127)].into_iter().collect();
        assert_eq!(set.len(), 3);
        assert!(set.contains(NodeId(64)) && !set.contains(NodeId(65)));
        assert!(!set.contains(NodeId(9999)));
        assert!(set.remove(NodeId(64)) && !set.remove(NodeId(64)));
        assert_eq!(set.iter().collect::<Vec<_>>(), [NodeId(1), NodeId(127)]);
        let all: Vec<NodeId> = (0..NodeId::LIMIT).map(NodeId).collect();
        let full: NodeSet = all.iter().copied().collect();
        assert_eq!(full.iter().collect::<Vec<_>>(), all);
        assert!(set.without(set).is_empty());
    }
}
