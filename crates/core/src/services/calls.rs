//! Calls of one node to another, or to itself: which service answers, and how the caller goes on
//! with the reply.

use super::Services;
use super::rejoin::is_sysv;
use crate::caller::Caller;
use crate::directory::{Opening, check_name};
use crate::effect::{Effect, Reply};
use crate::event::Event;
use crate::limits::LIST_PAGE;
use crate::membership::Standing;
use crate::on_reply::OnReply;
use crate::policies::Gone;
use crate::segment::Segment;
use crate::shell::Cx;
use crate::steps::Step;
use crate::sysv::{Others, Why};
use crate::trapping::Waiting;
use pagemesh_wire::peer::{self, Call, Health, Refusal, SegmentInfo};
use pagemesh_wire::sysv;
use pagemesh_wire::{CallId, ClientId, NodeId, SegmentId, SyncKey, Ticket};

impl Services {
    /// Carries out what a service has left to do.
    pub(crate) fn follow(&mut self, cx: &mut Cx<'_>, steps: impl IntoIterator<Item = Step>) {
        for step in steps {
            match step {
                Step::Call(to, call, then) => self.call(cx, to, call, then),
                Step::Answer(caller, reply) => self.answer(cx, caller, reply),
                Step::Welcome => self.send_welcomes(cx),
                Step::SpreadView(view) => self.spread_view(cx, view),
                Step::TakePart(info) => {
                    debug_assert_eq!(info.id.home(), cx.me());
                    let part = self.take_part(&info);
                    debug_assert!(part.is_ok(), "its policy is the default one");
                }
            }
        }
    }

    pub(crate) fn call(&mut self, cx: &mut Cx<'_>, to: NodeId, call: Call, then: OnReply) {
        let caller = self.calls.call(cx, to, call.clone(), then);
        if to == cx.me() {
            self.execute(cx, caller, call);
        }
    }

    /// Resends a call, or gives it up if its server has been silent for too long while the
    /// coordinator is silent: then no node would declare the server dead.
    pub(super) fn call_due(&mut self, cx: &mut Cx<'_>, call: CallId) {
        let silent = self.membership.silent(cx);
        if silent.contains(cx.coordinator()) {
            let steps = self.sysv.despair(cx);
            self.follow(cx, steps);
        }
        if let Some((server, then)) = self.calls.give_up(cx, call, silent) {
            let why = Refusal::NodeGone(server);
            self.carry_on(cx, server, then, peer::Reply::Refused(why));
        }
        self.calls.due(cx, call);
    }

    /// Answers a call of this node or of another.
    pub(crate) fn answer(&mut self, cx: &mut Cx<'_>, caller: Caller, reply: peer::Reply) {
        let about_names = self.calls.is_about_names(cx.me(), caller);
        let coordinator = self.coordinator.as_mut().filter(|_| about_names);
        let now = match coordinator {
            Some(coordinator) => coordinator.hold(cx, &self.calls, caller, reply),
            None => Some(reply),
        };
        if let Some(reply) = now {
            self.answer_now(cx, caller, reply);
        }
    }

    pub(super) fn answer_now(&mut self, cx: &mut Cx<'_>, caller: Caller, reply: peer::Reply) {
        if caller.node == cx.me() {
            self.replied(cx, caller.node, caller.call, reply);
        } else {
            self.calls.answer(cx, caller, reply);
        }
    }

    /// Executes a call; it is called once for each call.
    pub(crate) fn execute(&mut self, cx: &mut Cx<'_>, caller: Caller, call: Call) {
        if self.delays_call(cx, caller, &call) {
            return self.trapping.wait(Waiting::Call(caller, call));
        }
        let coordinates = self.coordinator.is_some();
        let reply = match call {
            Call::Probe => peer::Reply::Done,
            Call::Memory => peer::Reply::Memory(self.memory(cx.shell.memory.budgets, cx.me())),
            Call::Barrier {
                key,
                parties,
                payload,
            } => return self.arrive(cx, caller, (key, parties), payload),
            Call::Declare { segment, reduction } => {
                return self.declare(cx, caller, segment, reduction);
            }
            Call::Reduce {
                segment,
                reductions,
            } => {
                self.reduce(cx, caller.node, segment, reductions);
                peer::Reply::Done
            }
            Call::Policy(call) => return self.policy_called(cx, caller, &call),
            Call::CondWait { key } => {
                self.conditions.wait(caller, key);
                peer::Reply::Waiting
            }
            Call::CondSignal { key, all } => self.signal(cx, key, all),
            Call::Members(view) => {
                if caller.node == view.term.coordinator() {
                    self.members_changed(cx, view);
                }
                self.tell_names(cx)
            }
            Call::MembersChange(change) => self.told_of_change(cx, caller.node, *change),
            call if is_sysv(&call) => {
                let steps = self.sysv.call(cx, caller, call, coordinates);
                return self.follow(cx, steps);
            }
            Call::Log(decisions) => {
                self.copy
                    .log_arrived(cx, &mut self.disk, caller.node, decisions)
            }
            Call::TakeOver { term } => {
                let membership = &mut self.membership;
                membership.asked_to_promise(cx, caller.node, term, coordinates)
            }
            Call::Forget { segment } => {
                if caller.node == sysv::keeper(segment).unwrap_or(cx.coordinator()) {
                    self.forget(cx, segment);
                }
                peer::Reply::Done
            }
            Call::Inherit(piece) => {
                if coordinates {
                    self.inherit(cx, piece);
                }
                peer::Reply::Done
            }
            Call::TakePart(info) => self.told_of_segment(&info),
            Call::Leave => {
                self.answer(cx, caller, peer::Reply::Done);
                self.declare_dead(cx, caller.node, Health::Left);
                return;
            }
            Call::Revoke { node } => self.revoke(cx, node),
            Call::ForgetMember { node } => self.forget_member(cx, node),
            call => self.look_up(cx, caller, call),
        };
        self.answer(cx, caller, reply);
    }

    /// Wakes waiters of a condition, and says how many.
    fn signal(&mut self, cx: &mut Cx<'_>, key: SyncKey, all: bool) -> peer::Reply {
        let woken = self.conditions.signal(key, all);
        let count = woken.len() as u32;
        for waiter in woken {
            self.answer(cx, waiter, peer::Reply::Done);
        }
        peer::Reply::Woken(count)
    }

    /// Calls to the directory, which only the coordinator has.
    fn look_up(&mut self, cx: &mut Cx<'_>, caller: Caller, call: Call) -> peer::Reply {
        let Some(coordinator) = &mut self.coordinator else {
            return peer::Reply::Refused(Refusal::Invalid("this node keeps no names".into()));
        };
        let directory = &mut coordinator.directory;
        let mut unused = None;
        let reductions = &self.reductions;
        let segment = |info: SegmentInfo| match reductions.of(info.id) {
            [] => peer::Reply::Segment(info),
            some => peer::Reply::Reducing(info, some.to_vec()),
        };
        let result = match call {
            Call::Open {
                name,
                create,
                exclusive,
                write,
                credentials,
            } => directory
                .open(&Opening {
                    node: caller.node,
                    call: caller.call,
                    name: &name,
                    create: create.as_ref(),
                    exclusive,
                    write,
                    credentials: &credentials,
                    quotas: cx.shell.config.quotas,
                })
                .map(segment),
            Call::Close { segment } => {
                unused = directory.close(caller.node, caller.call, segment);
                Ok(peer::Reply::Done)
            }
            Call::Remove { name, credentials } => {
                directory.remove(&name, &credentials).map(|segment| {
                    unused = segment;
                    peer::Reply::Done
                })
            }
            Call::Name {
                segment,
                name,
                replace,
                credentials,
            } => directory
                .name(segment, &name, replace, &credentials)
                .map(|segment| {
                    unused = segment;
                    peer::Reply::Done
                }),
            Call::Stat { name } => directory.stat(&name).map(segment),
            Call::List { after } => Ok(peer::Reply::Segments(directory.list(&after, LIST_PAGE))),
            other => Err(Refusal::Invalid(format!(
                "{other:?} is no question of names"
            ))),
        };
        if let Some(segment) = unused {
            self.spread_forget(cx, segment);
        }
        result.unwrap_or_else(peer::Reply::Refused)
    }

    /// No node has the segment open any more: tells every node to drop its memory of it.
    pub(super) fn spread_forget(&mut self, cx: &mut Cx<'_>, segment: SegmentId) {
        for node in cx.shell.alive.iter() {
            self.call(cx, node, Call::Forget { segment }, OnReply::Nothing);
        }
    }

    pub(crate) fn forget(&mut self, cx: &mut Cx<'_>, id: SegmentId) {
        self.locks.forget(id);
        self.barriers.forget(id);
        self.conditions.forget(id);
        self.reductions.forget(id);
        self.global.donor.ended(cx, id);
        self.global.shared.forget(cx, id);
        let Some(mut segment) = self.segments.remove(&id) else {
            return;
        };
        segment.policy.forgotten(cx);
        if segment.is_open() {
            self.trapping.begin(cx, &mut segment);
            // A segment that processes have open is forgotten only if its keeper node is gone.
            // Accesses to its pages must fail, neither wait nor go on.
            segment.policy.gone(cx, Gone::Membership);
        } else {
            cx.push(Effect::Forget { segment: id });
        }
    }

    /// Another node wants this one to take part in a segment, which it does not know yet.
    fn told_of_segment(&mut self, info: &SegmentInfo) -> peer::Reply {
        let has_pages = info.spec.size.pages().is_some_and(|pages| pages.0 > 0);
        if self.segments.contains_key(&info.id) {
            return peer::Reply::Done;
        }
        if !has_pages || check_name(&info.name).is_err() || info.spec.replicas == 0 {
            let why = "no segment with replicas has this name and size";
            return peer::Reply::Refused(Refusal::Invalid(why.into()));
        }
        match self.take_part(info) {
            Ok(_) => peer::Reply::Done,
            Err(why) => peer::Reply::Refused(why),
        }
    }

    /// A reply arrived.
    pub(crate) fn replied(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        call: CallId,
        reply: peer::Reply,
    ) {
        let then = self.calls.replied(cx, from, call, &reply);
        match then {
            None => cx.emit(Event::Stale {}),
            Some(then) => self.carry_on(cx, from, then, reply),
        }
    }

    pub(crate) fn carry_on(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        then: OnReply,
        reply: peer::Reply,
    ) {
        match then {
            OnReply::Nothing => {}
            OnReply::WakeAnother(key) => {
                let call = Call::CondSignal { key, all: false };
                self.call(cx, cx.home(key.segment), call, OnReply::Nothing);
            }
            OnReply::Policy(segment, number) => {
                self.policy_answered(cx, from, (segment, number), &reply);
            }
            OnReply::Tell(ticket, client) => match reply {
                peer::Reply::Depart(departure) => {
                    self.depart(cx, from, &departure, OnReply::Tell(ticket, client));
                }
                reply => cx.reply(ticket, to_local(reply)),
            },
            OnReply::Declared(caller) => self.declared(cx, caller, from),
            OnReply::Orphaned(_)
            | OnReply::Told
            | OnReply::Register(_)
            | OnReply::Visit(_)
            | OnReply::Struck(_)
            | OnReply::Lent(_)
            | OnReply::Returned(_)
            | OnReply::Gathered
            | OnReply::Survey(..) => {
                let others = Others {
                    calls: &self.calls,
                    is_member: self.membership.standing == Standing::Member,
                };
                let steps = self.sysv.replied(cx, others, (from, then), reply);
                self.follow(cx, steps);
            }
            OnReply::Left => self.expelled(cx),
            OnReply::Logged => {
                let coordinator = self.coordinator.as_mut();
                let steps = coordinator.map(|of| of.logged(cx, from, &reply));
                self.follow(cx, steps.unwrap_or_default());
            }
            OnReply::KnowsView(epoch) => {
                let coordinator = self.coordinator.as_mut();
                let told =
                    coordinator.and_then(|of| of.view_known(cx, &self.disk, (from, epoch), &reply));
                self.follow(cx, told);
            }
            OnReply::Promised(term) => self.promised(cx, (from, term), reply),
            OnReply::HandedOver => self.send_handover(cx),
            OnReply::Open { client, name } => self.opened(cx, client, &name, reply),
            OnReply::Reopened(id) => self.reopened(cx, id, reply),
        }
    }

    fn opened(
        &mut self,
        cx: &mut Cx<'_>,
        client: Option<(Ticket, ClientId)>,
        name: &str,
        reply: peer::Reply,
    ) {
        let reply = match reply {
            peer::Reply::Reducing(info, reductions) => {
                self.reduce(cx, cx.coordinator(), info.id, reductions);
                peer::Reply::Segment(info)
            }
            other => other,
        };
        let reply = match reply {
            peer::Reply::Segment(info) => match self.open_new(cx, &info) {
                Ok(segment) => {
                    if let Some((_, client)) = client {
                        segment.open(client);
                    }
                    peer::Reply::Segment(info)
                }
                Err(why) => {
                    self.call(
                        cx,
                        cx.coordinator(),
                        Call::Close { segment: info.id },
                        OnReply::Nothing,
                    );
                    peer::Reply::Refused(why)
                }
            },
            other => other,
        };
        let opened = client.is_some() && matches!(reply, peer::Reply::Segment(_));
        let known = match &reply {
            peer::Reply::Segment(info) => Some(info.id),
            _ => None,
        };
        if let Some((ticket, _)) = client {
            cx.reply(ticket, to_local(reply));
        }
        if let Some(id) = known {
            self.inform_of_reductions(id);
            self.count_early(cx, id);
        }
        self.close_by_name(cx, name, opened);
    }

    /// The segment, which a process of this node is about to have open.
    fn open_new(&mut self, cx: &Cx<'_>, info: &SegmentInfo) -> Result<&mut Segment, Refusal> {
        let is_new = !self.segments.contains_key(&info.id);
        let may_be_untrapped = is_new && self.may_be_untrapped(cx, info);
        let segment = self.take_part(info)?;
        if may_be_untrapped && segment.policy.may_be_untrapped() {
            segment.trapped = false;
        }
        Ok(segment)
    }

    /// The segment, which is added here if it is new.
    pub(crate) fn take_part(&mut self, info: &SegmentInfo) -> Result<&mut Segment, Refusal> {
        use pagemesh_sorted::Entry;
        if let Some(why) = self.rejoin.lost(info.id) {
            return Err(why.clone());
        }
        Ok(match self.segments.entry(info.id) {
            Entry::Occupied(known) => {
                let known = known.into_mut();
                known.info.name.clone_from(&info.name);
                known
            }
            Entry::Vacant(place) => place.insert(Segment::new(info.clone())?),
        })
    }

    /// An opening has ended: performs a close that waited for it.
    fn close_by_name(&mut self, cx: &mut Cx<'_>, name: &str, opened: bool) {
        let named = self
            .segments
            .values()
            .filter(|segment| segment.info.name == name);
        for id in named.map(|segment| segment.info.id).collect::<Vec<_>>() {
            self.close(cx, id);
            if !opened {
                // The opening was counted as one under way.
                let (client, detached) = (None, true);
                self.sysv_attached(cx, id, Why { client, detached });
            }
        }
    }
}

fn to_local(reply: peer::Reply) -> Reply {
    match reply {
        peer::Reply::Done => Reply::Done,
        peer::Reply::Waiting => Reply::Waiting,
        peer::Reply::Segment(info) | peer::Reply::Reducing(info, _) => Reply::Segment(info),
        peer::Reply::Segments(infos) => Reply::Segments(infos),
        peer::Reply::Woken(count) => Reply::Woken(count),
        peer::Reply::Depart(_)
        | peer::Reply::Policy(_)
        | peer::Reply::SysvKey(_)
        | peer::Reply::SysvLent(_)
        | peer::Reply::SysvEntries { .. }
        | peer::Reply::Members(_)
        | peer::Reply::Names { .. }
        | peer::Reply::FarNames { .. } => Reply::Done,
        peer::Reply::Refused(why) => Reply::Refused(why),
        peer::Reply::Sysv(outcome) => Reply::Sysv(outcome),
        peer::Reply::Memory(report) => Reply::Memory(report),
    }
}
