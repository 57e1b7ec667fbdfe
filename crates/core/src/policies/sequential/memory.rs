//! What a node has of the pages of a segment, and what waits for them.
//!
//! All work on a page is done through [`Memory::at`]: what that leaves for the segment to do (requests
//! for the library site, pins that go on, pages that came ahead) is done before it returns.

use super::context::{Deferred, PageContext};
use super::hold::Hold;
use super::library::Libraries;
use super::page::{More, Page};
use super::page_here::PageHere;
use super::pins::Pins;
use super::replicas::Replicas;
use super::rules::Rules;
use super::table::Table;
use crate::prefetch::Prefetch;
use crate::shell::Cx;
use core::time::Duration;
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::{ClientId, MappingId, NodeId, NodeSet, PageIndex, Ticket};

/// The pages, and what keeps, orders and awaits them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Memory {
    pub(super) rules: Rules,
    pub(super) pages: Table,
    /// Pages whose frames have contents.
    pub(super) frames: u32,
    /// The snapshot that is being taken.
    pub(super) hold: Hold,
    /// At the library site of a fixed manager.
    pub(super) libraries: Libraries,
    pub(super) pins: Pins,
    pub(super) prefetch: Prefetch,
    /// What this node keeps for others, and others for it.
    pub(super) replicas: Replicas,
}

impl Memory {
    /// Of a segment with so many pages, of which nothing is known yet.
    pub(super) fn new(rules: Rules, pages: u32) -> Self {
        Self {
            rules,
            pages: Table::default(),
            frames: 0,
            hold: Hold::default(),
            libraries: Libraries::default(),
            pins: Pins::default(),
            prefetch: Prefetch::default(),
            replicas: Replicas::of(pages),
        }
    }

    /// Opens one page, works on it, and does what the work leaves for the segment to do.
    pub(super) fn at<T>(
        &mut self,
        cx: &mut Cx<'_>,
        index: PageIndex,
        work: impl FnOnce(&mut PageContext<'_, '_>) -> T,
    ) -> T {
        let rules = self.rules;
        let home = rules.segment.home();
        let page = self.pages.page(index, || Page::new(home));
        let before = page.filled;
        let mut context = PageContext {
            here: PageHere {
                cx,
                rules: &rules,
                index,
                page,
                held_until: self.hold.until(),
                notes: self.replicas.notes(rules.segment, index),
            },
            after: Deferred::default(),
        };
        let result = work(&mut context);
        context.serve_copy_waiters();
        let after = context.after;
        page.own.settle();
        let used = &mut cx.shell.memory.used;
        match (before, page.filled) {
            (false, true) => (self.frames, *used) = (self.frames + 1, *used + 1),
            (true, false) if self.frames > 0 => (self.frames, *used) = (self.frames - 1, *used - 1),
            _ => {}
        }
        self.clear_up(cx, index, after);
        result
    }

    fn clear_up(&mut self, cx: &mut Cx<'_>, index: PageIndex, after: Deferred) {
        for waiter in after.to_library {
            self.ask_library(cx, index, waiter);
        }
        if let Some((node, request, clock)) = after.served_here {
            self.served(cx, index, (node, request), clock);
        }
        for (ticket, with) in after.pins_lost {
            if self.pins.remove(ticket) {
                cx.refuse(ticket, Refusal::NodeGone(with));
            }
        }
        for ticket in after.pinned {
            self.advance_pin(cx, ticket);
        }
        if after.came_ahead
            && let Some(again) = self.prefetch.flights.came(cx.now, index, after.from)
        {
            self.ask_again(cx, again);
        }
        if after.stays_out {
            self.prefetch.flights.forget(index);
        }
    }

    /// Does the same to each of these pages.
    pub(super) fn each(
        &mut self,
        cx: &mut Cx<'_>,
        pages: impl IntoIterator<Item = PageIndex>,
        mut work: impl FnMut(&mut PageContext<'_, '_>),
    ) {
        for page in pages {
            self.at(cx, page, &mut work);
        }
    }

    /// The timer of a page is due. With `patience`: accesses that have waited as long fail.
    pub(super) fn page_due(
        &mut self,
        cx: &mut Cx<'_>,
        page: PageIndex,
        patience: Option<Duration>,
    ) {
        if let Some(patience) = patience {
            self.at(cx, page, |context| context.time_out(patience));
        }
        let again = self.libraries.due(cx, (self.rules, page));
        self.check_out(cx, page, again);
        // Most timers belong to requests that were served long ago.
        let known = self.pages.get(page);
        if known.is_some_and(|page| page.own.busy().is_some()) {
            self.at(cx, page, |context| context.due());
        }
    }

    /// A request is withdrawn. True if it waited here.
    pub(super) fn cancel(&mut self, ticket: Ticket) -> bool {
        let mut had = self.pins.remove(ticket);
        had |= self.replicas.waiting.cancel(ticket);
        for more in self.pages.under_way() {
            had |= more.cancel(ticket);
        }
        had
    }

    /// A mapping is gone: forgets the threads that waited in it.
    pub(super) fn unmapped(&mut self, mapping: MappingId) {
        for more in self.pages.under_way() {
            more.unmapped(mapping);
        }
        self.prefetch.unmapped(mapping);
    }

    /// A process is gone: removes its pins.
    pub(super) fn client_gone(&mut self, cx: &mut Cx<'_>, client: ClientId) {
        self.pins.client_gone(client);
        self.prefetch.client_gone(client);
        self.end_hold(cx, client);
        self.replicas.waiting.client_gone(client);
        let pins = |more: &More| more.pins.are_of(client);
        let is_pinned = |page: &Page| page.own.busy().is_some_and(|busy| pins(&busy.more));
        let pinned = self.pages.those(is_pinned);
        self.each(cx, pinned, |context| {
            context.unpin(|pins| {
                pins.client_gone(client);
                true
            })
        });
    }

    pub(super) fn member_gone(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        for page in self.libraries.forget(node) {
            let next = self.libraries.advance(cx, (self.rules, page));
            self.check_out(cx, page, next);
        }
        let all = self.pages.those(|_| true);
        self.each(cx, all, |context| context.member_gone(node));
        let (replicas, mut segment) = self.replicas(cx);
        replicas.member_gone(&mut segment, node);
        self.pump(cx);
    }

    /// Lives are over, and their numbers are to be forgotten.
    pub(super) fn forget_names(&mut self, over: &NodeSet) {
        let home = self.rules.segment.home();
        for page in self.pages.pages_mut() {
            page.forget_names(home, over);
        }
        self.replicas.forget_names(over);
    }

    /// This node is no member any more: its pages are invalid.
    pub(super) fn expelled(&mut self, cx: &mut Cx<'_>) {
        self.libraries = Libraries::default();
        self.hold = Hold::default();
        self.prefetch = Prefetch::default();
        let all = self.pages.those(|_| true);
        self.each(cx, all, |context| context.expelled());
        let (replicas, mut segment) = self.replicas(cx);
        replicas.forget(&mut segment);
    }
}
