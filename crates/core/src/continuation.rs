//! What goes on when the policy of a segment knows enough, or wants something of other nodes.

use crate::calls::{Caller, Then};
use pagemesh_wire::peer::{PolicyMessage, Reply};
use pagemesh_wire::{NodeId, SyncKey};
use serde::{Deserialize, Serialize};

/// Something that a policy lets go on: it is put into `Shell::ready` and done before the present
/// input is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Continuation {
    /// A token that is here may be lent and given.
    Lend(SyncKey),
    /// Somebody arrives at a barrier of which this node is the home.
    Arrive {
        caller: Caller,
        key: SyncKey,
        parties: u32,
    },
    /// A barrier is left.
    Depart(Then),
    /// A call is answered.
    Answer(Caller, Reply),
    /// A policy calls itself on another node. The answer comes with the same number.
    Call {
        to: NodeId,
        call: PolicyMessage,
        number: u64,
    },
}
