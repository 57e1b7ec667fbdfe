//! Policy `views` in the simulator: real nodes, threads that store, load, purge and publish.
//!
//! Checked after every step (docs/memory-model.md, "Views"):
//! - one living node at most may store to a page, and its frame has the last store;
//! - a value that a load returns was stored, and no thread sees a page go back, until a node dies;
//! - after a purge, views on demand show what was stored before it (INV-purge-finds), until a node dies;
//! - the pages of a publication of several change together;
//! - every access on demand ends;
//! - where no node dies, every copy has the last publication when all is quiet;
//! - with a replica, no page is lost by a death when all was on two nodes, the consistent copy has
//!   what was acknowledged before or something newer, and all is on two nodes again in the end
//!   (INV-published-survives).
//!
//! A world of its own, smaller than [`crate::world`]: no journals, seals or scenarios.

mod cluster;
mod explore;
mod host;
#[cfg(test)]
mod tests;

use crate::plan::Profile;
use crate::small::Check;
use pagemesh_wire::PageIndex;

pub use explore::{ViewsSetting, explore_views};

/// A mistake that must be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ViewsMistake {
    /// A page that leaves stays writable.
    StaysWritable,
    /// The stash loses its contents.
    StashForgotten,
    /// Pages of a publication become visible one by one.
    OneByOne,
    /// A short refresh overwrites the whole page.
    PrefixFillsAll,
    /// A purge drops a copy that a holder counts on.
    ReplicaPurged,
    /// A purge drops no copy.
    PurgeForgotten,
}

/// The options of a run.
#[derive(Clone, Copy, Debug)]
pub struct ViewsRun {
    /// Decides everything.
    pub seed: u64,
    /// How bad the network is.
    pub profile: Profile,
    /// Of the segment. With one, half of the publications wait for it, and a death loses nothing of
    /// those.
    pub replicas: u8,
    /// A mistake that must be found.
    pub planted: Option<ViewsMistake>,
}

/// The events of a run that passed all checks.
#[derive(Clone, Copy, Debug, Default)]
pub struct ViewsSeen {
    /// Loads.
    pub loads: u64,
    /// Stores.
    pub stores: u64,
    /// Purges.
    pub purges: u64,
    /// Locks of pages that were granted.
    pub locked: u64,
    /// Publications.
    pub published: u64,
    /// Moves of a consistent copy.
    pub moves: u64,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Times a publication of several pages became visible.
    pub runs: u64,
    /// Hosts that vanished.
    pub crashed: u64,
    /// Hosts that left.
    pub left: u64,
    /// Pages whose holder was gone and that were found again.
    pub regained: u64,
    /// Accesses of pages of which no copy was left.
    pub lost: u64,
    /// Publications that waited for the replica.
    pub waited: u64,
    /// Pages published and kept, whose consistent copy was looked at after a death.
    pub survived: u64,
}

/// Runs one seed.
///
/// # Errors
/// The fault, after the last steps of the run.
pub fn views(options: ViewsRun) -> Result<ViewsSeen, String> {
    let (log, result) = cluster::Cluster::new(options, LINES).run();
    result.map_err(|why| format!("{log}\n{why}"))
}

/// Runs one seed. Returns its whole log, and what happened or broke.
pub fn views_told(options: ViewsRun) -> (String, Result<ViewsSeen, String>) {
    cluster::Cluster::new(options, usize::MAX).run()
}

/// Lines of the log that a failure shows.
const LINES: usize = 400;

/// INV-purge-finds: a host loads these words of a page, on demand; these had been stored when it
/// purged the page last.
fn check_purge_finds(host: usize, page: PageIndex, words: &[u64], stored: [u64; 2]) -> Check {
    let mut words = words.iter().zip(stored);
    match words.find(|(value, stored)| *value < stored) {
        None => Ok(()),
        Some((value, stored)) => Err(format!(
            "INV-purge-finds: h{} loads {value} of {page}, {stored} was stored before its purge",
            host + 1
        )),
    }
}
