//! How large the diffs of each node are. If they are nearly whole pages, whole copies cost less:
//! their sender makes no diff, and their receiver merges none.

use crate::config::Pace;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::{NodeId, PageIndex};
use serde::{Deserialize, Serialize};

/// Of this many pages one is requested as a diff all the same, to see how large it is.
const SAMPLED: u32 = 16;

/// The number of consecutive large diffs of each node, up to [`Pace::shown`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct DiffSizes(SortedMap<NodeId, u8>);

impl DiffSizes {
    /// A diff of a node has arrived.
    pub(super) fn came(&mut self, pace: &Pace, node: NodeId, length: u16) {
        if length < pace.large_diff {
            self.0.remove(&node);
        } else {
            let large = self.0.entry(node).or_default();
            *large = pace.shown.min(large.saturating_add(1));
        }
    }

    /// Whether a node's diff of this page is better replaced by a copy.
    pub(super) fn prefer_copy(&self, pace: &Pace, (node, page): (NodeId, PageIndex)) -> bool {
        let large = self.0.get(&node).copied().unwrap_or_default();
        !page.0.is_multiple_of(SAMPLED) && large >= pace.shown
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
        let (mut sizes, pace) = (DiffSizes::default(), Pace::default());
        for _ in 0..pace.shown {
            assert!(!sizes.prefer_copy(&pace, (NODE, PageIndex(1))));
            sizes.came(&pace, NODE, 4200);
        }
        assert!(sizes.prefer_copy(&pace, (NODE, PageIndex(1))));
        assert!(!sizes.prefer_copy(&pace, (NODE, PageIndex(32))), "a sample");
        assert!(!sizes.prefer_copy(&pace, (NodeId(3), PageIndex(1))));
        sizes.came(&pace, NODE, 12);
        assert!(!sizes.prefer_copy(&pace, (NODE, PageIndex(1))));
    }
}
