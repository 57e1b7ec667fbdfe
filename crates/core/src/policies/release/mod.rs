//! Lazy release consistency (TreadMarks): what a node wrote before a release becomes visible to the
//! node that acquires after it. Decision 0019 says how.
//!
//! [`Release`] joins parts that own their state and know nothing of one another: [`history`] is what
//! the node knows of all nodes' intervals, [`heard`] what other nodes have said that they know,
//! [`inquiries`] what this node asks for, [`pages`] the page table with the pages that are kept
//! writable from interval to interval ([`kept_writable`]), [`diff_store`] the diffs that the driver
//! keeps, [`push_credit`] to whom diffs are pushed, [`collector`] the node's part in the garbage
//! collection, [`round`] the home's, [`reductions`] where nodes accumulate. [`page`] is one page,
//! [`notices`] its write notices, [`messages`] are the messages of the policy.
//!
//! The other files have what joins the parts: [`learn`] how a node learns of intervals, [`memory`]
//! what accesses and notices do to pages, [`miss`] how a page is made whole, from [`copies`] and
//! with [`diff_requests`], [`ahead`] how pages are made whole before they are touched, [`store_ahead`]
//! how they become writable before they are stored to, [`requests`] how requests leave together, [`serve`] how
//! requests of other nodes are served, [`feeds`] which of them are left to other readers, [`push`] the pushes, [`collect`] the garbage collection on
//! each node and [`lead`] at the home, [`leave`] how a node leaves, [`death`] what becomes of copies
//! when a node is gone, [`replicas`] how a second node has what other nodes hear of, [`wards`] what that
//! node does, [`repair`] how there is a second node again when one is gone, [`races`] which diffs are compared to find bytes that two nodes wrote
//! concurrently.

mod accesses;
mod ahead;
mod collect;
mod collector;
mod copies;
mod death;
mod diff_requests;
mod diff_sizes;
mod diff_store;
mod feeds;
mod heard;
mod history;
mod inquiries;
mod intervals;
mod kept_writable;
mod lead;
mod learn;
mod leave;
mod memory;
pub mod messages;
mod miss;
mod notices;
mod page;
mod pages;
mod push;
mod push_credit;
mod races;
mod reductions;
mod repair;
mod replicas;
mod requests;
mod round;
mod rules;
mod serve;
mod store_ahead;
mod stored;
mod untrapped;
mod wards;

use super::hooks::{Due, Found, Gone, Hooks, Open, Outgoing, ProgramRequest, SyncHooks, Who};
use crate::caller::Caller;
use crate::continuation::Continuation;
use crate::effect::{Effect, PageRange, Reply, Rights};
use crate::event::Event;
use crate::inspection::Inspection;
use crate::kept_writable::KeptWritable;
use crate::prefetch::{Prefetch, WillneedRanges as _};
use crate::shell::Cx;
use collector::Collector;
use diff_sizes::DiffSizes;
use feeds::Feeds;
use inquiries::OnReply;
use intervals::Intervals;
use memory::Memory;
use messages::{
    Body, Collect, CopyReply, DiffMissing, DiffRequest, IntervalReply, IntervalRequest, News,
};
use page::{Copy, Page};
use pagemesh_wire::local::PageLine;
use pagemesh_wire::peer::{
    self, Access, Contents, Message, Payload, Policy, PolicyMessage, Reduction, Refusal,
};
use pagemesh_wire::{
    ClientId, NodeId, NodeSet, PageIndex, RequestId, SegmentId, Ticket, VectorTime, Version,
};
use push_credit::PushCredit;
use replicas::Replicas;
use round::Leader;
use rules::Rules;
use serde::{Deserialize, Serialize};
use stored::Stored;

/// The pages of one segment as this node knows them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(from = "Stored<'_>")]
pub(crate) struct Release {
    rules: Rules,
    intervals: Intervals,
    memory: Memory,
    sizes: DiffSizes,
    /// Releases at locks since the last one at a barrier. At locks nobody looks which pages have changed.
    releases_at_locks: u32,
    push: PushCredit,
    collector: Collector,
    round: Leader,
    /// Requests for pages that were not touched yet.
    prefetch: Prefetch,
    replicas: Replicas,
    feeds: Feeds,
}

impl Release {
    fn new(rules: Rules) -> Self {
        let segment = rules.segment;
        Self {
            rules,
            intervals: Intervals::new(segment),
            memory: Memory::new(segment),
            sizes: DiffSizes::default(),
            releases_at_locks: 0,
            push: PushCredit::new(rules.spread),
            collector: Collector::new(segment),
            round: Leader::default(),
            prefetch: Prefetch::default(),
            replicas: Replicas::default(),
            feeds: Feeds::default(),
        }
    }

    /// The present interval ends because this node releases to a node: the next holder of a lock (T12,
    /// T13), or the home when a process reaches a barrier (T14). Before that the driver has looked at
    /// pages kept writable, and the pages in `barrier` had not changed.
    fn end_for(&mut self, cx: &mut Cx<'_>, to: NodeId, barrier: Option<&[PageIndex]>) {
        self.releases_at_locks = match barrier {
            Some(_) => 0,
            None => self.releases_at_locks.saturating_add(1),
        };
        let untouched = barrier.unwrap_or_default().iter().copied().collect();
        let written = self.memory.pages.written(&untouched);
        let named = self.end_interval_of(cx, &written);
        self.memory.pages.named_at(barrier.is_some(), &named);
        self.pushes(cx).show_use();
        let holder = Some(to).filter(|_| barrier.is_none());
        self.pushes(cx).push(holder, &named);
    }

    /// The present interval ends, unless that was [prepared](SyncHooks::prepare), and a node that
    /// knows `known` gets what it lacks.
    fn release_to(
        &mut self,
        cx: &mut Cx<'_>,
        (to, known): (NodeId, &VectorTime),
        barrier: Option<&[PageIndex]>,
    ) -> News {
        self.intervals.heard.knows(to, known);
        if !self.replicas.on {
            self.end_for(cx, to, barrier);
        }
        self.intervals.news_after(cx, known, &self.replicas)
    }

    /// A message of this policy on another node arrived, perhaps with the contents of a page.
    fn received(&mut self, cx: &mut Cx<'_>, from: NodeId, said: &Payload, page: bool) {
        let body = Body::read(said);
        let is_page =
            matches!(&body, Some(Body::CopyReply(base)) if base.contents == Contents::Bytes);
        match body {
            // Contents that follow the message are put into the frame: both must be there, or
            // neither.
            _ if is_page != page => cx.emit(Event::Malformed {}),
            None => cx.emit(Event::Malformed {}),
            Some(Body::IntervalRequest(inquire)) => self.inquired(cx, from, &inquire),
            Some(Body::IntervalReply(told)) => self.told(cx, from, &told),
            Some(Body::CopyRequest(fetch)) => self.requests(cx).fetch(fetch),
            Some(Body::CopyRequests(many)) => self.requests(cx).fetch_many(from, &many),
            Some(Body::CopyReply(base)) => self.base_arrived(cx, from, &base),
            Some(Body::DiffRequest(want)) => self.requests(cx).wanted(from, &want),
            Some(Body::DiffMissing(absent)) => self.absent(cx, from, &absent),
            Some(Body::Full(full)) => self.somebody_is_full(cx, from, &full.floor, full.leaving),
            Some(Body::Keep(keep)) => self.keep(cx, from, keep),
            Some(Body::Kept(kept)) => self.backup(cx).kept(from, &kept),
            Some(Body::Leaving) => self.backup(cx).leaves(from),
        }
    }

    /// A node that does not know the segment, or has forgotten it, returns a message: it has
    /// nothing of what was requested.
    fn came_back(&mut self, cx: &mut Cx<'_>, from: NodeId, said: &Payload) {
        match Body::read(said) {
            Some(Body::IntervalRequest(IntervalRequest { request, .. })) => {
                let news = News::default();
                self.told(cx, from, &IntervalReply { request, news });
            }
            Some(Body::DiffRequest(DiffRequest { request, diffs })) => {
                let floor = VectorTime::ZERO;
                let absent = DiffMissing {
                    request,
                    diffs,
                    floor,
                };
                self.absent(cx, from, &absent);
            }
            Some(Body::CopyRequests(many)) => {
                for (page, request) in many.copies {
                    self.base_arrived(cx, from, &no_copy(page, request));
                }
            }
            Some(Body::CopyRequest(fetch)) if fetch.hops == feeds::LEFT => {
                self.requests(cx).left_in_vain(from, fetch);
            }
            Some(Body::CopyRequest(fetch)) => {
                let base = no_copy(fetch.page, fetch.request);
                if fetch.reader == cx.me() {
                    self.base_arrived(cx, from, &base);
                } else {
                    say(cx, self.rules.segment, fetch.reader, &Body::CopyReply(base));
                }
            }
            Some(Body::Keep(_)) => self.backup(cx).knows_nothing(from),
            _ => cx.emit(Event::Stale {}),
        }
    }

    fn member_gone(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        self.intervals.heard.gone(node);
        self.push.gone(node);
        self.sizes.gone(node);
        let endangered = self.replicas.on && self.backup(cx).gone(node);
        if self.replicas.on {
            self.replicas.introduce_coordinator(cx, self.rules.segment);
            self.memory.mind_partners(cx);
            self.doubt(cx);
        } else {
            self.drop_what_nobody_told(cx);
        }
        self.round_lost(cx, node);
        self.leader_gone(cx, node);
        self.intervals
            .inquiries
            .gone(cx, self.intervals.history.time(), node);
        self.check_goals(cx);
        let waiting = self.memory.pages.which(|page| page.miss.is_some());
        for index in waiting {
            let outcome = self.miss(cx, index).helper_gone(node);
            self.conclude(cx, index, outcome);
        }
        self.repair(cx, endangered);
        self.backup(cx).pump();
    }

    /// This node is no member any more: its pages are invalid.
    fn expelled(&mut self, cx: &mut Cx<'_>) {
        let segment = self.rules.segment;
        self.intervals.inquiries.clear();
        self.collector.clear();
        self.round.give_up();
        self.replicas.forget(cx, self.rules.segment);
        self.prefetch = Prefetch::default();
        for (page, state) in self.memory.pages.invalidate_all() {
            let keep = false;
            match state.copy {
                Copy::None => {}
                Copy::Stash => cx.push(Effect::DropStash { segment, page }),
                Copy::Frame => cx.push(Effect::Evict {
                    pages: (segment, page).into(),
                    keep,
                }),
            }
            for (mapping, _) in state.miss.into_iter().flat_map(|miss| miss.faults) {
                let why = Refusal::NotMember;
                cx.push(Effect::Fail {
                    mapping,
                    segment,
                    page,
                    why,
                });
            }
        }
        self.push = PushCredit::new(self.rules.spread);
    }
}

impl Open for Release {
    fn open(segment: SegmentId, size: u32, chosen: Policy) -> Option<Result<Self, Refusal>> {
        match chosen {
            Policy::Release { spread } => Some(Ok(Self::new(Rules {
                segment,
                size,
                spread,
            }))),
            _ => None,
        }
    }
}

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
    }

    fn due(&mut self, cx: &mut Cx<'_>, due: Due) {
        match due {
            Due::Page(page, patience) => {
                if let Some(patience) = patience {
                    self.miss(cx, page).forsaken(patience);
                }
                let outcome = self.miss(cx, page).due();
                self.conclude(cx, page, outcome);
            }
            Due::Ahead => self.look_ahead(cx),
            Due::Segment => {
                self.intervals
                    .inquiries
                    .due(cx, self.intervals.history.time());
                self.report_due(cx);
                self.make_more_whole(cx);
                if self.backup(cx).due() {
                    self.repair(cx, false);
                }
            }
        }
    }

    fn may_be_untrapped(&self) -> bool {
        true
    }

    fn trapped(&mut self, cx: &mut Cx<'_>, pages: &[PageRange]) {
        self.name_untrapped(cx, pages);
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
        self.collected(cx, from, number, reply);
    }

    fn declare(&mut self, reductions: &[Reduction]) -> Result<(), Refusal> {
        self.memory.reductions.declare(reductions);
        Ok(())
    }

    fn hand_over(&mut self, cx: &mut Cx<'_>, _heir: NodeId, _burst: usize) -> usize {
        self.give_up(cx)
    }

    /// The keepers of collected pages.
    fn handover(&self, me: NodeId) -> Vec<(PageIndex, Version, NodeId)> {
        let kept = |(index, page): (PageIndex, &Page)| {
            let keeper = page.keeper.filter(|keeper| *keeper != me)?;
            Some((index, Version(0), keeper))
        };
        self.memory.pages.iter().filter_map(kept).collect()
    }

    fn learn(&mut self, _: &mut Cx<'_>, page: PageIndex, keeper: NodeId, _: Version) {
        let page = self.memory.pages.page(page);
        page.keeper = page.keeper.or(Some(keeper));
    }

    fn inspect(&self, me: NodeId, first: PageIndex, limit: usize) -> Inspection {
        let line = |(index, page): (PageIndex, &Page)| PageLine {
            page: index,
            rights: page.rights as u8,
            owner: page.keeper == Some(me),
            hint: page.keeper.unwrap_or(self.rules.segment.home()),
            version: page.notices.applied().intervals(),
            copies: NodeSet::EMPTY,
            queued: 0,
        };
        Inspection {
            unreplicated: self.unreplicated(me),
            known: self.memory.pages.len() as u64,
            readable: self.memory.pages.count(|page| page.rights >= Rights::Read),
            writable: self.memory.pages.count(|page| page.rights == Rights::Write),
            owned: self.memory.pages.count(|page| page.keeper == Some(me)),
            pages: self
                .memory
                .pages
                .from(first)
                .take(limit)
                .map(line)
                .collect(),
        }
    }
}

impl SyncHooks for Release {
    fn request(&self) -> Payload {
        Payload::of(self.intervals.history.time())
    }

    fn prepare(&mut self, cx: &mut Cx<'_>, out: Outgoing<'_>, then: &Continuation) -> bool {
        if !self.replicas.on {
            return true;
        }
        match out {
            Outgoing::Token(to, request) => {
                self.intervals
                    .heard
                    .knows(to, &request.read().unwrap_or_default());
                self.end_for(cx, to, None);
            }
            Outgoing::Arrival(untouched) => {
                let home = cx.home(self.rules.segment);
                self.end_for(cx, home, Some(untouched));
            }
        }
        self.backup(cx).is_kept(then)
    }

    fn release(&mut self, cx: &mut Cx<'_>, to: NodeId, request: &Payload) -> Payload {
        let known = request.read().unwrap_or_default();
        let news = self.release_to(cx, (to, &known), None);
        self.pushes(cx).attach(to, &news);
        Payload::of(&news)
    }

    fn looked_at(&mut self, cx: &mut Cx<'_>, untouched: &[PageIndex]) {
        self.memory
            .settle_guesses(cx, &untouched.iter().copied().collect());
    }

    fn arrive(&mut self, cx: &mut Cx<'_>, untouched: &[PageIndex]) -> Payload {
        let (home, known) = (
            cx.home(self.rules.segment),
            self.intervals.heard.home().clone(),
        );
        Payload::of(&self.release_to(cx, (home, &known), Some(untouched)))
    }

    fn acquire(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        payload: &Payload,
        then: Continuation,
    ) -> bool {
        match payload.read() {
            Some(news) => self.learn_news(cx, from, &news, then),
            None => {
                cx.emit(Event::Malformed {});
                true
            }
        }
    }

    fn acquire_from_all(&mut self, cx: &mut Cx<'_>, then: Continuation) {
        let hear = cx.shell.peers();
        if hear.is_empty() {
            return cx.ready(then);
        }
        let then = (hear, OnReply::Ready(then));
        let known = self.intervals.history.time();
        self.intervals.inquiries.ask_nodes(cx, known, None, then);
    }

    fn depart(&mut self, cx: &mut Cx<'_>, to: NodeId) -> Payload {
        let news = self.intervals.news_for(cx, to, &self.replicas);
        self.pushes(cx).attach(to, &news);
        Payload::of(&news)
    }

    fn opened(&mut self, cx: &mut Cx<'_>, nodes: NodeSet) {
        self.barrier_opened(cx, nodes);
    }
}

/// Sends a message to this policy on another node.
fn say(cx: &mut Cx<'_>, segment: SegmentId, to: NodeId, body: &Body) {
    cx.send(to, Message::Policy(envelope(segment, body)));
}

/// Says that the sender has no copy of a page.
fn no_copy(page: PageIndex, request: RequestId) -> CopyReply {
    CopyReply {
        page,
        request,
        contents: Contents::None,
        applied: VectorTime::ZERO,
    }
}

fn envelope<T: Serialize>(segment: SegmentId, said: &T) -> PolicyMessage {
    PolicyMessage {
        segment,
        body: Payload::of(said),
    }
}

#[cfg(test)]
mod tests;
