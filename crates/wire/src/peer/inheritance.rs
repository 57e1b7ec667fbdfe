//! The knowledge of a home, for the coordinator, which answers for its segments when the home has
//! left.

use super::{Reply, Subject};
use crate::{CallId, NodeId, SyncKey, Version};
use serde::{Deserialize, Serialize};

/// Part of it: as much as fits a datagram.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Inheritance {
    /// The owners of subjects, as far as the home knows. A subject that is in no such list, and
    /// that is unknown elsewhere, was never touched.
    Owners(Vec<Owner>),
    /// The arrivals at barriers.
    Arrivals(Vec<Arrival>),
    /// The waiters for signals, in their order.
    Waiters(Vec<(SyncKey, NodeId, CallId)>),
    /// Calls that were executed: a caller that missed the answer asks again.
    Served(Vec<Service>),
}

/// The probable owner of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// The subject.
    pub subject: Subject,
    /// The owner.
    pub node: NodeId,
    /// Since when.
    pub version: Version,
}

/// A party that waits at a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Arrival {
    /// Which.
    pub key: SyncKey,
    /// For how many parties it is.
    pub parties: u32,
    /// The node of the party.
    pub node: NodeId,
    /// By which of its calls.
    pub call: CallId,
}

/// A call that was executed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Service {
    /// The caller.
    pub node: NodeId,
    /// Which of its calls.
    pub call: CallId,
    /// None while the call waits.
    pub reply: Option<Reply>,
    /// The caller was told that it waits: remembered until it has the reply.
    pub waits: bool,
}
