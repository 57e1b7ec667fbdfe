//! Asking for pages before they are touched: from donors together, from the disk in runs.

use super::Private;
use super::memory::{Memory, rights_for};
use super::page::Place;
use crate::effect::{Effect, Mappings, PageRange, Source};
use crate::event::Event;
use crate::policies::hooks::Who;
use crate::prefetch::{Ahead, Burst, Prefetch, WillneedRanges, quiet};
use crate::shell::Cx;
use crate::timers::Timer;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::Access;
use pagemesh_wire::{MappingId, NodeId, PageIndex, SegmentId};

/// This part of the segment's memory is given up at once for announced pages.
const ANNOUNCED: u32 = 8;

impl Private {
    /// A thread faulted at a page that is not here: asks ahead if the process walks.
    pub(super) fn walk(&mut self, cx: &mut Cx<'_>, who: Who, page: PageIndex, access: Access) {
        // A burst takes a part of the segment's memory at most.
        let limit = cx
            .pace()
            .ahead
            .min(self.memory.room(cx) / 2 + self.memory.staged.len() / 2)
            .min(self.memory.frames.longest_burst(self.memory.limit(cx)));
        if limit == 0 {
            return;
        }
        let fare = self.prefetch.flights.fare(limit);
        let walks = self.prefetch.walks.entry(who.client).or_default();
        if let Some(burst) = walks.fault(page, access, who.pages, fare) {
            self.ask_burst(cx, who.mapping, burst);
        }
    }

    fn ask_burst(&mut self, cx: &mut Cx<'_>, mapping: MappingId, burst: Burst) {
        let pages: Vec<_> = burst.pages().collect();
        self.tend(cx, pages.len() as u32);
        let mut asked = SortedMap::new();
        let mut zeros = Vec::new();
        for (step, page) in pages.into_iter().enumerate() {
            let mark = step == 0;
            if self.memory.pages.contains_key(&page) {
                let ahead = Ahead { mapping, mark };
                self.begin_ahead(cx, (ahead, Some(burst.access)), page, &mut asked);
            } else if !mark {
                zeros.push(page);
            }
        }
        self.ask_all(cx, asked);
        self.memory.fill_zeros(cx, (mapping, burst.access), zeros);
    }

    /// Opens a request ahead for a page that a donor has; one that is on the disk is read now.
    fn begin_ahead(
        &mut self,
        cx: &mut Cx<'_>,
        (ahead, walk): (Ahead, Option<Access>),
        page: PageIndex,
        asked: &mut SortedMap<NodeId, Vec<PageIndex>>,
    ) {
        let Some(known) = self.memory.pages.get(&page).copied() else {
            return;
        };
        let is_open = self.fetches.contains_key(&page);
        if known.place != Place::Out || is_open || self.memory.room(cx) == 0 {
            return;
        }
        let segment = self.memory.rules.segment;
        if self.memory.reads_disk(cx, &known) {
            self.memory.hold(cx);
            let seen = (ahead.mapping, walk.unwrap_or(Access::Read));
            let waiters = if ahead.mark { &[][..] } else { &[seen][..] };
            self.memory.load(cx, page, waiters);
            if walk.is_some() {
                self.memory.came_by_walk(cx, page);
            }
            return;
        }
        if known.donors.is_empty() {
            return;
        }
        self.memory.hold(cx);
        if let Some(from) = self.open_fetch(cx, page, None, (Some(ahead), walk)) {
            cx.emit(Event::AskedAhead { segment, page });
            asked.entry(from).or_default().push(page);
            if let Some(look) = self.prefetch.flights.asked(cx.now, from, page, quiet(cx)) {
                cx.arm(look, Timer::Ahead(segment));
            }
        }
    }

    fn ask_all(&self, cx: &mut Cx<'_>, asked: SortedMap<NodeId, Vec<PageIndex>>) {
        for (from, pages) in asked {
            self.ask(cx, from, &pages);
        }
    }

    /// A page has come: those that it has overtaken are asked for again.
    pub(super) fn came_ahead(&mut self, cx: &mut Cx<'_>, page: PageIndex) {
        if let Some(again) = self.prefetch.flights.came(cx.now, page, None) {
            self.repair(cx, again);
            self.run_willneed_ranges(cx);
        }
    }

    fn repair(&mut self, cx: &mut Cx<'_>, pages: Vec<PageIndex>) {
        let segment = self.memory.rules.segment;
        let mut asked: SortedMap<NodeId, Vec<PageIndex>> = SortedMap::new();
        for page in pages {
            let known = self.memory.pages.get(&page);
            let known = known.filter(|_| self.fetches.contains_key(&page));
            if let Some(from) = known.and_then(|known| known.donors.after(None)) {
                cx.emit(Event::Repaired { segment, page });
                asked.entry(from).or_default().push(page);
            }
        }
        self.ask_all(cx, asked);
    }

    /// The check for pages asked for ahead is due.
    pub(super) fn look_ahead(&mut self, cx: &mut Cx<'_>) {
        let fetches = &self.fetches;
        let waits = |page| fetches.contains_key(&page);
        let (again, next) = self.prefetch.flights.look(cx.now, quiet(cx), waits);
        if let Some(next) = next {
            cx.arm(next, Timer::Ahead(self.memory.rules.segment));
        }
        self.repair(cx, again);
        self.run_willneed_ranges(cx);
    }
}

impl Memory {
    /// Fills frames with zeros where a thread is about to come for the first time, neighbours by one
    /// call of the kernel. One that is never stored to all the same costs a write to the disk.
    fn fill_zeros(
        &mut self,
        cx: &mut Cx<'_>,
        (mapping, access): (MappingId, Access),
        mut pages: Vec<PageIndex>,
    ) {
        pages.truncate(self.room(cx) as usize);
        let rights = rights_for(access);
        let mappings = Mappings::One(mapping);
        for page in &pages {
            self.hold(cx);
            self.framed(cx.now, *page, rights);
        }
        for pages in PageRange::of(self.rules.segment, &pages) {
            let source = Source::Zero;
            cx.push(Effect::Fill { pages, source });
            cx.push(Effect::Map {
                mappings,
                pages,
                rights,
            });
        }
    }
}

impl WillneedRanges for Private {
    fn segment(&self) -> SegmentId {
        self.memory.rules.segment
    }

    fn prefetch(&mut self) -> &mut Prefetch {
        &mut self.prefetch
    }

    fn most_under_way(&mut self, cx: &mut Cx<'_>, limit: u32) -> u32 {
        let more = self.prefetch.flights.fare(limit).room;
        let wanted = more.min(self.memory.limit(cx) / ANNOUNCED).max(1);
        if self.memory.room(cx) < wanted {
            self.tend(cx, wanted);
        }
        limit - more + self.memory.room(cx).min(wanted)
    }

    fn ask_announced(&mut self, cx: &mut Cx<'_>, pages: Vec<(PageIndex, MappingId)>) {
        let mut asked = SortedMap::new();
        for (page, mapping) in pages {
            let ahead = Ahead::announced(mapping);
            self.begin_ahead(cx, (ahead, None), page, &mut asked);
        }
        self.ask_all(cx, asked);
    }
}
