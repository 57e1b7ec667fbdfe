//! What programs ask for, beside accesses: pages that they purge, lock, fetch or give up.

use super::messages::{Body, Want, Wish};
use super::page::Valid;
use super::{HOPS, RUN, Views};
use crate::effect::{Effect, Reply, Source};
use crate::limits::{PIN_LEASE, PIN_PAGES};
use crate::policies::ProgramRequest;
use crate::shell::Cx;
use pagemesh_wire::local::{Advice, View};
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::{ClientId, NodeId, PageIndex, Ticket};

impl Views {
    /// Does what a process asks for.
    pub(super) fn requested(
        &mut self,
        cx: &mut Cx<'_>,
        who: (Ticket, ClientId),
        request: ProgramRequest,
    ) {
        let (ticket, client) = who;
        match request {
            ProgramRequest::Watch(index) => {
                self.watches.push((index, 1, ticket));
                return cx.reply(ticket, Reply::Waiting);
            }
            ProgramRequest::WatchRange(first, count) => {
                self.watches.push((first, count.0, ticket));
                return cx.reply(ticket, Reply::Waiting);
            }
            ProgramRequest::Pin(first, count) => {
                return self.lock(cx, who, (first, count.0), false);
            }
            ProgramRequest::PinShort(first, count) => {
                return self.lock(cx, who, (first, count.0), true);
            }
            ProgramRequest::Publish { count, .. } | ProgramRequest::Purge(_, count, _)
                if count.0 > RUN =>
            {
                let why = format!("a process purges or publishes {RUN} pages at once at most");
                return cx.refuse(ticket, Refusal::Limit(why));
            }
            ProgramRequest::Publish {
                first,
                count,
                short,
                waits,
            } => {
                return self.publish(cx, (who, waits), (first, count.0), short);
            }
            ProgramRequest::Unpin(first, count) => {
                let pages = first.0..first.0.saturating_add(count.0);
                let pages: Vec<_> = pages.map(PageIndex).collect();
                self.unlock(cx, client, &pages);
            }
            ProgramRequest::Purge(first, count, short) => {
                for index in (first.0..first.0.saturating_add(count.0)).map(PageIndex) {
                    self.purge(cx, index, short);
                }
            }
            ProgramRequest::Advise(first, count, advice, _) => {
                self.advise(cx, first, count.0, advice);
            }
            ProgramRequest::Hold | ProgramRequest::EndHold => {
                return cx.refuse(ticket, Refusal::Invalid(ProgramRequest::NO_HOLD.into()));
            }
        }
        cx.reply(ticket, Reply::Done);
    }

    /// Drops or hides copies, so that the next access sees newer contents (E4).
    fn purge(&mut self, cx: &mut Cx<'_>, index: PageIndex, short: bool) {
        let page = self.page(cx, index);
        if page.valid == Valid::Nothing {
            page.purged = true;
            return;
        }
        page.purged = true;
        if page.holds {
            // Demand-driven views see the consistent copy here in any case.
            if self.mappings.values().any(|view| view.data_driven) {
                self.unmap(cx, index);
            }
            return;
        }
        if page.keeps.is_some()
            && page.valid == Valid::Whole
            && !(short && page.shown() == Valid::Whole)
        {
            page.veiled = Some(Valid::Nothing);
            page.prefix_purged = false;
            return self.unmap(cx, index);
        }
        if short && page.valid == Valid::Whole {
            page.prefix_purged = true;
            return self.unmap(cx, index);
        }
        page.valid = Valid::Nothing;
        (page.prefix_purged, page.blank) = (false, false);
        let pages = (self.segment, index).into();
        cx.push(Effect::Evict { pages, keep: false });
    }

    /// Takes a page out of all mappings; its contents stay.
    fn unmap(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let segment = self.segment;
        self.drop_runs(cx, index);
        let pages = (segment, index).into();
        cx.push(Effect::Evict { pages, keep: true });
        cx.push(Effect::Fill {
            pages,
            source: Source::Stash,
        });
        // While the page is passed on, the stash has the same contents, and is needed.
        if self.page(cx, index).passing.is_none() {
            cx.push(Effect::DropStash {
                segment,
                page: index,
            });
        }
    }

    /// Takes a page that is here out of the views of whole pages; those of short ones show it on. All
    /// have one frame, so it leaves all views first.
    fn unmap_supersets(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        if !self.page(cx, index).filled || self.mappings.values().all(|view| view.short) {
            return;
        }
        self.unmap(cx, index);
        let page = self.page(cx, index).clone();
        let shown = |view: &View| view.short && page.serves(*view);
        let mappings = self.mappings.iter().filter(|(_, view)| shown(view));
        for (mapping, view) in mappings.map(|(m, v)| (*m, *v)).collect::<Vec<_>>() {
            self.grant(cx, index, mapping, view);
        }
    }

    /// Locks pages into the memory of this node (E12): the consistent copies stay. The lock fails if
    /// some are elsewhere; they are asked for. A lock of short pages takes whole ones out of the views.
    fn lock(
        &mut self,
        cx: &mut Cx<'_>,
        who: (Ticket, ClientId),
        (first, count): (PageIndex, u32),
        short: bool,
    ) {
        if count > PIN_PAGES {
            let why = format!("a process locks {PIN_PAGES} pages at once at most");
            return cx.refuse(who.0, Refusal::Limit(why));
        }
        let pages: Vec<_> = (first.0..first.0.saturating_add(count))
            .map(PageIndex)
            .collect();
        let elsewhere = pages.iter().filter(|page| !self.page(cx, **page).holds);
        let elsewhere: Vec<_> = elsewhere.copied().collect();
        if !elsewhere.is_empty() {
            for page in elsewhere {
                if self
                    .page(cx, page)
                    .want
                    .as_ref()
                    .is_none_or(|want| want.wish < Wish::Move)
                {
                    self.open(cx, page, Wish::Move);
                }
            }
            let why = "a consistent copy is on another node and was asked for: lock again";
            return cx.refuse(who.0, Refusal::Invalid(why.into()));
        }
        let until = cx.now + PIN_LEASE;
        for page in pages {
            self.page(cx, page).locks.push((who.1, until));
            if short {
                self.unmap_supersets(cx, page);
            }
        }
        cx.reply(who.0, Reply::Done);
    }

    fn unlock(&mut self, cx: &mut Cx<'_>, client: ClientId, pages: &[PageIndex]) {
        for index in pages {
            let Some(page) = self.pages.get_mut(index) else {
                continue;
            };
            let mut locks = page.locks.iter();
            if let Some(place) = locks.position(|(holder, _)| *holder == client) {
                page.locks.swap_remove(place);
                self.serve_queue(cx, *index);
            }
        }
    }

    fn advise(&mut self, cx: &mut Cx<'_>, first: PageIndex, count: u32, advice: Advice) {
        let end = first.0.saturating_add(count.min(RUN)).min(self.size);
        match advice {
            Advice::WillNeed => self.fetch(cx, first, end - first.0),
            Advice::Renew => self.renews = true,
            Advice::DontNeed | Advice::DontNeedShort => {
                let short = advice == Advice::DontNeedShort;
                for index in (first.0..end).map(PageIndex) {
                    self.page_out(cx, index, short);
                }
            }
            _ => {}
        }
    }

    /// Page-out (E13): the holder's page stays, and is unmapped only. Of a short page, the prefix is
    /// dropped, and the whole page stays, and is unmapped (E11).
    fn page_out(&mut self, cx: &mut Cx<'_>, index: PageIndex, short: bool) {
        let page = self.page(cx, index);
        if page.holds && page.filled {
            self.unmap(cx, index);
        } else if !page.holds {
            self.purge(cx, index, short);
        }
    }

    /// Asks for copies of pages, in as few requests as there are holders; what gets lost is asked
    /// for by whoever touches it.
    fn fetch(&mut self, cx: &mut Cx<'_>, first: PageIndex, count: u32) {
        let me = cx.me();
        let mut runs: Vec<(NodeId, PageIndex, u32)> = Vec::new();
        for index in (first.0..first.0 + count).map(PageIndex) {
            let page = self.page(cx, index);
            if page.holds || page.shown() == Valid::Whole {
                continue;
            }
            let hint = page.hint;
            match runs.last_mut() {
                Some((to, start, length)) if *to == hint && start.0 + *length == index.0 => {
                    *length += 1;
                }
                _ => runs.push((hint, index, 1)),
            }
        }
        for (hint, page, count) in runs {
            let want = Want {
                page,
                count,
                wish: Wish::Whole,
                asker: me,
                request: cx.next_request(),
                hops: HOPS,
                tries: 0,
            };
            if hint != me && cx.is_alive(hint) {
                self.say(cx, hint, &Body::Want(want));
            }
        }
    }
}
