//! What a coordinator has decided, as it streams it to its standby.

use super::{Reduction, Reply, SegmentInfo};
use crate::{CallId, NodeId, SegmentId};
use serde::{Deserialize, Serialize};

/// One change of what the coordinator knows. It says how something is now, not what happened, so
/// that a copy that begins late needs no history.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Decision {
    /// A whole copy begins: what was said before counts for nothing.
    Anew,
    /// The number of the newest segment.
    Serial(u64),
    /// A segment, and everything that the directory knows of it.
    Segment {
        /// Its name, owner, mode, policy and the nodes that have it open.
        info: SegmentInfo,
        /// The newest call by which each node opened or closed it.
        changed: Vec<(NodeId, CallId)>,
        /// Its declared ranges.
        reductions: Vec<Reduction>,
    },
    /// No node uses the segment any more.
    Gone(SegmentId),
    /// A call was answered: if its caller repeats it to another coordinator, it gets this answer
    /// and nothing is done twice.
    Answered {
        /// The caller.
        node: NodeId,
        /// Its call.
        call: CallId,
        /// The caller waits for no call below this one.
        floor: CallId,
        /// The answer.
        reply: Reply,
    },
}

/// Some entries of the coordinator's log. An entry holds the decisions of one input of the
/// coordinator, which count together or not at all.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Decisions {
    /// The number of the first entry.
    pub first: u64,
    /// In order.
    pub entries: Vec<Vec<Decision>>,
}
