//! The coordinator's decisions: they are streamed to a standby and put on a disk, and answers wait
//! until both have them.

use super::Services;
use crate::caller::Caller;
use crate::calls::Calls;
use crate::control::{DecisionLog, DiskLog, HeldAnswer, StandbyLog};
use crate::event::Event;
use crate::membership::Coordinator;
use crate::on_reply::OnReply;
use crate::shell::Cx;
use pagemesh_wire::peer::{self, Call, Decision, Decisions, Member, MemberView, Refusal};
use pagemesh_wire::{NodeId, NodeSet};

impl Services {
    /// Answers a call about names. The answer waits until the standby has what it tells of, and the
    /// caller's node knows which one that is, so that it helps no former one to take over.
    pub(super) fn answer_held(&mut self, cx: &mut Cx<'_>, caller: Caller, reply: peer::Reply) {
        let (me, floor) = (cx.me(), self.calls.floor_of(caller.node));
        let Some(coordinator) = &mut self.coordinator else {
            return self.answer_now(cx, caller, reply);
        };
        let keeps = cx.shell.config.keeps;
        let unaware = cx.shell.config.standby && self.calls.may_know_former_standby(caller.node);
        if coordinator.log.is_none() && !keeps && !unaware {
            return self.answer_now(cx, caller, reply);
        }
        if caller.node != me && changes_names(&reply) {
            coordinator.answered.push(Decision::Answered {
                node: caller.node,
                call: caller.call,
                floor,
                reply: reply.clone(),
            });
        }
        if keeps || unaware || coordinator.is_followed() {
            coordinator.held.push(HeldAnswer {
                caller,
                reply,
                batch: 0,
            });
        } else {
            self.answer_now(cx, caller, reply);
        }
    }

    /// Ends an input of the coordinator: streams its decisions, and gives the answers that may
    /// leave. These may lead to more decisions of this node.
    pub(super) fn stream_decisions(&mut self, cx: &mut Cx<'_>) {
        loop {
            let Some(coordinator) = &mut self.coordinator else {
                return;
            };
            let disk = cx.shell.config.keeps.then_some(&mut self.disk);
            let calls = cx.shell.config.standby.then_some(&self.calls);
            let safe = coordinator.settle(disk, calls);
            if safe.is_empty() {
                break;
            }
            for HeldAnswer { caller, reply, .. } in safe {
                self.answer_now(cx, caller, reply);
            }
        }
        self.choose_standby(cx);
        self.send_decisions(cx);
    }

    /// Sends the next entries of the log, if none are under way.
    fn send_decisions(&mut self, cx: &mut Cx<'_>) {
        let coordinator = self.coordinator.as_mut();
        let Some(log) = coordinator.and_then(|coordinator| coordinator.log.as_mut()) else {
            return;
        };
        if let Some(decisions) = log.send() {
            let node = log.node;
            self.call(cx, node, Call::Log(decisions), OnReply::Logged);
        }
    }

    /// Gives a copy to the node that is to be the standby, if there is no standby.
    fn choose_standby(&mut self, cx: &Cx<'_>) {
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        let log = coordinator.log.as_ref();
        if !cx.shell.config.standby || log.is_some_and(|log| !log.is_too_long()) {
            return;
        }
        let unaware = coordinator.unaware();
        let Some(node) = candidate(&cx.shell.view, cx.me(), unaware) else {
            return;
        };
        let mut copy = coordinator.directory.copy();
        copy.extend(self.calls.answered_about_names());
        coordinator.log = Some(StandbyLog::begin(node, copy));
    }

    /// The receiver of the log has acknowledged entries, or is gone. Once it has the whole copy, it
    /// is named as the standby.
    pub(super) fn logged(&mut self, cx: &mut Cx<'_>, from: NodeId, reply: &peer::Reply) {
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        let Some(log) = coordinator.log.as_mut().filter(|log| log.node == from) else {
            return;
        };
        if *reply != peer::Reply::Done {
            // It lacks earlier entries, which only a faulty node does: it is given a new copy.
            return self.give_up_standby(cx);
        }
        log.acknowledged();
        if log.is_complete() && !log.named {
            log.named = true;
            let mut view = cx.shell.view.clone();
            view.epoch += 1;
            view.standby = from;
            cx.emit(Event::StandbyNamed { node: from });
            self.spread_view(cx, view);
        }
    }

    /// The standby is no standby any more: no answer waits for it.
    fn give_up_standby(&mut self, cx: &mut Cx<'_>) {
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        let log = coordinator.log.take();
        let held = log.map(StandbyLog::give_up);
        coordinator.held.extend(held.into_iter().flatten());
        if cx.shell.view.standby != NodeId::NONE {
            let mut view = cx.shell.view.clone();
            view.epoch += 1;
            view.standby = NodeId::NONE;
            self.spread_view(cx, view);
        }
        self.send_welcomes(cx);
    }

    /// At the coordinator: a member is gone. If it was the standby, another one is chosen.
    pub(super) fn standby_gone(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        let coordinator = self.coordinator.as_ref();
        let log = coordinator.and_then(|coordinator| coordinator.log.as_ref());
        if log.is_some_and(|log| log.node == node) {
            self.give_up_standby(cx);
        }
    }

    /// At the coordinator: the standby knows the members of this epoch, so hosts that were admitted
    /// by then may hear of it.
    pub(super) fn view_known(&mut self, cx: &mut Cx<'_>, from: NodeId, epoch: u64) {
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        if cx.shell.view.standby != from {
            return;
        }
        coordinator.standby_knows = coordinator.standby_knows.max(epoch);
        self.send_welcomes(cx);
    }

    /// Tells hosts of their admission that standby and disk know of.
    pub(super) fn send_welcomes(&mut self, cx: &mut Cx<'_>) {
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        let mut known = u64::MAX;
        if cx.shell.view.standby != NodeId::NONE {
            known = coordinator.standby_knows;
        }
        if cx.shell.config.keeps {
            known = known.min(self.disk.kept_epoch(cx.shell.view.term));
        }
        for welcome in coordinator.welcomes_until(known, cx.now) {
            welcome.send(cx);
        }
    }

    /// The coordinator calls its standby, or the standby takes over.
    pub(super) fn about_standby(&mut self, cx: &Cx<'_>, from: NodeId, call: Call) -> peer::Reply {
        match call {
            Call::Log(decisions) => self.log_arrived(cx, from, decisions),
            Call::TakeOver { term } => self.asked_to_promise(cx, from, term),
            other => unreachable!("not about the standby: {other:?}"),
        }
    }

    /// At the standby: the coordinator has decided.
    fn log_arrived(&mut self, cx: &Cx<'_>, from: NodeId, decisions: Decisions) -> peer::Reply {
        let keeps = cx.shell.config.keeps;
        let to_keep = keeps.then(|| decisions.clone());
        if from == cx.coordinator() && self.copy.take(decisions) {
            if let Some(decisions) = to_keep {
                self.keep_copy(cx, decisions);
            }
            peer::Reply::Done
        } else {
            let why = "entries of the log before these are missing";
            peer::Reply::Refused(Refusal::Invalid(why.into()))
        }
    }
}

/// Whether a repeated call with this answer would do something twice.
fn changes_names(reply: &peer::Reply) -> bool {
    !matches!(reply, peer::Reply::Segments(_))
}

/// The member that is to be the standby: one on another host, if there is one, else any.
fn candidate(view: &MemberView, me: NodeId, unaware: NodeSet) -> Option<NodeId> {
    let here = view.member(me)?.address.ip();
    let living = view.living();
    let living = living.filter(|member| member.id != me && !unaware.contains(member.id));
    let nearness = |member: &&Member| (member.address.ip() == here, member.id);
    living.min_by_key(nearness).map(|member| member.id)
}

impl Coordinator {
    /// Whether the member view names a standby.
    fn is_followed(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.named)
    }

    /// Moves the decisions and answers of the present input into the logs. Returns the answers that
    /// may leave. Those for nodes stay that may know a standby which has been given up, and which
    /// could take over without what the answer tells of.
    fn settle(&mut self, mut disk: Option<&mut DiskLog>, calls: Option<&Calls>) -> Vec<HeldAnswer> {
        let mut decisions = self.directory.decisions();
        decisions.append(&mut self.answered);
        let mut held = core::mem::take(&mut self.held);
        if let Some(calls) = calls {
            let unaware =
                |answer: &mut HeldAnswer| calls.may_know_former_standby(answer.caller.node);
            self.held = held.extract_if(.., unaware).collect();
        }
        if let Some(disk) = &mut disk {
            let batch = disk.decide(&decisions);
            for answer in &mut held {
                answer.batch = batch;
            }
        }
        let safe = match &mut self.log {
            Some(log) => {
                if !decisions.is_empty() || !held.is_empty() {
                    log.decide(decisions, held);
                }
                log.safe()
            }
            None => held,
        };
        match disk {
            Some(disk) => {
                for answer in safe {
                    disk.hold(answer.batch, answer);
                }
                disk.safe()
            }
            None => safe,
        }
    }
}
