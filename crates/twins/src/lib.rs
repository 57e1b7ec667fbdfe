//! What release consistency keeps of pages: the *twin* of a page that is being
//! written, which is the page as it was before, and *diffs*, which are what one
//! node changed in one interval (T5, T6).
//!
//! The core decides when a twin is made, when a diff, in which order diffs are
//! applied and when they are forgotten; it never sees a byte. Whoever carries that
//! out, the daemon or the simulator, keeps the bytes in a [`Store`].
//!
//! Every operation may be repeated at once, since a daemon that goes on for another
//! repeats what it was doing last.

#![forbid(unsafe_code)]

mod slots;
mod store;

pub use slots::{Full, Heap, Label, Slots};
pub use store::{Keep, Store};

use pagemesh_wire::{NodeId, PageIndex, SegmentId};

/// A page.
pub type At = (SegmentId, PageIndex);

/// Names a diff: what a node changed in a page in one of its intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiffKey {
    /// Of which segment.
    pub segment: SegmentId,
    /// Of which page.
    pub page: PageIndex,
    /// Who wrote.
    pub node: NodeId,
    /// In which of its intervals, counted from one.
    pub interval: u64,
}

impl DiffKey {
    /// The page.
    #[must_use]
    pub fn at(self) -> At {
        (self.segment, self.page)
    }
}

/// Why something is not kept or not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// These bytes are no diff of such a page.
    #[error("not a diff of such a page")]
    Malformed,
    /// There is no memory for it.
    #[error("no memory for twins and diffs")]
    Full,
    /// This diff was never kept, or was forgotten.
    #[error("a diff is not here: {0:?}")]
    NoDiff(DiffKey),
    /// Nothing is known of the page's contents.
    #[error("page {} of segment {} has no contents here", .0.1, .0.0)]
    NoContents(At),
    /// The page has no twin, so nobody knows what changed.
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
