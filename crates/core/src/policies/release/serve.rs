//! Serves requests of other nodes for diffs and copies.

use super::feeds::{Feeds, LEFT};
use super::intervals::Intervals;
use super::memory::Memory;
use super::messages::{Body, CopyReply, CopyRequest, CopyRequests, DiffMissing, DiffRequest};
use super::page::{Copy, Page};
use super::push_credit::PushCredit;
use super::replicas::Replicas;
use super::rules::Rules;
use super::{Release, envelope, say};
use crate::effect::Source;
use crate::event::Event;
use crate::shell::Cx;
use pagemesh_wire::peer::{Contents, DiffName, Message};
use pagemesh_wire::{NodeId, PageIndex, RequestId};

/// What this node has for others, with what says what they get: they request it, or it is pushed.
pub(super) struct SupplyContext<'a, 'b> {
    pub(super) cx: &'a mut Cx<'b>,
    pub(super) rules: Rules,
    pub(super) intervals: &'a Intervals,
    pub(super) memory: &'a mut Memory,
    pub(super) replicas: &'a mut Replicas,
    pub(super) push: &'a mut PushCredit,
    pub(super) feeds: &'a mut Feeds,
}

impl Release {
    /// Opens what other nodes get.
    pub(super) fn supply<'a, 'b>(&'a mut self, cx: &'a mut Cx<'b>) -> SupplyContext<'a, 'b> {
        SupplyContext {
            cx,
            rules: self.rules,
            intervals: &self.intervals,
            memory: &mut self.memory,
            replicas: &mut self.replicas,
            push: &mut self.push,
            feeds: &mut self.feeds,
        }
    }
}

impl SupplyContext<'_, '_> {
    /// A node requests diffs: those of this node are made now (T8).
    pub(super) fn wanted(&mut self, from: NodeId, want: &DiffRequest) {
        if want.diffs.len() > DiffRequest::LIMIT {
            return self.cx.emit(Event::Malformed {});
        }
        let me = self.cx.me();
        if want.request == RequestId::NONE {
            return self.push.used_by(me, from, &want.diffs);
        }
        let diffs = want.diffs.iter().copied();
        let known = diffs.filter(|name| self.memory.pages.get(&name.page).is_some());
        let known: Vec<_> = known.collect();
        // The backup gets all diffs in any case.
        if self.replicas.backup() != Some(from) {
            self.push.requested(me, from, &known);
        }
        self.memory.give_each(self.cx, &known);
        for name in &want.diffs {
            self.memory.make_named(self.cx, name);
        }
        let (names, absent): (Vec<DiffName>, Vec<DiffName>) = want
            .diffs
            .iter()
            .copied()
            .partition(|name| self.memory.diffs.has(name));
        if !absent.is_empty() {
            let absent = DiffMissing {
                request: want.request,
                diffs: absent,
                floor: self.intervals.history.floor().clone(),
            };
            say(
                self.cx,
                self.rules.segment,
                from,
                &Body::DiffMissing(absent),
            );
        }
        if !names.is_empty() {
            self.memory
                .send_diffs(self.cx, from, want.request, names, u16::MAX);
        }
    }

    /// A node requests base copies.
    pub(super) fn fetch_many(&mut self, from: NodeId, many: &CopyRequests) {
        if many.copies.len() > CopyRequests::LIMIT {
            return self.cx.emit(Event::Malformed {});
        }
        let own = self.leave_to_readers(from, many);
        // All pages are protected before the first one is sent: the driver does it by one call.
        for (page, _) in &own {
            self.memory.give_all(self.cx, *page);
        }
        for (page, request) in own {
            let fetch = CopyRequest {
                page,
                reader: from,
                request,
                floor: many.floor.clone(),
                hops: 0,
            };
            self.fetch(fetch);
        }
    }

    /// A node requests a base copy. A node without one forwards the request to the page's keeper.
    pub(super) fn fetch(&mut self, fetch: CopyRequest) {
        let (me, index) = (self.cx.me(), fetch.page);
        if index.0 >= self.rules.size || fetch.reader == me || !self.cx.is_alive(fetch.reader) {
            return;
        }
        let keeper = self.memory.pages.get(&index).and_then(|page| {
            let deputy = page
                .deputy
                .filter(|_| page.keeper.is_some_and(|one| self.cx.is_gone(one)));
            deputy.or(page.keeper)
        });
        if self.has_copy(&fetch) {
            if !self.is_delayed(&fetch) {
                self.send_copy(&fetch);
            }
            return;
        }
        if fetch.hops == LEFT {
            // The reader asks again, and the node that left this request serves the next.
            if let Some(fetch) = self.memory.pages.wait_for_copy(fetch) {
                self.send_base(&fetch, Contents::None, None);
            }
            return;
        }
        let home = self.cx.home(self.rules.segment) == me;
        let current = self.intervals.history.time().covers(&fetch.floor);
        match keeper {
            // A keeper that requests its own page has lost it together with a node.
            Some(keeper)
                if keeper != me
                    && keeper != fetch.reader
                    && fetch.hops == 0
                    && self.cx.is_alive(keeper) =>
            {
                let hops = 1;
                let said = Body::CopyRequest(CopyRequest { hops, ..fetch });
                say(self.cx, self.rules.segment, keeper, &said);
            }
            None if home
                && current
                && self
                    .intervals
                    .has_keepers(self.cx, self.rules.segment.home()) =>
            {
                self.send_base(&fetch, Contents::Zero, None);
            }
            // Asked because the acting home does not know the keeper.
            None if !home
                && self.intervals.inquiries.is_synced()
                && !self.intervals.missed_round =>
            {
                // Otherwise what is collected is about to be told, and the request is repeated.
                if self.intervals.history.floor().covers(&fetch.floor) {
                    self.send_base(&fetch, Contents::Zero, None);
                }
            }
            _ => self.send_base(&fetch, Contents::None, None),
        }
    }

    /// Whether the copy has an interval that is not kept: the request waits for that.
    fn is_delayed(&mut self, fetch: &CopyRequest) -> bool {
        let page = self.memory.pages.get(&fetch.page);
        let last = page.map_or(0, |page| page.notices.applied().get(self.cx.me()));
        let of = (self.rules.segment, &self.intervals.history);
        self.replicas.delay(self.cx, of, last, fetch)
    }

    /// Whether this node has a copy that serves the request.
    pub(super) fn has_copy(&self, fetch: &CopyRequest) -> bool {
        let page = self.memory.pages.get(&fetch.page);
        let has = page.is_some_and(|page| {
            page.copy != Copy::None && page.lost.is_none() && !page.notices.lacks(&fetch.floor)
        });
        has && self.intervals.history.time().covers(&fetch.floor)
    }

    /// Sends this node's copy of a page, with all its own ended intervals in it and nothing of the
    /// present one.
    fn send_copy(&mut self, fetch: &CopyRequest) {
        let (segment, index) = (self.rules.segment, fetch.page);
        let page = self.memory.pages.get(&index);
        let last = page.and_then(|page| page.notices.of(self.cx.me()).next());
        if fetch.hops == LEFT {
            let page = index;
            self.cx.emit(Event::CopySentOn { segment, page });
        }
        self.memory.give_all(self.cx, index);
        self.push.copied(fetch.reader, index, last);
        let given = |page: Option<&Page>| page.is_some_and(Page::is_given);
        if !given(self.memory.pages.get(&index)) {
            self.memory.make_diff(self.cx, index, false);
        }
        let Some(page) = self.memory.pages.get(&index) else {
            return;
        };
        let source = match page.copy {
            Copy::Stash => Source::Stash,
            _ if page.twin && !page.is_given() => Source::Twin,
            _ => Source::Frame,
        };
        self.send_base(fetch, Contents::Bytes, Some(source));
    }

    fn send_base(&mut self, fetch: &CopyRequest, contents: Contents, source: Option<Source>) {
        let index: PageIndex = fetch.page;
        let page = self.memory.pages.get(&index);
        let mut applied = self.intervals.history.floor().clone();
        if let Some(page) = page.filter(|_| source.is_some()) {
            applied.join(page.notices.applied());
        }
        let base = CopyReply {
            page: index,
            request: fetch.request,
            contents,
            applied,
        };
        let page = source.map(|source| (self.rules.segment, index, source));
        let said = envelope(self.rules.segment, &Body::CopyReply(base));
        let message = match page {
            Some(_) => Message::PolicyPage(said),
            None => Message::Policy(said),
        };
        self.cx.send_page(fetch.reader, message, page);
    }
}
