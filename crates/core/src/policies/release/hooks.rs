//! What a node asks of the policy, and what it does then.

use super::Release;
use super::messages::Collect;
use crate::caller::Caller;
use crate::continuation::Continuation;
use crate::effect::{PageRange, Reply};
use crate::event::Event;
use crate::global::MemoryReport;
use crate::inspection::Inspection;
use crate::kept_writable::KeptWritable;
use crate::policies::hooks::{Due, Found, Gone, Hooks, ProgramRequest, SyncHooks, Who};
use crate::prefetch::WillneedRanges as _;
use crate::shell::Cx;
use pagemesh_wire::peer::{self, Access, Message, Payload, Reduction, Refusal};
use pagemesh_wire::{ClientId, NodeId, PageIndex, Ticket, Version};

impl Hooks for Release {
    fn keep_replicas(&mut self, _: u8) -> Result<(), Refusal> {
        self.replicas.on = true;
        self.memory.replicated = true;
        Ok(())
    }

    fn fault(&mut self, cx: &mut Cx<'_>, who: Who, page: PageIndex, access: Access) {
        if page.0 < self.rules.size {
            // The pages ahead are marked before this page is requested, so that they do not come
            // along with it, and requested after it.
            let ahead = self.walk(cx).fault(who, page, access);
            // If the thread goes on at once, it finds the pages ahead mapped; a request is not kept
            // waiting for them.
            let alone = self.walk(cx).stores_alone(page);
            self.walk(cx).load_ahead(who.mapping, &ahead.zeros);
            if alone {
                self.walk(cx).store_ahead(who.mapping, &ahead.alone);
            }
            self.touched(cx, who.mapping, page, access);
            self.ask_ahead(cx, ahead.requested);
            if !alone {
                self.walk(cx).store_ahead(who.mapping, &ahead.alone);
            }
            self.relieve(cx);
        }
    }

    fn request(&mut self, cx: &mut Cx<'_>, who: (Ticket, ClientId), request: ProgramRequest) {
        let (ticket, client) = who;
        let why = match request {
            // A page changes here only when this node acquires: a watcher would never be woken.
            ProgramRequest::Watch(_) => pagemesh_wire::peer::Policy::NO_WATCH,
            // Pages are never taken away, so none has to be held.
            ProgramRequest::Pin(..) => {
                "pages of policy release have many writers and are never taken away; what must not \
                 be disturbed needs a lock"
            }
            ProgramRequest::Unpin(..) => return cx.reply(ticket, Reply::Done),
            ProgramRequest::Purge(..)
            | ProgramRequest::PinShort(..)
            | ProgramRequest::Publish { .. }
            | ProgramRequest::WatchRange(..) => ProgramRequest::NO_VIEWS,
            ProgramRequest::Hold | ProgramRequest::EndHold => ProgramRequest::NO_HOLD,
            ProgramRequest::Advise(ranges, advice, mapping) => {
                self.advise(cx, (client, mapping), &ranges, advice);
                return cx.reply(ticket, Reply::Done);
            }
        };
        cx.refuse(ticket, Refusal::Invalid(why.into()));
    }

    fn message(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Message) {
        match message {
            Message::Policy(said) => self.received(cx, from, &said.body, false),
            Message::PolicyPage(said) => self.received(cx, from, &said.body, true),
            Message::PolicyUndelivered(said) => self.came_back(cx, from, &said.body),
            Message::Diffs(diffs) => self.diffs(cx, from, &diffs),
            // Messages about owned pages mean nothing here.
            _ => cx.emit(Event::Stale {}),
        }
        self.relieve(cx);
    }

    fn due(&mut self, cx: &mut Cx<'_>, due: Due) {
        match due {
            Due::Page(page, patience) => {
                if let Some(patience) = patience {
                    self.at(cx, page).forsaken(patience);
                }
                let outcome = self.at(cx, page).due();
                self.conclude(cx, page, outcome);
            }
            Due::Ahead => {
                self.walk(cx).look();
                self.run_willneed_ranges(cx);
            }
            Due::Segment => {
                self.intervals
                    .inquiries
                    .due(cx, self.intervals.history.time());
                let next = self.collection(cx).report_due();
                self.lead(cx, next);
                self.make_more_whole(cx);
                if self.backup(cx).due() {
                    self.repair(cx, false);
                }
                self.relieve_again(cx);
            }
        }
    }

    fn may_be_untrapped(&self) -> bool {
        true
    }

    fn trapped(&mut self, cx: &mut Cx<'_>, pages: &[PageRange]) {
        self.initial_sync(cx);
        self.walk(cx).were_stored_to(pages);
        self.end_interval(cx);
    }

    fn cancel(&mut self, ticket: Ticket) -> bool {
        self.replicas.cancel(ticket)
    }

    fn found(&mut self, _: &mut Cx<'_>, page: PageIndex, found: Found) {
        if let Found::Unchanged = found {
            self.push.give_back(page, self.intervals.heard.nodes());
            // One that is about to be stored to was not kept writable in vain.
            if !self.memory.pages.dirty.contains(&page) {
                self.memory.pages.unchanged(page);
            }
        }
    }

    fn gone(&mut self, cx: &mut Cx<'_>, gone: Gone) {
        match gone {
            Gone::Mapping(mapping) => {
                self.memory.pages.unmapped(mapping);
                self.prefetch.unmapped(mapping);
            }
            Gone::Client(client) => {
                self.prefetch.client_gone(client);
                self.replicas.client_gone(client);
            }
            Gone::Member(node) => self.member_gone(cx, node),
            Gone::Membership => self.expelled(cx),
        }
    }

    fn sync(&mut self) -> Option<&mut dyn SyncHooks> {
        Some(self)
    }

    fn kept_writable(&self) -> KeptWritable {
        self.memory.pages.to_be_looked_at(self.memory.replicated)
    }

    fn called(&mut self, cx: &mut Cx<'_>, caller: Caller, body: &Payload) {
        // A home that is gone leads no collection; its successor does.
        let leads = cx.home(self.rules.segment) == caller.node;
        match body.read::<Collect>().filter(|_| leads) {
            Some(step) => self.collect(cx, caller, step),
            None => {
                let refused = peer::Reply::Refused(Refusal::NotFound);
                cx.ready(Continuation::Answer(caller, refused));
            }
        }
    }

    fn answered(&mut self, cx: &mut Cx<'_>, from: NodeId, number: u64, reply: &peer::Reply) {
        let next = self.collection(cx).collected(from, number, reply);
        self.lead(cx, next);
    }

    fn declare(&mut self, reductions: &[Reduction]) -> Result<(), Refusal> {
        self.memory.reductions.declare(reductions);
        Ok(())
    }

    fn hand_over(&mut self, cx: &mut Cx<'_>, _heir: NodeId, _burst: usize) -> usize {
        self.give_up(cx)
    }

    fn handover(&self, me: NodeId) -> Vec<(PageIndex, Version, NodeId)> {
        let kept = self.memory.pages.kept_elsewhere(me);
        kept.map(|(page, keeper)| (page, Version(0), keeper))
            .collect()
    }

    fn learn(&mut self, _: &mut Cx<'_>, page: PageIndex, keeper: NodeId, _: Version) {
        let page = self.memory.pages.page(page);
        page.keeper = page.keeper.or(Some(keeper));
    }

    fn pressed(&mut self, cx: &mut Cx<'_>) {
        self.relieve(cx);
    }

    fn forgotten(&mut self, cx: &mut Cx<'_>) {
        self.memory.uncount(cx);
    }

    fn memory(&self, into: &mut MemoryReport) {
        into.local += u64::from(self.memory.copies);
    }

    fn inspect(&self, me: NodeId, first: PageIndex, limit: usize) -> Inspection {
        let repairs = self.replicas.repair.is_some();
        Inspection {
            unreplicated: self.memory.unreplicated(me, repairs),
            ..self.memory.inspect(me, first, limit)
        }
    }
}
