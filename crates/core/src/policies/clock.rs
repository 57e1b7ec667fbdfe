//! The clock whose hand goes over the pages of a full node to find frames that may be emptied (F14),
//! and when it goes on.

use crate::shell::Cx;
use crate::time::Time;
use crate::timers::Timer;
use core::time::Duration;
use pagemesh_wire::{PageIndex, SegmentId};

/// Pages that leave while a program waits, at most.
const BURST: usize = 32;

/// Pages that leave when it is time to look, at most.
const LONG_BURST: usize = 256;

/// Pages that are looked at for each that is to leave, at most.
pub(super) const SCAN: usize = 16;

/// Time between two looks while pages leave ...
pub(super) const SOON: Duration = Duration::from_millis(5);

/// ... while those that were looked at stay, which takes a thousandth of a processor ...
pub(super) const MEANWHILE: Duration = Duration::from_millis(50);

/// ... and while those that should leave have nowhere to go.
pub(super) const LATER: Duration = Duration::from_secs(1);

/// Pages that came long ago are met before pages that came just now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Clock {
    /// The page at which the next search for a frame to empty begins.
    pub(super) hand: PageIndex,
    /// When to look again for frames to empty.
    pub(super) look_again: Option<Time>,
}

impl Clock {
    /// How many frames are to be emptied while a program waits.
    pub(super) fn wanted(&self, cx: &Cx<'_>) -> usize {
        let in_vain = self.look_again.is_some_and(|due| due > cx.now + SOON);
        let burst = if in_vain { 0 } else { BURST };
        burst.min(cx.shell.memory.excess() as usize)
    }

    /// How many frames are to be emptied if it is time to look again.
    pub(super) fn wanted_again(&mut self, cx: &Cx<'_>) -> usize {
        let due = self.look_again.take_if(|due| *due <= cx.now);
        let burst = due.map_or(0, |_| LONG_BURST);
        burst.min(cx.shell.memory.excess() as usize)
    }

    /// Looks again after this time, if the node still has more frames than it should.
    pub(super) fn go_on(&mut self, cx: &mut Cx<'_>, segment: SegmentId, wait: Duration) {
        if self.look_again.is_none() && cx.shell.memory.excess() > 0 {
            let due = cx.now + wait;
            self.look_again = Some(due);
            cx.arm(due, Timer::Segment(segment));
        }
    }
}

/// The page behind this one.
pub(super) fn after(page: PageIndex) -> PageIndex {
    PageIndex(page.0.saturating_add(1))
}
