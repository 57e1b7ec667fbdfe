//! Serves requests of other nodes for diffs and copies.

use super::feeds::LEFT;
use super::messages::{Body, CopyReply, CopyRequest, CopyRequests, DiffMissing, DiffRequest};
use super::page::{Copy, Page};
use super::{Release, envelope, say};
use crate::effect::Source;
use crate::event::Event;
use crate::shell::Cx;
use pagemesh_wire::peer::{Contents, DiffName, Message};
use pagemesh_wire::{NodeId, PageIndex, RequestId};

impl Release {
    /// A node requests diffs: those of this node are made now (T8).
    pub(super) fn wanted(&mut self, cx: &mut Cx<'_>, from: NodeId, want: &DiffRequest) {
        if want.diffs.len() > DiffRequest::LIMIT {
            return cx.emit(Event::Malformed {});
        }
        let me = cx.me();
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
        self.memory.give_each(cx, &known);
        for name in &want.diffs {
            self.memory.make_named(cx, name);
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
            say(cx, self.rules.segment, from, &Body::DiffMissing(absent));
        }
        if !names.is_empty() {
            self.memory
                .send_diffs(cx, from, want.request, names, u16::MAX);
        }
    }

    /// A node requests base copies.
    pub(super) fn fetch_many(&mut self, cx: &mut Cx<'_>, from: NodeId, many: &CopyRequests) {
        if many.copies.len() > CopyRequests::LIMIT {
            return cx.emit(Event::Malformed {});
        }
        let own = self.leave_to_readers(cx, from, many);
        // All pages are protected before the first one is sent: the driver does it by one call.
        for (page, _) in &own {
            self.memory.give_all(cx, *page);
        }
        for (page, request) in own {
            let fetch = CopyRequest {
                page,
                reader: from,
                request,
                floor: many.floor.clone(),
                hops: 0,
            };
            self.fetch(cx, fetch);
        }
    }

    /// A node requests a base copy. A node without one forwards the request to the page's keeper.
    pub(super) fn fetch(&mut self, cx: &mut Cx<'_>, fetch: CopyRequest) {
        let (me, index) = (cx.me(), fetch.page);
        if index.0 >= self.rules.size || fetch.reader == me || !cx.is_alive(fetch.reader) {
            return;
        }
        let keeper = self.memory.pages.get(&index).and_then(|page| {
            let deputy = page
                .deputy
                .filter(|_| page.keeper.is_some_and(|one| cx.is_gone(one)));
            deputy.or(page.keeper)
        });
        if self.has_copy(&fetch) {
            if !self.waits_for_backup(cx, &fetch) {
                self.send_copy(cx, &fetch);
            }
            return;
        }
        if fetch.hops == LEFT {
            return self.wait_for_copy(fetch);
        }
        let home = cx.home(self.rules.segment) == me;
        let current = self.intervals.history.time().covers(&fetch.floor);
        match keeper {
            // A keeper that requests its own page has lost it together with a node.
            Some(keeper)
                if keeper != me
                    && keeper != fetch.reader
                    && fetch.hops == 0
                    && cx.is_alive(keeper) =>
            {
                let hops = 1;
                say(
                    cx,
                    self.rules.segment,
                    keeper,
                    &Body::CopyRequest(CopyRequest { hops, ..fetch }),
                );
            }
            None if home
                && current
                && self.intervals.has_keepers(cx, self.rules.segment.home()) =>
            {
                self.send_base(cx, &fetch, Contents::Zero, None);
            }
            // Asked because the acting home does not know the keeper.
            None if !home
                && self.intervals.inquiries.is_synced()
                && !self.intervals.missed_round =>
            {
                // Otherwise what is collected is about to be told, and the request is repeated.
                if self.intervals.history.floor().covers(&fetch.floor) {
                    self.send_base(cx, &fetch, Contents::Zero, None);
                }
            }
            _ => self.send_base(cx, &fetch, Contents::None, None),
        }
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
    fn send_copy(&mut self, cx: &mut Cx<'_>, fetch: &CopyRequest) {
        let (segment, index) = (self.rules.segment, fetch.page);
        let page = self.memory.pages.get(&index);
        let last = page.and_then(|page| page.notices.of(cx.me()).next());
        if fetch.hops == LEFT {
            let page = index;
            cx.emit(Event::CopySentOn { segment, page });
        }
        self.memory.give_all(cx, index);
        self.push.copied(fetch.reader, index, last);
        let given = |page: Option<&Page>| page.is_some_and(Page::is_given);
        if !given(self.memory.pages.get(&index)) {
            self.memory.make_diff(cx, index, false);
        }
        let Some(page) = self.memory.pages.get(&index) else {
            return;
        };
        let source = match page.copy {
            Copy::Stash => Source::Stash,
            _ if page.twin && !page.is_given() => Source::Twin,
            _ => Source::Frame,
        };
        self.send_base(cx, fetch, Contents::Bytes, Some(source));
    }

    fn send_base(
        &self,
        cx: &mut Cx<'_>,
        fetch: &CopyRequest,
        contents: Contents,
        source: Option<Source>,
    ) {
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
        cx.send_page(fetch.reader, message, page);
    }
}
