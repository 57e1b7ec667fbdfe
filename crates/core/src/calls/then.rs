//! What becomes of a reply.

use super::Caller;
use crate::sysv::Get;
use pagemesh_wire::sysv::keys::{Bucket, Buckets, Name};
use pagemesh_wire::{ClientId, SegmentId, SyncKey, Ticket};
use serde::{Deserialize, Serialize};

/// What to do with the reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Then {
    /// Hand it to a client.
    Tell(Ticket, ClientId),
    /// A client opens a segment of this name; nobody, if it has withdrawn.
    Open {
        client: Option<(Ticket, ClientId)>,
        name: String,
    },
    /// This node has left.
    Left,
    /// The coordinator has a piece of what this node knew; on to the next.
    Bequeathed,
    /// Hand it to the policy of this segment, whose call had this number.
    Policy(SegmentId, u64),
    /// Wake another waiter of this condition variable.
    WakeAnother(SyncKey),
    /// Nothing: it only had to arrive.
    Nothing,
    /// Its process is gone; when its last call is over, more is to be done.
    Mourn(ClientId),
    /// A member knows a range that somebody declared.
    Declared(Caller),
    /// What processes ask this home next, it answers knowing what it was told.
    Told,
    /// A process wants the object of a key: the register says who has it.
    Register(Box<Get>),
    /// A process wants the object of a key: its home says what it is like.
    Visit(Box<Get>),
    /// The register knows that an object here does not have this key any more.
    Struck(Name),
    /// A node decides upon these keys.
    Lent(Buckets),
    /// A node does not decide upon these keys any more.
    Returned(Bucket),
    /// A process wants to know what all nodes have.
    Survey(Ticket, ClientId),
}

impl Then {
    /// The process that waits, and for which of its requests.
    pub(super) fn client(&self) -> Option<(Ticket, ClientId)> {
        match self {
            Self::Tell(ticket, client) | Self::Survey(ticket, client) => Some((*ticket, *client)),
            Self::Open { client, .. } => *client,
            Self::Register(get) | Self::Visit(get) => get.client,
            _ => None,
        }
    }
}
