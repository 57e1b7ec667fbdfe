//! Announcements of processes: pages that they will need are asked for in order, a few at a time.

use super::{Ahead, Prefetch, gather};
use crate::limits::WILLNEED_RANGE;
use crate::shell::Cx;
use crate::timers::Timer;
use pagemesh_wire::local::Advice;
use pagemesh_wire::{ClientId, MappingId, PageCount, PageIndex, SegmentId};

/// A policy whose pages can be asked for before they are touched.
pub(crate) trait WillneedRanges {
    fn segment(&self) -> SegmentId;

    fn prefetch(&mut self) -> &mut Prefetch;

    /// Asks for a page that was announced, unless it is here or something is under way about it.
    fn run_willneed_range(&mut self, cx: &mut Cx<'_>, page: PageIndex, ahead: Ahead);

    /// A process does not need pages from `first` up to `end`. They may stay.
    fn do_without(&mut self, _: &mut Cx<'_>, _first: PageIndex, _end: PageIndex) {}

    /// A process says how it will use pages.
    fn advise(
        &mut self,
        cx: &mut Cx<'_>,
        who: (ClientId, Option<MappingId>),
        (first, count): (PageIndex, PageCount),
        advice: Advice,
    ) {
        let end = PageIndex(first.0.saturating_add(count.0));
        match advice {
            Advice::DontNeed => return self.do_without(cx, first, end),
            Advice::WillNeed if cx.pace().ahead == 0 => return,
            Advice::Renew | Advice::DontNeedShort => return,
            _ => self.prefetch().heed(who, (first, end), advice),
        }
        self.run_willneed_ranges(cx);
    }

    /// Asks for more of the announced pages, as far as there is room.
    fn run_willneed_ranges(&mut self, cx: &mut Cx<'_>) {
        let start = cx.effects.len();
        let limit = cx.pace().ahead.min(WILLNEED_RANGE);
        // Some pages at a time: bursts, which other readers may send.
        if self.prefetch().flights.fare(limit).room < limit / 4 {
            return;
        }
        for _ in 0..WILLNEED_RANGE {
            let Some((page, mapping)) = self.prefetch().next_willneed_range(limit) else {
                return gather(cx.effects, start);
            };
            let mark = false;
            self.run_willneed_range(cx, page, Ahead { mapping, mark });
        }
        gather(cx.effects, start);
        if self.prefetch().has_willneed_range(limit) {
            // Perhaps every page is here, and no arrival brings us back; others come first.
            cx.arm(cx.now, Timer::Ahead(self.segment()));
        }
    }
}
