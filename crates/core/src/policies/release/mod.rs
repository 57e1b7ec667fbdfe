//! Lazy release consistency (TreadMarks): what a node wrote before a release becomes visible to the
//! node that acquires after it. Decision 0019 says how.
//!
//! [`history`] is what the node knows of all nodes' intervals, [`learn`] how it comes to know more,
//! [`page`] one page, [`messages`] the messages of the policy, [`notices`] the write notices of a
//! page, [`memory`] what accesses and notices do to pages, [`kept_writable`] the pages that are kept
//! writable from interval to interval, [`spread`] the pushes, [`regulars`] the push subscribers
//! with their credit and [`usage`] how a node shows that it still uses pushed diffs, [`miss`] how a
//! page is made whole, [`ahead`] how pages are made whole before they are touched, [`serve`] how
//! requests of other nodes are served, [`collect`] the garbage collection, led by the home
//! ([`round`]) when a node holds too much or leaves ([`full`], [`leave`]), [`death`] what becomes
//! of copies when a node is gone, [`reductions`] where nodes accumulate, [`races`] finds bytes that
//! two nodes wrote concurrently.

mod ahead;
mod collect;
mod copies;
mod death;
mod diff_requests;
mod full;
mod history;
mod kept_writable;
mod learn;
mod leave;
mod memory;
pub mod messages;
mod miss;
mod notices;
mod page;
mod races;
mod reductions;
mod regulars;
mod round;
mod serve;
mod spread;
mod usage;

use super::hooks::{Due, Found, Gone, Hooks, Open, ProgramRequest, SyncHooks, Who};
use crate::caller::Caller;
use crate::continuation::Continuation;
use crate::effect::{Effect, Reply, Rights};
use crate::event::Event;
use crate::inspection::Inspection;
use crate::prefetch::{Prefetch, WillneedRanges as _};
use crate::shell::Cx;
use crate::time::Time;
use crate::timers::Timer;
use collect::Collecting;
use full::Fullness;
use history::History;
use kept_writable::KeptWritable;
use learn::{Goal, Inquiry};
use messages::{
    Body, Collect, CopyReply, DiffMissing, DiffRequest, IntervalReply, IntervalRequest, News,
};
use page::{Copy, Page};
use pagemesh_wire::local::PageLine;
use pagemesh_wire::peer::{
    self, Access, Contents, DiffName, Message, Payload, Policy, PolicyMessage, Reduction, Refusal,
    Spread, Subject,
};
use pagemesh_wire::{
    ClientId, MappingId, NodeId, NodeSet, PageIndex, SegmentId, Ticket, VectorTime, Version,
};
use regulars::Regulars;
use round::Round;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The pages of one segment as this node knows them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Release {
    segment: SegmentId,
    /// Pages of the segment.
    size: u32,
    spread: Spread,
    /// Ranges in which nodes accumulate.
    reductions: Vec<Reduction>,
    history: History,
    pages: BTreeMap<PageIndex, Page>,
    /// Pages that were in use here until another node wrote them.
    habits: BTreeSet<PageIndex>,
    /// Requests for pages that were not touched yet.
    prefetch: Prefetch,
    /// Nodes that use the diffs that this node makes, and their push credit.
    regulars: Regulars,
    /// Pages whose pushed diffs were used, which their writers were not told yet.
    used: BTreeSet<PageIndex>,
    /// Pages with a twin that the present interval is going to name.
    dirty: BTreeSet<PageIndex>,
    /// Pages kept writable; whether they were stored to since is not known.
    kept_writable: KeptWritable,
    /// Diffs in the driver's diff store, and those of them whose notices have not arrived.
    held: BTreeSet<DiffName>,
    early: BTreeSet<DiffName>,
    /// What other nodes have said that they know.
    heard: BTreeMap<NodeId, VectorTime>,
    /// Notices of all pages, and how many pages have any.
    notices: usize,
    named: usize,
    /// Pages with a named interval of this node whose diff was not requested yet.
    undiffed: usize,
    /// What the home is known to know.
    home_time: VectorTime,
    goals: Vec<Goal>,
    inquiries: BTreeMap<NodeId, Inquiry>,
    collecting: Option<Collecting>,
    /// The call of the last round in which this node took part.
    led: Option<Caller>,
    /// At the home: the collection under way, when the last one ended, and the nodes that must not
    /// keep pages because they leave.
    round: Option<Round>,
    round_ended: Option<Time>,
    leavers: NodeSet,
    /// The floors of other nodes, as far as this node has heard.
    rumoured: VectorTime,
    full: Fullness,
    leaving: bool,
    synced: InitialSync,
}

impl Release {
    fn new(segment: SegmentId, size: u32, spread: Spread) -> Self {
        Self {
            segment,
            size,
            spread,
            reductions: Vec::new(),
            history: History::default(),
            pages: BTreeMap::new(),
            habits: BTreeSet::new(),
            prefetch: Prefetch::default(),
            regulars: Regulars::new(),
            used: BTreeSet::new(),
            dirty: BTreeSet::new(),
            kept_writable: KeptWritable::default(),
            held: BTreeSet::new(),
            early: BTreeSet::new(),
            heard: BTreeMap::new(),
            notices: 0,
            named: 0,
            undiffed: 0,
            home_time: VectorTime::ZERO,
            goals: Vec::new(),
            inquiries: BTreeMap::new(),
            collecting: None,
            led: None,
            round: None,
            round_ended: None,
            leavers: NodeSet::EMPTY,
            rumoured: VectorTime::ZERO,
            full: Fullness::No,
            leaving: false,
            synced: InitialSync::NotYet,
        }
    }

    /// What this node knows.
    fn time(&self) -> VectorTime {
        self.history.time.clone()
    }

    /// A lock is released: the interval ends, and the next holder, which knows `known`, gets what
    /// it lacks (T12, T13).
    fn end_of_hold(&mut self, cx: &mut Cx<'_>, to: NodeId, known: &VectorTime) -> News {
        self.hears_of(to, known);
        let written = self.written(&[]);
        let named = self.end_interval_of(cx, &written);
        self.named_at(false, &named);
        self.show_use(cx);
        self.push(cx, &named);
        self.push_to_regular(cx, to, &named);
        self.news(known)
    }

    /// A process reaches a barrier: like a release towards the home (T14). The driver has looked at
    /// pages kept writable, and the pages in `untouched` had not changed.
    fn end_of_phase(&mut self, cx: &mut Cx<'_>, untouched: &[PageIndex]) -> News {
        let (home, known) = (cx.home(self.segment), self.home_time.clone());
        self.hears_of(home, &known);
        let written = self.written(untouched);
        let named = self.end_interval_of(cx, &written);
        self.named_at(true, &named);
        self.show_use(cx);
        self.push(cx, &named);
        self.push_to_regulars(cx);
        self.news(&known)
    }

    /// What a node that knows `known` lacks of what this node knows.
    fn news(&self, known: &VectorTime) -> News {
        self.history.since(known)
    }

    /// A node has said what it knows.
    fn hears_of(&mut self, node: NodeId, time: &VectorTime) {
        self.heard.entry(node).or_default().join(time);
    }

    /// Sends a message to this policy on another node.
    fn say(&self, cx: &mut Cx<'_>, to: NodeId, body: &Body) {
        cx.send(to, Message::Policy(self.envelope(body)));
    }

    fn envelope<T: Serialize>(&self, said: &T) -> PolicyMessage {
        PolicyMessage {
            segment: self.segment,
            body: Payload::of(said),
        }
    }

    /// A message of this policy on another node arrived, perhaps with the contents of a page.
    fn heard(&mut self, cx: &mut Cx<'_>, from: NodeId, said: &Payload, page: bool) {
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
            Some(Body::CopyRequest(fetch)) => self.fetch(cx, fetch),
            Some(Body::CopyReply(base)) => self.base(cx, from, &base),
            Some(Body::DiffRequest(want)) => self.wanted(cx, from, &want),
            Some(Body::DiffMissing(absent)) => self.absent(cx, from, &absent),
            Some(Body::Full(full)) => self.somebody_is_full(cx, from, &full.floor, full.leaving),
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
            Some(Body::CopyRequest(fetch)) => {
                let base = CopyReply {
                    page: fetch.page,
                    request: fetch.request,
                    contents: Contents::None,
                    applied: VectorTime::ZERO,
                };
                if fetch.reader == cx.me() {
                    self.base(cx, from, &base);
                } else {
                    self.say(cx, fetch.reader, &Body::CopyReply(base));
                }
            }
            _ => cx.emit(Event::Stale {}),
        }
    }

    /// A mapping is gone: forgets the threads that waited in it.
    fn unmapped(&mut self, mapping: MappingId) {
        for page in self.pages.values_mut() {
            if let Some(miss) = &mut page.miss {
                miss.faults.retain(|(waiting, _)| *waiting != mapping);
                if let Some(ahead) = &mut miss.ahead {
                    ahead.mark |= ahead.mapping == mapping;
                }
            }
        }
        self.prefetch.unmapped(mapping);
    }

    fn member_gone(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        self.heard.remove(&node);
        self.regulars.retain(|(user, _), _| *user != node);
        self.drop_what_nobody_told(cx);
        for page in self.pages.values_mut() {
            page.users.remove(node);
        }
        self.round_lost(cx, node);
        self.leader_gone(cx, node);
        self.source_gone(cx, node);
        let waiting = self.pages_where(|page| page.miss.is_some());
        for index in waiting {
            self.helper_gone(cx, index, node);
        }
    }

    /// This node is no member any more: its pages are invalid.
    fn expelled(&mut self, cx: &mut Cx<'_>) {
        let segment = self.segment;
        self.goals.clear();
        self.inquiries.clear();
        self.collecting = None;
        self.round = None;
        self.prefetch = Prefetch::default();
        for (page, state) in core::mem::take(&mut self.pages) {
            let keep = false;
            match state.copy {
                Copy::None => {}
                Copy::Stash => cx.push(Effect::DropStash { segment, page }),
                Copy::Frame => cx.push(Effect::Evict {
                    segment,
                    page,
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
        self.used.clear();
        self.dirty.clear();
        self.kept_writable = KeptWritable::default();
    }

    fn pages_where(&self, pick: impl Fn(&Page) -> bool) -> Vec<PageIndex> {
        let picked = self.pages.iter().filter(|(_, page)| pick(page));
        picked.map(|(index, _)| *index).collect()
    }

    fn timer(&self, page: PageIndex) -> Timer {
        Timer::Subject(Subject::Page {
            segment: self.segment,
            page,
        })
    }
}

impl Open for Release {
    fn open(segment: SegmentId, size: u32, chosen: Policy) -> Option<Result<Self, Refusal>> {
        match chosen {
            Policy::Release { spread } => Some(Ok(Self::new(segment, size, spread))),
            _ => None,
        }
    }
}

impl Hooks for Release {
    fn fault(&mut self, cx: &mut Cx<'_>, who: Who, page: PageIndex, access: Access) {
        if page.0 < self.size {
            // The pages ahead are marked before this page is requested, so that they do not come
            // along with it, and requested after it.
            let ahead = self.walk(cx, who, page, access);
            self.touched(cx, who.mapping, page, access);
            self.ask_ahead(cx, ahead);
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
            ProgramRequest::Advise(first, count, advice, mapping) => {
                self.advise(cx, (client, mapping), (first, count), advice);
                return cx.reply(ticket, Reply::Done);
            }
        };
        cx.refuse(ticket, Refusal::Invalid(why.into()));
    }

    fn message(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Message) {
        match message {
            Message::Policy(said) => self.heard(cx, from, &said.body, false),
            Message::PolicyPage(said) => self.heard(cx, from, &said.body, true),
            Message::PolicyUndelivered(said) => self.came_back(cx, from, &said.body),
            Message::Diffs(diffs) => self.diffs(cx, &diffs),
            // Messages about owned pages mean nothing here.
            _ => cx.emit(Event::Stale {}),
        }
    }

    fn due(&mut self, cx: &mut Cx<'_>, due: Due) {
        match due {
            Due::Page(page, patience) => {
                if let Some(patience) = patience {
                    self.miss_forsaken(cx, page, patience);
                }
                self.miss_due(cx, page);
            }
            Due::Ahead => self.look_ahead(cx),
            Due::Segment => self.due_again(cx),
        }
    }

    fn found(&mut self, _: &mut Cx<'_>, page: PageIndex, found: Found) {
        if let Found::Unchanged = found {
            self.unchanged(page);
        }
    }

    fn gone(&mut self, cx: &mut Cx<'_>, gone: Gone) {
        match gone {
            Gone::Mapping(mapping) => self.unmapped(mapping),
            Gone::Client(client) => self.prefetch.client_gone(client),
            Gone::Member(node) => self.member_gone(cx, node),
            Gone::Membership => self.expelled(cx),
        }
    }

    fn sync(&mut self) -> Option<&mut dyn SyncHooks> {
        Some(self)
    }

    fn kept_writable(&self) -> Vec<PageIndex> {
        self.to_be_looked_at()
    }

    fn called(&mut self, cx: &mut Cx<'_>, caller: Caller, body: &Payload) {
        // A home that is gone leads no collection; its successor does.
        let leads = cx.home(self.segment) == caller.node;
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
        if reductions.len() > self.reductions.len() {
            self.reductions = reductions.to_vec();
        }
        Ok(())
    }

    fn hand_over(&mut self, cx: &mut Cx<'_>, _heir: NodeId, _burst: usize) -> usize {
        self.give_up(cx)
    }

    /// The keepers of collected pages.
    fn handover(&self, me: NodeId) -> Vec<(PageIndex, Version, NodeId)> {
        let kept = |(index, page): (&PageIndex, &Page)| {
            let keeper = page.keeper.filter(|keeper| *keeper != me)?;
            Some((*index, Version(0), keeper))
        };
        self.pages.iter().filter_map(kept).collect()
    }

    fn learn(&mut self, _: &mut Cx<'_>, page: PageIndex, keeper: NodeId, _: Version) {
        let page = self.pages.entry(page).or_default();
        page.keeper = page.keeper.or(Some(keeper));
    }

    fn inspect(&self, me: NodeId, first: PageIndex, limit: usize) -> Inspection {
        let count =
            |pick: &dyn Fn(&Page) -> bool| self.pages.values().filter(|page| pick(page)).count();
        let line = |(index, page): (&PageIndex, &Page)| PageLine {
            page: *index,
            rights: page.rights as u8,
            owner: page.keeper == Some(me),
            hint: page.keeper.unwrap_or(self.segment.home()),
            version: page.notices.applied().intervals(),
            copies: NodeSet::EMPTY,
            queued: 0,
        };
        Inspection {
            known: self.pages.len() as u64,
            readable: count(&|page| page.rights >= Rights::Read) as u64,
            writable: count(&|page| page.rights == Rights::Write) as u64,
            owned: count(&|page| page.keeper == Some(me)) as u64,
            pages: self.pages.range(first..).take(limit).map(line).collect(),
        }
    }
}

impl SyncHooks for Release {
    fn request(&self) -> Payload {
        Payload::of(&self.history.time)
    }

    fn release(&mut self, cx: &mut Cx<'_>, to: NodeId, request: &Payload) -> Payload {
        let known = request.read().unwrap_or_default();
        let news = self.end_of_hold(cx, to, &known);
        self.attach(cx, to, &news);
        Payload::of(&news)
    }

    fn arrive(&mut self, cx: &mut Cx<'_>, untouched: &[PageIndex]) -> Payload {
        Payload::of(&self.end_of_phase(cx, untouched))
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
        self.hear_everybody(cx, then);
    }

    fn depart(&mut self, cx: &mut Cx<'_>, to: NodeId) -> Payload {
        let known = self.heard.get(&to).cloned().unwrap_or_default();
        let news = self.news(&known);
        self.attach(cx, to, &news);
        Payload::of(&news)
    }

    fn opened(&mut self, cx: &mut Cx<'_>, nodes: NodeSet) {
        self.barrier_opened(cx, nodes);
    }
}

/// Whether this node has asked what happened before it first used the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum InitialSync {
    NotYet,
    UnderWay,
    Done,
}
