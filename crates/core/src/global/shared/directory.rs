//! This node's part of the global cache directory (GCD, G16): which nodes cache which pages.
//!
//! It may be stale, never harmful: a node that is said to cache a page and does not says so to the
//! asker, which reads the file, and to the directory.

use super::pod::Chunk;
use crate::limits::SHARED_CHUNKS;
use pagemesh_sorted::{LongMap, SortedMap};
use pagemesh_wire::{NodeId, NodeSet};
use serde::{Deserialize, Serialize};

/// Pages of one chunk, a bit each.
type Pages = u64;

/// The nodes that cache pages of chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Directory {
    chunks: LongMap<Chunk, SortedMap<NodeId, Pages>>,
}

/// The outcome of a lookup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Which node is to send which pages.
    pub(super) holders: Vec<(NodeId, Pages)>,
    /// Pages that no node is known to cache.
    pub(super) missing: Pages,
}

impl Directory {
    /// A node caches pages. Returns those that others cache as well, by node.
    pub(super) fn hold(
        &mut self,
        chunk: Chunk,
        node: NodeId,
        pages: Pages,
    ) -> Vec<(NodeId, Pages)> {
        if !self.chunks.contains_key(&chunk) && self.chunks.len() >= SHARED_CHUNKS {
            return Vec::new();
        }
        let holders = self.chunks.entry(chunk).or_default();
        *holders.entry(node).or_default() |= pages;
        let others = holders.iter().filter(|(holder, _)| **holder != node);
        let both = others.map(|(holder, its)| (*holder, its & pages));
        both.filter(|(_, pages)| *pages != 0).collect()
    }

    /// A node does not cache pages any more. Returns those of which one copy is left, by its node.
    pub(super) fn gone(
        &mut self,
        chunk: Chunk,
        node: NodeId,
        pages: Pages,
    ) -> Vec<(NodeId, Pages)> {
        let Some(holders) = self.chunks.get_mut(&chunk) else {
            return Vec::new();
        };
        let had = holders.get(&node).copied().unwrap_or(0) & pages;
        if let Some(its) = holders.get_mut(&node) {
            *its &= !pages;
        }
        holders.retain(|_, pages| *pages != 0);
        let (mut once, mut more) = (0, 0);
        for its in holders.values() {
            more |= once & its;
            once |= its;
        }
        let alone = once & !more & had;
        let last = holders.iter().map(|(node, its)| (*node, its & alone));
        let last = last.filter(|(_, pages)| *pages != 0).collect();
        if holders.is_empty() {
            self.chunks.remove(&chunk);
        }
        last
    }

    /// Which nodes are to send pages to `asker`: as few as possible; others than before if it asks
    /// `again`.
    pub(super) fn find(&self, chunk: Chunk, pages: Pages, asker: NodeId, again: bool) -> Found {
        let mut found = Found {
            holders: Vec::new(),
            missing: pages,
        };
        let Some(holders) = self.chunks.get(&chunk) else {
            return found;
        };
        let mut by_share: Vec<_> = holders
            .iter()
            .filter(|(node, its)| **node != asker && **its & pages != 0)
            .map(|(node, its)| ((its & pages).count_ones(), *node, *its))
            .collect();
        // The asker's number spreads load: not every node asks the same one of several holders.
        let turn = |node: NodeId| node.0.wrapping_sub(asker.0);
        by_share.sort_by_key(|(share, node, _)| (u32::MAX - share, turn(*node)));
        if again {
            by_share.reverse();
        }
        for (_, node, its) in by_share {
            let part = its & found.missing;
            if part != 0 {
                found.holders.push((node, part));
                found.missing &= !part;
            }
        }
        found
    }

    /// Keeps entries of chunks that `mine` accepts and of members only.
    pub(super) fn retain(&mut self, members: &NodeSet, mine: impl Fn(Chunk) -> bool) {
        self.chunks.retain(|chunk, holders| {
            holders.retain(|node, _| members.contains(*node));
            mine(*chunk) && !holders.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::peer::FileKey;

    const CHUNK: Chunk = (
        FileKey {
            user: 0,
            hash: [1, 2],
        },
        3,
    );
    const fn n(node: u16) -> NodeId {
        NodeId(node)
    }

    #[test]
    fn pages_are_found_where_they_are_held() {
        let mut directory = Directory::default();
        assert!(directory.hold(CHUNK, n(1), 0b0111).is_empty());
        assert_eq!(directory.hold(CHUNK, n(2), 0b1100), [(n(1), 0b0100)]);
        let found = directory.find(CHUNK, 0b11111, n(3), false);
        assert_eq!(found.holders, [(n(1), 0b0111), (n(2), 0b1000)]);
        assert_eq!(found.missing, 0b10000);
        let again = directory.find(CHUNK, 0b0100, n(3), true);
        let first = directory.find(CHUNK, 0b0100, n(3), false);
        assert_ne!(again.holders, first.holders, "another node is asked");
        assert_eq!(directory.find(CHUNK, 0b0011, n(1), false).missing, 0b0011);
    }

    #[test]
    fn the_last_holder_is_told() {
        let mut directory = Directory::default();
        directory.hold(CHUNK, n(1), 0b11);
        directory.hold(CHUNK, n(2), 0b01);
        directory.hold(CHUNK, n(3), 0b10);
        assert_eq!(directory.gone(CHUNK, n(2), 0b11), [(n(1), 0b01)]);
        assert_eq!(directory.gone(CHUNK, n(1), 0b11), [(n(3), 0b10)]);
        assert!(directory.gone(CHUNK, n(9), 0b11).is_empty());
        assert!(directory.gone(CHUNK, n(3), 0b11).is_empty());
        assert_eq!(directory, Directory::default());
    }

    #[test]
    fn members_and_chunks_that_are_gone_are_forgotten() {
        let mut directory = Directory::default();
        directory.hold(CHUNK, n(1), 1);
        directory.hold(CHUNK, n(2), 2);
        directory.retain(&NodeSet::only(n(2)), |_| true);
        assert_eq!(directory.find(CHUNK, 3, n(3), false).missing, 1);
        directory.retain(&NodeSet::only(n(2)), |_| false);
        assert_eq!(directory, Directory::default());
    }
}
