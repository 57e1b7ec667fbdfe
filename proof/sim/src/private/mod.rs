//! Private segments and global memory in the simulator: real nodes, real seals, whole pages.
//!
//! Every host has a private segment of its own that does not fit into its local memory, and lends
//! memory to the others. Its program stores unique values and compares every load with what it
//! stored last. Donors crash, come back empty, and some are hostile: they change pages, or give back
//! older ones. Disks are full for a while. No load may return anything but the last store.

mod cluster;
mod executor;
#[cfg(test)]
mod explore;
mod memory;
#[cfg(test)]
mod tests;

use crate::plan::Profile;

/// The options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Private {
    /// Decides everything.
    pub seed: u64,
    /// How bad the network is.
    pub profile: Profile,
    /// A mistake that must be found.
    pub planted: Option<PrivateMistake>,
}

/// What a simulated driver does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrivateMistake {
    /// The seal of a page does not depend on its version: a donor can give back an older one.
    VersionNotSealed,
    /// The driver says that pages are on the disk, and has not written them.
    StoreForgotten,
    /// What leaves a frame is what was last put there: stores since are lost.
    StaleEvicted,
    /// Pages are kept for others beyond what is lent.
    BudgetIgnored,
    /// A donor that is to leave goes at once, with pages that nobody else may have.
    LeavesAtOnce,
}

/// The events of a run that passed all checks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Remote {
    /// Loads that were compared.
    pub loads: u64,
    /// Stores.
    pub stores: u64,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Pages sent to donors.
    pub lent: u64,
    /// Pages that came back from donors.
    pub fetched: u64,
    /// Pages read from disks.
    pub read: u64,
    /// Pages written to disks.
    pub written: u64,
    /// Pages that came back from the stage.
    pub soft: u64,
    /// Pages that a donor changed or replaced, and that were not opened.
    pub forged: u64,
    /// Times a disk was full.
    pub full: u64,
    /// Epochs.
    pub epochs: u64,
    /// Pages dropped by donors for younger ones.
    pub dropped: u64,
    /// Pages that donors sent on to others.
    pub sent_on: u64,
    /// Hosts that vanished.
    pub crashed: u64,
    /// Hosts that left.
    pub left: u64,
}

/// Runs one seed.
///
/// # Errors
/// The fault, after the last steps of the run.
pub fn private(options: Private) -> Result<Remote, String> {
    let (log, result) = cluster::Cluster::new(options, LINES).run();
    result.map_err(|why| format!("{log}\n{why}"))
}

/// Runs one seed. Returns its whole log, and what happened or broke.
pub fn private_told(options: Private) -> (String, Result<Remote, String>) {
    cluster::Cluster::new(options, usize::MAX).run()
}

/// Lines of the log that a failure shows.
const LINES: usize = 4_000;
