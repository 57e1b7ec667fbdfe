//! Explicit write locks around a run of stores (M14). Pages are fetched for writing in ascending
//! order, so that two such locks cannot wait for each other, and stay until they are released or
//! their lease ends.

use super::Sequential;
use super::page::Pin;
use crate::effect::{Reply, Rights};
use crate::limits::{PIN_LEASE, PIN_PAGES};
use crate::shell::Cx;
use crate::time::Time;
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::{ClientId, PageCount, PageIndex, Ticket};
use serde::{Deserialize, Serialize};

/// A pin that still lacks pages.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct PinJob {
    pub(super) client: ClientId,
    first: PageIndex,
    /// When the first page was pinned: its lease must not end before the last page is pinned.
    begun: Time,
    next: PageIndex,
    end: PageIndex,
}

impl Sequential {
    pub(super) fn pin(
        &mut self,
        cx: &mut Cx<'_>,
        (ticket, client): (Ticket, ClientId),
        first: PageIndex,
        count: PageCount,
    ) {
        let end = first
            .0
            .checked_add(count.0)
            .filter(|_| count.0 <= PIN_PAGES);
        let Some(end) = end else {
            let why = format!("a write lock covers at most {PIN_PAGES} pages");
            cx.refuse(ticket, Refusal::Limit(why));
            return;
        };
        self.pin_jobs.insert(
            ticket,
            PinJob {
                client,
                first,
                begun: cx.now,
                next: first,
                end: PageIndex(end),
            },
        );
        self.advance_pin(cx, ticket);
    }

    /// Advances a pin as far as its pages are here. A page that is granted at once calls this for
    /// its pin again, from within: such a pin is queued instead of advanced, as the stack would
    /// grow with every page.
    pub(super) fn advance_pin(&mut self, cx: &mut Cx<'_>, ticket: Ticket) {
        self.pins_due.push_back(ticket);
        if self.pins_due.len() > 1 {
            return;
        }
        while let Some(ticket) = self.pins_due.front().copied() {
            self.pin_pages(cx, ticket);
            self.pins_due.pop_front();
        }
    }

    /// Pins the pages of a job up to the first one that is not here.
    fn pin_pages(&mut self, cx: &mut Cx<'_>, ticket: Ticket) {
        while let Some(job) = self.pin_jobs.get(&ticket) {
            let (page, client) = (job.next, job.client);
            if page == job.end {
                if self.all_pinned(cx, ticket) {
                    self.pin_jobs.remove(&ticket);
                    cx.reply(ticket, Reply::Done);
                    return;
                }
                self.begin_again(cx, ticket);
                continue;
            }
            if cx.now >= job.begun + PIN_LEASE {
                // A range whose pinning took too long must not be held while it waits for more
                // pages: two such ranges would wait for each other.
                self.begin_again(cx, ticket);
                continue;
            }
            if !self.pin_page(cx, page, (ticket, client)) {
                return;
            }
            if let Some(job) = self.pin_jobs.get_mut(&ticket) {
                job.next = PageIndex(page.0 + 1);
            }
        }
    }

    /// Pins one page if it is here, and requests it otherwise.
    fn pin_page(
        &mut self,
        cx: &mut Cx<'_>,
        page: PageIndex,
        (ticket, client): (Ticket, ClientId),
    ) -> bool {
        self.at(cx, page, |context| {
            if context.page.rights == Rights::Write {
                let until = context.cx.now + PIN_LEASE;
                context.pin(Pin {
                    client,
                    until,
                    ticket,
                });
                return true;
            }
            match context.busy().and_then(|busy| busy.more.lost) {
                Some(with) => context.after.pins_lost.push((ticket, with)),
                None => {
                    context.more().pinning.push(ticket);
                    context.request();
                }
            }
            false
        })
    }

    /// Whether every page of the job is still here; if so, all leases start now.
    fn all_pinned(&mut self, cx: &mut Cx<'_>, ticket: Ticket) -> bool {
        let job = &self.pin_jobs[&ticket];
        let mut pages = (job.first.0..job.end.0).map(PageIndex);
        pages.all(|page| self.at(cx, page, |context| context.renew(ticket)))
    }

    /// The lease of the first page ended before the last page arrived: unpins all pages and starts
    /// again, so that every job takes its pages in ascending order.
    fn begin_again(&mut self, cx: &mut Cx<'_>, ticket: Ticket) {
        let Some(job) = self.pin_jobs.get_mut(&ticket) else {
            return;
        };
        let held = job.first.0..job.next.0;
        job.next = job.first;
        job.begun = cx.now;
        for page in held.map(PageIndex) {
            self.at(cx, page, |context| context.unpin_of(ticket));
        }
    }

    /// This node leaves: refuses pins that still wait for pages. They would wait for ever, as pages
    /// are handed over as soon as they arrive.
    pub(super) fn time_out_pins(&mut self, cx: &mut Cx<'_>) {
        for (ticket, _) in std::mem::take(&mut self.pin_jobs) {
            cx.refuse(ticket, Refusal::NotMember);
        }
    }

    pub(super) fn unpin(
        &mut self,
        cx: &mut Cx<'_>,
        client: ClientId,
        first: PageIndex,
        count: PageCount,
    ) {
        let end = PageIndex(first.0.saturating_add(count.0.min(PIN_PAGES)));
        let pages: Vec<_> = self
            .pages
            .from(first)
            .map(|(index, _)| index)
            .take_while(|index| *index < end)
            .collect();
        for page in pages {
            self.at(cx, page, |context| context.unpin(client));
        }
    }
}
