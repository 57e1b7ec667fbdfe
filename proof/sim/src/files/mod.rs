//! Shared pages in the simulator: real nodes cache pages of files for each other.
//!
//! Every host has a program that opens files and reads parts of them through its node's frames.
//! Files are changed meanwhile, by nobody in particular. A program that opens a file must read the
//! version that the file had then, or parts of later ones, and never an older one. Hosts crash, come
//! back, join late and leave, so that the directory moves; messages get lost; budgets shrink. Last
//! copies go to other hosts, by every placement that there is.

mod cluster;
mod executor;
#[cfg(test)]
mod tests;

use crate::plan::Profile;

/// The options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Files {
    /// Decides everything.
    pub seed: u64,
    /// How bad the network is.
    pub profile: Profile,
    /// A mistake that must be found.
    pub planted: Option<FilesMistake>,
}

/// What a simulated driver or program does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilesMistake {
    /// The name of a page does not depend on the version of its file.
    VersionNotNamed,
    /// The program does not look whether the file was changed while it read it.
    ChangeUnseen,
    /// A page from another node is put into the frame beside its own.
    FrameMissed,
    /// The program goes on reading from frames that it has given back.
    ReadAfterDone,
    /// Frames are not emptied when memory shrinks.
    EvictForgotten,
    /// A page that comes to be kept is put into the slot beside its own.
    SlotMissed,
    /// Pages are kept for others beyond what is lent.
    LendIgnored,
}

/// The events of a run that passed all checks.
#[derive(Clone, Copy, Debug, Default)]
pub struct FilesSeen {
    /// Pages that programs read.
    pub reads: u64,
    /// Those that were here.
    pub here: u64,
    /// Those that came from other nodes.
    pub came: u64,
    /// Those that were read from the file.
    pub missing: u64,
    /// Those for which there was no frame.
    pub frameless: u64,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Pages that left frames.
    pub dropped: u64,
    /// Last copies that were sent to other nodes.
    pub put: u64,
    /// Those that other nodes kept.
    pub kept: u64,
    /// Those that nodes that kept them sent on.
    pub sent_on: u64,
    /// Kept pages that nodes got that asked for them.
    pub returned: u64,
    /// Kept pages that a program of the node that kept them read.
    pub taken: u64,
    /// Times the directory was wrong.
    pub stale: u64,
    /// Files that were changed.
    pub changed: u64,
    /// Hosts that vanished.
    pub crashed: u64,
    /// Hosts that left in order.
    pub left: u64,
}

/// Runs one seed.
///
/// # Errors
/// The fault, after the last steps of the run.
pub fn files(options: Files) -> Result<FilesSeen, String> {
    cluster::Cluster::new(options).run()
}
