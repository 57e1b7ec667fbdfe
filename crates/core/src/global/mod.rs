//! Global memory (GMS): the cluster's idle memory, for the pages of every policy.
//!
//! [`Ages`] is the page frame directory of a policy's segment: frames in the order in which they
//! were used. [`Donor`] is the part of it that this node keeps for others. [`Epochs`] collects the
//! ages of all nodes and computes where pages may go; [`Memory`], in the shell, is the outcome that
//! policies ask. Pages that only one node uses have their directory entry on that node (G17), so
//! that a fault needs no lookup elsewhere. Contents of lent pages are sealed by the owner's driver:
//! a donor is storage and need not be trusted (GB3). [`SharedPages`] are pages of files, which several
//! nodes cache; their directory is spread over the members.

mod ages;
mod donor;
mod ended;
mod epochs;
mod memory;
mod plan;
mod service;
mod shared;
mod shares;

pub(crate) use ages::Ages;
pub(crate) use donor::Donor;
use donor::Taken;
pub(crate) use epochs::Epochs;
pub use memory::Budgets;
pub(crate) use memory::Memory;
pub use pagemesh_wire::peer::{MemoryReport, Placement};
pub(crate) use service::Begin;
pub(crate) use shared::{Frames, SharedPages};

use core::time::Duration;
use serde::{Deserialize, Serialize};

/// An age as messages have it.
pub(crate) fn age_in_millis(age: Duration) -> u32 {
    u32::try_from(age.as_millis()).unwrap_or(u32::MAX)
}

/// The service of a node for global memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Global {
    /// Pages kept for others.
    pub(crate) donor: Donor,
    /// The epochs of the cluster.
    pub(crate) epochs: Epochs,
    /// Pages of files, cached for each other.
    pub(crate) shared: SharedPages,
}
