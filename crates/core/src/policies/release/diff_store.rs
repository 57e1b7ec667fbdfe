//! The diffs in the driver's diff store, by name.

use pagemesh_wire::peer::DiffName;
use pagemesh_wire::{NodeId, PageIndex, VectorTime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Diffs in the driver's diff store, and those of them whose notices have not arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct DiffStore {
    held: BTreeSet<DiffName>,
    early: BTreeSet<DiffName>,
}

impl DiffStore {
    /// The driver keeps a diff from now on. Returns false if it did before.
    pub(super) fn keep(&mut self, name: DiffName) -> bool {
        self.held.insert(name)
    }

    /// The diff was pushed, and its write notice has not arrived.
    pub(super) fn keep_early(&mut self, name: DiffName) {
        self.early.insert(name);
    }

    pub(super) fn has(&self, name: &DiffName) -> bool {
        self.held.contains(name)
    }

    /// Whether all these diffs are here.
    pub(super) fn has_all(&self, names: &[DiffName]) -> bool {
        names.iter().all(|name| self.has(name))
    }

    pub(super) fn is_early(&self, name: &DiffName) -> bool {
        self.early.contains(name)
    }

    /// The write notice of a diff has arrived. Returns whether the diff came before it.
    pub(super) fn take_early(&mut self, name: &DiffName) -> bool {
        self.early.remove(name)
    }

    /// The nodes that made diffs which are here.
    pub(super) fn nodes(&self) -> BTreeSet<NodeId> {
        self.held.iter().map(|name| name.node).collect()
    }

    /// Number of diffs.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Number of diffs whose notices have not arrived.
    pub(super) fn early(&self) -> usize {
        self.early.len()
    }

    /// The diffs of a page.
    pub(super) fn of(&self, page: PageIndex) -> impl Iterator<Item = DiffName> {
        let name = |node, interval| DiffName {
            page,
            node: NodeId(node),
            interval,
        };
        let all = name(0, 0)..=name(u16::MAX, u64::MAX);
        self.held.range(all).copied()
    }

    /// Everything in this time is collected.
    pub(super) fn collect(&mut self, upto: &VectorTime) {
        let kept = |name: &DiffName| !upto.has(name.node, name.interval);
        self.held.retain(kept);
        self.early.retain(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(page: u32, node: u16, interval: u64) -> DiffName {
        DiffName {
            page: PageIndex(page),
            node: NodeId(node),
            interval,
        }
    }

    #[test]
    fn diffs_are_kept_until_they_are_collected() {
        let mut store = DiffStore::default();
        for name in [name(1, 1, 1), name(1, 2, 1), name(2, 1, 2)] {
            assert!(store.keep(name) && !store.keep(name));
        }
        let of: Vec<_> = store.of(PageIndex(1)).collect();
        assert_eq!(of, [name(1, 1, 1), name(1, 2, 1)]);
        store.keep_early(name(2, 1, 2));
        assert!(store.is_early(&name(2, 1, 2)) && !store.is_early(&name(1, 1, 1)));
        store.collect(&VectorTime::from_iter([(NodeId(1), 1)]));
        assert!(!store.has_all(&of) && store.has(&name(1, 2, 1)));
        assert_eq!((store.len(), store.early()), (2, 1));
        assert!(store.take_early(&name(2, 1, 2)) && !store.take_early(&name(2, 1, 2)));
    }
}
