//! Diffs by name: the changes of a node in a page. The drivers keep them, send them and read them;
//! the policy of the segment chooses which.

use crate::{NodeId, PageIndex, RequestId, SegmentId};
use serde::{Deserialize, Serialize};

/// Names the changes of one node in one page in one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DiffName {
    /// Which page of the segment.
    pub page: PageIndex,
    /// The node that changed the page.
    pub node: NodeId,
    /// In which of its intervals.
    pub interval: u64,
}

/// Some diffs. Behind the message stand their encodings, one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Diffs {
    /// Of which segment.
    pub segment: SegmentId,
    /// The request; zero if the diffs were pushed.
    pub request: RequestId,
    /// Which, and how many bytes each has.
    pub diffs: Vec<(DiffName, u16)>,
}

impl Diffs {
    /// Diffs that are sent at once: at their largest they fill nine datagrams.
    pub const LIMIT: usize = 24;

    /// Bytes of all encodings.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.diffs
            .iter()
            .map(|(_, bytes)| usize::from(*bytes))
            .sum()
    }
}
