//! Twins and diffs for release consistency: the *twin* of a page is a copy from before the first
//! store, and a *diff* contains what one node changed in one interval (T5, T6).
//!
//! The core decides when a twin or a diff is made, in which order diffs are applied and when they
//! are dropped; it never sees a byte. The daemon or the simulator, which carries that out, keeps
//! the bytes in a [`Store`].
//!
//! Every operation may be repeated immediately, because a daemon that goes on for another repeats
//! the last operation.

#![forbid(unsafe_code)]

mod deferred;
mod slots;
mod store;

pub use deferred::REWRITTEN;
pub use slots::{Full, Heap, Label, Slots};
pub use store::{Keep, Store};

use pagemesh_wire::{NodeId, PageIndex, SegmentId};

/// A page.
pub type At = (SegmentId, PageIndex);

/// Identifies a diff: the changes of a node to a page in one of its intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiffKey {
    /// The segment.
    pub segment: SegmentId,
    /// The page.
    pub page: PageIndex,
    /// The node that wrote.
    pub node: NodeId,
    /// The node's interval, counted from one.
    pub interval: u64,
}

impl DiffKey {
    /// The page.
    #[must_use]
    pub fn at(self) -> At {
        (self.segment, self.page)
    }
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes are not a diff of such a page.
    #[error("not a diff of such a page")]
    Malformed,
    /// There is no memory for twins and diffs.
    #[error("no memory for twins and diffs")]
    Full,
    /// This diff was never stored, or was dropped.
    #[error("a diff is not here: {0:?}")]
    NoDiff(DiffKey),
    /// The contents of the page are not known.
    #[error("page {} of segment {} has no contents here", .0.1, .0.0)]
    NoContents(At),
    /// The page has no twin, so its changes cannot be determined.
    #[error("page {} of segment {} has no twin", .0.1, .0.0)]
    NoTwin(At),
}

impl From<Full> for Error {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

impl From<pagemesh_diff::Malformed> for Error {
    fn from(_: pagemesh_diff::Malformed) -> Self {
        Self::Malformed
    }
}
