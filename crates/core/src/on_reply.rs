//! How a node goes on with a reply.

use crate::caller::Caller;
use crate::sysv::get::Get;
use pagemesh_wire::sysv::keys::{Bucket, Buckets, Name};
use pagemesh_wire::{ClientId, SegmentId, SyncKey, Term, Ticket};
use serde::{Deserialize, Serialize};

/// How to go on with the reply to a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum OnReply {
    /// Pass it to a client.
    Tell(Ticket, ClientId),
    /// A client opens a segment of this name; `client` is none if the client has withdrawn.
    Open {
        client: Option<(Ticket, ClientId)>,
        name: String,
    },
    /// This node has left.
    Left,
    /// The coordinator has one piece of this node's handover; send the next.
    #[serde(rename = "Bequeathed")]
    HandedOver,
    /// Pass it to the policy of this segment, whose call had this number.
    Policy(SegmentId, u64),
    /// Wake another waiter of this condition variable.
    WakeAnother(SyncKey),
    /// Do nothing: the call only had to arrive.
    Nothing,
    /// The call's process has ended; after the last of its calls, finish its exit.
    Orphaned(ClientId),
    /// A member knows a declared range.
    Declared(Caller),
    /// The home knows the news it was told; calls that were held back for that go on.
    Told,
    /// A process asks for the object of a key: the register says which node has it.
    Register(Box<Get>),
    /// A process asks for the object of a key: the home of the object describes it.
    Visit(Box<Get>),
    /// The register knows that an object here has lost this key.
    Struck(Name),
    /// A node has taken over the decision about these keys.
    Lent(Buckets),
    /// A node has given back the decision about these keys.
    Returned(Bucket),
    /// A process asks for the totals of all nodes.
    Survey(Ticket, ClientId),
    /// The receiver of the log has entries.
    Logged,
    /// A member knows the member view of this epoch.
    KnowsView(u64),
    /// A member believes no coordinator of a term before this one.
    Promised(Term),
    /// A home has told keys of its System V objects.
    Gathered,
    /// This node has joined again and opens a segment of its programs once more.
    Reopened(SegmentId),
}

impl OnReply {
    /// The process that waits for this call, and the ticket of its request.
    pub(crate) fn client(&self) -> Option<(Ticket, ClientId)> {
        match self {
            Self::Tell(ticket, client) | Self::Survey(ticket, client) => Some((*ticket, *client)),
            Self::Open { client, .. } => *client,
            Self::Register(get) | Self::Visit(get) => get.client,
            _ => None,
        }
    }
}
