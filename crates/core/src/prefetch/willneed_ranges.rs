//! Announcements of processes: pages that they will need are asked for in order, a few at a time.

use super::{Prefetch, gather};
use crate::limits::WILLNEED_RANGE;
use crate::shell::Cx;
use crate::timers::Timer;
use pagemesh_wire::local::Advice;
use pagemesh_wire::{ClientId, MappingId, PageCount, PageIndex, SegmentId};

/// A policy whose pages can be asked for before they are touched.
pub(crate) trait WillneedRanges {
    fn segment(&self) -> SegmentId;

    fn prefetch(&mut self) -> &mut Prefetch;

    /// How many announced pages may be under way now, of `limit` at most: pages take memory when they
    /// come.
    fn most_under_way(&mut self, _: &mut Cx<'_>, limit: u32) -> u32 {
        limit
    }

    /// Asks for pages that were announced, for those mappings, unless they are here or something is
    /// under way about them.
    fn ask_announced(&mut self, cx: &mut Cx<'_>, pages: Vec<(PageIndex, MappingId)>);

    /// A process does not need pages from `first` up to `end`. They may stay.
    fn do_without(&mut self, _: &mut Cx<'_>, _first: PageIndex, _end: PageIndex) {}

    /// A process says how it will use pages.
    fn advise(
        &mut self,
        cx: &mut Cx<'_>,
        who: (ClientId, Option<MappingId>),
        ranges: &[(PageIndex, PageCount)],
        advice: Advice,
    ) {
        for (first, count) in ranges {
            let (first, end) = (*first, PageIndex(first.0.saturating_add(count.0)));
            match advice {
                Advice::DontNeed => self.do_without(cx, first, end),
                Advice::WillNeed if cx.pace().ahead == 0 => {}
                Advice::Renew | Advice::DontNeedShort => {}
                _ => self.prefetch().heed(who, (first, end), advice),
            }
        }
        self.run_willneed_ranges(cx);
    }

    /// Asks for more of the announced pages, as far as there is room.
    fn run_willneed_ranges(&mut self, cx: &mut Cx<'_>) {
        let start = cx.effects.len();
        let limit = cx.pace().ahead.min(WILLNEED_RANGE);
        // Some pages at a time: bursts, which other readers may send.
        let next = self.prefetch();
        if next.flights.fare(limit).room < limit / 4 || !next.has_willneed_range(limit) {
            return;
        }
        let limit = self.most_under_way(cx, limit);
        let mut looks = WILLNEED_RANGE;
        while looks > 0 {
            let pages = self.prefetch().take_announced(limit, looks);
            looks -= pages.len() as u32;
            if pages.is_empty() {
                break;
            }
            self.ask_announced(cx, pages);
        }
        gather(cx.effects, start);
        if looks == 0 && self.prefetch().has_willneed_range(limit) {
            // Perhaps every page is here, and no arrival brings us back; others come first.
            cx.arm(cx.now, Timer::Ahead(self.segment()));
        }
    }
}
