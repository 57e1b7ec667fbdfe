//! The dispatch between the services of a node: which service gets an input, and which answers a
//! call. Services never call each other; they meet here.

use crate::calls::Calls;
use crate::control::{DecisionCopy, DiskLog, Promotion, Resumption};
use crate::effect::Effect;
use crate::event::Event;
use crate::global::{Begin, Global};
use crate::input::Input;
use crate::leaving::Leaving;
use crate::limits::AWAY;
use crate::membership::{Coordinator, CoordinatorSilent, Membership, Standing, Upgrade};
use crate::policies::{Due, Found, Gone, Who};
use crate::prefetch::gather;
use crate::reductions::Reductions;
use crate::rejoin::Rejoin;
use crate::segments::{Mappings, Segments, Untouched};
use crate::shell::Cx;
use crate::sync::{Barriers, Conditions, EarlyArrivals, Locks};
use crate::sysv::Sysv;
use crate::timers::Timer;
use crate::trapping::{Delayed, Trapping};
use pagemesh_wire::local::View;
use pagemesh_wire::peer::{Access, Refusal, Subject};
use pagemesh_wire::{ClientId, MappingId, PageIndex, SegmentId, SyncKey};
use serde::{Deserialize, Serialize};

mod calls;
mod clients;
mod control;
mod election;
mod global;
mod leaving;
mod members;
mod numbers;
mod payloads;
mod promotion;
mod rejoin;
mod resumption;
mod trapping;
mod upgrade;

/// All services of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Services {
    pub(crate) membership: Membership,
    pub(crate) coordinator: Option<Coordinator>,
    /// What the coordinator has decided, if this node is its standby or is to be it.
    pub(crate) copy: DecisionCopy,
    /// This node is about to become the coordinator.
    pub(crate) promotion: Option<Promotion>,
    /// What this node, the coordinator or standby, has put on its disk.
    pub(crate) disk: DiskLog,
    /// This node is about to go on as the coordinator, from its disk.
    pub(crate) resumption: Option<Box<Resumption>>,
    pub(crate) calls: Calls,
    pub(crate) segments: Segments,
    pub(crate) mappings: Mappings,
    pub(crate) locks: Locks,
    pub(crate) barriers: Barriers,
    pub(crate) conditions: Conditions,
    pub(crate) leaving: Leaving,
    pub(crate) sysv: Sysv,
    pub(crate) early: EarlyArrivals,
    pub(crate) reductions: Reductions,
    pub(crate) global: Global,
    /// What goes on, and what was lost, since this node was declared dead.
    pub(crate) rejoin: Rejoin,
    pub(crate) untouched: Untouched,
    #[serde(default)]
    pub(crate) trapping: Trapping,
}

impl Services {
    pub(crate) fn new() -> Self {
        Self {
            membership: Membership::new(),
            coordinator: None,
            copy: DecisionCopy::default(),
            promotion: None,
            disk: DiskLog::default(),
            resumption: None,
            calls: Calls::default(),
            segments: Segments::default(),
            mappings: Mappings::new(),
            locks: Locks::default(),
            barriers: Barriers::default(),
            conditions: Conditions::default(),
            leaving: Leaving::default(),
            sysv: Sysv::default(),
            early: EarlyArrivals::default(),
            reductions: Reductions::default(),
            global: Global::default(),
            rejoin: Rejoin::default(),
            untouched: None,
            trapping: Trapping::default(),
        }
    }

    pub(crate) fn handle(&mut self, cx: &mut Cx<'_>, input: Input<'_>) {
        let untouched = self.untouched.take();
        match input {
            Input::Datagram { source, key, bytes } => self.datagram(cx, source, key, bytes),
            Input::Fault {
                mapping,
                page,
                access,
            } => self.fault(cx, mapping, page, access),
            Input::Faults { mapping, faults } => self.faults(cx, mapping, faults),
            Input::Request {
                ticket,
                client,
                request,
            } => {
                self.untouched = untouched;
                self.request(cx, ticket, client, request);
                self.untouched = None;
            }
            Input::Untouched { segment, pages } => {
                self.untouched = self.segments.looked_at(cx, segment, pages);
            }
            Input::Cancel { ticket } => self.cancel(cx, ticket),
            Input::Mapped {
                mapping,
                segment,
                client,
            } => self.mapped(cx, mapping, (segment, client), View::default()),
            Input::MappedView {
                mapping,
                segment,
                client,
                view,
            } => self.mapped(cx, mapping, (segment, client), view),
            Input::Unmapped { mapping } => self.unmapped(cx, mapping),
            Input::Closed { segment, client } => self.closed(cx, segment, client),
            Input::Forked { parent, child } => self.forked(cx, parent, child),
            Input::ClientGone { client } => self.client_gone(cx, client),
            Input::LockReturned { key, recovered } => self.lock_returned(cx, key, recovered),
            Input::UseConfirmed {
                segment,
                page,
                used,
            } => self.segments.found(cx, (segment, page), Found::Used(used)),
            Input::Unchanged { segment, page } => {
                self.segments.found(cx, (segment, page), Found::Unchanged);
            }
            Input::Deadline => self.deadline(cx),
            Input::Stored { pages, done } => self.segments.stored(cx, pages, done),
            Input::Budgets(budgets) => self.budgets(cx, budgets),
            Input::Kept { batch } => self.kept(cx, batch),
            Input::KeepAnew => self.keep_anew(cx),
            Input::Runs(program) => self.runs(cx, program),
            Input::Elected { term, kept } => self.elected(cx, term, kept),
            Input::Asking { term, nodes } => self.asking(cx, term, nodes),
            Input::Coordinates { address } => self.membership.redirected(cx, address),
            Input::Trapped { segment, pages } => self.trapped(cx, segment, pages),
        }
        self.take_frames_in(cx);
        let begin = self.global.want_plan(cx, self.leaving.is_empty());
        self.begin_epoch(cx, begin);
        self.global.shared.follow_members(cx);
        self.go_on(cx);
        self.go_on_leaving(cx);
        self.conclude_check(cx);
        self.membership.upgrade.go_on(cx);
        self.stream_decisions(cx);
        self.disk.end_input(cx, self.coordinator.is_some());
    }

    /// A process has returned the token of a lock.
    fn lock_returned(&mut self, cx: &mut Cx<'_>, key: SyncKey, recovered: bool) {
        let taken = self.rejoin.takes_token(key);
        if !taken && self.membership.standing == Standing::Member {
            self.locks.returned(cx, &mut self.segments, key, recovered);
        }
    }

    /// A deadline that is handled late shows that this node did not run: it was stopped, or frozen with
    /// its container or host, as the others may have been.
    fn discount_absence(&mut self, cx: &mut Cx<'_>) {
        let due = cx.shell.timers.next().unwrap_or(cx.now);
        let away = cx.now - due;
        if away <= cx.pace().heartbeat * AWAY {
            return;
        }
        cx.emit(Event::WasAway {});
        self.membership.was_away(cx.now, away);
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.was_away(cx.now, away);
        }
    }

    fn deadline(&mut self, cx: &mut Cx<'_>) {
        self.discount_absence(cx);
        self.start_from_disk(cx);
        if let Some(coordinator) = self.membership.start(cx) {
            self.coordinator = Some(coordinator);
            self.disk.begin(cx);
        }
        while let Some(timer) = cx.shell.timers.pop_due(cx.now) {
            match timer {
                Timer::Join if self.resumption.is_some() => self.resumption_due(cx),
                Timer::Join => self.join_due(cx),
                Timer::Heartbeat => {
                    self.membership.heartbeat(cx);
                    self.tell_program(cx, Upgrade::tells_again);
                    if self.membership.coordinator_silent(cx) {
                        self.leaving.despair(cx);
                    }
                    self.promotion_due(cx);
                    self.claim_due(cx);
                    self.global.donor.audit(cx);
                }
                // A coordinator that nobody replaces has no heartbeats of its own.
                Timer::Suspect(node) => {
                    let coordinator = self.coordinator.as_mut();
                    let dead = coordinator.and_then(|of| of.suspect(cx, node));
                    self.follow(cx, dead);
                    self.global.donor.audit(cx);
                }
                Timer::Call(call) => self.call_due(cx, call),
                Timer::Subject(subject) => self.subject_due(cx, subject),
                Timer::Segment(segment) => self.segments.due(cx, segment, Due::Segment),
                Timer::Ahead(segment) => self.segments.due(cx, segment, Due::Ahead),
                Timer::Epoch if self.leaving.is_empty() => cx.emit(Event::Stale {}),
                Timer::Epoch => {
                    let begin = Begin(self.global.epochs.due(cx));
                    self.begin_epoch(cx, begin);
                }
                Timer::Lookup(request) => self.global.shared.lookup_due(cx, request),
                Timer::SharedPages => self.global.shared.announce_due(cx),
                Timer::HandBack if self.leaving.has_begun() => self.global.hand_back(cx),
                Timer::HandBack => {}
                Timer::GiveBack => self.global.give_back(cx),
                // Every input does some of that.
                Timer::Frames => {}
            }
        }
    }

    /// A timer of a page or a token is due. If the first node has been silent for too long,
    /// accesses and lock requests that have waited as long fail.
    fn subject_due(&mut self, cx: &mut Cx<'_>, subject: Subject) {
        let overdue = self.membership.overdue(cx);
        match subject {
            Subject::Lock(key) => {
                if let Some(overdue) = overdue {
                    self.locks.time_out(cx, key, overdue);
                }
                self.locks.due(cx, &mut self.segments, key);
            }
            Subject::Page { segment, page } => {
                let patience = overdue.map(|CoordinatorSilent { patience, .. }| patience);
                self.segments.due(cx, segment, Due::Page(page, patience));
            }
        }
    }

    fn faults(&mut self, cx: &mut Cx<'_>, mapping: MappingId, faults: Vec<(PageIndex, Access)>) {
        let start = cx.effects.len();
        for (page, access) in faults {
            self.fault(cx, mapping, page, access);
        }
        gather(cx.effects, start);
    }

    pub(crate) fn fault(
        &mut self,
        cx: &mut Cx<'_>,
        mapping: MappingId,
        page: PageIndex,
        access: Access,
    ) {
        let Some((id, client)) = self.mappings.get(&mapping).copied() else {
            return;
        };
        if self.rejoin.takes_fault(cx, id, (mapping, page, access)) {
            return;
        }
        let why = match &self.membership.standing {
            Standing::Out(why) => Some(why.clone()),
            // A page that came now would have to be handed over at once.
            _ => self.leaving.has_begun().then_some(Refusal::NotMember),
        };
        if let Some(why) = why {
            cx.push(Effect::Fail {
                mapping,
                segment: id,
                page,
                why,
            });
            return;
        }
        if let Some(segment) = self.segments.get_mut(&id) {
            if self.trapping.delays(cx, segment) {
                return self.trapping.wait(Delayed::Fault(mapping, page, access));
            }
            let pages = segment.info.spec.size.pages().map_or(0, |pages| pages.0);
            let who = Who {
                mapping,
                client,
                pages,
            };
            segment.policy.fault(cx, who, page, access);
        } else {
            // The pages were lost with the node that kept the segment.
            let why = Refusal::NodeGone(id.home());
            cx.push(Effect::Fail {
                mapping,
                segment: id,
                page,
                why,
            });
        }
    }

    fn mapped(
        &mut self,
        cx: &mut Cx<'_>,
        mapping: MappingId,
        (id, client): (SegmentId, ClientId),
        view: View,
    ) {
        self.mappings.insert(mapping, (id, client));
        self.rejoin.mapped(mapping, view);
        if let Some(segment) = self.segments.get_mut(&id) {
            segment.policy.mapped(cx, mapping, view);
        }
    }

    fn unmapped(&mut self, cx: &mut Cx<'_>, mapping: MappingId) {
        self.rejoin.unmapped(mapping);
        if let Some((segment, _)) = self.mappings.remove(&mapping)
            && let Some(segment) = self.segments.get_mut(&segment)
        {
            segment.policy.gone(cx, Gone::Mapping(mapping));
        }
    }
}
