//! The coordinator's decisions: they are streamed to a standby and put on a disk, and answers wait
//! until both have them.

use super::Coordinator;
use crate::caller::Caller;
use crate::calls::Calls;
use crate::control::{DecisionLog, DiskLog, HeldAnswer, StandbyLog};
use crate::event::Event;
use crate::on_reply::OnReply;
use crate::shell::Cx;
use crate::steps::Step;
use pagemesh_wire::peer::{self, Call, Decision, Member, MemberView};
use pagemesh_wire::{NodeId, NodeSet};

impl Coordinator {
    /// An answer to a call about names. It waits until the standby has what it tells of, and the
    /// caller's node knows which one that is, so that it helps no former one to take over. Returns
    /// the answer if it need not wait.
    pub(crate) fn hold(
        &mut self,
        cx: &Cx<'_>,
        calls: &Calls,
        caller: Caller,
        reply: peer::Reply,
    ) -> Option<peer::Reply> {
        let keeps = cx.shell.config.keeps;
        let unaware = cx.shell.config.standby && calls.may_know_former_standby(caller.node);
        if self.log.is_none() && !keeps && !unaware {
            return Some(reply);
        }
        if caller.node != cx.me() && changes_names(&reply) {
            self.answered.push(Decision::Answered {
                node: caller.node,
                call: caller.call,
                floor: calls.floor_of(caller.node),
                reply: reply.clone(),
            });
        }
        if !keeps && !unaware && !self.is_followed() {
            return Some(reply);
        }
        self.held.push(HeldAnswer {
            caller,
            reply,
            batch: 0,
        });
        None
    }

    /// Ends an input: chooses a standby if there is none, and returns the call that sends it the next
    /// entries of the log, if none are under way.
    pub(crate) fn stream(&mut self, cx: &Cx<'_>, calls: &Calls) -> Option<Step> {
        self.choose_standby(cx, calls);
        let log = self.log.as_mut()?;
        let decisions = log.send()?;
        Some(Step::Call(log.node, Call::Log(decisions), OnReply::Logged))
    }

    /// Gives a copy to the node that is to be the standby, if there is no standby.
    fn choose_standby(&mut self, cx: &Cx<'_>, calls: &Calls) {
        let log = self.log.as_ref();
        if !cx.shell.config.standby || log.is_some_and(|log| !log.is_too_long()) {
            return;
        }
        let Some(node) = candidate(&cx.shell.view, cx.me(), self.unaware()) else {
            return;
        };
        let mut copy = self.directory.copy();
        copy.extend(calls.answered_about_names());
        self.log = Some(StandbyLog::begin(node, copy));
    }

    /// The receiver of the log has acknowledged entries, or is gone. Once it has the whole copy, it
    /// is named as the standby.
    pub(crate) fn logged(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        reply: &peer::Reply,
    ) -> Vec<Step> {
        let Some(log) = self.log.as_mut().filter(|log| log.node == from) else {
            return Vec::new();
        };
        if *reply != peer::Reply::Done {
            // It lacks earlier entries, which only a faulty node does: it is given a new copy.
            return self.give_up_standby(cx);
        }
        log.acknowledged();
        if !log.is_complete() || log.named {
            return Vec::new();
        }
        log.named = true;
        cx.emit(Event::StandbyNamed { node: from });
        vec![Step::SpreadView(with_standby(cx, from))]
    }

    /// The standby is no standby any more: no answer waits for it, and no host.
    fn give_up_standby(&mut self, cx: &Cx<'_>) -> Vec<Step> {
        let log = self.log.take();
        let held = log.map(StandbyLog::give_up);
        self.held.extend(held.into_iter().flatten());
        let named = cx.shell.view.standby != NodeId::NONE;
        let view = named.then(|| Step::SpreadView(with_standby(cx, NodeId::NONE)));
        view.into_iter().chain([Step::Welcome]).collect()
    }

    /// A member is gone. If it was the standby, another one is chosen.
    pub(crate) fn standby_gone(&mut self, cx: &Cx<'_>, node: NodeId) -> Vec<Step> {
        match &self.log {
            Some(log) if log.node == node => self.give_up_standby(cx),
            _ => Vec::new(),
        }
    }

    /// A member has answered to the view of this epoch, perhaps with the lives that it names. If it
    /// is the standby, hosts that were admitted by then may hear of it.
    pub(crate) fn view_known(
        &mut self,
        cx: &mut Cx<'_>,
        disk: &DiskLog,
        (from, epoch): (NodeId, u64),
        reply: &peer::Reply,
    ) {
        self.checks.told(from, reply);
        if cx.shell.view.standby == from {
            self.standby_knows = self.standby_knows.max(epoch);
            self.send_welcomes(cx, disk);
        }
    }

    /// Tells hosts of their admission that standby and disk know of.
    pub(crate) fn send_welcomes(&mut self, cx: &mut Cx<'_>, disk: &DiskLog) {
        let mut known = u64::MAX;
        if cx.shell.view.standby != NodeId::NONE {
            known = self.standby_knows;
        }
        if cx.shell.config.keeps {
            known = known.min(disk.kept_epoch(cx.shell.view.term));
        }
        for welcome in self.welcomes_until(known, cx.now) {
            welcome.send(cx);
        }
    }

    /// Whether the member view names a standby.
    fn is_followed(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.named)
    }

    /// Moves the decisions and answers of the present input into the logs. Returns the answers that
    /// may leave. Those for nodes stay that may know a standby which has been given up, and which
    /// could take over without what the answer tells of.
    pub(crate) fn settle(
        &mut self,
        mut disk: Option<&mut DiskLog>,
        calls: Option<&Calls>,
    ) -> Vec<HeldAnswer> {
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

/// The view that names this standby.
fn with_standby(cx: &Cx<'_>, standby: NodeId) -> MemberView {
    MemberView {
        epoch: cx.shell.view.epoch + 1,
        standby,
        ..cx.shell.view.clone()
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
