//! Nodes that are declared dead while they live, and join again (decision 40), in the simulator.
//!
//! Every host has a program that loads from and stores to segments of policy `sequential`, partly
//! under locks. Hosts are cut off from some or all others, or their daemons stand still while their
//! programs go on, for longer than it takes to be declared dead. Afterwards a program goes on, or
//! it is told that something was lost, and another one takes its place. Every access of a program
//! that counts must see the newest store of anybody, also of a host that was dead for the others
//! then: what is lost may fail, but it must never be undone in silence.

mod churn;
mod cluster;
mod executor;
mod memory;
mod programs;
#[cfg(test)]
mod tests;

use crate::plan::Profile;

/// The options of a run.
#[derive(Clone, Copy, Debug)]
pub struct RejoinRun {
    /// Decides everything.
    pub seed: u64,
    /// How bad the network is.
    pub profile: Profile,
    /// A mistake that must be found.
    pub planted: Option<RejoinMistake>,
    /// Lives come and go until so many hosts have joined, so that numbers are used again (decision
    /// 34). None: all hosts stay.
    pub churn: Option<u64>,
}

/// What a simulated driver does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejoinMistake {
    /// Frames stay mapped when the node drops them.
    EvictForgotten,
    /// A lock counts as given back though a program holds it.
    HeldLockReturned,
}

/// The events of a run that passed all checks.
#[derive(Clone, Copy, Debug, Default)]
pub struct RejoinSeen {
    /// Loads and stores of programs that counted.
    pub accesses: u64,
    /// Those of hosts that were dead for the others.
    pub unheard: u64,
    /// Nodes that joined again.
    pub rejoined: u64,
    /// Programs that went on with all their segments after that.
    pub kept: u64,
    /// Programs that had lost a segment.
    pub lost: u64,
    /// Those whose node had only loaded.
    pub readers_lost: u64,
    /// Programs that went on and whose node had only loaded.
    pub readers_kept: u64,
    /// Locks taken.
    pub locked: u64,
    /// Accesses that failed.
    pub failed: u64,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Lives that were admitted.
    pub joined: u64,
    /// Lives that left in order.
    pub left: u64,
    /// Lives that ended without a word.
    pub vanished: u64,
    /// The most members, alive or not, that the coordinator has had to know at once.
    pub most_members: u64,
    /// Checks that freed numbers.
    pub freed: u64,
}

/// Steps that are remembered for reports.
const LINES: usize = 4_000;

/// Runs one seed; twice if something broke, and then its steps are written down.
///
/// # Errors
/// The fault, after the last steps of the run.
pub fn rejoin(options: RejoinRun) -> Result<RejoinSeen, String> {
    // A run is the same whether its steps are written down or not.
    match cluster::Cluster::new(options, 0).run() {
        Ok(seen) => Ok(seen),
        Err(_) => cluster::Cluster::new(options, LINES).run(),
    }
}
