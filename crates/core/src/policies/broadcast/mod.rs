//! An example of a policy: all stores of a phase are sent to all at a barrier.
//!
//! A load sees what was stored before the last barrier that its node has left. Every node has every
//! page, from zeros on. The first store to a page makes a twin; at a barrier the node sends its diffs
//! to all members, and tells the home which pages they change. With the departure the home tells
//! which phases of which nodes there were, in one order for all. A node goes on when it has applied
//! them, and asks again for what got lost.
//!
//! It is small, not good: diffs are kept for ever, a node that dies or leaves takes with it what
//! others have not fetched, and nothing rides on locks. `policies/mod.rs` registers it for tests and
//! the simulator; the product does not have it. CONTRIBUTING tells how to write another one.

mod messages;
#[cfg(test)]
mod tests;

use super::hooks::{Due, Gone, Hooks, Open, ProgramRequest, SyncHooks, Who};
use crate::backoff::Backoff;
use crate::continuation::Continuation;
use crate::effect::{Afterwards, DiffWork, Effect, Mappings, Reply, Rights, Source};
use crate::event::Event;
use crate::inspection::Inspection;
use crate::limits::EARLY;
use crate::shell::Cx;
use crate::timers::Timer;
use messages::{Body, Phase, Phases, Ride};
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::{
    Access, DiffName, Diffs, Message, Payload, Policy, PolicyMessage, Refusal,
};
use pagemesh_wire::{ClientId, NodeId, PageIndex, RequestId, SegmentId, Ticket};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// How a segment of this policy is chosen.
const NUMBER: Policy = Policy::Numbered(1);

/// Pages of a segment: they are the bits of a number.
const PAGES: u32 = 64;

/// The pages of one segment as this node knows them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Broadcast {
    segment: SegmentId,
    /// Pages of the segment.
    size: u32,
    /// Pages whose frames have contents. Nothing is remembered of the others.
    filled: BTreeSet<PageIndex>,
    /// Pages with a twin, stored to in the present phase.
    dirty: BTreeSet<PageIndex>,
    /// How often this node has arrived, and its phases of which the home has not told yet.
    arrivals: u64,
    own: Vec<Phase>,
    /// Diffs that the driver keeps, and those of them that no phase is known to have.
    held: BTreeSet<DiffName>,
    early: BTreeSet<DiffName>,
    /// How many phases are applied here.
    applied: u64,
    /// Phases that come next, as far as the home has told.
    next: Vec<Phase>,
    /// What goes on when so many phases are applied.
    waiting: Vec<(u64, Continuation)>,
    /// Somebody is asked, again and again, for what is lacking.
    asked: Option<Backoff>,
    /// At the home: all phases, and what the nodes have said.
    phases: Vec<Phase>,
    heard: SortedMap<NodeId, Heard>,
}

/// What a node has said to the home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Heard {
    /// So many phases are applied there.
    applied: u64,
    /// Its last phase that is known.
    last: u64,
}

impl Open for Broadcast {
    fn open(segment: SegmentId, pages: u32, chosen: Policy) -> Option<Result<Self, Refusal>> {
        if chosen != NUMBER {
            return None;
        }
        if pages > PAGES {
            let why = format!("a segment of policy broadcast has at most {PAGES} pages");
            return Some(Err(Refusal::Invalid(why)));
        }
        Some(Ok(Self {
            segment,
            size: pages,
            filled: BTreeSet::new(),
            dirty: BTreeSet::new(),
            arrivals: 0,
            own: Vec::new(),
            held: BTreeSet::new(),
            early: BTreeSet::new(),
            applied: 0,
            next: Vec::new(),
            waiting: Vec::new(),
            asked: None,
            phases: Vec::new(),
            heard: SortedMap::new(),
        }))
    }
}

impl Broadcast {
    fn say(&self, cx: &mut Cx<'_>, to: NodeId, body: &Body) {
        let said = PolicyMessage {
            segment: self.segment,
            body: Payload::of(body),
        };
        cx.send(to, Message::Policy(said));
    }

    /// The present phase of this node ends: its diffs are made, and sent to all.
    fn end_phase(&mut self, cx: &mut Cx<'_>) {
        let segment = self.segment;
        self.arrivals += 1;
        let mut phase = Phase {
            node: cx.me(),
            number: self.arrivals,
            pages: 0,
        };
        for page in core::mem::take(&mut self.dirty) {
            phase.pages |= 1 << page.0;
            cx.push(Effect::Protect {
                pages: (segment, page).into(),
                mappings: Mappings::All,
            });
        }
        for name in phase.diffs() {
            let (then, rules) = (Afterwards::Drop, Vec::new());
            let work = DiffWork::Diff {
                segment,
                name,
                then,
                rules,
            };
            cx.push(Effect::Diffs(work));
            self.held.insert(name);
        }
        let names: Vec<_> = phase.diffs().collect();
        for to in cx.shell.peers().iter() {
            self.send_diffs(cx, to, &names);
        }
        if phase.pages != 0 {
            self.own.push(phase);
        }
    }

    fn send_diffs(&self, cx: &mut Cx<'_>, to: NodeId, names: &[DiffName]) {
        let Some(address) = cx.address_of(to) else {
            return;
        };
        for names in names.chunks(Diffs::LIMIT) {
            let header = cx.header(to);
            cx.push(Effect::Diffs(DiffWork::Send {
                address,
                header,
                segment: self.segment,
                request: RequestId::NONE,
                names: names.to_vec(),
                at_most: u16::MAX,
            }));
        }
    }

    /// At the home: a node has arrived, with phases of its own in order.
    fn arrived(&mut self, from: NodeId, applied: u64, phases: &[Phase]) {
        let mut heard = self.heard.get(&from).copied().unwrap_or_default();
        heard.applied = heard.applied.max(applied);
        for phase in phases {
            let is_new = phase.node == from && phase.number > heard.last;
            if is_new && self.is_sound(phase) {
                heard.last = phase.number;
                self.phases.push(*phase);
            }
        }
        self.heard.insert(from, heard);
    }

    /// At the home: the phases from this place on.
    fn phases_from(&self, from: u64) -> Phases {
        let rest = self.phases.iter().skip(from as usize);
        Phases {
            from,
            list: rest.take(Phases::LIMIT).copied().collect(),
            total: self.phases.len() as u64,
        }
    }

    /// The home tells of phases. What is not known yet is remembered.
    fn told(&mut self, phases: &Phases) {
        let known = self.applied + self.next.len() as u64;
        let Some(old) = known.checked_sub(phases.from) else {
            return; // What comes before is asked for.
        };
        let new = phases.list.iter().take(Phases::LIMIT).skip(old as usize);
        for phase in new {
            if !self.is_sound(phase) {
                return;
            }
            self.next.push(*phase);
            self.own.retain(|own| own != phase);
            for name in phase.diffs() {
                self.early.remove(&name);
            }
        }
    }

    /// Whether all its pages are pages of the segment: it comes from anybody.
    fn is_sound(&self, phase: &Phase) -> bool {
        phase.diffs().all(|name| name.page.0 < self.size)
    }

    /// Applies what can be applied, and lets go on what waited for it. Asks for the rest.
    fn advance(&mut self, cx: &mut Cx<'_>) {
        while let Some(phase) = self.next.first().copied() {
            let lacks = |name: DiffName| !self.held.contains(&name);
            if phase.node != cx.me() && !cx.is_gone(phase.node) && phase.diffs().any(lacks) {
                break;
            }
            self.next.remove(0);
            self.applied += 1;
            for name in phase.diffs() {
                if name.node != cx.me() && self.held.contains(&name) {
                    self.apply(cx, name);
                }
            }
        }
        let applied = self.applied;
        for (_, next) in self.waiting.extract_if(.., |(goal, _)| *goal <= applied) {
            cx.ready(next);
        }
        match self.asked.take() {
            Some(asked) if self.waiting.is_empty() => cx.end(&asked, self.timer()),
            None if !self.waiting.is_empty() => {
                self.asked = Some(cx.backoff(self.timer()));
                self.ask(cx);
            }
            asked => self.asked = asked,
        }
    }

    fn apply(&mut self, cx: &mut Cx<'_>, name: DiffName) {
        let (segment, page) = (self.segment, name.page);
        self.fill(cx, page);
        let (names, rules) = (vec![name], Vec::new());
        cx.push(Effect::Diffs(DiffWork::Update {
            segment,
            page,
            names,
            rules,
        }));
    }

    fn fill(&mut self, cx: &mut Cx<'_>, page: PageIndex) {
        if self.filled.insert(page) {
            cx.push(Effect::Fill {
                pages: (self.segment, page).into(),
                source: Source::Zero,
            });
        }
    }

    /// Asks for the diffs of the next phase, or, if the home has told of none, for that.
    fn ask(&self, cx: &mut Cx<'_>) {
        let home = cx.home(self.segment);
        let Some(phase) = self.next.first() else {
            let from = self.applied;
            if home != cx.me() {
                self.say(cx, home, &Body::More { from });
            }
            return;
        };
        let lacks = |name: &DiffName| !self.held.contains(name);
        let names: Vec<_> = phase.diffs().filter(lacks).collect();
        self.say(cx, phase.node, &Body::DiffRequest(names));
    }

    fn timer(&self) -> Timer {
        Timer::Segment(self.segment)
    }

    /// Diffs came. They are kept if somebody has told of them, or may be about to.
    fn came(&mut self, cx: &mut Cx<'_>, from: NodeId, diffs: &Diffs) {
        let next: BTreeSet<_> = self.next.iter().flat_map(|phase| phase.diffs()).collect();
        let mut names = Vec::new();
        for (name, _) in &diffs.diffs {
            let is_next = next.contains(name);
            let is_good = name.node == from && name.page.0 < self.size;
            let has_room = is_next || self.early.len() < EARLY;
            if is_good && has_room && self.held.insert(*name) {
                names.push(*name);
                if !is_next {
                    self.early.insert(*name);
                }
            }
        }
        if !names.is_empty() {
            let segment = self.segment;
            cx.push(Effect::Diffs(DiffWork::Keep { segment, names }));
        }
        self.advance(cx);
    }

    fn heard(&mut self, cx: &mut Cx<'_>, from: NodeId, body: Body) {
        match body {
            Body::More { from: place } => {
                let phases = self.phases_from(place);
                self.say(cx, from, &Body::Phases(phases));
            }
            Body::Phases(phases) if from == cx.home(self.segment) => {
                self.told(&phases);
                self.advance(cx);
                if self.asked.is_some() && !phases.list.is_empty() {
                    self.ask(cx);
                }
            }
            Body::DiffRequest(mut names) => {
                names.retain(|name| self.held.contains(name));
                self.send_diffs(cx, from, &names);
            }
            Body::Phases(_) => cx.emit(Event::Stale {}),
        }
    }

    /// What waits goes on with what there is.
    fn wait_no_more(&mut self, cx: &mut Cx<'_>) {
        for (_, next) in core::mem::take(&mut self.waiting) {
            cx.ready(next);
        }
    }
}

impl Hooks for Broadcast {
    fn fault(&mut self, cx: &mut Cx<'_>, who: Who, page: PageIndex, access: Access) {
        let (segment, mapping) = (self.segment, who.mapping);
        if page.0 >= who.pages {
            return;
        }
        cx.emit(Event::LocalFault { segment, page });
        self.fill(cx, page);
        if access == Access::Write && self.dirty.insert(page) {
            let pages = (segment, page).into();
            let source = Source::Frame;
            cx.push(Effect::Diffs(DiffWork::Twin { pages, source }));
        }
        let rights = if self.dirty.contains(&page) {
            Rights::Write
        } else {
            Rights::Read
        };
        cx.push(Effect::Map {
            mappings: Mappings::One(mapping),
            pages: (segment, page).into(),
            rights,
        });
    }

    fn request(&mut self, cx: &mut Cx<'_>, who: (Ticket, ClientId), request: ProgramRequest) {
        match request {
            ProgramRequest::Advise(..) | ProgramRequest::Unpin(..) => cx.reply(who.0, Reply::Done),
            ProgramRequest::Purge(..)
            | ProgramRequest::PinShort(..)
            | ProgramRequest::Publish { .. }
            | ProgramRequest::WatchRange(..) => {
                let why = ProgramRequest::NO_VIEWS;
                cx.refuse(who.0, Refusal::Invalid(why.into()));
            }
            ProgramRequest::Hold | ProgramRequest::EndHold => {
                cx.refuse(who.0, Refusal::Invalid(ProgramRequest::NO_HOLD.into()));
            }
            ProgramRequest::Watch(_) | ProgramRequest::Pin(..) => {
                let why = "pages of policy broadcast change at barriers, and are never taken away";
                cx.refuse(who.0, Refusal::Invalid(why.into()));
            }
        }
    }

    fn message(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Message) {
        match message {
            Message::Diffs(diffs) => self.came(cx, from, &diffs),
            Message::Policy(said) => match said.body.read() {
                Some(body) => self.heard(cx, from, body),
                None => cx.emit(Event::Malformed {}),
            },
            _ => cx.emit(Event::Stale {}),
        }
    }

    fn due(&mut self, cx: &mut Cx<'_>, _: Due) {
        let timer = self.timer();
        if let Some(asked) = &mut self.asked
            && cx.fire(asked, timer)
        {
            self.ask(cx);
        }
    }

    fn gone(&mut self, cx: &mut Cx<'_>, gone: Gone) {
        match gone {
            // No thread ever waits, and no process keeps anything.
            Gone::Mapping(_) | Gone::Client(_) => {}
            Gone::Member(node) => {
                if cx.was_home(node, self.segment) {
                    // No other node knows which phases there were.
                    self.wait_no_more(cx);
                }
                self.advance(cx);
            }
            Gone::Membership => {
                self.wait_no_more(cx);
                self.next.clear();
                self.dirty.clear();
                for page in core::mem::take(&mut self.filled) {
                    cx.push(Effect::Evict {
                        pages: (self.segment, page).into(),
                        keep: false,
                    });
                }
            }
        }
    }

    fn hand_over(&mut self, _: &mut Cx<'_>, _: NodeId, _: usize) -> usize {
        self.waiting.len()
    }

    fn inspect(&self, _: NodeId, _: PageIndex, _: usize) -> Inspection {
        Inspection {
            known: self.filled.len() as u64,
            readable: self.filled.len() as u64,
            writable: self.dirty.len() as u64,
            ..Inspection::default()
        }
    }

    fn sync(&mut self) -> Option<&mut dyn SyncHooks> {
        Some(self)
    }
}

impl SyncHooks for Broadcast {
    fn arrive(&mut self, cx: &mut Cx<'_>, _: &[PageIndex]) -> Payload {
        self.end_phase(cx);
        let (applied, phases) = (self.applied, self.own.clone());
        Payload::of(&Ride::Arrival { applied, phases })
    }

    fn acquire(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        payload: &Payload,
        then: Continuation,
    ) -> bool {
        match payload.read() {
            Some(Ride::Arrival { applied, phases }) => self.arrived(from, applied, &phases),
            Some(Ride::Departure(phases)) => {
                self.told(&phases);
                self.waiting.push((phases.total, then));
                self.advance(cx);
                return false;
            }
            // A token of a lock.
            None if payload.is_empty() => {}
            _ => cx.emit(Event::Malformed {}),
        }
        true
    }

    fn depart(&mut self, _: &mut Cx<'_>, to: NodeId) -> Payload {
        let heard = self.heard.get(&to).copied().unwrap_or_default();
        Payload::of(&Ride::Departure(self.phases_from(heard.applied)))
    }
}
