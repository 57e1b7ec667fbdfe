//! A get under way, as the reply to its call finds it.

use pagemesh_wire::sysv::{Ask, Errno, Id};
use pagemesh_wire::{ClientId, Ticket};
use serde::{Deserialize, Serialize};

/// A get under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Get {
    /// The waiting process; none if it has ended.
    pub(crate) client: Option<(Ticket, ClientId)>,
    pub(super) ask: Box<Ask>,
    /// The offered object, which gets the key if no other object has it.
    pub(super) offer: Option<Id>,
    /// The error of the get if nothing is offered and no object has the key.
    pub(super) why: Errno,
}
