//! How large the diffs of each node are. If they are nearly whole pages, whole copies cost less:
//! their sender makes no diff, and their receiver merges none.

use pagemesh_wire::{NodeId, PAGE_SIZE, PageIndex};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A diff of this many bytes is large.
const LARGE: usize = PAGE_SIZE * 3 / 4;

/// So many large diffs in a row show that the next ones are large, too.
const SHOWN: u8 = 8;

/// Of this many pages one is requested as a diff all the same, to see how large it is.
const SAMPLED: u32 = 16;

/// The number of consecutive large diffs of each node, up to [`SHOWN`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct DiffSizes(BTreeMap<NodeId, u8>);

impl DiffSizes {
    /// A diff of a node has arrived.
    pub(super) fn came(&mut self, node: NodeId, length: u16) {
        if usize::from(length) < LARGE {
            self.0.remove(&node);
        } else {
            let large = self.0.entry(node).or_default();
            *large = SHOWN.min(*large + 1);
        }
    }

    /// Whether a node's diff of this page is better replaced by a copy.
    pub(super) fn prefer_copy(&self, node: NodeId, page: PageIndex) -> bool {
        !page.0.is_multiple_of(SAMPLED) && self.0.get(&node) == Some(&SHOWN)
    }

    /// The node is gone.
    pub(super) fn gone(&mut self, node: NodeId) {
        self.0.remove(&node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(2);

    #[test]
    fn copies_are_preferred_from_a_node_whose_last_diffs_were_all_large() {
        let mut sizes = DiffSizes::default();
        for _ in 0..SHOWN {
            assert!(!sizes.prefer_copy(NODE, PageIndex(1)));
            sizes.came(NODE, 4200);
        }
        assert!(sizes.prefer_copy(NODE, PageIndex(1)));
        assert!(!sizes.prefer_copy(NODE, PageIndex(32)), "a sample");
        assert!(!sizes.prefer_copy(NodeId(3), PageIndex(1)));
        sizes.came(NODE, 12);
        assert!(!sizes.prefer_copy(NODE, PageIndex(1)));
    }
}
