//! Calls of one node to another, or to itself: which service answers, and how the caller goes on
//! with the reply.

use super::Services;
use crate::caller::Caller;
use crate::directory::no_names;
use crate::effect::{Effect, Reply};
use crate::event::Event;
use crate::membership::{Coordinator, Standing};
use crate::on_reply::OnReply;
use crate::policies::Gone;
use crate::segments::close;
use crate::shell::Cx;
use crate::steps::Step;
use crate::sync::Early;
use crate::sysv::Others;
use crate::trapping::Delayed;
use pagemesh_wire::peer::{self, Call, Health, Refusal};
use pagemesh_wire::sysv;
use pagemesh_wire::{CallId, ClientId, NodeId, SegmentId, Ticket};

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
                    let lost = self.rejoin.lost(info.id);
                    let part = self.segments.take_part(lost, &info);
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
            return self.trapping.wait(Delayed::Call(caller, call));
        }
        let reply = match call {
            Call::Probe => peer::Reply::Done,
            Call::Memory => peer::Reply::Memory(self.memory(cx.shell.memory.budgets, cx.me())),
            Call::Barrier {
                key,
                parties,
                payload,
            } => {
                let arrival = Early {
                    caller,
                    key,
                    parties,
                    payload,
                };
                return self.arrive(cx, arrival);
            }
            Call::Policy(call) => {
                let step = self.segments.called(cx, caller, &call);
                return self.follow(cx, step);
            }
            Call::CondWait { key } => {
                self.conditions.wait(caller, key);
                peer::Reply::Waiting
            }
            Call::CondSignal { key, all } => {
                let steps = self.conditions.signal(caller, key, all);
                return self.follow(cx, steps);
            }
            call @ (Call::Sysv(_)
            | Call::SysvKey { .. }
            | Call::SysvNews(_)
            | Call::SysvLend { .. }
            | Call::SysvGather { .. }
            | Call::SysvRecall { .. }) => {
                let coordinates = self.coordinator.is_some();
                let steps = self.sysv.call(cx, caller, call, coordinates);
                return self.follow(cx, steps);
            }
            Call::TakePart(info) => {
                let lost = self.rejoin.lost(info.id);
                self.segments.introduced(lost, &info)
            }
            call @ (Call::Forget { .. }
            | Call::Reduce { .. }
            | Call::Members(_)
            | Call::MembersChange(_)
            | Call::Log(_)
            | Call::TakeOver { .. }) => self.told(cx, caller.node, call),
            call @ (Call::Open { .. }
            | Call::Close { .. }
            | Call::Remove { .. }
            | Call::Name { .. }
            | Call::Stat { .. }
            | Call::List { .. }
            | Call::Declare { .. }
            | Call::Inherit(_)
            | Call::Leave
            | Call::Revoke { .. }
            | Call::ForgetMember { .. }) => return self.coordinate(cx, caller, call),
        };
        self.answer(cx, caller, reply);
    }

    /// What a coordinator tells this node, or one that is to be it.
    fn told(&mut self, cx: &mut Cx<'_>, from: NodeId, call: Call) -> peer::Reply {
        let coordinator = cx.coordinator();
        match call {
            Call::Forget { segment } => {
                if from == sysv::keeper(segment).unwrap_or(coordinator) {
                    self.forget(cx, segment);
                }
                peer::Reply::Done
            }
            Call::Reduce {
                segment,
                reductions,
            } => {
                if from == coordinator {
                    let segments = &mut self.segments;
                    self.reductions.told(segments, segment, reductions);
                }
                peer::Reply::Done
            }
            Call::Members(view) => {
                if from == view.term.coordinator() {
                    self.members_changed(cx, view);
                }
                self.tell_names(cx)
            }
            Call::MembersChange(change) => self.told_change(cx, from, *change),
            Call::Log(decisions) => self.copy.log_arrived(cx, &mut self.disk, from, decisions),
            Call::TakeOver { term } => {
                let coordinates = self.coordinator.is_some();
                self.membership
                    .asked_to_promise(cx, from, term, coordinates)
            }
            other => unreachable!("no news: {other:?}"),
        }
    }

    /// A call that only the coordinator can answer.
    fn coordinate(&mut self, cx: &mut Cx<'_>, caller: Caller, call: Call) {
        let coordinator = self.coordinator.as_mut();
        let ended = match (call, coordinator) {
            (Call::Revoke { node }, coordinator) => Coordinator::revoke(coordinator, cx, node),
            (Call::ForgetMember { node }, coordinator) => {
                Coordinator::forget(coordinator, cx, node)
            }
            (Call::Leave, coordinator) => {
                let left = coordinator.map(|of| of.end(cx, caller.node, Health::Left));
                let told = Step::Answer(caller, peer::Reply::Done);
                return self.follow(cx, [Some(told), left].into_iter().flatten());
            }
            (Call::Inherit(piece), coordinator) => {
                if coordinator.is_some() {
                    self.inherit(cx, piece);
                }
                Ok(None)
            }
            (_, None) => Err(no_names()),
            (Call::Declare { segment, reduction }, Some(coordinator)) => {
                let declared = coordinator.directory.declare(segment, reduction);
                let members = &cx.shell.alive;
                let steps = self.reductions.declare(members, caller, segment, declared);
                return self.follow(cx, steps);
            }
            (call, Some(coordinator)) => {
                let directory = &mut coordinator.directory;
                let steps = directory.called(cx, &self.reductions, caller, call);
                return self.follow(cx, steps);
            }
        };
        let reply = match ended {
            Ok(step) => {
                self.follow(cx, step);
                peer::Reply::Done
            }
            Err(why) => peer::Reply::Refused(why),
        };
        self.answer(cx, caller, reply);
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
                self.segments.answered(cx, from, (segment, number), &reply);
            }
            OnReply::Tell(ticket, client) => match reply {
                peer::Reply::Depart(departure) => {
                    self.depart(cx, from, &departure, OnReply::Tell(ticket, client));
                }
                reply => cx.reply(ticket, to_local(reply)),
            },
            OnReply::Declared(caller) => {
                let step = self.reductions.declared(caller, from);
                self.follow(cx, step);
            }
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
                if let Some(coordinator) = &mut self.coordinator {
                    coordinator.view_known(cx, &self.disk, (from, epoch), &reply);
                }
                let membership = &mut self.membership;
                let told = membership.change_answered(cx, (from, epoch), &reply);
                self.follow(cx, told);
            }
            OnReply::Promised(term) => self.promised(cx, (from, term), reply),
            OnReply::HandedOver => {
                let step = self.leaving.next(cx);
                self.follow(cx, [step]);
            }
            OnReply::Open { client, name } => self.opened(cx, client, &name, reply),
            OnReply::Reopened(id) => {
                let here = (&self.mappings, &mut self.segments);
                let step = self.rejoin.reopened(cx, here, id, reply);
                self.follow(cx, step);
                self.finish_rejoin(cx);
            }
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
                let segments = &mut self.segments;
                self.reductions.told(segments, info.id, reductions);
                peer::Reply::Segment(info)
            }
            other => other,
        };
        let mut known = None;
        let reply = match reply {
            peer::Reply::Segment(info) => match self.open_new(cx, &info) {
                Ok(segment) => {
                    if let Some((_, client)) = client {
                        segment.open(client);
                    }
                    known = Some(info.id);
                    Reply::Segment(info)
                }
                Err(why) => {
                    self.follow(cx, [close(cx, info.id)]);
                    Reply::Refused(why)
                }
            },
            other => to_local(other),
        };
        if let Some((ticket, _)) = client {
            cx.reply(ticket, reply);
        }
        if let Some(id) = known {
            self.reductions.inform(&mut self.segments, id);
            for arrival in self.early.of(id) {
                self.arrive(cx, arrival);
            }
        }
        let opened = client.is_some() && known.is_some();
        let others = (&self.calls, &self.sysv);
        let steps = self.segments.opening_ended(cx, others, name, opened);
        self.follow(cx, steps);
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
