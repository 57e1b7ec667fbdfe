//! Forecasts a program's time under policy `release`: its own trace, replayed on real nodes under a
//! clock of measured costs.
//!
//! A [`Trace`] has the accesses of one process to memory, with the time it computed in between
//! (`lab/apps/trace` writes them down). Processes repeat their traces, each on a host of its own,
//! whose daemon and program share a processor; the replay decides which process has which lock
//! when, and how long each waits at which barrier. Contents are not simulated: a diff is as long as
//! the trace says its bytes are. The replay has a world of its own, like that of labelled programs
//! in `pagemesh-sim`: locks, barriers and diffs, and none of the parts that only sequential
//! segments need.

mod cluster;
mod costs;
mod executor;
mod fit;
mod host;
mod program;
mod spent;
mod trace;

pub use costs::ReleaseCosts;
pub use fit::{Fit, Wait, Waited, fit};
pub use spent::Spent;
pub use trace::{BadTrace, Trace};

use crate::engine::Stuck;
use core::time::Duration;
use pagemesh_wire::peer::Spread;

#[cfg(test)]
mod tests;

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Between the first two times that the first process asked for the time: its
    /// parallel part.
    pub part: Duration,
    /// Until the last process had ended.
    pub whole: Duration,
    /// Datagrams of all daemons, from beginning to end.
    pub messages: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Diffs made.
    pub diffs: u64,
    /// Accesses that stopped.
    pub faults: u64,
    /// Of each lock that a daemon was asked for, in nanoseconds, as its process waited.
    pub lock_waits: Vec<u64>,
    /// Of each barrier, by process.
    pub barrier_waits: Vec<Vec<u64>>,
    /// Of each page for which another node had to help, as its daemon saw it.
    pub fault_waits: Vec<u64>,
    /// The activities of processes in their parallel parts.
    pub spent: Spent,
}

/// Replays one trace for each host, under costs that are so many times those measured in a
/// loop.
///
/// # Errors
/// If the program does not come to its end, which no trace of a whole run brings about.
pub fn replay(
    costs: &ReleaseCosts,
    fit: Fit,
    spread: Spread,
    traces: &[Trace],
) -> Result<Replayed, Stuck> {
    cluster::Cluster::new(*costs, fit, spread, traces)?.run()
}
