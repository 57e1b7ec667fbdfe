//! Asking for pages before they are touched: where a process has announced that it will need them
//! or that it walks from front to back, and where its faults show that it walks. A walk that only
//! shows goes on over pages without a copy here that the same node wrote last. The node that is asked
//! makes its diff of the page at once, and its next store to that page faults, so a guess beyond the
//! end of a walk costs the programs there; where there is a copy, each phase would guess again.
//!
//! A page asked for ahead is made whole like any other, though no thread waits for it; then it may
//! be read where it is expected to be touched. Its requests are repeated like any other, too: a
//! page that later ones have overtaken is not requested again at once, because it may need a copy
//! first and then diffs.

use super::Release;
use super::page::{Copy, Miss, Page};
use crate::event::Event;
use crate::policies::hooks::Who;
use crate::prefetch::{Ahead, Burst, Prefetch, WillneedRanges, quiet};
use crate::shell::Cx;
use crate::timers::Timer;
use pagemesh_wire::peer::Access;
use pagemesh_wire::{MappingId, NodeId, PageIndex, SegmentId};

impl Release {
    /// A thread faulted. Returns the pages it will come to, if it walks; the caller requests them
    /// after the page of the fault.
    pub(super) fn walk(
        &mut self,
        cx: &mut Cx<'_>,
        who: Who,
        page: PageIndex,
        access: Access,
    ) -> Vec<PageIndex> {
        let limit = cx.pace().ahead;
        if limit == 0 {
            return Vec::new();
        }
        let fare = self.prefetch.flights.fare(limit);
        let walks = self.prefetch.walks.entry(who.client).or_default();
        let Some(burst) = walks.fault(page, access, who.pages, fare) else {
            return Vec::new();
        };
        let announced = walks.is_announced();
        let writer = self.writer_of(page);
        if !announced && writer.is_none() {
            return Vec::new();
        }
        self.open_burst(cx, who.mapping, burst, |release, page| {
            announced || release.writer_of(page) == writer
        })
    }

    /// The node that wrote a page last, if this node has no copy of it.
    fn writer_of(&self, page: PageIndex) -> Option<NodeId> {
        let page = self.pages.get(&page)?;
        let lacking = page.notices.last_lacking();
        lacking.filter(|_| page.copy == Copy::None)
    }

    /// Begins to make the pages of a burst whole. Returns those for which that is necessary.
    fn open_burst(
        &mut self,
        cx: &mut Cx<'_>,
        mapping: MappingId,
        burst: Burst,
        belongs: impl Fn(&Self, PageIndex) -> bool,
    ) -> Vec<PageIndex> {
        // A store faults anyway, for a twin.
        let stops = burst.access == Access::Write;
        let mut opened = Vec::new();
        for (at, page) in burst.pages().enumerate() {
            let mark = stops || at == 0;
            if belongs(self, page) && self.open_ahead(cx, page, Ahead { mapping, mark }) {
                opened.push(page);
            }
        }
        opened
    }

    /// Begins to make a page whole for which no thread waits. Returns false if it is whole, or
    /// being made whole, or not to be asked for.
    pub(super) fn open_ahead(&mut self, cx: &mut Cx<'_>, index: PageIndex, ahead: Ahead) -> bool {
        if index.0 >= self.size || self.collector.leaves() {
            return false;
        }
        // Zeros need no request and no state.
        let is_zeros = |page: &Page| page.copy == Copy::None && page.notices.is_empty();
        if self.history.floor().is_empty() && self.pages.get(&index).is_none_or(is_zeros) {
            return false;
        }
        let timer = self.timer(index);
        let page = self.pages.page(index);
        if page.copy == Copy::Frame || page.miss.is_some() || page.lost.is_some() {
            return false;
        }
        let mut miss = Miss::new(cx.backoff(timer), cx.now);
        miss.ahead = Some(ahead);
        page.miss = Some(Box::new(miss));
        // The process has announced the page, or has used the pages before it: the page is used.
        // This is valid once: the next time its use must show by a fault.
        if self.note_own_use(index) {
            self.pages.page(index).believed = true;
        }
        true
    }

    /// Requests what these pages lack.
    pub(super) fn ask_ahead(&mut self, cx: &mut Cx<'_>, pages: Vec<PageIndex>) {
        let segment = self.segment;
        for page in pages {
            self.go_on(cx, page);
            let Some(node) = self.pages.miss(page).and_then(|miss| miss.asks()) else {
                continue;
            };
            cx.emit(Event::AskedAhead { segment, page });
            let look = self.prefetch.flights.asked(cx.now, node, page, quiet(cx));
            if let Some(look) = look {
                cx.arm(look, Timer::Ahead(segment));
            }
        }
    }

    /// A page is whole; if it was asked for ahead, maps it and goes on with the willneed ranges.
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
            self.run_willneed_ranges(cx);
        }
    }

    /// The timer for requests ahead fired: gives up what stays out too long, and goes on with the
    /// willneed ranges.
    pub(super) fn look_ahead(&mut self, cx: &mut Cx<'_>) {
        let given_up = |_| false;
        let (_, next) = self.prefetch.flights.look(cx.now, quiet(cx), given_up);
        if let Some(next) = next {
            cx.arm(next, Timer::Ahead(self.segment));
        }
        self.run_willneed_ranges(cx);
    }
}

/// `DontNeed` drops nothing here: no other node waits for the pages.
impl WillneedRanges for Release {
    fn segment(&self) -> SegmentId {
        self.segment
    }

    fn prefetch(&mut self) -> &mut Prefetch {
        &mut self.prefetch
    }

    fn run_willneed_range(&mut self, cx: &mut Cx<'_>, page: PageIndex, ahead: Ahead) {
        if self.open_ahead(cx, page, ahead) {
            self.initial_sync(cx);
            self.ask_ahead(cx, vec![page]);
        }
    }
}
