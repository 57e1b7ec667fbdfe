//! Continuations: work that waits until the policy of a segment knows enough, and calls that a
//! policy makes.

use crate::caller::Caller;
use crate::on_reply::OnReply;
use pagemesh_wire::peer::{Call, PolicyMessage, Reply};
use pagemesh_wire::{ClientId, NodeId, SegmentId, SyncKey, Ticket};
use serde::{Deserialize, Serialize};

/// Work that a policy allows to go on. It is put into `Shell::ready` and done before the present
/// input is finished.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Continuation {
    /// Lend or pass on a token that is here.
    Lend(SyncKey),
    /// Count an arrival at a barrier of which this node is the home.
    Arrive {
        caller: Caller,
        key: SyncKey,
        parties: u32,
    },
    /// Grant a token that is here to the next node.
    Grant(SyncKey),
    /// Send the arrival of a process at a barrier.
    SendArrival {
        ticket: Ticket,
        client: ClientId,
        to: Option<NodeId>,
        call: Call,
    },
    /// Depart from a barrier.
    Depart(OnReply),
    /// Answer a call.
    Answer(Caller, Reply),
    /// Call the same policy on another node. The reply comes with the same number.
    Call {
        to: NodeId,
        call: PolicyMessage,
        number: u64,
    },
    /// Tell another node that there is this segment, in which it does not take part yet.
    Introduce { to: NodeId, segment: SegmentId },
}
