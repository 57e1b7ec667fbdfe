//! Vector times: which intervals of which nodes a node knows (T4).

use crate::NodeId;
use core::cmp::Ordering;
use core::fmt;
use serde::{Deserialize, Serialize};

/// For each node the last of its intervals that is known; intervals are counted
/// from one, and a node that is not named has none.
///
/// A node that sends a vector time holds a record of every interval in it, or has collected it
/// (*INV-time-has-records*).
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<(NodeId, u64)>")]
pub struct VectorTime(Vec<(NodeId, u64)>);

impl TryFrom<Vec<(NodeId, u64)>> for VectorTime {
    type Error = &'static str;

    fn try_from(entries: Vec<(NodeId, u64)>) -> Result<Self, Self::Error> {
        let rising = entries.is_sorted_by(|one, other| one.0 < other.0);
        let real = entries
            .iter()
            .all(|(node, index)| node.is_valid() && *index > 0);
        if rising && real {
            Ok(Self(entries))
        } else {
            Err("entries of a vector time are in order, of nodes, and not zero")
        }
    }
}

impl VectorTime {
    /// The beginning: no interval of anybody.
    pub const ZERO: Self = Self(Vec::new());

    /// The last interval of a node; zero if there is none.
    #[must_use]
    pub fn get(&self, node: NodeId) -> u64 {
        let place = self.0.binary_search_by_key(&node, |(node, _)| *node);
        place.map_or(0, |place| self.0[place].1)
    }

    /// Raises the entry of a node to `index`; never lowers it.
    pub fn raise(&mut self, node: NodeId, index: u64) {
        if index == 0 {
            return;
        }
        match self.0.binary_search_by_key(&node, |(node, _)| *node) {
            Ok(place) => self.0[place].1 = self.0[place].1.max(index),
            Err(place) => self.0.insert(place, (node, index)),
        }
    }

    /// The later of the two in every entry.
    pub fn join(&mut self, other: &Self) {
        for (node, index) in &other.0 {
            self.raise(*node, *index);
        }
    }

    /// Whether every interval of `other` is in this one, too.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.0.iter().all(|(node, index)| self.has(*node, *index))
    }

    /// Whether it has this interval.
    #[must_use]
    pub fn has(&self, node: NodeId, index: u64) -> bool {
        self.get(node) >= index
    }

    /// How many intervals it has: more than any time that it covers and that is another.
    #[must_use]
    pub fn intervals(&self) -> u64 {
        self.0
            .iter()
            .map(|(_, index)| index)
            .fold(0, |sum, index| sum.saturating_add(*index))
    }

    /// The entries that are not zero, in order of nodes.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, u64)> + '_ {
        self.0.iter().copied()
    }

    /// Without the entry of a node.
    #[must_use]
    pub fn without(mut self, node: NodeId) -> Self {
        self.0.retain(|(other, _)| *other != node);
        self
    }

    /// How many nodes it names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it is the beginning.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Which of the two happened before the other, if either did.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self.covers(other), other.covers(self)) {
            (true, true) => Some(Ordering::Equal),
            (true, false) => Some(Ordering::Greater),
            (false, true) => Some(Ordering::Less),
            (false, false) => None,
        }
    }
}

impl FromIterator<(NodeId, u64)> for VectorTime {
    fn from_iter<I: IntoIterator<Item = (NodeId, u64)>>(entries: I) -> Self {
        let mut time = Self::ZERO;
        for (node, index) in entries {
            time.raise(node, index);
        }
        time
    }
}

impl fmt::Debug for VectorTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<")?;
        for (place, (node, index)) in self.0.iter().enumerate() {
            let gap = if place == 0 { "" } else { " " };
            write!(f, "{gap}{node}:{index}")?;
        }
        f.write_str(">")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);

    fn time(entries: &[(NodeId, u64)]) -> VectorTime {
        entries.iter().copied().collect()
    }

    #[test]
    fn times_are_ordered_as_events_are() {
        let (early, late) = (time(&[(A, 1)]), time(&[(A, 1), (B, 2)]));
        assert_eq!(early.compare(&late), Some(Ordering::Less));
        assert_eq!(late.compare(&early), Some(Ordering::Greater));
        assert_eq!(late.compare(&late), Some(Ordering::Equal));
        assert_eq!(time(&[(A, 2)]).compare(&late), None);
        assert!(early.intervals() < late.intervals());
        assert!(late.covers(&VectorTime::ZERO) && !VectorTime::ZERO.covers(&early));
    }

    #[test]
    fn joining_takes_the_later_entry() {
        let mut joined = time(&[(A, 3), (B, 1)]);
        joined.join(&time(&[(A, 2), (B, 5)]));
        joined.raise(B, 4);
        joined.raise(NodeId(3), 0);
        assert_eq!(joined, time(&[(A, 3), (B, 5)]));
        assert_eq!(joined.without(A), time(&[(B, 5)]));
    }

    #[test]
    fn what_is_no_time_is_not_decoded() {
        let bytes = |entries: &[(u16, u64)]| postcard::to_extend(entries, Vec::new()).unwrap();
        let decode = |bytes: &[u8]| postcard::from_bytes::<VectorTime>(bytes).is_ok();
        assert!(decode(&bytes(&[(1, 1), (2, 7)])));
        for nonsense in [
            &[(2, 1), (1, 1)][..],
            &[(1, 1), (1, 2)],
            &[(1, 0)],
            &[(0, 1)],
        ] {
            assert!(!decode(&bytes(nonsense)), "{nonsense:?}");
        }
    }
}
