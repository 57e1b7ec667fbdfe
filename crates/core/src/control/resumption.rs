//! A coordinator whose daemon was ended goes on from its disk, as a node of a new number and in a
//! new term. Nothing else is left of its former life, which counts as dead; so this is a takeover
//! like a [`Promotion`](super::Promotion), by a node that the members do not know yet.

use super::{Asking, Kept};
use crate::backoff::Backoff;
use pagemesh_wire::{NodeId, NodeSet};
use serde::{Deserialize, Serialize};

/// A coordinator is about to go on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Resumption {
    /// What its disk has.
    pub(crate) kept: Kept,
    /// Its number from now on.
    pub(crate) node: NodeId,
    /// The members are being asked to believe no older coordinator.
    pub(crate) asking: Asking,
    /// Members that are asked when those asked first are silent. A standby asks the coordinator
    /// alone at first: if that is alive, no other member must promise anything.
    pub(crate) later: NodeSet,
    pub(crate) backoff: Backoff,
}
