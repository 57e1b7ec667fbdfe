//! The home leads the rounds of collection ([`super::round`]).

use super::inquiries::OnReply;
use super::round::{Order, Progress, Step};
use super::{Release, envelope};
use crate::continuation::Continuation;
use crate::shell::Cx;
use pagemesh_wire::peer::Reply;
use pagemesh_wire::{NodeId, NodeSet, VectorTime};

impl Release {
    /// At the home: a node holds too much, or leaves.
    pub(super) fn somebody_is_full(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        floor: &VectorTime,
        leaving: bool,
    ) {
        if cx.home(self.rules.segment) != cx.me() {
            return;
        }
        if leaving {
            self.round.leaves(from);
        }
        // The report was sent before the last round, and has arrived after it.
        let ended = self.round.ended();
        let just_now = ended.is_some_and(|ended| cx.now - ended < cx.pace().resend_ceiling);
        let late = !leaving && !floor.covers(self.intervals.history.floor()) && just_now;
        if !self.round.is_under_way() && !late {
            self.begin_round(cx);
        }
    }

    /// Begins a round in which nodes that are about to leave keep nothing.
    pub(super) fn begin_round(&mut self, cx: &mut Cx<'_>) {
        if self.collector.leaves() {
            let me = cx.me();
            self.round.leaves(me);
            self.name_as_written(cx, |page| page.is_kept_by(me));
        }
        let acting = self.rules.segment.home() != cx.me();
        let step = if acting { Step::Hear } else { Step::Know };
        self.open_round(cx, step, VectorTime::ZERO);
    }

    fn open_round(&mut self, cx: &mut Cx<'_>, step: Step, time: VectorTime) {
        let number = cx.next_request().0;
        self.round.begin(number, cx.shell.alive.clone(), step, time);
        if self.replicas.on {
            self.round.of_holders_only();
        }
        self.begin_step(cx);
    }

    /// At the home: a barrier has opened, and these nodes have told all they knew. If these are all
    /// members, a round need not ask them; and if one is due soon, now is better than in the middle
    /// of the next phase.
    pub(super) fn barrier_opened(&mut self, cx: &mut Cx<'_>, nodes: NodeSet) {
        let history = &self.intervals.history;
        let soon = self.memory.remembered(cx, history) > cx.pace().notices as usize / 2;
        let leads = self.rules.segment.home() == cx.me()
            && !self.round.is_under_way()
            && !self.collector.leaves();
        if soon && leads && cx.shell.alive.without(&nodes).is_empty() {
            let time = self.replicas.tellable(history, cx.me()).into_owned();
            self.open_round(cx, Step::Reach, time);
        }
    }

    fn begin_step(&mut self, cx: &mut Cx<'_>) {
        let members = &cx.shell.alive;
        match self
            .round
            .order(members.clone(), self.intervals.heard.floor())
        {
            None => {}
            Some((number, Order::Hear(time))) => {
                let hear = (cx.shell.peers(), OnReply::Heard(number));
                let known = self.intervals.history.time();
                self.intervals.inquiries.ask_nodes(cx, known, time, hear);
                self.check_goals(cx);
            }
            Some((number, Order::Call(step))) => {
                for to in members.iter() {
                    let call = envelope(self.rules.segment, &step);
                    cx.ready(Continuation::Call { to, call, number });
                }
            }
        }
    }

    /// At the home: a member has done a step.
    pub(super) fn collected(&mut self, cx: &mut Cx<'_>, from: NodeId, number: u64, reply: &Reply) {
        if !self.round.leads(number) {
            return;
        }
        let knows = match reply {
            Reply::Policy(reached) => Some(reached.read().unwrap_or_default()),
            // That member does not know yet that this node leads now.
            Reply::Refused(_) if cx.is_alive(from) => {
                self.round.give_up();
                return self.collector.report(cx);
            }
            _ => None,
        };
        self.round.done(from, number, knows);
        self.advance_round(cx);
    }

    /// Goes on with the round if all members have done its step.
    pub(super) fn advance_round(&mut self, cx: &mut Cx<'_>) {
        match self.round.advance(cx.now) {
            Progress::None => {}
            Progress::Step => self.begin_step(cx),
            Progress::Ended => self.mind_the_bound(cx),
        }
    }

    /// A member is gone.
    pub(super) fn round_lost(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        if self.round.gone(node) {
            return self.begin_round(cx);
        }
        self.advance_round(cx);
    }
}
