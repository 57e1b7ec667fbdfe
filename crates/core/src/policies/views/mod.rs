//! One consistent copy of a page that moves, and any number of inconsistent ones (Mether, E1 to
//! E20). Nobody is invalidated: an inconsistent copy may be old, and its reader chooses when to pay
//! for a newer one.
//!
//! A mapping has a [`View`]: consistent or inconsistent, whole pages or their prefix, demand-driven
//! or data-driven. [`page`] is what a node knows of one page, [`page_here`] uses that and the frame, and
//! [`context`] opens a page for an input with what else changes with it.
//! [`holder`] serves faults and moves the consistent copy, [`requests`] does what else programs ask for,
//! [`refresh`] publishes and takes what passes by, [`publications`] are those of this node, [`arrivals`]
//! those that come, [`watches`] who waits for any, [`listen`] knows who gets refreshes, [`census`] finds
//! the copy again when its holder is gone, and [`loss`] is for pages without any copy.
//! [`replicas`] names to a second node what this one holds, [`backing`] tells them of each page, and
//! [`kept`] is what this node keeps for others, and [`orphans`] are those of the pages kept whose holder is
//! gone.

mod arrivals;
mod backing;
mod census;
mod context;
mod holder;
mod kept;
mod left_behind;
mod listen;
mod loss;
mod messages;
mod orphans;
mod page;
mod page_here;
mod publications;
mod refresh;
mod replicas;
mod requests;
mod watches;

use super::hooks::{Due, Gone, Hooks, Open, ProgramRequest, Waiting, Who};
use crate::effect::Rights;
use crate::event::Event;
use crate::inspection::Inspection;
use crate::shell::Cx;
use crate::time::Time;
use crate::timers::Timer;
use arrivals::Arrivals;
use core::time::Duration;
use listen::Listeners;
use messages::{Body, Stamp, Want, Wish};
use page::{Page, Valid};
use pagemesh_sorted::{LongMap, SortedMap};
use pagemesh_wire::local::{PageLine, View};
use pagemesh_wire::peer::{Access, Message, Payload, Policy, PolicyMessage, Refusal};
use pagemesh_wire::{
    ClientId, MappingId, NodeId, NodeSet, PAGE_SIZE, PageIndex, SegmentId, Ticket,
};
use publications::Publications;
use replicas::Replicas;
use serde::{Deserialize, Serialize};
use watches::Watches;

/// A node keeps the consistent copy for so long if a thread has waited for it: the thread must get
/// to its access.
const HOLD: Duration = Duration::from_micros(200);

/// How often a request is passed on; then its asker asks everybody.
const HOPS: u8 = 4;

/// Nodes that wait for a consistent copy at most: there are no more.
const QUEUE: usize = NodeId::LIMIT as usize;

/// After so long without a newer publication listeners are reminded of the last one, and again
/// after twice that, and so on. Who publishes a hundred times a second never reminds.
const REMIND: Duration = Duration::from_millis(12);
const REMINDERS: u32 = 6;

/// How long the pages of one publication may be under way before the missing ones are asked for.
const REPAIR: Duration = Duration::from_millis(4);

/// How often missing pages are asked for in vain: by then the pages have moved, or a newer publication
/// has taken their place, and whoever has it reminds of that.
const ASKS: u8 = 16;

/// Pages of one publication, purge or request at most: a state of 16 MiB, and some more.
pub(super) const RUN: u32 = 8192;

/// Pages that one message asks for at most: their numbers fit into a small datagram, and the pages
/// into a socket's buffer.
const MISSING: usize = 128;

/// The pages of one segment as this node knows them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Views {
    segment: SegmentId,
    /// Pages of the segment.
    size: u32,
    /// Bytes of a short page.
    prefix: u16,
    /// What each mapping here shows.
    mappings: SortedMap<MappingId, View>,
    pages: LongMap<PageIndex, Page>,
    listeners: Listeners,
    arriving: Arrivals,
    published: Publications,
    /// When to remind listeners of publications.
    remind: Option<Time>,
    watches: Watches,
    /// The next time for which the segment's timer is armed.
    armed: Option<Time>,
    /// The programs here know from the contents what a page is: one that is lost begins anew with
    /// zeros, instead of failing ([`Advice::Renew`](pagemesh_wire::local::Advice::Renew)).
    #[serde(default)]
    renews: bool,
    #[serde(default)]
    replicas: Replicas,
}

impl Open for Views {
    fn open(segment: SegmentId, pages: u32, chosen: Policy) -> Option<Result<Self, Refusal>> {
        let Policy::Views { prefix } = chosen else {
            return None;
        };
        if prefix == 0 || usize::from(prefix) > PAGE_SIZE || prefix % 8 != 0 {
            let why =
                format!("a short page has 8 to {PAGE_SIZE} bytes, a multiple of 8; 32 is usual");
            return Some(Err(Refusal::Invalid(why)));
        }
        Some(Ok(Self {
            segment,
            size: pages,
            prefix,
            mappings: SortedMap::new(),
            pages: LongMap::new(),
            listeners: Listeners::default(),
            arriving: Arrivals::default(),
            published: Publications::default(),
            remind: None,
            watches: Watches::default(),
            armed: None,
            renews: false,
            replicas: Replicas::default(),
        }))
    }
}

fn said(segment: SegmentId, body: &Body) -> PolicyMessage {
    let body = Payload::of(body);
    PolicyMessage { segment, body }
}

fn say(cx: &mut Cx<'_>, segment: SegmentId, to: NodeId, body: &Body) {
    cx.send(to, Message::Policy(said(segment, body)));
}

impl Views {
    fn say(&self, cx: &mut Cx<'_>, to: NodeId, body: &Body) {
        say(cx, self.segment, to, body);
    }

    fn timer(&self) -> Timer {
        Timer::Segment(self.segment)
    }

    fn arm(&mut self, cx: &mut Cx<'_>, at: Time) {
        let soon = self
            .armed
            .is_some_and(|armed| armed > cx.now && armed <= at);
        if !soon {
            self.armed = Some(at);
            cx.arm(at, self.timer());
        }
    }

    /// A message of another node. Page numbers are checked here, all else where it is used.
    fn heard_of(&mut self, cx: &mut Cx<'_>, from: NodeId, body: Body, has_page: bool) {
        let page = match &body {
            Body::Want(Want { page, .. })
            | Body::Pass(messages::Pass { page, .. })
            | Body::Refresh(messages::Refresh { page, .. })
            | Body::Found(messages::Found { page, .. })
            | Body::Passed { page, .. }
            | Body::Census { page, .. }
            | Body::Become { page, .. }
            | Body::Lost { page, .. }
            | Body::NoCopy { page, .. }
            | Body::Release { page, .. } => Some(*page),
            _ => None,
        };
        let needs_page = matches!(body, Body::Pass(_) | Body::Refresh(_));
        if page.is_some_and(|page| page.0 >= self.size) || needs_page != has_page {
            return cx.emit(Event::Malformed {});
        }
        let is_home = cx.home(self.segment) == cx.me();
        match body {
            Body::Listen if is_home => self.listeners.admit(cx, self.segment, from),
            Body::Deaf { generation } if is_home => {
                self.listeners.is_deaf(cx, self.segment, from, generation)
            }
            Body::Heard { generation } if is_home => {
                self.listeners.heard(cx, self.segment, from, generation)
            }
            Body::Found(found) => self.at(cx, found.page).found(from, found),
            Body::NoCopy { page, version } => self.at(cx, page).no_copy(from, version),
            Body::Listeners { generation, nodes } => {
                self.listeners
                    .told(cx, self.segment, from, generation, nodes)
            }
            Body::Want(want) => self.at(cx, want.page).wanted(want),
            Body::Pass(pass) => self.at(cx, pass.page).passed_here(from, pass),
            Body::Passed { page, version } => {
                let known = self.page(cx, page).passing.as_ref();
                if known.is_some_and(|p| p.to == from && p.stamp.version == version) {
                    self.at(cx, page).arrived(version);
                }
            }
            Body::Refresh(refresh) => self.at(cx, refresh.page).refreshed(from, &refresh),
            Body::Newest { run, bytes } => self.newest(cx, from, (run, bytes)),
            Body::Missing { run, pages } => self.missing(cx, from, run, &pages),
            Body::Census { page, round, epoch } => self.at(cx, page).counted(from, round, epoch),
            Body::Become {
                page,
                version,
                number,
            } => {
                let stamp = Stamp { version, number };
                self.at(cx, page).become_holder(from, stamp);
            }
            Body::Keep { run } => self.keep(cx, from, run),
            Body::Kept { run } => self.kept(cx, from, run),
            Body::Release {
                page,
                version,
                holder,
            } => self.at(cx, page).released(from, version, holder),
            Body::Zeros => self.replicas.keep_zeros(cx, self.segment, from),
            Body::ZerosKept => self.zeros_kept(cx, from),
            Body::Leaving { pages, zeros } => self.backup_leaves(cx, from, &pages, zeros),
            Body::ReleaseZeros => self.replicas.zeros_released(cx, from),
            Body::Lost {
                page,
                request,
                with,
            } => self.at(cx, page).told_lost(request, with),
            Body::Listen | Body::Deaf { .. } | Body::Heard { .. } => cx.emit(Event::Stale {}),
        }
    }

    /// This node is no member any more: its copies are nobody's.
    fn expelled(&mut self, cx: &mut Cx<'_>) {
        let segment = self.segment;
        for index in self.pages.keys().copied().collect::<Vec<_>>() {
            self.at(cx, index).here().expelled();
        }
        for ticket in self.watches.end() {
            cx.refuse(ticket, Refusal::NotMember);
        }
        self.pages.clear();
        self.published = Publications::default();
        self.listeners = Listeners::default();
        self.replicas.forget(cx, segment);
    }

    fn client_gone(&mut self, cx: &mut Cx<'_>, client: ClientId) {
        self.replicas.client_gone(client);
        let locked = |page: &Page| page.locks.iter().any(|(holder, _)| *holder == client);
        let pages = self.pages.iter().filter(|(_, page)| locked(page));
        for index in pages.map(|(index, _)| *index).collect::<Vec<_>>() {
            let page = self.page(cx, index);
            page.locks.retain(|(holder, _)| *holder != client);
            self.at(cx, index).serve_queue();
        }
    }

    fn unmapped(&mut self, cx: &mut Cx<'_>, mapping: MappingId) {
        self.mappings.remove(&mapping);
        self.renews &= !self.mappings.is_empty();
        let waits = |page: &Page| page.faults.iter().any(|(waiting, _)| *waiting == mapping);
        let pages = self.pages.iter().filter(|(_, page)| waits(page));
        for index in pages.map(|(index, _)| *index).collect::<Vec<_>>() {
            let page = self.page(cx, index);
            page.faults.retain(|(waiting, _)| *waiting != mapping);
            self.at(cx, index).serve();
        }
    }
}

impl Hooks for Views {
    fn mapped(&mut self, cx: &mut Cx<'_>, mapping: MappingId, view: View) {
        self.mappings.insert(mapping, view);
        self.listeners.listen(cx, self.segment);
        self.pump_replicas(cx);
    }

    fn keep_replicas(&mut self, _: u8) -> Result<(), Refusal> {
        self.replicas.on = true;
        Ok(())
    }

    fn shown(&self) -> Vec<(MappingId, View)> {
        let mappings = self.mappings.iter();
        mappings.map(|(mapping, view)| (*mapping, *view)).collect()
    }

    fn fault(&mut self, cx: &mut Cx<'_>, who: Who, page: PageIndex, _: Access) {
        if page.0 >= self.size {
            return;
        }
        let view = self.mappings.get(&who.mapping).copied().unwrap_or_default();
        self.at(cx, page).access(who.mapping, view);
    }

    fn request(&mut self, cx: &mut Cx<'_>, who: (Ticket, ClientId), request: ProgramRequest) {
        self.requested(cx, who, request);
    }

    fn message(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Message) {
        let has_page = matches!(message, Message::PolicyPage(_));
        match message {
            Message::Policy(said) | Message::PolicyPage(said) => match said.body.read() {
                Some(body) => self.heard_of(cx, from, body, has_page),
                None => cx.emit(Event::Malformed {}),
            },
            // A node that does not know the segment knows nothing of its pages.
            Message::PolicyUndelivered(said) => {
                let body = said.body.read();
                if matches!(body, Some(Body::Keep { .. } | Body::Zeros)) {
                    return self.replicas.backup_knows_nothing(cx, self.segment, from);
                }
                if let Some(Body::Census { page, round, .. }) = body
                    && page.0 < self.size
                {
                    let found = messages::Found {
                        page,
                        round,
                        version: 0,
                        hint: self.segment.home(),
                        holds: false,
                        copy: None,
                        number: 0,
                    };
                    self.at(cx, page).found(from, found);
                }
            }
            _ => cx.emit(Event::Stale {}),
        }
    }

    fn due(&mut self, cx: &mut Cx<'_>, due: Due) {
        match due {
            Due::Page(page, patience) if self.pages.contains_key(&page) => {
                self.at(cx, page).due(patience);
            }
            Due::Segment => {
                self.armed = self.armed.filter(|armed| *armed > cx.now);
                self.listeners.due(cx, self.segment);
                self.refreshes_due(cx);
                let (replicas, held) = self.replicas();
                replicas.due(cx, held);
                self.pump_replicas(cx);
            }
            Due::Page(..) | Due::Ahead => {}
        }
    }

    fn gone(&mut self, cx: &mut Cx<'_>, gone: Gone) {
        match gone {
            Gone::Mapping(mapping) => self.unmapped(cx, mapping),
            Gone::Client(client) => self.client_gone(cx, client),
            Gone::Member(node) => {
                let maps = !self.mappings.is_empty();
                self.listeners.member_gone(cx, self.segment, node, maps);
                if cx.has_left(node) {
                    self.holder_left(cx, node);
                }
                for index in self.pages.keys().copied().collect::<Vec<_>>() {
                    self.at(cx, index).member_gone(node);
                }
                self.replica_gone(cx, node);
            }
            Gone::Membership => self.expelled(cx),
        }
    }

    fn forget_names(&mut self, over: &NodeSet) {
        let home = self.segment.home();
        for page in self.pages.values_mut() {
            page.forget_names(home, over);
        }
    }

    fn leave_behind(&mut self, cx: &mut Cx<'_>) -> Result<Vec<Waiting>, String> {
        match self.only_here(cx) {
            None => Ok(self.drop_all(cx)),
            Some(lost) => {
                self.expelled(cx);
                Err(lost)
            }
        }
    }

    fn cancel(&mut self, ticket: Ticket) -> bool {
        self.watches.cancel(ticket) || self.replicas.cancel(ticket)
    }

    fn hand_over(&mut self, cx: &mut Cx<'_>, successor: NodeId, burst: usize) -> usize {
        let pages = |pick: &dyn Fn(&Page) -> bool| {
            let pages = self.pages.iter().filter(|(_, page)| pick(page));
            pages.map(|(index, _)| *index).collect::<Vec<_>>()
        };
        let held = pages(&|page| page.holds && (page.filled || page.version > 0));
        let passing = pages(&|page| page.passing.is_some()).len();
        let coming = pages(&|page| page.want.as_ref().is_some_and(|w| w.wish >= Wish::Move)).len();
        if successor != cx.me() {
            for index in held.iter().take(burst.saturating_sub(passing)) {
                self.at(cx, *index).pass(successor);
            }
        }
        held.len() + passing + coming + self.give_back(cx)
    }

    fn inspect(&self, me: NodeId, first: PageIndex, limit: usize) -> Inspection {
        let count = |pick: &dyn Fn(&Page) -> bool| {
            self.pages.values().filter(|page| pick(page)).count() as u64
        };
        let line = |(index, page): (&PageIndex, &Page)| PageLine {
            page: *index,
            rights: match (page.holds, page.valid) {
                (true, _) => Rights::Write as u8,
                (false, Valid::Nothing) => Rights::None as u8,
                (false, _) => Rights::Read as u8,
            },
            owner: page.holds,
            hint: if page.holds { me } else { page.hint },
            version: page.stamp.number,
            copies: if page.holds {
                self.listeners.nodes.clone()
            } else {
                NodeSet::EMPTY
            },
            queued: page.queue.len() as u32,
        };
        let segment = (self.segment, self.size);
        Inspection {
            known: self.pages.len() as u64,
            readable: count(&|page| page.holds || page.valid > Valid::Nothing),
            writable: count(&|page| page.holds),
            owned: count(&|page| page.holds),
            unreplicated: self.replicas.unreplicated(me, segment, &self.published),
            pages: self.pages.range(first..).take(limit).map(line).collect(),
        }
    }
}
