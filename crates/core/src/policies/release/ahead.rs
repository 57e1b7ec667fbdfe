//! Asking for pages before they are touched, where a process has announced that it will need
//! them or that it goes from front to back. Nobody guesses here, as policy `sequential` does
//! (`policies/sequential/ahead.rs`): whoever is asked makes its diff of a page at once, and stops at
//! that page for the next store, so that guesses beyond the end of a walk cost those who compute there.
//!
//! A page asked for ahead is made whole like any other, though nobody waits for it; then it may be
//! read where it is expected to be touched. It is repeated like any other, too, so what was
//! overtaken is not asked for again at once: a page may need a copy first and then diffs.

use super::Release;
use super::page::{Copy, Miss, Page};
use crate::event::Event;
use crate::policies::Who;
use crate::prefetch::{Ahead, Burst, Errands, Prefetch, quiet};
use crate::shell::Cx;
use crate::timers::Timer;
use pagemesh_wire::peer::Access;
use pagemesh_wire::{MappingId, PageIndex, SegmentId};

impl Release {
    /// A thread stopped at a page. Returns the pages it will come to, if it has announced that it
    /// goes from front to back; they are to be asked for as soon as that one was.
    pub(super) fn walk(
        &mut self,
        cx: &mut Cx<'_>,
        who: Who,
        page: PageIndex,
        access: Access,
    ) -> Vec<PageIndex> {
        let limit = cx.pace().ahead;
        let fare = self.prefetch.flights.fare(limit);
        let walks = self.prefetch.walks.get_mut(&who.client);
        let announced = walks.filter(|walks| limit > 0 && walks.is_announced());
        let burst = announced.and_then(|walks| walks.fault(page, access, who.pages, fare));
        burst.map_or_else(Vec::new, |burst| self.open_burst(cx, who.mapping, burst))
    }

    /// Begins to make the pages of a burst whole; those for which that is to be done.
    fn open_burst(&mut self, cx: &mut Cx<'_>, mapping: MappingId, burst: Burst) -> Vec<PageIndex> {
        // A store stops at its page anyway, for a twin.
        let stops = burst.access == Access::Write;
        let mut opened = Vec::new();
        for (at, page) in burst.pages().enumerate() {
            let mark = stops || at == 0;
            if self.open_ahead(cx, page, Ahead { mapping, mark }) {
                opened.push(page);
            }
        }
        opened
    }

    /// Begins to make a page whole of which nobody has need yet, unless it is, or is being made.
    pub(super) fn open_ahead(&mut self, cx: &mut Cx<'_>, index: PageIndex, ahead: Ahead) -> bool {
        if index.0 >= self.size || self.leaving {
            return false;
        }
        // Zeros nobody has to be asked for, and nothing is remembered of them.
        let is_zeros = |page: &Page| page.copy == Copy::None && page.notices.is_empty();
        if self.history.floor.is_empty() && self.pages.get(&index).is_none_or(is_zeros) {
            return false;
        }
        let timer = self.timer(index);
        let page = self.pages.entry(index).or_default();
        if page.copy == Copy::Frame || page.miss.is_some() || page.lost.is_some() {
            return false;
        }
        let mut miss = Miss::new(cx.backoff(timer), cx.now);
        miss.ahead = Some(ahead);
        page.miss = Some(Box::new(miss));
        // Who announces a page says that it is used, and so does who used those before it.
        self.believe(index);
        true
    }

    /// Asks for what these pages lack.
    pub(super) fn ask_ahead(&mut self, cx: &mut Cx<'_>, pages: Vec<PageIndex>) {
        let segment = self.segment;
        for page in pages {
            self.go_on(cx, page);
            let Some(node) = self.miss(page).and_then(|miss| miss.asks()) else {
                continue;
            };
            cx.emit(Event::AskedAhead { segment, page });
            let look = self.prefetch.flights.asked(cx.now, node, page, quiet(cx));
            if let Some(look) = look {
                cx.arm(look, Timer::Ahead(segment));
            }
        }
    }

    /// A page is whole that was asked for ahead, perhaps.
    pub(super) fn came_ahead(&mut self, cx: &mut Cx<'_>, page: PageIndex, miss: &Miss) {
        let Some(ahead) = miss.ahead else { return };
        if miss.faults.is_empty() {
            let segment = self.segment;
            cx.emit(Event::CameAhead { segment, page });
            if !ahead.mark {
                self.map(cx, page, &[(ahead.mapping, Access::Read)]);
            }
        }
        if self.prefetch.flights.came(cx.now, page).is_some() {
            self.run_errands(cx);
        }
    }

    /// What was asked for ahead may have stayed out for long.
    pub(super) fn look_ahead(&mut self, cx: &mut Cx<'_>) {
        let given_up = |_| false;
        let (_, next) = self.prefetch.flights.look(cx.now, quiet(cx), given_up);
        if let Some(next) = next {
            cx.arm(next, Timer::Ahead(self.segment));
        }
        self.run_errands(cx);
    }
}

/// What a process does not need stays: nobody else waits for it.
impl Errands for Release {
    fn segment(&self) -> SegmentId {
        self.segment
    }

    fn prefetch(&mut self) -> &mut Prefetch {
        &mut self.prefetch
    }

    fn run_errand(&mut self, cx: &mut Cx<'_>, page: PageIndex, ahead: Ahead) {
        if self.open_ahead(cx, page, ahead) {
            self.greet(cx);
            self.ask_ahead(cx, vec![page]);
        }
    }
}
