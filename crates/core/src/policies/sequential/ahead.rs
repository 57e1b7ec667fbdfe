//! Asking for pages before they are touched. A page asked for ahead is requested like any other;
//! when it arrives, it is mapped where it is expected to be touched, and may leave at once, since
//! no thread waits for it.

use super::context::PageContext;
use super::memory::Memory;
use super::page_here::PageHere;
use super::table::Table;
use crate::effect::Rights;
use crate::event::Event;
use crate::policies::hooks::Who;
use crate::prefetch::{Ahead, Burst, Prefetch, WillneedRanges, beside, gather, quiet};
use crate::shell::Cx;
use crate::timers::Timer;
use pagemesh_wire::peer::{Access, Manager};
use pagemesh_wire::{MappingId, NodeId, PageIndex, SegmentId};

/// A request ahead is given up after this many times the first wait for an answer.
const PATIENCE: u32 = 5;

impl Memory {
    /// A thread faulted: asks ahead if the process walks.
    pub(super) fn walk(&mut self, cx: &mut Cx<'_>, who: Who, page: PageIndex, access: Access) {
        let limit = cx.pace().ahead;
        if limit == 0 {
            return;
        }
        let fare = self.prefetch.flights.fare(limit);
        let walks = self.prefetch.walks.entry(who.client).or_default();
        if let Some(burst) = walks.fault(page, access, who.pages, fare) {
            self.ask_burst(cx, who.mapping, burst);
        } else if access == Access::Write && walks.is_elsewhere() {
            let nodes = (cx.me(), self.rules.segment.home());
            for page in self.pages.new_beside(nodes, page, who.pages) {
                let (mapping, mark) = (who.mapping, false);
                self.ask_ahead(cx, page, Access::Write, Ahead { mapping, mark });
            }
        }
    }

    fn ask_burst(&mut self, cx: &mut Cx<'_>, mapping: MappingId, burst: Burst) {
        let start = cx.effects.len();
        let access = burst.access;
        for (at, page) in burst.pages().enumerate() {
            let mark = at == 0;
            self.ask_ahead(cx, page, access, Ahead { mapping, mark });
        }
        gather(cx.effects, start);
    }

    /// Asks for a page ahead unless it is here, or something is under way about it.
    fn ask_ahead(&mut self, cx: &mut Cx<'_>, page: PageIndex, access: Access, ahead: Ahead) {
        let asked = self.at(cx, page, |context| context.ask_ahead(access, ahead));
        if let Some(node) = asked
            && let Some(look) = self.prefetch.flights.asked(cx.now, node, page, quiet(cx))
        {
            cx.arm(look, Timer::Ahead(self.rules.segment));
        }
    }

    /// Asks again for pages that stay out, and then for more of the announced ones.
    pub(super) fn ask_again(&mut self, cx: &mut Cx<'_>, pages: Vec<PageIndex>) {
        if !pages.is_empty() {
            let start = cx.effects.len();
            self.each(cx, pages, |context| context.ask_again());
            gather(cx.effects, start);
        }
        self.run_willneed_ranges(cx);
    }

    /// The timer for requests ahead fired: asks again for pages that stay out too long.
    pub(super) fn look_ahead(&mut self, cx: &mut Cx<'_>) {
        let pages = &self.pages;
        let waits = |page| pages.wants(page);
        let (again, next) = self.prefetch.flights.look(cx.now, quiet(cx), waits);
        if let Some(next) = next {
            cx.arm(next, Timer::Ahead(self.rules.segment));
        }
        self.ask_again(cx, again);
    }
}

impl Table {
    /// A thread of node `me` stores to a page far from its last ones: the pages that it is expected to
    /// store to next, as far as only this node knows them.
    fn new_beside(
        &self,
        (me, home): (NodeId, NodeId),
        page: PageIndex,
        size: u32,
    ) -> Vec<PageIndex> {
        let is_writable = |page| (self.get(page)).is_some_and(|it| it.rights == Rights::Write);
        let is_new = |page: &PageIndex| match self.get(*page) {
            _ if page.0 >= size => false,
            Some(page) => page.is_new_at(me),
            None => home == me,
        };
        let (_, after) = beside(page, is_writable);
        after.take_while(is_new).collect()
    }
}

impl WillneedRanges for Memory {
    fn segment(&self) -> SegmentId {
        self.rules.segment
    }

    fn prefetch(&mut self) -> &mut Prefetch {
        &mut self.prefetch
    }

    fn ask_announced(&mut self, cx: &mut Cx<'_>, pages: Vec<(PageIndex, MappingId)>) {
        for (page, mapping) in pages {
            self.ask_ahead(cx, page, Access::Read, Ahead::announced(mapping));
        }
    }

    /// Drops the copies of pages that other nodes own.
    fn do_without(&mut self, cx: &mut Cx<'_>, first: PageIndex, end: PageIndex) {
        if self.hold.until() > cx.now {
            // The process that saves relies on the copies.
            return;
        }
        let me = cx.me();
        let copies = self.pages.between(first, end).filter(|(_, page)| {
            page.own.hint != me && page.own.busy().is_none() && page.rights > Rights::None
        });
        let copies: Vec<_> = copies.map(|(page, _)| page).collect();
        self.each(cx, copies, |context| context.here.evict(false));
    }
}

impl PageContext<'_, '_> {
    /// Requests the page though no thread waits for it. Returns the node that was asked.
    fn ask_ahead(&mut self, access: Access, ahead: Ahead) -> Option<NodeId> {
        let (segment, page) = self.here.at();
        if self.here.page.allows(access) {
            self.here.show(ahead);
            return None;
        }
        if self.here.page.busy().is_some() {
            return None;
        }
        let owner = match self.here.rules.manager {
            Manager::Dynamic => self.here.page.own.hint,
            Manager::Fixed => self.here.home(),
        };
        self.here.page.more().ahead = Some(ahead);
        self.open_request(access);
        self.here.cx.emit(Event::AskedAhead { segment, page });
        let open = self.here.page.own.want().is_some() && owner != self.here.cx.me();
        open.then_some(owner)
    }

    /// Repeats the request: it or its answer may have been lost.
    fn ask_again(&mut self) {
        let (segment, page) = self.here.at();
        if self.here.page.own.want().is_some() {
            self.here.cx.emit(Event::Repaired { segment, page });
            self.submit_again();
        }
    }

    /// A page asked for ahead does not arrive: its request is given up in time, and a thread that
    /// needs the page will request it. Such a request is not repeated as others are, because many
    /// of them at once would occupy a slow node.
    pub(super) fn give_up_ahead(&mut self) {
        let timer = self.here.timer();
        let now = self.here.cx.now;
        let patience = self.here.cx.pace().resend_first * PATIENCE;
        let subject = self.here.subject();
        let Some(busy) = self.here.page.own.busy_if_any() else {
            return;
        };
        let Some(want) = &mut busy.want else { return };
        if now < want.since + patience {
            if want.backoff.fire(now, self.here.cx.pace()) {
                let due = want.backoff.due();
                self.here.cx.arm(due, timer);
            }
            return;
        }
        self.here.cx.end(&want.backoff, timer);
        busy.want = None;
        busy.more.ahead = None;
        self.after.stays_out = true;
        self.here.page.own.send_on(self.here.cx, subject);
    }

    /// Rights rose: maps the page where it is expected to be touched. Returns true if the page was
    /// asked for ahead.
    pub(super) fn show_ahead(&mut self) -> bool {
        let Some(more) = self.here.page.more_if_any() else {
            return false;
        };
        let Some(ahead) = more.ahead.take() else {
            return false;
        };
        let nobody_waits = more.faults.is_empty();
        let (segment, page) = self.here.at();
        self.after.came_ahead = true;
        if nobody_waits {
            self.here.cx.emit(Event::CameAhead { segment, page });
            self.here.show(ahead);
        }
        true
    }
}

impl PageHere<'_, '_> {
    fn show(&mut self, ahead: Ahead) {
        if !ahead.mark {
            self.map(ahead.mapping, self.page.rights);
        }
    }
}
