//! Explicit write locks around a run of stores (M14). Pages are fetched for writing in ascending
//! order, so that two such locks cannot wait for each other, and stay until they are released or
//! their lease ends.

use super::context::PageContext;
use super::memory::Memory;
use super::page_here::PageHere;
use super::pins_here::{Pin, PinsHere};
use crate::effect::{Reply, Rights};
use crate::limits::{PIN_LEASE, PIN_PAGES};
use crate::shell::Cx;
use crate::time::Time;
use core::ops::Range;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::{ClientId, PageCount, PageIndex, Ticket};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Pins that still lack pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Pins {
    jobs: SortedMap<Ticket, PinJob>,
    /// Those that must advance before the handling of the current input ends; empty between inputs.
    #[serde(skip)]
    due: VecDeque<Ticket>,
}

/// A pin that still lacks pages.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct PinJob {
    client: ClientId,
    first: PageIndex,
    /// When the first page was pinned: its lease must not end before the last page is pinned.
    begun: Time,
    next: PageIndex,
    end: PageIndex,
}

/// What a pin needs next.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// This page, for this process.
    Page(PageIndex, ClientId),
    /// All pages were here once: their leases begin now, if all are here still.
    Renew(Range<u32>),
    /// To begin with the first page again. A range whose pinning took too long must not be held while
    /// it waits for more pages: two such ranges would wait for each other.
    BeginAgain,
}

impl Pins {
    /// A process wants to pin pages.
    fn open(
        &mut self,
        now: Time,
        (ticket, client): (Ticket, ClientId),
        (first, count): (PageIndex, PageCount),
    ) -> Result<(), Refusal> {
        let end = first.0.checked_add(count.0);
        let Some(end) = end.filter(|_| count.0 <= PIN_PAGES) else {
            let why = format!("a write lock covers at most {PIN_PAGES} pages");
            return Err(Refusal::Limit(why));
        };
        let job = PinJob {
            client,
            first,
            begun: now,
            next: first,
            end: PageIndex(end),
        };
        self.jobs.insert(ticket, job);
        Ok(())
    }

    /// What the pin needs next; nothing if there is none.
    fn step(&self, ticket: Ticket, now: Time) -> Option<Step> {
        let job = self.jobs.get(&ticket)?;
        Some(if job.next == job.end {
            Step::Renew(job.first.0..job.end.0)
        } else if now >= job.begun + PIN_LEASE {
            Step::BeginAgain
        } else {
            Step::Page(job.next, job.client)
        })
    }

    /// The next page of the pin is pinned.
    fn has_next(&mut self, ticket: Ticket) {
        if let Some(job) = self.jobs.get_mut(&ticket) {
            job.next = PageIndex(job.next.0 + 1);
        }
    }

    /// The pin begins with its first page again. Returns the pages that it had.
    fn begin_again(&mut self, ticket: Ticket, now: Time) -> Range<u32> {
        let Some(job) = self.jobs.get_mut(&ticket) else {
            return 0..0;
        };
        let held = job.first.0..job.next.0;
        job.next = job.first;
        job.begun = now;
        held
    }

    /// The pin is over. False if there is none.
    pub(super) fn remove(&mut self, ticket: Ticket) -> bool {
        self.jobs.remove(&ticket).is_some()
    }

    pub(super) fn client_gone(&mut self, client: ClientId) {
        self.jobs.retain(|_, job| job.client != client);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// This node leaves: refuses pins that still wait for pages. They would wait for ever, as pages
    /// are handed over as soon as they arrive.
    pub(super) fn refuse(&mut self, cx: &mut Cx<'_>) {
        for (ticket, _) in core::mem::take(&mut self.jobs) {
            cx.refuse(ticket, Refusal::NotMember);
        }
    }
}

impl Memory {
    pub(super) fn pin(
        &mut self,
        cx: &mut Cx<'_>,
        who: (Ticket, ClientId),
        pages: (PageIndex, PageCount),
    ) {
        match self.pins.open(cx.now, who, pages) {
            Ok(()) => self.advance_pin(cx, who.0),
            Err(refusal) => cx.refuse(who.0, refusal),
        }
    }

    /// Advances a pin as far as its pages are here. A page that is granted at once calls this for
    /// its pin again, from within: such a pin is queued instead of advanced, as the stack would
    /// grow with every page.
    pub(super) fn advance_pin(&mut self, cx: &mut Cx<'_>, ticket: Ticket) {
        self.pins.due.push_back(ticket);
        if self.pins.due.len() > 1 {
            return;
        }
        while let Some(ticket) = self.pins.due.front().copied() {
            self.pin_pages(cx, ticket);
            self.pins.due.pop_front();
        }
    }

    /// Pins the pages of a job up to the first one that is not here.
    fn pin_pages(&mut self, cx: &mut Cx<'_>, ticket: Ticket) {
        while let Some(step) = self.pins.step(ticket, cx.now) {
            if let Step::Page(page, client) = step {
                if !self.at(cx, page, |context| context.pin_or_request(ticket, client)) {
                    return;
                }
                self.pins.has_next(ticket);
                continue;
            }
            if let Step::Renew(mut pages) = step
                && pages
                    .all(|page| self.at(cx, PageIndex(page), |context| context.here.renew(ticket)))
            {
                self.pins.remove(ticket);
                return cx.reply(ticket, Reply::Done);
            }
            let held = self.pins.begin_again(ticket, cx.now).map(PageIndex);
            self.each(cx, held, |context| {
                context.unpin(|pins| {
                    pins.remove_of(ticket);
                    true
                })
            });
        }
    }

    pub(super) fn unpin(
        &mut self,
        cx: &mut Cx<'_>,
        client: ClientId,
        (first, count): (PageIndex, PageCount),
    ) {
        let end = PageIndex(first.0.saturating_add(count.0.min(PIN_PAGES)));
        let pages = self.pages.between(first, end).map(|(index, _)| index);
        let pages: Vec<_> = pages.collect();
        self.each(cx, pages, |context| {
            context.unpin(|pins| pins.remove(client))
        });
    }
}

impl PageContext<'_, '_> {
    /// Pins the page if it is here, and requests it otherwise.
    fn pin_or_request(&mut self, ticket: Ticket, client: ClientId) -> bool {
        if self.here.page.rights == Rights::Write {
            let until = self.here.cx.now + PIN_LEASE;
            self.here.cx.arm(until, self.here.timer());
            self.here.page.more().pins.put(Pin {
                client,
                ticket,
                until,
            });
            return true;
        }
        match self.here.page.busy().and_then(|busy| busy.more.lost) {
            Some(with) => self.after.pins_lost.push((ticket, with)),
            None => {
                self.here.page.more().pinning.push(ticket);
                self.request();
            }
        }
        false
    }

    /// Removes pins; the page may leave if `remove` returns true.
    pub(super) fn unpin(&mut self, remove: impl FnOnce(&mut PinsHere) -> bool) {
        let more = self.here.page.more_if_any();
        if more.is_some_and(|more| remove(&mut more.pins)) {
            self.leave_if_due();
        }
    }
}

impl PageHere<'_, '_> {
    /// Restarts the lease of a pin. Returns false if this node cannot write the page any more.
    fn renew(&mut self, ticket: Ticket) -> bool {
        let until = self.cx.now + PIN_LEASE;
        let writes = self.page.rights == Rights::Write;
        let more = self.page.more_if_any().filter(|_| writes);
        let renewed = more.is_some_and(|more| more.pins.renew(ticket, until));
        if renewed {
            self.cx.arm(until, self.timer());
        }
        renewed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICKET: Ticket = Ticket(1);
    const CLIENT: ClientId = ClientId(2);

    /// The pin of pages 4 and 5.
    fn pins() -> Pins {
        let mut pins = Pins::default();
        let pages = (PageIndex(4), PageCount(2));
        pins.open(Time(0), (TICKET, CLIENT), pages).unwrap();
        pins
    }

    #[test]
    fn takes_pages_in_ascending_order_and_renews_all_at_the_end() {
        let mut pins = pins();
        for page in [4, 5] {
            let step = pins.step(TICKET, Time(1));
            assert_eq!(step, Some(Step::Page(PageIndex(page), CLIENT)));
            pins.has_next(TICKET);
        }
        assert_eq!(pins.step(TICKET, Time(1)), Some(Step::Renew(4..6)));
        assert!(pins.remove(TICKET) && !pins.remove(TICKET));
        assert_eq!(pins.step(TICKET, Time(1)), None);
    }

    #[test]
    fn begins_again_when_the_lease_of_its_first_page_is_over() {
        let mut pins = pins();
        pins.has_next(TICKET);
        let late = Time(0) + PIN_LEASE;
        assert_eq!(pins.step(TICKET, late), Some(Step::BeginAgain));
        assert_eq!(pins.begin_again(TICKET, late), 4..5);
        let step = pins.step(TICKET, late);
        assert_eq!(step, Some(Step::Page(PageIndex(4), CLIENT)));
    }

    #[test]
    fn refuses_ranges_that_are_too_long_or_leave_the_segment() {
        let mut pins = Pins::default();
        for (first, count) in [(0, PIN_PAGES + 1), (u32::MAX, 2)] {
            let pages = (PageIndex(first), PageCount(count));
            assert!(pins.open(Time(0), (TICKET, CLIENT), pages).is_err());
        }
        assert!(pins.is_empty());
    }
}
