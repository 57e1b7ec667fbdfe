//! What this node has heard of the knowledge of other nodes.

use pagemesh_sorted::SortedMap;
use pagemesh_wire::{NodeId, VectorTime};
use serde::{Deserialize, Serialize};

/// What other nodes have said that they know, and have collected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Heard {
    /// What each node is known to know or to be about to learn.
    times: SortedMap<NodeId, VectorTime>,
    /// What the home is known to know.
    home: VectorTime,
    /// The floors of other nodes.
    floor: VectorTime,
}

impl Heard {
    /// A node has said what it knows.
    pub(super) fn knows(&mut self, node: NodeId, time: &VectorTime) {
        self.times.entry(node).or_default().join(time);
    }

    /// What a node is known to know.
    pub(super) fn of(&self, node: NodeId) -> VectorTime {
        self.times.get(&node).cloned().unwrap_or_default()
    }

    /// The nodes that have said what they know.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.times.keys().copied()
    }

    /// The home has told all of this, and this node has taken it in.
    pub(super) fn home_told(&mut self, time: &VectorTime) {
        self.home.join(time);
    }

    /// What the home need not be told at a barrier.
    pub(super) fn home(&self) -> &VectorTime {
        &self.home
    }

    /// Some node has collected this much.
    pub(super) fn collected(&mut self, floor: &VectorTime) {
        self.floor.join(floor);
    }

    /// All that any node is known to have collected.
    pub(super) fn floor(&self) -> &VectorTime {
        &self.floor
    }

    /// A node is gone: what it knew does not count any more.
    pub(super) fn gone(&mut self, node: NodeId) {
        self.times.remove(&node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);

    #[test]
    fn what_nodes_say_is_joined_until_they_are_gone() {
        let mut heard = Heard::default();
        let time = |entries: &[(NodeId, u64)]| entries.iter().copied().collect::<VectorTime>();
        heard.knows(A, &time(&[(A, 3)]));
        heard.knows(A, &time(&[(A, 2), (B, 1)]));
        assert_eq!(heard.of(A), time(&[(A, 3), (B, 1)]));
        assert_eq!(heard.of(B), VectorTime::ZERO);
        heard.gone(A);
        assert_eq!(heard.of(A), VectorTime::ZERO);
        heard.collected(&time(&[(A, 1)]));
        heard.collected(&time(&[(B, 1)]));
        assert_eq!(*heard.floor(), time(&[(A, 1), (B, 1)]));
        heard.home_told(&time(&[(B, 2)]));
        assert_eq!(*heard.home(), time(&[(B, 2)]));
    }
}
