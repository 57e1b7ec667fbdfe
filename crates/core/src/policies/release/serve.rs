//! Serves requests of other nodes for diffs and copies.

use super::feeds::LEFT;
use super::messages::{Body, CopyReply, CopyRequest, CopyRequests, DiffMissing, DiffRequest};
use super::page::{Copy, Page};
use super::{Release, envelope, say};
use crate::effect::{DiffWork, Effect, Mappings, Rights, Source};
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
        let known = diffs.filter(|name| self.pages.get(&name.page).is_some());
        let known: Vec<_> = known.collect();
        // The backup gets all diffs in any case.
        if self.replicas.backup() != Some(from) {
            self.push.requested(me, from, &known);
        }
        self.give_each(cx, &known);
        for name in &want.diffs {
            self.make_named(cx, name);
        }
        let (names, absent): (Vec<DiffName>, Vec<DiffName>) = want
            .diffs
            .iter()
            .copied()
            .partition(|name| self.diffs.has(name));
        if !absent.is_empty() {
            let absent = DiffMissing {
                request: want.request,
                diffs: absent,
                floor: self.history.floor().clone(),
            };
            say(cx, self.segment, from, &Body::DiffMissing(absent));
        }
        if !names.is_empty() {
            self.send_diffs(cx, from, want.request, names, u16::MAX);
        }
    }

    /// Sends diffs that are in the driver's diff store.
    pub(super) fn send_diffs(
        &self,
        cx: &mut Cx<'_>,
        to: NodeId,
        request: RequestId,
        names: Vec<DiffName>,
        at_most: u16,
    ) {
        let Some(address) = cx.address_of(to) else {
            return;
        };
        let header = cx.header(to);
        cx.push(Effect::Diffs(DiffWork::Send {
            address,
            header,
            segment: self.segment,
            request,
            names,
            at_most,
        }));
    }

    /// A node requests base copies.
    pub(super) fn fetch_many(&mut self, cx: &mut Cx<'_>, from: NodeId, many: &CopyRequests) {
        if many.copies.len() > CopyRequests::LIMIT {
            return cx.emit(Event::Malformed {});
        }
        let own = self.leave_to_readers(cx, from, many);
        // All pages are protected before the first one is sent: the driver does it by one call.
        for (page, _) in &own {
            self.give_all(cx, *page);
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
        if index.0 >= self.size || fetch.reader == me || !cx.is_alive(fetch.reader) {
            return;
        }
        let keeper = self.pages.get(&index).and_then(|page| {
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
        let home = cx.home(self.segment) == me;
        let current = self.history.time().covers(&fetch.floor);
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
                    self.segment,
                    keeper,
                    &Body::CopyRequest(CopyRequest { hops, ..fetch }),
                );
            }
            None if home && current && self.knows_keepers(cx) => {
                self.send_base(cx, &fetch, Contents::Zero, None);
            }
            // Asked because the acting home does not know the keeper.
            None if !home && self.inquiries.is_synced() && !self.missed_round => {
                // Otherwise what is collected is about to be told, and the request is repeated.
                if self.history.floor().covers(&fetch.floor) {
                    self.send_base(cx, &fetch, Contents::Zero, None);
                }
            }
            _ => self.send_base(cx, &fetch, Contents::None, None),
        }
    }

    /// Whether this node has a copy that serves the request.
    pub(super) fn has_copy(&self, fetch: &CopyRequest) -> bool {
        let page = self.pages.get(&fetch.page);
        let has = page.is_some_and(|page| {
            page.copy != Copy::None && page.lost.is_none() && !page.notices.lacks(&fetch.floor)
        });
        has && self.history.time().covers(&fetch.floor)
    }

    /// Sends this node's copy of a page, with all its own ended intervals in it and nothing of the
    /// present one.
    fn send_copy(&mut self, cx: &mut Cx<'_>, fetch: &CopyRequest) {
        let (segment, index) = (self.segment, fetch.page);
        let page = self.pages.get(&index);
        let last = page.and_then(|page| page.notices.of(cx.me()).next());
        if fetch.hops == LEFT {
            let page = index;
            cx.emit(Event::CopySentOn { segment, page });
        }
        self.give_all(cx, index);
        self.push.copied(fetch.reader, index, last);
        let given = |page: Option<&Page>| page.is_some_and(Page::is_given);
        if !given(self.pages.get(&index)) {
            self.make_diff(cx, index, false);
        }
        let Some(page) = self.pages.get(&index) else {
            return;
        };
        let source = match page.copy {
            Copy::Stash => Source::Stash,
            _ if page.twin && !page.is_given() => Source::Twin,
            _ => Source::Frame,
        };
        self.send_base(cx, fetch, Contents::Bytes, Some(source));
    }

    /// Protects a page whose changes under this name are requested: its later stores belong to the next
    /// interval. If the whole page was requested, its diff is made when another node requests it, or
    /// before the next store here. Even if the page is to stay writable: nodes request copies of pages
    /// that change wholly, and their diffs are likely to be collected before any node requests them.
    fn give(&mut self, cx: &mut Cx<'_>, name: &DiffName) {
        let segment = self.segment;
        let Some(page) = self.pages.get_mut(&name.page) else {
            return;
        };
        let named = name.node == cx.me() && page.undiffed == Some(name.interval);
        if named && page.rights == Rights::Write {
            page.rights = Rights::Read;
            cx.push(Effect::Protect {
                pages: (segment, name.page).into(),
                mappings: Mappings::All,
            });
        }
    }

    /// Protects the pages of diffs that are to be made, before the first is made: the driver does it by
    /// one call.
    pub(super) fn give_each(&mut self, cx: &mut Cx<'_>, names: &[DiffName]) {
        for name in names {
            let stays = self.pages.get(&name.page).is_some_and(Page::stays_writable);
            if !stays {
                self.give(cx, name);
            }
        }
    }

    /// Protects a page that an interval of this node names and whose diff is not made yet, unless that
    /// costs more than the diff.
    fn give_all(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let page = self.pages.get(&index);
        let page = page.filter(|page| !page.stays_writable_for_copies());
        if let Some(interval) = page.and_then(|page| page.undiffed) {
            let name = DiffName {
                page: index,
                node: cx.me(),
                interval,
            };
            self.give(cx, &name);
        }
    }

    fn send_base(
        &self,
        cx: &mut Cx<'_>,
        fetch: &CopyRequest,
        contents: Contents,
        source: Option<Source>,
    ) {
        let index: PageIndex = fetch.page;
        let page = self.pages.get(&index);
        let mut applied = self.history.floor().clone();
        if let Some(page) = page.filter(|_| source.is_some()) {
            applied.join(page.notices.applied());
        }
        let base = CopyReply {
            page: index,
            request: fetch.request,
            contents,
            applied,
        };
        let page = source.map(|source| (self.segment, index, source));
        let said = envelope(self.segment, &Body::CopyReply(base));
        let message = match page {
            Some(_) => Message::PolicyPage(said),
            None => Message::Policy(said),
        };
        cx.send_page(fetch.reader, message, page);
    }
}
