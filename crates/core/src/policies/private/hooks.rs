//! What the node asks of the policy.

use super::page::{Page, Place};
use super::{Blocked, Private};
use crate::effect::{PageRange, Reply, Rights};
use crate::event::Event;
use crate::global::MemoryReport;
use crate::inspection::Inspection;
use crate::policies::hooks::{Due, Gone, Hooks, ProgramRequest, Who};
use crate::prefetch::WillneedRanges as _;
use crate::shell::Cx;
use crate::time::Time;
use pagemesh_wire::local::PageLine;
use pagemesh_wire::peer::{Access, AgeSummary, DonorReply, Message, Refusal};
use pagemesh_wire::{ClientId, NodeId, PageIndex, Ticket, Version};

impl Hooks for Private {
    fn fault(&mut self, cx: &mut Cx<'_>, who: Who, page: PageIndex, access: Access) {
        if page.0 >= who.pages {
            return;
        }
        if self.memory.rules.segment.home() != cx.me() {
            let why = Refusal::NodeGone(self.memory.rules.segment.home());
            return self.memory.fail(cx, who.mapping, page, why);
        }
        let mapping = who.mapping;
        let place = self.memory.pages.get(&page).map(|known| known.place);
        let is_mark = matches!(place, Some(Place::Frame { rights, .. }) if rights == Rights::None);
        if is_mark {
            self.serve_here(cx, (mapping, page), access);
            self.walk(cx, who, page, access);
        } else if !self.serve_here(cx, (mapping, page), access)
            && !self.wait_too(page, mapping, access)
        {
            let since = cx.now;
            self.blocked.push_back(Blocked {
                mapping,
                page,
                access,
                since,
            });
            self.unblock(cx);
            self.walk(cx, who, page, access);
        }
        self.tend(cx, 0);
    }

    fn request(&mut self, cx: &mut Cx<'_>, who: (Ticket, ClientId), request: ProgramRequest) {
        match request {
            ProgramRequest::Advise(ranges, advice, mapping) => {
                self.advise(cx, (who.1, mapping), &ranges, advice);
                cx.reply(who.0, Reply::Done);
            }
            ProgramRequest::Unpin(..) => cx.reply(who.0, Reply::Done),
            ProgramRequest::Hold | ProgramRequest::EndHold => {
                cx.refuse(who.0, Refusal::Invalid(ProgramRequest::NO_HOLD.into()));
            }
            ProgramRequest::Watch(_) | ProgramRequest::Pin(..) => {
                let why = "no other node changes pages of policy private, or takes them away";
                cx.refuse(who.0, Refusal::Invalid(why.into()));
            }
            ProgramRequest::Purge(..)
            | ProgramRequest::PinShort(..)
            | ProgramRequest::Publish { .. }
            | ProgramRequest::WatchRange(..) => {
                let why = ProgramRequest::NO_VIEWS.into();
                cx.refuse(who.0, Refusal::Invalid(why));
            }
        }
    }

    fn message(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Message) {
        match message {
            Message::Got(got) => self.came(cx, from, got.lent),
            Message::DonorReply(reply) => match reply {
                DonorReply::Kept(lent) => self.kept(cx, from, lent),
                DonorReply::Refused(lent) => self.refused(cx, from, lent),
                DonorReply::Missing(lent) => self.missing(cx, from, lent),
                DonorReply::Moved(lent, to) => self.moved(cx, from, (lent, to)),
                DonorReply::Spoiled(lent) => self.spoiled(cx, from, lent),
            },
            _ => return cx.emit(Event::Stale {}),
        }
        self.go_on(cx);
    }

    fn due(&mut self, cx: &mut Cx<'_>, due: Due) {
        match due {
            Due::Page(page, _) => self.page_due(cx, page),
            Due::Ahead => self.look_ahead(cx),
            Due::Segment => self.outgoing_due(cx),
        }
        self.go_on(cx);
    }

    fn gone(&mut self, cx: &mut Cx<'_>, gone: Gone) {
        match gone {
            Gone::Mapping(mapping) => {
                self.blocked.retain(|blocked| blocked.mapping != mapping);
                for fetch in self.fetches.values_mut() {
                    fetch.waiters.retain(|(waiter, _)| *waiter != mapping);
                }
                self.prefetch.unmapped(mapping);
            }
            Gone::Client(client) => self.prefetch.client_gone(client),
            Gone::Member(node) => {
                self.donor_gone(cx, node);
                self.go_on(cx);
            }
            // The pages are this node's own and stay true; but what donors have is out of reach.
            Gone::Membership => {
                let waits = self
                    .blocked
                    .drain(..)
                    .map(|blocked| (blocked.mapping, blocked.page));
                let mut waits: Vec<_> = waits.collect();
                for (page, fetch) in core::mem::take(&mut self.fetches) {
                    waits.extend(fetch.waiters.iter().map(|(mapping, _)| (*mapping, page)));
                    self.memory.unhold(cx);
                }
                for (mapping, page) in waits {
                    self.memory.fail(cx, mapping, page, Refusal::NotMember);
                }
            }
        }
    }

    /// The pages end with the programs of their home.
    fn hand_over(&mut self, _: &mut Cx<'_>, _: NodeId, _: usize) -> usize {
        0
    }

    fn inspect(&self, me: NodeId, first: PageIndex, limit: usize) -> Inspection {
        let lines = self.memory.pages.range(first..).take(limit);
        let line = |(page, known): (&PageIndex, &Page)| line(me, *page, known);
        let writable = |known: &&Page| known.place.is_writable();
        Inspection {
            unreplicated: 0,
            known: self.memory.pages.len() as u64,
            readable: (self.memory.frames.mapped.len() + self.memory.frames.walked.len()).into(),
            writable: self.memory.pages.values().filter(writable).count() as u64,
            owned: self.memory.pages.len() as u64,
            pages: lines.map(line).collect(),
        }
    }

    fn may_open(&self, node: NodeId) -> Result<(), Refusal> {
        let home = self.memory.rules.segment.home();
        if node == home {
            return Ok(());
        }
        Err(Refusal::Invalid(format!(
            "the segment has policy private: only {home}, which created it, may open it; choose \
             another name, or remove it there"
        )))
    }

    /// A child has a copy of its parent's memory, which this is not: without the segment its
    /// accesses fault for good, and read neither zeros nor the parent's pages.
    fn is_inherited(&self) -> bool {
        false
    }

    fn stored(&mut self, cx: &mut Cx<'_>, pages: PageRange, done: bool) {
        self.written(cx, pages, done);
        self.go_on(cx);
    }

    fn summarize(&self, now: Time, into: &mut AgeSummary) {
        self.memory.frames.mapped.summarize(now, 0, &mut into.local);
        self.memory.frames.walked.summarize(now, 0, &mut into.local);
        self.memory.staged.summarize(now, 0, &mut into.local);
    }

    fn forgotten(&mut self, cx: &mut Cx<'_>) {
        while self.memory.held > 0 {
            self.memory.unhold(cx);
        }
    }

    fn pressed(&mut self, cx: &mut Cx<'_>) {
        self.tend(cx, 0);
    }

    fn take_back(&mut self, cx: &mut Cx<'_>, donor: NodeId, pages: &[(PageIndex, Version)]) {
        self.donor_leaves(cx, donor, pages);
        self.go_on(cx);
    }

    fn unwanted(
        &mut self,
        cx: &mut Cx<'_>,
        donor: NodeId,
        pages: &[(PageIndex, Version)],
    ) -> Vec<PageIndex> {
        let pages = pages.iter().copied();
        let unwanted = pages.filter(|copy| !self.counts_on(cx, donor, *copy));
        unwanted.map(|(page, _)| page).collect()
    }

    fn memory(&self, into: &mut MemoryReport) {
        into.local += u64::from(self.memory.held);
        for page in self.memory.pages.values() {
            match page.place {
                Place::Out if !page.donors.is_empty() => into.lent += 1,
                Place::Out => into.on_disk += 1,
                _ => {}
            }
        }
    }
}

fn line(me: NodeId, page: PageIndex, known: &Page) -> PageLine {
    let rights = match known.place {
        Place::Frame { rights, .. } => rights,
        _ => Rights::None,
    };
    let holder = (known.place == Place::Out).then(|| known.donors.after(None));
    let mut copies = known.donors.all();
    if known.on_disk {
        copies.insert(me);
    }
    PageLine {
        page,
        rights: rights as u8,
        owner: true,
        hint: holder.flatten().unwrap_or(me),
        version: known.version.0,
        copies,
        queued: 0,
    }
}
