//! The control plane: what the coordinator decides, and how that outlives it.
//!
//! The coordinator decides by itself and at once; a back end of the control plane keeps its
//! decisions where another node finds them when the coordinator is gone. The core has one back end,
//! [`StandbyLog`]: the coordinator streams its decisions to a standby, another node, which takes
//! over when a person says so ([`Promotion`]). No other node hears of a decision before it is safe
//! (*INV-standby-knows*). If the node has a directory for its state, coordinator and standby put
//! them on their disks, too ([`DiskLog`]), and answers wait for the coordinator's disk
//! (*INV-disk-knows*): a daemon that is started again goes on from there ([`Resumption`]).
//!
//! Members are not in the log: every node knows the member view, and a standby that takes over asks
//! all living members for theirs. Keys of System V objects are not in it either, because the homes
//! of the objects know them.

mod copy;
mod disk_log;
mod kept;
mod promotion;
mod resumption;
mod standby_log;

pub(crate) use copy::{Answered, DecisionCopy};
pub(crate) use disk_log::DiskLog;
pub(crate) use kept::next_number;
pub use kept::{Kept, KeptEntry};
pub(crate) use promotion::{Asking, Due, Promotion, not_standby};
pub(crate) use resumption::Resumption;
pub(crate) use standby_log::StandbyLog;

use crate::caller::Caller;
use pagemesh_wire::peer::{Decision, Reply};
use serde::{Deserialize, Serialize};

/// An answer that must not leave before the decisions it tells of are safe.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct HeldAnswer {
    pub(crate) caller: Caller,
    pub(crate) reply: Reply,
    /// The batch of the [`DiskLog`] that the disk must have.
    pub(crate) batch: u64,
}

/// A back end of the control plane, as the coordinator uses it. Calls in this order: `decide` at
/// the end of each input, `safe` whenever something may have become safe.
pub(crate) trait DecisionLog {
    /// Adds the decisions of one input. The answers leave when these and all earlier decisions are
    /// safe.
    fn decide(&mut self, decisions: Vec<Decision>, answers: Vec<HeldAnswer>);

    /// Takes out the answers that may leave now, in their order.
    fn safe(&mut self) -> Vec<HeldAnswer>;

    /// The number of entries that are not safe yet.
    fn behind(&self) -> u64;
}
