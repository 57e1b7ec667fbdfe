//! A standby becomes the coordinator: it waits until the coordinator has been silent for long
//! enough, then asks all living members to believe no older coordinator any more, and to say which
//! members they know. When all have answered, or have been silent themselves, it takes over. A node
//! that a shared store has elected does the same with what the store has.

use super::Kept;
use crate::time::Time;
use pagemesh_wire::peer::MemberView;
use pagemesh_wire::{NodeId, NodeSet, Term, Ticket};
use serde::{Deserialize, Serialize};

/// A promotion under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Promotion {
    /// The request of the person who promotes; none after it was withdrawn.
    pub(crate) ticket: Option<Ticket>,
    /// When the person asked: a coordinator that is heard later is alive.
    pub(crate) since: Time,
    /// The members are being asked.
    pub(crate) asking: Option<Asking>,
    /// What the store has that elected this node; none if a person promotes the standby.
    #[serde(default)]
    pub(crate) kept: Option<Box<Kept>>,
}

/// The question to all members.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Asking {
    pub(crate) term: Term,
    pub(crate) since: Time,
    /// Members that have not answered.
    pub(crate) missing: NodeSet,
    /// Members that have not answered for so long that they count as dead.
    pub(crate) silent: NodeSet,
    /// The newest view of those that have.
    pub(crate) view: MemberView,
}

impl Asking {
    /// Waits no longer for members that have not answered.
    pub(crate) fn give_up(&mut self) {
        for node in core::mem::take(&mut self.missing).iter() {
            self.silent.insert(node);
        }
    }

    /// Waits on for these members only.
    pub(crate) fn give_up_others(&mut self, nodes: NodeSet) {
        for node in self.missing.without(&nodes).iter() {
            self.missing.remove(node);
            self.silent.insert(node);
        }
    }

    /// A member has answered with the view that it knows.
    pub(crate) fn answered(&mut self, node: NodeId, view: MemberView) {
        self.missing.remove(node);
        if view.age() > self.view.age() {
            self.view = view;
        }
    }
}
