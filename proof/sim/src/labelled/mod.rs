//! Release consistency in the simulator: real nodes, whole pages, real diffs.
//!
//! Programs are properly labelled, so every load must return the value of the last store in the
//! order of synchronization; as there are no other orders, one array of bytes, written as programs
//! store, has these values.
//!
//! A world of its own, smaller than [`crate::world`]: no journals, seals or scenarios; only the
//! parts that this policy needs.

mod cluster;
mod golden;
mod memory;
mod program;
#[cfg(test)]
mod tests;

use cluster::Plan;
pub(crate) use cluster::Stage;
pub use memory::Planted;

use crate::dice::Dice;
use crate::plan::Profile;

/// The options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Labelled {
    /// Decides everything.
    pub seed: u64,
    /// How bad the network is.
    pub profile: Profile,
    /// Of the segment. With one a host vanishes, under every profile, and no access may fail.
    pub replicas: u8,
    /// A mistake that must be found.
    pub planted: Option<Planted>,
}

/// Runs one seed under policy `sequential` with a replica: a host vanishes, and what its memory was at
/// one instant survives.
///
/// # Errors
/// The fault, after the last steps of the run.
pub fn sequential(options: Labelled) -> Result<Sighted, String> {
    let mut dice = Dice::stream(options.seed, "sequential");
    let plan = Plan::of_a_sequential_death(&mut dice, options.profile);
    let plan = plan.with_full_hosts(options.seed);
    cluster::Cluster::of(plan, dice, options).run()
}

/// The events of a run that passed all checks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sighted {
    /// Loads that were compared.
    pub loads: u64,
    /// Stores.
    pub stores: u64,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Nanoseconds until the last thread had ended.
    pub took: u64,
    /// Messages that were sent again.
    pub resent: u64,
    /// Diffs merged into pages.
    pub merged: u64,
    /// Pages that came before anybody touched them.
    pub ahead: u64,
    /// Segments whose accesses the kernel had served by itself.
    pub trapped: u64,
    /// Diffs made.
    pub made: u64,
    /// Twins that were refreshed.
    pub refreshed: u64,
    /// Pages that stayed writable and were not named, since they had not changed.
    pub rested: u64,
    /// Pairs of diffs in which a race was looked for; there is none.
    pub compared: u64,
    /// Times a node dropped collected diffs.
    pub collected: u64,
    /// Numbers into which threads accumulated without a lock.
    pub added: u64,
    /// Messages of diffs that were pushed.
    pub pushed: u64,
    /// Those of them that were pushed because the receiver had asked for every diff before.
    pub regular: u64,
    /// Pages that were changed while threads used them.
    pub updated: u64,
    /// Hosts that vanished, processes that died, and accesses that failed since.
    pub crashed: u64,
    /// Processes that died.
    pub died: u64,
    /// Accesses that failed because of them.
    pub failed: u64,
    /// Waits at barriers whose home had vanished.
    pub refused: u64,
    /// The most diffs a host kept at once.
    pub most: u64,
    /// Hosts that left.
    pub left: u64,
    /// Hosts that vanished while all that others knew was on two hosts: no access may fail after that.
    pub survived: u64,
    /// Copies that full hosts dropped.
    pub pressed_out: u64,
    /// Times an interval was named to a backup.
    pub named: u64,
}

/// Runs one seed.
///
/// # Errors
/// The fault, after the last steps of the run.
pub fn labelled(options: Labelled) -> Result<Sighted, String> {
    cluster::Cluster::new(options).run()
}
