//! System V objects in the simulator: real nodes, random calls, and one host's
//! System V as the judge.
//!
//! Processes of several hosts call `semop`, `msgsnd`, `shmat` and their kin on objects
//! with keys and on private ones, which are at home wherever they were made; they fork,
//! get signals, die, and so do hosts. The answers of a home in one step must be those that
//! [`model::Model`], a single host, gives to the same calls in the same order; the answer that a
//! process gets must be the home's to its last call, and the home has handled each call once at
//! most. [`keys::Keys`], which sees all hosts at once, checks which object has a key. A world of
//! its own, as [`crate::labelled`].

mod cluster;
mod home;
mod keys;
mod model;
mod nonsense;
mod program;
mod queue;
mod set;
#[cfg(test)]
mod tests;

pub use nonsense::{Chance, nonsense};

use crate::plan::Profile;

/// The options of a run.
#[derive(Clone, Copy, Debug)]
pub struct SystemV {
    /// Decides everything.
    pub seed: u64,
    /// How bad the network is.
    pub profile: Profile,
    /// A mistake that must be found.
    pub mistake: Option<Mistake>,
}

/// The difference between the cluster and one host, if the run tests the judge: the mistake is
/// planted in the judge or in the network, never in the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The last to come is served first.
    LastComeFirst,
    /// Operations of a `semop` that has to wait happen as far as they can.
    PartlyDone,
    /// Operations to undo of a process that ends stay.
    UndoForgotten,
    /// Sleepers do not hear that their object is gone.
    RemovalUnheard,
    /// A message is taken from behind.
    QueueTurned,
    /// A call comes to its home twice, as two calls.
    CalledTwice,
    /// A home never hears that processes ended.
    ExitLost,
    /// The register lets two nodes have one key.
    TwoWinners,
    /// The register does not learn which keys exist in a bucket that it recalled.
    EntriesLost,
    /// The register does not hear that a key is free.
    StrikeLost,
}

impl Mistake {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::LastComeFirst,
        Self::PartlyDone,
        Self::UndoForgotten,
        Self::RemovalUnheard,
        Self::QueueTurned,
        Self::CalledTwice,
        Self::ExitLost,
        Self::TwoWinners,
        Self::EntriesLost,
        Self::StrikeLost,
    ];
}

/// The events of a run that passed all checks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tried {
    /// Calls that a home executed, and the judge.
    pub calls: u64,
    /// Of these, that had to wait.
    pub waited: u64,
    /// Calls answered by an operation of another process.
    pub woken: u64,
    /// That were withdrawn by a signal.
    pub withdrawn: u64,
    /// Calls and replies that came again and were not done again.
    pub repeated: u64,
    /// Calls that no library would make; they are answered, and do no harm.
    pub nonsense: u64,
    /// Objects removed.
    pub removed: u64,
    /// Sleepers that heard of it.
    pub orphaned: u64,
    /// Gets that were answered, and the judge of keys.
    pub gets: u64,
    /// Of these, that brought a new object.
    pub made: u64,
    /// Times that keys were lent to a node, and taken back.
    pub lent: u64,
    /// See there.
    pub recalled: u64,
    /// Processes that died.
    pub died: u64,
    /// Semaphores that were changed because of that.
    pub undone: u64,
    /// Hosts that vanished.
    pub crashed: u64,
    /// Times a host stood still.
    pub paused: u64,
    /// Datagrams sent.
    pub datagrams: u64,
}

/// Runs one seed.
///
/// # Errors
/// The fault, after the last steps of the run.
pub fn system_v(options: SystemV) -> Result<Tried, String> {
    cluster::Cluster::new(options).run()
}

impl Tried {
    /// Adds up the counts of several runs.
    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.waited += other.waited;
        self.woken += other.woken;
        self.withdrawn += other.withdrawn;
        self.repeated += other.repeated;
        self.nonsense += other.nonsense;
        self.removed += other.removed;
        self.orphaned += other.orphaned;
        self.gets += other.gets;
        self.made += other.made;
        self.lent += other.lent;
        self.recalled += other.recalled;
        self.died += other.died;
        self.undone += other.undone;
        self.crashed += other.crashed;
        self.paused += other.paused;
        self.datagrams += other.datagrams;
    }
}
