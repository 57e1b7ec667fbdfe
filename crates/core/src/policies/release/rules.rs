//! The identifier of a segment, its length and its spread, which stay as they are while it is open.

use crate::timers::Timer;
use pagemesh_wire::peer::{Spread, Subject};
use pagemesh_wire::{PageIndex, SegmentId};

/// The segment, its length in pages, and how its changes spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Rules {
    pub(super) segment: SegmentId,
    /// Pages of the segment.
    pub(super) size: u32,
    pub(super) spread: Spread,
}

impl Rules {
    /// The timer of a page that is being made whole.
    pub(super) fn timer(self, page: PageIndex) -> Timer {
        let segment = self.segment;
        Timer::Subject(Subject::Page { segment, page })
    }
}
