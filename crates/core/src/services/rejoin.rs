//! A node that was declared dead joins again as another node (decision 40). Segments of which
//! nothing was lost are opened again for the processes that have them open.

use super::Services;
use crate::calls::LeftBehind;
use crate::control::DecisionCopy;
use crate::effect::Effect;
use crate::event::Event;
use crate::global::{Global, Memory};
use crate::input::Request;
use crate::limits::{FORSAKEN, REJOINS};
use crate::membership::Standing;
use crate::on_reply::OnReply;
use crate::rejoin::UnderWay;
use crate::segment::Segment;
use crate::shell::Cx;
use crate::sync::{Barriers, Conditions, Locks};
use crate::sysv::Sysv;
use crate::timers::Timers;
use core::net::SocketAddr;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::{self, Call, Credentials, Refusal};
use pagemesh_wire::sysv;
use pagemesh_wire::{Incarnation, NodeId, SegmentId, SyncKey};

/// What was lost, by segment.
type Losses = SortedMap<SegmentId, String>;

impl Services {
    /// Whether this node, whose membership ends, joins again by itself.
    pub(super) fn rejoins(&self, cx: &Cx<'_>) -> bool {
        cx.shell.config.rejoin
            && self.membership.standing == Standing::Member
            && self.coordinator.is_none()
            && !self.leaving.has_begun()
            && self.rejoin.times < REJOINS
            && !cx.shell.peers().is_empty()
    }

    /// This node's membership has ended: sorts what goes on from what is lost, forgets all else, and
    /// asks for admission as a new node.
    pub(super) fn begin_rejoin(&mut self, cx: &mut Cx<'_>) {
        self.rejoin.times += 1;
        let before = self.rejoin.under_way.take();
        let mut again = before.unwrap_or_else(|| UnderWay::new(cx));
        let mut losses = Losses::new();
        let calls = self.calls.leave_behind();
        self.sort_calls(cx, &mut again, &mut losses, calls);
        self.sort_segments(cx, &mut again, losses);
        self.sort_locks(cx, &mut again);
        self.forget_membership(cx);
        self.rejoin.under_way = Some(again);
        self.ask_again(cx);
    }

    /// Calls that only ask are made again. The answer to any other is lost, and so is what waits at
    /// a home that has forgotten this node.
    fn sort_calls(
        &mut self,
        cx: &mut Cx<'_>,
        again: &mut UnderWay,
        losses: &mut Losses,
        calls: Vec<LeftBehind>,
    ) {
        for call in calls {
            let Some((ticket, client)) = call.then.client() else {
                self.end_sysv(cx, call.then);
                continue;
            };
            if let Call::Barrier { key, .. } | Call::CondWait { key } = &call.body {
                let waits = "the wait of a program at a barrier or for a condition";
                losses.insert(key.segment, waits.into());
            }
            match again_as(&call).filter(|_| !call.withdrawn) {
                Some(request) => again.requests.push((ticket, client, request)),
                None if is_sysv(&call.body) => self.end_sysv(cx, call.then),
                None => {
                    let lost = "the answer to a call of this program; it may have been executed";
                    let why = Refusal::DeclaredDead {
                        was: again.was,
                        lost: lost.into(),
                    };
                    cx.refuse(ticket, why);
                }
            }
        }
    }

    /// The state of System V objects ends with the membership; whoever waits is told so.
    fn end_sysv(&mut self, cx: &mut Cx<'_>, then: OnReply) {
        match then {
            OnReply::Tell(..)
            | OnReply::Open { .. }
            | OnReply::Orphaned(_)
            | OnReply::Told
            | OnReply::Register(_)
            | OnReply::Visit(_)
            | OnReply::Struck(_)
            | OnReply::Lent(_)
            | OnReply::Returned(_)
            | OnReply::Survey(..) => {
                let why = peer::Reply::Refused(Refusal::NotMember);
                self.carry_on(cx, cx.me(), then, why);
            }
            _ => {}
        }
    }

    fn sort_segments(&mut self, cx: &mut Cx<'_>, again: &mut UnderWay, mut losses: Losses) {
        let doubtful = self.membership.doubt.is_justified();
        for (id, mut segment) in core::mem::take(&mut *self.segments) {
            again.shown.extend(segment.policy.shown());
            let dropped = match segment.trapped {
                true => segment.policy.leave_behind(cx),
                false => Err("a segment that only this node has used".into()),
            };
            self.trapping.begin(cx, &mut segment);
            let lost = match dropped {
                Err(lost) => Some(lost),
                Ok(_) if sysv::keeper(id).is_some() => Some("a System V segment".into()),
                Ok(_) if doubtful => Some(
                    "what its programs saw while this node was cut off from the coordinator alone"
                        .into(),
                ),
                Ok(faults) => {
                    again.faults.extend(faults);
                    losses.remove(&id)
                }
            };
            match lost {
                Some(lost) => self.rejoin.lose(cx, segment, again.was, lost),
                None if segment.is_open() => drop(again.segments.insert(id, segment)),
                None => cx.push(Effect::Forget { segment: id }),
            }
        }
    }

    /// Processes that wait for a lock ask again. One that holds a lock has lost it, unless it turns
    /// out to be free before this node has joined again: as no access of the process was served
    /// meanwhile, that is as if it had been released before.
    fn sort_locks(&mut self, cx: &mut Cx<'_>, again: &mut UnderWay) {
        let (waiting, lent) = self.locks.leave_behind(cx);
        for (key, ticket, client) in waiting {
            again.requests.push((ticket, client, Request::Lock { key }));
        }
        again.held.extend(lent);
    }

    /// Nothing of a membership is true in the next one.
    fn forget_membership(&mut self, cx: &mut Cx<'_>) {
        self.end_promotion(cx, Err(Refusal::NotMember.to_string()));
        self.global.donor.expelled(cx);
        self.global.shared.expelled(cx);
        self.calls.leave_behind();
        self.locks = Locks::default();
        self.barriers = Barriers::default();
        self.conditions = Conditions::default();
        self.sysv = Sysv::default();
        self.global = Global::default();
        self.copy = DecisionCopy::default();
        self.reductions = crate::reductions::Reductions::default();
        self.early.clear();
        self.untouched = None;
        cx.shell.ready.clear();
        cx.shell.timers = Timers::default();
        become_another(cx);
        cx.shell.me = NodeId::NONE;
    }

    /// Whether this host, which asks for admission and is refused, asks once more. An elected node
    /// knows from the store that its predecessor had admitted the host, and found it silent because
    /// the host has never heard of that.
    pub(crate) fn may_ask_as_another(&self, cx: &Cx<'_>, why: &Refusal) -> bool {
        cx.shell.config.elected
            && *why == Refusal::NotMember
            && matches!(self.membership.standing, Standing::Joining(_))
            && self.rejoin.times < REJOINS
    }

    /// Asks for admission in another incarnation.
    pub(crate) fn ask_as_another(&mut self, cx: &mut Cx<'_>) {
        self.rejoin.times += 1;
        become_another(cx);
        self.join_due(cx);
    }

    /// Asks the next member for admission.
    fn ask_again(&mut self, cx: &mut Cx<'_>) {
        let Some(again) = &mut self.rejoin.under_way else {
            return;
        };
        let members = members_to_ask(cx, again.was);
        let address = members.get(again.asked % members.len().max(1)).copied();
        again.asked += 1;
        match address {
            Some(address) => self.membership.join_again(cx, address),
            None => self.membership.join_due(cx),
        }
    }

    /// Asks for admission once more. What has waited for too long fails.
    pub(super) fn join_due(&mut self, cx: &mut Cx<'_>) {
        let joining = matches!(self.membership.standing, Standing::Joining(_));
        let Some(again) = self.rejoin.under_way.as_mut().filter(|_| joining) else {
            return self.membership.join_due(cx);
        };
        if cx.now - again.since > cx.pace().dead_after * FORSAKEN {
            let requests = core::mem::take(&mut again.requests);
            let faults = core::mem::take(&mut again.faults);
            self.fail_waiting(cx, requests, faults);
        }
        self.ask_again(cx);
    }

    fn fail_waiting(
        &mut self,
        cx: &mut Cx<'_>,
        requests: Vec<(pagemesh_wire::Ticket, pagemesh_wire::ClientId, Request)>,
        faults: impl IntoIterator<Item = crate::policies::Waiting>,
    ) {
        let why = Refusal::NodeGone(cx.coordinator());
        for (ticket, ..) in requests {
            cx.refuse(ticket, why.clone());
        }
        for (mapping, page, _) in faults {
            if let Some((segment, _)) = self.mappings.get(&mapping).copied() {
                cx.push(Effect::Fail {
                    mapping,
                    segment,
                    page,
                    why: why.clone(),
                });
            }
        }
    }

    /// This node is a member again: opens the segments of its processes. Members vouch for the users
    /// of their programs, and these had been allowed to open them.
    pub(crate) fn open_again(&mut self, cx: &mut Cx<'_>) {
        let Some(again) = &mut self.rejoin.under_way else {
            return;
        };
        let same = again.cluster == cx.shell.cluster;
        let was = again.was;
        let segments: Vec<_> = match same {
            true => again.segments.values().map(|of| of.info.clone()).collect(),
            false => Vec::new(),
        };
        if !same {
            for segment in core::mem::take(&mut again.segments).into_values() {
                let lost = "the cluster, which has been started anew";
                self.rejoin.lose(cx, segment, was, lost.into());
            }
        }
        for info in segments {
            let call = Call::Open {
                name: info.name,
                create: None,
                exclusive: false,
                write: false,
                credentials: Credentials::root(),
            };
            self.call(cx, cx.coordinator(), call, OnReply::Reopened(info.id));
        }
        self.finish_rejoin(cx);
    }

    /// The coordinator has answered whether a segment is still there.
    pub(super) fn reopened(&mut self, cx: &mut Cx<'_>, id: SegmentId, reply: peer::Reply) {
        let Some(again) = &mut self.rejoin.under_way else {
            return;
        };
        let was = again.was;
        let Some(mut segment) = again.segments.remove(&id) else {
            return;
        };
        let found = match reply {
            peer::Reply::Segment(info) | peer::Reply::Reducing(info, _) => Some(info),
            _ => None,
        };
        let open = segment.is_open();
        match found {
            Some(info) if info.id == id && open && segment.renew(info.clone()).is_ok() => {
                let of_segment = self.mappings.iter().filter(|(_, (of, _))| *of == id);
                for (mapping, _) in of_segment {
                    let view = again.shown.get(mapping).copied().unwrap_or_default();
                    segment.policy.mapped(cx, *mapping, view);
                }
                self.segments.insert(id, segment);
            }
            other => {
                if let Some(info) = other {
                    self.close_again(cx, info.id);
                }
                let lost = "its name, which was removed meanwhile";
                self.rejoin.lose(cx, segment, was, lost.into());
            }
        }
        self.finish_rejoin(cx);
    }

    fn close_again(&mut self, cx: &mut Cx<'_>, segment: SegmentId) {
        let call = Call::Close { segment };
        self.call(cx, cx.coordinator(), call, OnReply::Nothing);
    }

    /// If all segments are open again: what waited goes on.
    fn finish_rejoin(&mut self, cx: &mut Cx<'_>) {
        let done = |again: &mut UnderWay| again.segments.is_empty();
        let Some(again) = self.rejoin.under_way.take_if(done) else {
            return;
        };
        for SyncKey { segment, number } in again.held {
            if let Some(segment) = self.segments.remove(&segment) {
                let lost = format!("lock {number}, which a program held");
                self.close_again(cx, segment.info.id);
                self.rejoin.lose(cx, segment, again.was, lost);
            }
        }
        cx.emit(Event::Rejoined { node: cx.me() });
        // Processes may have closed segments meanwhile.
        let closed = |(id, segment): (&SegmentId, &Segment)| (!segment.is_open()).then_some(*id);
        for id in self.segments.iter().filter_map(closed).collect::<Vec<_>>() {
            self.close(cx, id);
        }
        for (ticket, client, request) in again.requests {
            self.request(cx, ticket, client, request);
        }
        for (mapping, page, access) in again.faults {
            self.fault(cx, mapping, page, access);
        }
    }

    /// This node is not admitted again: everything that waited for that fails, and is lost.
    pub(crate) fn end_rejoin(&mut self, cx: &mut Cx<'_>) {
        let Some(again) = self.rejoin.under_way.take() else {
            return;
        };
        self.fail_waiting(cx, again.requests, again.faults);
        for segment in again.segments.into_values() {
            let lost = "its membership: the cluster does not admit this node again";
            self.rejoin.lose(cx, segment, again.was, lost.into());
        }
    }

    /// The clients gave a token back.
    pub(super) fn lock_returned(&mut self, cx: &mut Cx<'_>, key: SyncKey, recovered: bool) {
        let again = self.rejoin.under_way.as_mut();
        if again.is_some_and(|again| again.held.remove(&key)) {
            return;
        }
        let lost = self.rejoin.lost(key.segment).is_some();
        if self.membership.standing == Standing::Member && !lost {
            self.locks.returned(cx, &mut self.segments, key, recovered);
        }
    }
}

/// The addresses of the members that may admit a host, or know which does: the coordinator first.
fn members_to_ask(cx: &Cx<'_>, was: NodeId) -> Vec<SocketAddr> {
    let coordinator = cx.coordinator();
    let others = cx.shell.view.living().filter(|member| member.id != was);
    let mut members: Vec<_> = others.collect();
    members.sort_by_key(|member| (member.id != coordinator, member.id));
    members.iter().map(|member| member.address).collect()
}

/// The request that makes a call once more, if it does no harm that it may have been executed.
fn again_as(call: &LeftBehind) -> Option<Request> {
    let to = |node: Option<NodeId>| {
        let call = call.body.clone();
        Request::Call { to: node, call }
    };
    match &call.body {
        Call::Stat { .. } | Call::List { .. } | Call::CondSignal { .. } => Some(to(None)),
        Call::Probe | Call::Memory => Some(to(Some(call.to))),
        Call::Open {
            name,
            create: None,
            exclusive,
            write,
            credentials,
        } => Some(Request::Open {
            name: name.clone(),
            create: None,
            exclusive: *exclusive,
            write: *write,
            credentials: credentials.clone(),
        }),
        _ => None,
    }
}

pub(super) fn is_sysv(call: &Call) -> bool {
    matches!(
        call,
        Call::Sysv(_)
            | Call::SysvKey { .. }
            | Call::SysvNews(_)
            | Call::SysvLend { .. }
            | Call::SysvGather { .. }
            | Call::SysvRecall { .. }
    )
}

/// The next datagrams are those of another life.
fn become_another(cx: &mut Cx<'_>) {
    let budgets = cx.shell.memory.budgets;
    let next = Incarnation(cx.shell.config.incarnation.0.wrapping_add(1));
    cx.shell.config.incarnation = next;
    cx.shell.memory = Memory::new(next);
    cx.shell.memory.budgets = budgets;
}
