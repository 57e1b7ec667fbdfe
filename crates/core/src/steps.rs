//! What a service leaves to the dispatch, because services never call each other.

use crate::caller::Caller;
use crate::on_reply::OnReply;
use pagemesh_wire::NodeId;
use pagemesh_wire::peer::{Call, MemberView, Reply, SegmentInfo};

/// One thing that follows from what a service was told. Steps are carried out in order, each with all
/// that follows from it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Call a node, perhaps this one.
    Call(NodeId, Call, OnReply),
    /// Answer a call.
    Answer(Caller, Reply),
    /// Tell hosts of their admission, if nothing has to know of it before.
    Welcome,
    /// All members are to know this view.
    SpreadView(MemberView),
    /// Take part in a segment.
    TakePart(SegmentInfo),
}
