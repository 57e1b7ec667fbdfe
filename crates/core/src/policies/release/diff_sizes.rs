//! How large the diffs of each node are. If they are nearly whole pages, whole copies cost less:
//! their sender makes no diff, and their receiver merges none.

use crate::config::Pace;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::{NodeId, PageIndex};
use serde::{Deserialize, Serialize};

/// Of this many pages one is requested as a diff all the same, to see how large it is; of twice as
/// many each time that [`Pace::shown`] more diffs were large.
const SAMPLED: u32 = 16;

/// How often it is doubled. Of pages of which words change again, so many come whole at most.
const DOUBLED: u8 = 4;

/// The number of consecutive large diffs of each node, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct DiffSizes(SortedMap<NodeId, u8>);

impl DiffSizes {
    /// A diff of a node has arrived.
    pub(super) fn came(&mut self, pace: &Pace, node: NodeId, length: u16) {
        if length < pace.large_diff {
            self.0.remove(&node);
        } else {
            let large = self.0.entry(node).or_default();
            let enough = pace.shown.saturating_mul(DOUBLED + 1);
            *large = enough.min(large.saturating_add(1));
        }
    }

    /// Whether a node's diff of this page is better replaced by a copy.
    pub(super) fn prefer_copy(&self, pace: &Pace, (node, page): (NodeId, PageIndex)) -> bool {
        let large = self.0.get(&node).copied().unwrap_or_default();
        let Some(further) = large.checked_sub(pace.shown) else {
            return false;
        };
        let doubled = further.checked_div(pace.shown).unwrap_or(DOUBLED);
        !page.0.is_multiple_of(SAMPLED << doubled.min(DOUBLED))
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
        for _ in 0..pace.shown {
            sizes.came(&pace, NODE, 4200);
        }
        assert!(sizes.prefer_copy(&pace, (NODE, PageIndex(16))));
        assert!(!sizes.prefer_copy(&pace, (NODE, PageIndex(32))), "a sample");
        for _ in 0..u16::from(u8::MAX) {
            sizes.came(&pace, NODE, 4200);
        }
        assert!(sizes.prefer_copy(&pace, (NODE, PageIndex(128))));
        assert!(
            !sizes.prefer_copy(&pace, (NODE, PageIndex(256))),
            "a sample"
        );
        sizes.came(&pace, NODE, 12);
        assert!(!sizes.prefer_copy(&pace, (NODE, PageIndex(1))));
    }
}
