//! Sequential consistency by write-invalidate: many readers or one writer (M5, M6, F15). Every load
//! sees the latest store made anywhere.
//!
//! [`page`] is what a node knows of one page; a [`context::PageContext`] opens it for the length of one
//! input. [`owner`] serves the queue, [`copies`] handles what arrives, [`window`] decides how long a
//! page stays, [`library`] keeps the order where the manager is fixed, [`pins`] holds ranges for
//! explicit write locks, [`feeds`] has readers of the same pages serve each other, [`left_behind`]
//! tells what is lost when this node is declared dead, [`replicas`], [`wards`] and [`book`] are about
//! contents on a second node, [`hold`] keeps a whole segment from changing,
//! [`ahead`] asks for pages before they are touched, [`pressure`] empties the frames of a full node,
//! [`predictor`] is the read-modify-write predictor.

mod ahead;
mod book;
mod context;
mod copies;
mod feeds;
mod hold;
mod left_behind;
mod library;
mod loss;
pub mod messages;
mod owner;
mod page;
mod pins;
mod predictor;
mod pressure;
mod replicas;
mod request;
mod search;
mod table;
mod untrapped;
mod wards;
mod window;

use super::hooks::{
    Due, Found, Gone, Hooks, Open, Outgoing, ProgramRequest, SyncHooks, Waiting, Who,
};
use crate::continuation::Continuation;
use crate::effect::{PageRange, Reply, Rights};
use crate::event::Event;
use crate::global::MemoryReport;
use crate::inspection::Inspection;
use crate::limits::WINDOW_LIMIT;
use crate::prefetch::{Prefetch, WillneedRanges as _};
use crate::shell::Cx;
use crate::time::Time;
use crate::timers::Timer;
use context::{Deferred, PageContext};
use feeds::Feeds;
use hold::Hold;
use library::Library;
use page::Page;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::local::{PageLine, PageState};
use pagemesh_wire::peer::{
    Access, Addressee, Manager, Message, Payload, Policy, Reduction, Refusal, Subject, Window,
};
use pagemesh_wire::{ClientId, MappingId, NodeId, NodeSet, PageIndex, SegmentId, Ticket, Version};
use pins::PinJob;
use replicas::Replicas;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use table::Table;

/// Settings that hold for all pages of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Rules {
    segment: SegmentId,
    manager: Manager,
    window: Window,
}

impl Rules {
    fn subject(&self, page: PageIndex) -> Subject {
        Subject::Page {
            segment: self.segment,
            page,
        }
    }

    fn timer(&self, page: PageIndex) -> Timer {
        Timer::Subject(self.subject(page))
    }
}

/// The pages of one segment as this node knows them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Sequential {
    rules: Rules,
    pages: Table,
    /// At the library site of a fixed manager: the request being served and those that wait.
    libraries: BTreeMap<PageIndex, Library>,
    pin_jobs: SortedMap<Ticket, PinJob>,
    /// Pins that must advance before the handling of the current input ends; empty between inputs.
    #[serde(skip)]
    pins_due: VecDeque<Ticket>,
    prefetch: Prefetch,
    /// The snapshot that is being taken.
    #[serde(default)]
    hold: Option<Hold>,
    /// Pages whose frames have contents.
    #[serde(default)]
    frames: u32,
    /// The page at which the next search for a frame to empty begins.
    #[serde(default)]
    hand: PageIndex,
    /// When to look again for frames to empty.
    #[serde(default)]
    look_again: Option<Time>,
    /// Members that sent messages about pages while the frames of this node had a bound: they know the
    /// segment.
    #[serde(default)]
    met: NodeSet,
    /// Which node sends bursts of pages owned here to which reader.
    #[serde(default)]
    feeds: Feeds,
    /// What this node keeps for others, and others for it.
    #[serde(default)]
    replicas: Replicas,
}

impl Open for Sequential {
    fn open(segment: SegmentId, pages: u32, chosen: Policy) -> Option<Result<Self, Refusal>> {
        let (manager, window) = chosen.sequential()?;
        let longest = WINDOW_LIMIT.as_nanos();
        if matches!(window, Window::Nanos(nanos) if u128::from(nanos) > longest) {
            let why =
                format!("a window lasts {WINDOW_LIMIT:?} at most: everybody else waits for it");
            return Some(Err(Refusal::Invalid(why)));
        }
        Some(Ok(Self {
            rules: Rules {
                segment,
                manager,
                window,
            },
            pages: Table::default(),
            libraries: BTreeMap::new(),
            pin_jobs: SortedMap::new(),
            pins_due: VecDeque::new(),
            prefetch: Prefetch::default(),
            hold: None,
            frames: 0,
            hand: PageIndex(0),
            look_again: None,
            met: NodeSet::EMPTY,
            feeds: Feeds::default(),
            replicas: Replicas::of(pages),
        }))
    }
}

impl Sequential {
    /// Opens one page, works on it, and does what the work leaves for the segment to do.
    fn at<T>(
        &mut self,
        cx: &mut Cx<'_>,
        index: PageIndex,
        work: impl FnOnce(&mut PageContext<'_, '_>) -> T,
    ) -> T {
        let rules = self.rules;
        let home = rules.segment.home();
        let held_until = self.held_until();
        let page = self.pages.page(index, || Page::new(home));
        let before = page.filled;
        let mut context = PageContext {
            cx,
            rules: &rules,
            index,
            page,
            held_until,
            book: self.replicas.book(),
            after: Deferred::default(),
        };
        let result = work(&mut context);
        context.serve_copy_waiters();
        let after = context.after;
        page.own.settle();
        let filled = page.filled;
        if filled != before {
            self.count_frame(cx, filled);
        }
        self.clear_up(cx, index, after);
        result
    }

    fn clear_up(&mut self, cx: &mut Cx<'_>, index: PageIndex, after: Deferred) {
        for waiter in after.to_library {
            self.library_ask(cx, index, waiter);
        }
        if let Some((node, request, clock)) = after.served_here {
            self.library_served(cx, node, index, request, clock);
        }
        for (ticket, with) in after.pins_lost {
            if self.pin_jobs.remove(&ticket).is_some() {
                cx.refuse(ticket, Refusal::NodeGone(with));
            }
        }
        for ticket in after.pinned {
            self.advance_pin(cx, ticket);
        }
        if after.came_ahead {
            self.came_ahead(cx, index, after.from);
        }
        if after.stays_out {
            self.prefetch.flights.forget(index);
        }
    }

    /// A mapping is gone: forgets the threads that waited in it.
    fn unmapped(&mut self, mapping: MappingId) {
        for page in self.pages.pages_mut() {
            if let Some(busy) = page.own.busy_if_any() {
                busy.more.faults.retain(|(waiting, _)| *waiting != mapping);
                if let Some(ahead) = &mut busy.more.ahead {
                    ahead.mark |= ahead.mapping == mapping;
                }
            }
        }
        self.prefetch.unmapped(mapping);
    }

    /// A process is gone: removes its pins.
    fn client_gone(&mut self, cx: &mut Cx<'_>, client: ClientId) {
        self.pin_jobs.retain(|_, job| job.client != client);
        self.prefetch.client_gone(client);
        self.end_hold(cx, client);
        self.replicas.waiting.client_gone(client);
        let pinned = self.pages.those(|page| {
            page.own
                .busy()
                .is_some_and(|busy| busy.more.pins.iter().any(|pin| pin.client == client))
        });
        for page in pinned {
            self.at(cx, page, |context| context.unpin_all(client));
        }
    }

    fn member_gone(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        self.library_forget(cx, node);
        for page in self.pages.those(|_| true) {
            self.at(cx, page, |context| context.member_gone(node));
        }
    }

    /// This node is no member any more: its pages are invalid.
    fn expelled(&mut self, cx: &mut Cx<'_>) {
        self.libraries.clear();
        self.hold = None;
        self.prefetch = Prefetch::default();
        for page in self.pages.those(|_| true) {
            self.at(cx, page, |context| context.expelled());
        }
        self.forget_replicas(cx);
    }

    fn page_due(&mut self, cx: &mut Cx<'_>, page: PageIndex) {
        self.library_due(cx, page);
        // Most timers belong to requests that were served long ago.
        if self
            .pages
            .get(page)
            .is_some_and(|page| page.own.busy().is_some())
        {
            self.at(cx, page, |context| context.due());
        }
    }

    /// A message of another node about one page.
    fn page_message(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Message) {
        let Addressee::Subject(Subject::Page { page, .. }) = message.addressee() else {
            return cx.emit(Event::Stale {});
        };
        // A search is answered by nodes, too, that do not know the segment.
        if !matches!(message, Message::Located(_)) {
            self.meet(cx, from);
        }
        // A page that came unasked must not push out another: two full nodes would go on for ever.
        let asked = cx.shell.memory.is_bounded() && self.wants(page);
        match message {
            Message::Ask(ask) if self.goes_to_library(&ask) => {
                if cx.home(self.rules.segment) == cx.me() {
                    self.library_ask(cx, page, ask.waiter);
                } else {
                    cx.emit(Event::Stale {});
                }
            }
            Message::Served(served) => {
                self.library_served(cx, from, page, served.request, served.clock);
            }
            message => self.at(cx, page, |context| context.message(from, message)),
        }
        if asked {
            self.relieve(cx);
        }
    }
}

impl Hooks for Sequential {
    fn keep_replicas(&mut self, _: u8) -> Result<(), Refusal> {
        self.replicas.on = true;
        Ok(())
    }

    fn sync(&mut self) -> Option<&mut dyn SyncHooks> {
        if self.replicas.on { Some(self) } else { None }
    }

    fn fault(&mut self, cx: &mut Cx<'_>, who: Who, page: PageIndex, access: Access) {
        if self.at(cx, page, |context| context.fault(who.mapping, access)) {
            self.walk(cx, who, page, access);
        }
        self.relieve(cx);
        self.pump(cx);
    }

    fn request(&mut self, cx: &mut Cx<'_>, who: (Ticket, ClientId), request: ProgramRequest) {
        let (ticket, client) = who;
        match request {
            ProgramRequest::Watch(page) => {
                return self.at(cx, page, |context| context.watch(ticket));
            }
            ProgramRequest::Pin(first, count) => {
                self.pin(cx, who, first, count);
                return self.pump(cx);
            }
            ProgramRequest::Unpin(first, count) => self.unpin(cx, client, first, count),
            ProgramRequest::Hold => return self.hold(cx, who),
            ProgramRequest::EndHold => return self.stop_holding(cx, who),
            ProgramRequest::Advise(ranges, advice, mapping) => {
                self.advise(cx, (client, mapping), &ranges, advice);
            }
            ProgramRequest::Purge(..)
            | ProgramRequest::PinShort(..)
            | ProgramRequest::Publish { .. }
            | ProgramRequest::WatchRange(..) => {
                let why = ProgramRequest::NO_VIEWS.into();
                return cx.refuse(ticket, Refusal::Invalid(why));
            }
        }
        cx.reply(ticket, Reply::Done);
    }

    fn message(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Message) {
        match message {
            Message::AskMany(many) => self.asked_for_many(cx, from, &many),
            Message::SendCopies(copies) => self.send_copies(cx, &copies),
            Message::Policy(said) => self.about_replicas(cx, from, &said.body, false),
            Message::PolicyPage(said) => self.about_replicas(cx, from, &said.body, true),
            Message::PolicyUndelivered(_) => {
                let (replicas, segment) = self.with_pages();
                replicas.came_back(cx, segment, from);
            }
            message => self.page_message(cx, from, message),
        }
        self.replicas.met(from);
        self.pump(cx);
    }

    fn due(&mut self, cx: &mut Cx<'_>, due: Due) {
        match due {
            Due::Page(page, patience) => {
                if let Some(patience) = patience {
                    self.at(cx, page, |context| context.time_out(patience));
                }
                self.page_due(cx, page);
            }
            Due::Ahead => self.look_ahead(cx),
            Due::Segment => {
                self.relief_due(cx);
                self.replicas_due(cx);
            }
        }
        self.pump(cx);
    }

    fn found(&mut self, cx: &mut Cx<'_>, page: PageIndex, found: Found) {
        if let Found::Used(used) = found {
            self.at(cx, page, |context| context.use_confirmed(used));
        }
        self.pump(cx);
    }

    fn gone(&mut self, cx: &mut Cx<'_>, gone: Gone) {
        match gone {
            Gone::Mapping(mapping) => self.unmapped(mapping),
            Gone::Client(client) => self.client_gone(cx, client),
            Gone::Member(node) => {
                self.met.remove(node);
                self.feeds.forget(node);
                self.member_gone(cx, node);
                let (replicas, segment) = self.with_pages();
                replicas.member_gone(cx, segment, node);
                self.pump(cx);
            }
            Gone::Membership => self.expelled(cx),
        }
    }

    fn forget_names(&mut self, over: &NodeSet) {
        let home = self.rules.segment.home();
        for page in self.pages.pages_mut() {
            page.forget_names(home, over);
        }
        self.met = self.met.without(over);
        self.replicas.forget_names(over);
    }

    fn leave_behind(&mut self, cx: &mut Cx<'_>) -> Result<Vec<Waiting>, String> {
        match self.only_here(cx) {
            None => {
                let waiting = self.drop_all(cx);
                self.forget_replicas(cx);
                Ok(waiting)
            }
            Some(lost) => {
                self.expelled(cx);
                Err(lost)
            }
        }
    }

    fn may_be_untrapped(&self) -> bool {
        true
    }

    fn trapped(&mut self, cx: &mut Cx<'_>, pages: &[PageRange]) {
        self.own_untrapped(cx, pages);
    }

    fn cancel(&mut self, ticket: Ticket) -> bool {
        let mut had = self.pin_jobs.remove(&ticket).is_some();
        had |= self.replicas.waiting.cancel(ticket);
        for page in self.pages.pages_mut() {
            if let Some(busy) = page.own.busy_if_any() {
                had |= busy.more.watchers.contains(&ticket);
                busy.more.watchers.retain(|watcher| *watcher != ticket);
                busy.more.pinning.retain(|waiting| *waiting != ticket);
            }
        }
        had
    }

    fn declare(&mut self, _: &[Reduction]) -> Result<(), Refusal> {
        let why = "nodes accumulate in segments of policy release; in a sequential one use atomic \
                   operations";
        Err(Refusal::Invalid(why.into()))
    }

    fn hand_over(&mut self, cx: &mut Cx<'_>, to: NodeId, burst: usize) -> usize {
        let me = cx.me();
        self.time_out_pins(cx);
        if let Some(client) = self.hold.map(|hold| hold.client()) {
            self.end_hold(cx, client);
        }
        self.prefetch.willneed_ranges.clear();
        // After this node has left, it cannot acknowledge invalidations: it drops its copies first.
        for page in self
            .pages
            .those(|page| page.own.hint != me && page.rights > Rights::None)
        {
            self.at(cx, page, |context| context.evict(false));
        }
        let owned = self.pages.those(|page| page.own.hint == me);
        let passing = self
            .pages
            .iter()
            .filter(|(_, page)| page.own.passing().is_some())
            .count();
        // Pages that this node has requested still arrive, and requests of others may wait for them
        // here.
        let coming = self
            .pages
            .iter()
            .filter(|(_, page)| page.own.hint != me && page.own.want().is_some())
            .count();
        for page in owned.iter().take(burst.saturating_sub(passing)) {
            self.at(cx, *page, |context| context.hand_over(to));
        }
        let wards = self.leave_wards(cx);
        self.pump(cx);
        owned.len() + passing + coming + wards
    }

    fn handover(&self, me: NodeId) -> Vec<(PageIndex, Version, NodeId)> {
        let elsewhere = self.pages.iter().filter(|(_, page)| page.own.hint != me);
        let known = elsewhere.map(|(index, page)| (index, page.own.version, page.own.hint));
        known.collect()
    }

    fn learn(&mut self, cx: &mut Cx<'_>, page: PageIndex, owner: NodeId, version: Version) {
        self.at(cx, page, |context| context.learn_clock(owner, version));
    }

    fn states(&self, me: NodeId, first: PageIndex, count: u32) -> Vec<PageState> {
        Self::states(self, me, first, count)
    }

    fn is_held(&self, now: Time) -> bool {
        self.held_until() > now
    }

    fn pressed(&mut self, cx: &mut Cx<'_>) {
        self.relieve(cx);
        self.pump(cx);
    }

    fn forgotten(&mut self, cx: &mut Cx<'_>) {
        cx.shell.memory.used -= core::mem::take(&mut self.frames);
    }

    fn memory(&self, into: &mut MemoryReport) {
        into.local += u64::from(self.frames);
    }

    fn inspect(&self, me: NodeId, first: PageIndex, limit: usize) -> Inspection {
        let count = |pick: &dyn Fn(&Page) -> bool| {
            self.pages.iter().filter(|(_, page)| pick(page)).count() as u64
        };
        Inspection {
            unreplicated: self.replicas.unreplicated(),
            known: self.pages.len() as u64,
            readable: count(&|page| page.rights >= Rights::Read),
            writable: count(&|page| page.rights == Rights::Write),
            owned: count(&|page| page.own.hint == me),
            pages: self
                .pages
                .from(first)
                .take(limit)
                .map(|(index, page)| line(me, index, page))
                .collect(),
        }
    }
}

/// In segments with a replica. Pages move by themselves, so that payloads are empty; but what was stored
/// before a token leaves is not lost after that.
impl SyncHooks for Sequential {
    fn request(&self) -> Payload {
        Payload::EMPTY
    }

    fn prepare(&mut self, cx: &mut Cx<'_>, _: Outgoing<'_>, then: &Continuation) -> bool {
        let committed = self.replicas.is_committed(cx, then);
        if !committed {
            self.pump(cx);
        }
        committed
    }

    fn release(&mut self, _: &mut Cx<'_>, _: NodeId, _: &Payload) -> Payload {
        Payload::EMPTY
    }

    fn arrive(&mut self, _: &mut Cx<'_>, _: &[PageIndex]) -> Payload {
        Payload::EMPTY
    }

    fn acquire(&mut self, _: &mut Cx<'_>, _: NodeId, _: &Payload, _: Continuation) -> bool {
        true
    }

    fn acquire_from_all(&mut self, cx: &mut Cx<'_>, then: Continuation) {
        cx.ready(then);
    }

    fn depart(&mut self, _: &mut Cx<'_>, _: NodeId) -> Payload {
        Payload::EMPTY
    }
}

fn line(me: NodeId, index: PageIndex, page: &Page) -> PageLine {
    PageLine {
        page: index,
        rights: page.rights as u8,
        owner: page.own.hint == me,
        hint: page.own.hint,
        version: page.own.version.0,
        copies: page.copies.clone(),
        queued: page.own.queue_len() as u32,
    }
}

#[cfg(test)]
mod tests;
