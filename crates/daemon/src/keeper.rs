//! The keeper: a tiny process that outlives the daemon and keeps its descriptors.
//!
//! The daemon puts every descriptor that matters into it: its journal, its sockets, the memory of
//! its segments, the userfaultfds of its processes. When the daemon ends in any way, the connection
//! between the two breaks; a daemon started at the same socket within the *grace* takes over all
//! descriptors and goes on where the other stopped. If none comes, or the daemon ends for good, the
//! keeper makes sure that the processes get errors and never zeros ([`orphaned`]).
//!
//! A packet sent to the keeper survives its sender, so nothing is acknowledged.

mod holder;
mod items;
mod kept;
mod link;
mod orphaned;
mod words;

pub use holder::keep;
pub(crate) use kept::Kept;
pub(crate) use link::{Held, Keeper, Search};
pub(crate) use words::{Tag, Whole, decode};

use std::path::{Path, PathBuf};
use std::time::Duration;

/// How a daemon's things are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keeping {
    /// The program to run as keeper; `keeper` is its first argument.
    pub program: PathBuf,
    /// How long processes wait for another daemon.
    pub grace: Duration,
    /// Take over from a daemon that runs.
    pub replace: bool,
}

/// Where the keeper of the daemon at `socket` is found.
#[must_use]
pub fn socket_path(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".keeper");
    path.into()
}

/// Ends the keeper of a daemon that has ended, if there is one, and with it
/// everything it keeps.
pub fn dismiss(socket: &Path) {
    // None to be found is as good.
    let _ = link::dismiss(&socket_path(socket));
}
