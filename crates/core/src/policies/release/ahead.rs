//! Asking for pages before they are touched: where a process has announced that it will need them
//! or that it walks from front to back, and where its faults show that it walks. A walk that only
//! shows goes on over pages that one node wrote last. The next store of that node to a page that was
//! requested faults, so a guess beyond the end of a walk costs the programs there. It is made once:
//! of pages with a copy here only those are requested that were in use until that node wrote them,
//! and a page asked for ahead was in use if the walk has passed it, or has come far.
//!
//! A page asked for ahead is made whole like any other, though no thread waits for it; then it may
//! be read where it is expected to be touched. Its requests are repeated like any other, too: a
//! page that later ones have overtaken is not requested again at once, because it may need a copy
//! first and then diffs.

use super::Release;
use super::intervals::Intervals;
use super::memory::Memory;
use super::miss::schedule;
use super::page::{Copy, Miss, Page};
use super::push_credit::PushCredit;
use super::requests::Requests;
use super::rules::Rules;
use crate::effect::Rights;
use crate::event::Event;
use crate::policies::hooks::Who;
use crate::prefetch::{Ahead, Burst, Prefetch, WillneedRanges, quiet};
use crate::shell::Cx;
use crate::time::Time;
use crate::timers::Timer;
use pagemesh_wire::peer::Access;
use pagemesh_wire::{MappingId, NodeId, PageIndex, SegmentId};

/// A burst of this many pages comes after as many pages that were used: all of it counts as used.
const LONG: u32 = 128;

/// After as many releases at locks without a barrier no stores are followed: pages that are made
/// writable in vain are named at each of them. A program of phases gives a lock away now and then.
const BY_LOCKS: u32 = 4;

/// Pages that a process will come to.
#[derive(Debug, Default)]
pub(super) struct PagesAhead {
    /// They are being made whole.
    pub(super) requested: Vec<PageIndex>,
    /// They are going to be stored to, and need nothing of other nodes.
    pub(super) alone: Vec<PageIndex>,
    /// They are going to be loaded from, and start from zeros.
    pub(super) zeros: Vec<PageIndex>,
}

/// The walk of a process, with what says which pages it may have before it touches them.
pub(super) struct WalkContext<'a, 'b> {
    pub(super) cx: &'a mut Cx<'b>,
    pub(super) rules: Rules,
    pub(super) intervals: &'a Intervals,
    pub(super) memory: &'a mut Memory,
    push: &'a mut PushCredit,
    prefetch: &'a mut Prefetch,
    releases_at_locks: u32,
    /// This node leaves.
    pub(super) leaves: bool,
}

impl Release {
    /// Opens what is ahead of a walk.
    pub(super) fn walk<'a, 'b>(&'a mut self, cx: &'a mut Cx<'b>) -> WalkContext<'a, 'b> {
        WalkContext {
            cx,
            rules: self.rules,
            intervals: &self.intervals,
            memory: &mut self.memory,
            push: &mut self.push,
            prefetch: &mut self.prefetch,
            releases_at_locks: self.releases_at_locks,
            leaves: self.collector.leaves(),
        }
    }
}

impl WalkContext<'_, '_> {
    /// A thread faulted. Returns the pages it will come to, if it walks; the caller requests them
    /// after the page of the fault.
    pub(super) fn fault(&mut self, who: Who, page: PageIndex, access: Access) -> PagesAhead {
        let limit = self.cx.pace().ahead;
        if limit == 0 {
            return PagesAhead::default();
        }
        let fare = self.prefetch.flights.fare(limit);
        let walks = self.prefetch.walks.entry(who.client).or_default();
        let announced = walks.is_announced();
        let stores = access == Access::Write && self.releases_at_locks < BY_LOCKS;
        let Some(burst) = walks.fault(page, access, who.pages, fare) else {
            let mut ahead = PagesAhead::default();
            if stores && walks.is_elsewhere() {
                ahead.alone = self.beside(page);
            }
            return ahead;
        };
        let writer = self.writer_of(page);
        let needs_none = match access {
            Access::Read => self.starts_from_zeros(page),
            Access::Write => stores && self.stores_alone(page),
        };
        if !announced && writer.is_none() && !needs_none {
            return PagesAhead::default();
        }
        self.passed(burst.before(), page, stores);
        let belongs =
            |walk: &Self, page| announced || writer.is_some() && walk.writer_of(page) == writer;
        let ahead = self.open_burst((who.mapping, stores), burst, belongs);
        if !announced && burst.len() < LONG {
            for page in &ahead.requested {
                self.memory.pages.page(*page).believed = true;
            }
        }
        ahead
    }

    /// A walk has come from one page to another: the pages between were used.
    fn passed(&mut self, from: PageIndex, to: PageIndex, stores: bool) {
        if stores {
            self.memory.pages.confirm_between(from, to);
        } else {
            self.memory.pages.used_between(from, to);
        }
    }

    /// The node whose changes this node needs to have a page whole, or needed, if it has no copy of
    /// the page, or one that was in use until that node wrote the page. If those changes are
    /// collected, the page's keeper.
    fn writer_of(&self, index: PageIndex) -> Option<NodeId> {
        let page = self.memory.pages.get(&index)?;
        match page.copy {
            Copy::None => page.notices.last_lacking().or(page.keeper),
            Copy::Stash if page.was_used => page.notices.only_lacking(),
            // It was asked for ahead, and not mapped.
            Copy::Frame if page.rights == Rights::None => {
                page.notices.last_merged().or(page.keeper)
            }
            Copy::Stash | Copy::Frame => None,
        }
    }

    /// Begins to make the pages of a burst whole, for which that is necessary.
    fn open_burst(
        &mut self,
        (mapping, stores): (MappingId, bool),
        burst: Burst,
        belongs: impl Fn(&Self, PageIndex) -> bool,
    ) -> PagesAhead {
        // Where only stores may be followed that nobody may guess, each page stops for its twin.
        let guesses = stores || burst.access == Access::Read;
        let mut found = PagesAhead::default();
        for (at, page) in burst.pages().enumerate() {
            let mark = at == 0 || !guesses;
            if stores && self.stores_alone(page) {
                found.alone.extend(Some(page).filter(|_| !mark));
            } else if burst.access == Access::Read && self.starts_from_zeros(page) {
                found.zeros.extend(Some(page).filter(|_| !mark));
            } else if stores && self.is_on_its_way(page, mapping) {
                // A walk that loads before it stores has asked for it.
                if let Some(miss) = self.memory.pages.miss(page).filter(|_| !mark) {
                    miss.stores = true;
                }
            } else if belongs(self, page) && self.open(page, Ahead { mapping, mark }) {
                found.requested.push(page);
                if let Some(miss) = self.memory.pages.miss(page) {
                    miss.stores = stores;
                }
            }
        }
        found
    }

    /// Whether a page is being made whole for a mapping though no thread waits for it.
    fn is_on_its_way(&self, page: PageIndex, mapping: MappingId) -> bool {
        let miss = self
            .memory
            .pages
            .get(&page)
            .and_then(|page| page.miss.as_ref());
        let ahead = miss.and_then(|miss| miss.ahead);
        ahead.is_some_and(|ahead| ahead.mapping == mapping)
    }

    /// Begins to make a page whole for which no thread waits. Returns false if it is whole, or
    /// being made whole, or not to be asked for.
    pub(super) fn open(&mut self, index: PageIndex, ahead: Ahead) -> bool {
        if index.0 >= self.rules.size || self.leaves {
            return false;
        }
        // Zeros need no request and no state.
        let is_zeros = |page: &Page| page.copy == Copy::None && page.notices.is_empty();
        if self.intervals.history.floor().is_empty()
            && self.memory.pages.get(&index).is_none_or(is_zeros)
        {
            return false;
        }
        let timer = self.rules.timer(index);
        let page = self.memory.pages.page(index);
        if page.copy == Copy::Frame || page.miss.is_some() || page.lost.is_some() {
            return false;
        }
        let mut miss = Miss::new(schedule(self.cx, timer, false), self.cx.now);
        miss.ahead = Some(ahead);
        page.miss = Some(Box::new(miss));
        // The process has announced the page, or has used the pages before it: the page is used.
        // This is valid once: the next time its use must show by a fault.
        if self.memory.note_own_use(self.push, index) {
            self.memory.pages.page(index).believed = true;
        }
        true
    }

    /// A page is whole. If it was asked for ahead, maps it; returns whether the willneed ranges go on.
    pub(super) fn came(&mut self, page: PageIndex, miss: &Miss) -> bool {
        let Some(ahead) = miss.ahead else {
            return false;
        };
        if miss.faults.is_empty() {
            let segment = self.rules.segment;
            self.cx.emit(Event::CameAhead { segment, page });
            let reads = [(ahead.mapping, Access::Read)];
            match (ahead.mark, miss.stores) {
                (true, _) => {}
                (false, false) => self.memory.map(self.cx, page, &reads),
                (false, true) => self.store_ahead(ahead.mapping, &[page]),
            }
        }
        let flights = &mut self.prefetch.flights;
        flights.came(self.cx.now, page, None).is_some()
    }

    /// The timer for requests ahead fired: gives up what stays out too long.
    pub(super) fn look(&mut self) {
        let (now, quiet) = (self.cx.now, quiet(self.cx));
        let (_, next) = self.prefetch.flights.look(now, quiet, |_| false);
        if let Some(next) = next {
            self.cx.arm(next, Timer::Ahead(self.rules.segment));
        }
    }
}

impl Release {
    /// Requests what these pages lack.
    pub(super) fn ask_ahead(&mut self, cx: &mut Cx<'_>, pages: Vec<PageIndex>) {
        let segment = self.rules.segment;
        let mut requests = Requests::many();
        for page in &pages {
            self.go_on_with(cx, *page, &mut requests);
        }
        requests.send(cx, self.rules.segment, self.intervals.history.floor());
        for page in pages {
            let Some(node) = self.memory.pages.miss(page).and_then(|miss| miss.asks()) else {
                continue;
            };
            cx.emit(Event::AskedAhead { segment, page });
            let look = self.prefetch.flights.asked(cx.now, node, page, quiet(cx));
            if let Some(look) = look {
                cx.arm(look, Timer::Ahead(segment));
            }
        }
    }

    /// A copy was requested again from a node whose last answer was to such a request, too. So what was
    /// requested by then is lost, a burst perhaps: it is requested again together. Else a thread that
    /// walks would wait for the repetition of each page.
    pub(super) fn repeat_burst(
        &mut self,
        cx: &mut Cx<'_>,
        page: PageIndex,
        (node, said): (NodeId, Time),
    ) {
        if !cx.shell.progress.answers_repetitions(node) {
            return;
        }
        let floor = self.intervals.history.floor();
        let lost = |miss: &Miss| {
            let asked = miss.base.is_some_and(|(asked, _)| asked == node);
            let sent = miss.backoff.said_once();
            asked && sent.is_some_and(|sent| sent <= said) && floor.covers(&miss.floor)
        };
        let near = self.memory.pages.near(page, cx.pace().ahead as usize);
        let lost = near.filter(|(_, page)| page.miss.as_deref().is_some_and(lost));
        let mut requests = Requests::many();
        for page in lost.map(|(page, _)| page).collect::<Vec<_>>() {
            let timer = self.rules.timer(page);
            if let Some(miss) = self.memory.pages.miss(page)
                && let Some((_, request)) = miss.base
            {
                cx.repeat(&mut miss.backoff, timer);
                requests.copy(node, page, request);
            }
        }
        requests.send(cx, self.rules.segment, floor);
    }
}

/// `DontNeed` drops nothing here: no other node waits for the pages.
impl WillneedRanges for Release {
    fn segment(&self) -> SegmentId {
        self.rules.segment
    }

    fn prefetch(&mut self) -> &mut Prefetch {
        &mut self.prefetch
    }

    fn ask_announced(&mut self, cx: &mut Cx<'_>, pages: Vec<(PageIndex, MappingId)>) {
        let open = |(page, mapping)| {
            let opened = self.walk(cx).open(page, Ahead::announced(mapping));
            opened.then_some(page)
        };
        let opened: Vec<_> = pages.into_iter().filter_map(open).collect();
        if !opened.is_empty() {
            self.initial_sync(cx);
            self.ask_ahead(cx, opened);
        }
    }
}
