//! What programs ask for, beside accesses: pages that they purge, lock, fetch or give up.

use super::context::PageContext;
use super::messages::{Body, Want, Wish};
use super::page::{Unanswered, Valid};
use super::page_here::PageHere;
use super::{HOPS, RUN, Views};
use crate::effect::Reply;
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
                return self.watches.add(cx, (index, 1), ticket);
            }
            ProgramRequest::WatchRange(first, count) => {
                return self.watches.add(cx, (first, count.0), ticket);
            }
            ProgramRequest::Pin(first, count) => {
                return self.lock(cx, who, (first, count.0), false);
            }
            ProgramRequest::PinShort(first, count) => {
                return self.lock(cx, who, (first, count.0), true);
            }
            ProgramRequest::Publish { count, .. } | ProgramRequest::Purge(_, count, _)
                if !(1..=RUN).contains(&count.0) =>
            {
                let why = format!("a process purges or publishes 1 to {RUN} pages at once");
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
                    self.at(cx, index).purge(short);
                }
            }
            ProgramRequest::Advise(ranges, advice, _) => {
                for (first, count) in ranges {
                    self.advise(cx, first, count.0, advice);
                }
            }
            ProgramRequest::Hold | ProgramRequest::EndHold => {
                return cx.refuse(ticket, Refusal::Invalid(ProgramRequest::NO_HOLD.into()));
            }
        }
        cx.reply(ticket, Reply::Done);
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
            for index in elsewhere {
                let want = self.page(cx, index).want.as_ref();
                if want.is_none_or(|want| want.wish < Wish::Move) {
                    self.at(cx, index).open(Wish::Move);
                }
            }
            let why = "a consistent copy is on another node and was asked for: lock again";
            return cx.refuse(who.0, Refusal::Invalid(why.into()));
        }
        let until = cx.now + PIN_LEASE;
        for index in pages {
            self.page(cx, index).locks.push((who.1, until));
            if short {
                self.at(cx, index).here().unmap_supersets();
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
                self.at(cx, *index).serve_queue();
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
                    self.at(cx, index).page_out(short);
                }
            }
            _ => {}
        }
    }

    /// Asks for copies of pages, in as few requests as there are holders; what gets lost is asked
    /// for by whoever touches it.
    fn fetch(&mut self, cx: &mut Cx<'_>, first: PageIndex, count: u32) {
        let me = cx.me();
        let mut runs: Vec<(NodeId, PageIndex, u32)> = Vec::new();
        for index in (first.0..first.0 + count).map(PageIndex) {
            let page = self.page(cx, index);
            if page.serves(View::INCONSISTENT) {
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

impl PageContext<'_, '_> {
    /// Threads that wait for what was purged are served by what is newer.
    fn purge(&mut self, short: bool) {
        if self.here().purge(short) {
            self.ask();
        }
    }

    /// Page-out (E13): the holder's page stays, and is unmapped only. Of a short page, the prefix is
    /// dropped, and the whole page stays, and is unmapped (E11).
    fn page_out(&mut self, short: bool) {
        let mut here = self.here();
        if here.page.holds && here.page.filled {
            here.unmap();
        } else if !here.page.holds {
            self.purge(short);
        }
    }
}

impl PageHere<'_, '_> {
    /// Drops or hides copies, so that the next access sees newer contents (E4). What was asked for
    /// before a purge may be older than what was stored before it (INV-purge-finds): returns whether
    /// threads that still wait must ask anew.
    fn purge(&mut self, short: bool) -> bool {
        self.drop_copy(short);
        if self.page.holds {
            return false;
        }
        let earlier = self.page.unanswered.as_ref();
        let purge = Unanswered::since(self.cx.last_request(), short, earlier);
        self.page.unanswered = Some(purge);
        // The consistent copy itself is never old.
        self.withdraw(|want| want.wish < Wish::Move)
    }

    fn drop_copy(&mut self, short: bool) {
        let page = &mut *self.page;
        page.purged = true;
        if page.valid == Valid::Nothing {
            return;
        }
        let is_whole = page.valid == Valid::Whole;
        if page.holds {
            // Demand-driven views see the consistent copy here in any case.
            if self.mappings.values().any(|view| view.data_driven) {
                self.unmap();
            }
        } else if page.keeps.is_some() && is_whole && !(short && page.shown() == Valid::Whole) {
            (page.veiled, page.prefix_purged) = (Some(Valid::Nothing), false);
            self.unmap();
        } else if short && is_whole {
            page.prefix_purged = true;
            self.unmap();
        } else {
            page.valid = Valid::Nothing;
            (page.prefix_purged, page.blank) = (false, false);
            self.evict(false);
        }
    }
}
