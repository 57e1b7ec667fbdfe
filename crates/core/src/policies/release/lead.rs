//! The collection, opened for the length of one input: the home leads its rounds ([`super::round`]).

use super::collector::Collector;
use super::inquiries::OnReply;
use super::intervals::Intervals;
use super::memory::Memory;
use super::replicas::Replicas;
use super::round::{Leader, Order, Progress, Step};
use super::rules::Rules;
use super::{Release, envelope};
use crate::continuation::Continuation;
use crate::shell::Cx;
use pagemesh_wire::peer::Reply;
use pagemesh_wire::{NodeId, NodeSet, VectorTime};

/// The collection: this node's part, the home's round, and what says when it is time for one.
pub(super) struct CollectContext<'a, 'b> {
    pub(super) cx: &'a mut Cx<'b>,
    pub(super) rules: Rules,
    pub(super) round: &'a mut Leader,
    pub(super) collector: &'a mut Collector,
    pub(super) intervals: &'a mut Intervals,
    pub(super) memory: &'a Memory,
    pub(super) replicas: &'a Replicas,
}

/// The step that the home takes next in leading a collection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lead {
    /// Nothing until members have answered, if there is a round.
    Wait,
    /// A round begins.
    Begin,
    /// Members were asked for what they know: perhaps nobody has to answer.
    CheckGoals,
    /// A round begins, or the home is told, if it is time.
    MindTheBound,
}

impl CollectContext<'_, '_> {
    /// A node holds too much, or leaves.
    pub(super) fn somebody_is_full(
        &mut self,
        from: NodeId,
        floor: &VectorTime,
        leaving: bool,
    ) -> Lead {
        if self.cx.home(self.rules.segment) != self.cx.me() {
            return Lead::Wait;
        }
        if leaving {
            self.round.leaves(from);
        }
        // The report was sent before the last round, and has arrived after it.
        let (now, ceiling) = (self.cx.now, self.cx.pace().resend_ceiling);
        let ended = self.round.ended();
        let just_now = ended.is_some_and(|ended| now - ended < ceiling);
        let late = !leaving && !floor.covers(self.intervals.history.floor()) && just_now;
        match self.round.is_under_way() || late {
            true => Lead::Wait,
            false => Lead::Begin,
        }
    }

    fn begin(&mut self) -> Lead {
        let acting = self.rules.segment.home() != self.cx.me();
        let step = if acting { Step::Hear } else { Step::Know };
        self.open(step, VectorTime::ZERO)
    }

    fn open(&mut self, step: Step, time: VectorTime) -> Lead {
        let number = self.cx.next_request().0;
        let members = self.cx.shell.alive.clone();
        self.round.begin(number, members, step, time);
        if self.replicas.on {
            self.round.of_holders_only();
        }
        self.begin_step()
    }

    /// A barrier has opened, and these nodes have told all they knew. If these are all members, a round
    /// need not ask them; and if one is due soon, now is better than in the middle of the next phase.
    pub(super) fn barrier_opened(&mut self, nodes: &NodeSet) -> Lead {
        let me = self.cx.me();
        let soon = self.remembered() > self.cx.pace().notices as usize / 2;
        let leads = self.rules.segment.home() == me
            && !self.round.is_under_way()
            && !self.collector.leaves();
        if !soon || !leads || !self.cx.shell.alive.without(nodes).is_empty() {
            return Lead::Wait;
        }
        let time = self.replicas.tellable(&self.intervals.history, me);
        self.open(Step::Reach, time.into_owned())
    }

    fn begin_step(&mut self) -> Lead {
        let members = self.cx.shell.alive.clone();
        match self.round.order(members, self.intervals.heard.floor()) {
            None => Lead::Wait,
            Some((number, Order::Hear(time))) => {
                let hear = (self.cx.shell.peers(), OnReply::Heard(number));
                let known = self.intervals.history.time();
                self.intervals
                    .inquiries
                    .ask_nodes(self.cx, known, time, hear);
                Lead::CheckGoals
            }
            Some((number, Order::Call(step))) => {
                for to in self.cx.shell.alive.iter() {
                    let call = envelope(self.rules.segment, &step);
                    self.cx.ready(Continuation::Call { to, call, number });
                }
                Lead::Wait
            }
        }
    }

    /// A member has done a step.
    pub(super) fn collected(&mut self, from: NodeId, number: u64, reply: &Reply) -> Lead {
        if !self.round.leads(number) {
            return Lead::Wait;
        }
        let knows = match reply {
            Reply::Policy(reached) => Some(reached.read().unwrap_or_default()),
            // That member does not know yet that this node leads now.
            Reply::Refused(_) if self.cx.is_alive(from) => {
                self.round.give_up();
                self.collector.report(self.cx);
                return Lead::Wait;
            }
            _ => None,
        };
        self.round.done(from, number, knows);
        self.advance()
    }

    /// Members have told all they know, if this round asked for that.
    pub(super) fn heard(&mut self, number: u64) -> Lead {
        match self.round.heard(number) {
            true => self.advance(),
            false => Lead::Wait,
        }
    }

    /// A member is gone.
    pub(super) fn gone(&mut self, node: NodeId) -> Lead {
        match self.round.gone(node) {
            true => Lead::Begin,
            false => self.advance(),
        }
    }

    /// Goes on with the round if all members have done its step.
    fn advance(&mut self) -> Lead {
        match self.round.advance(self.cx.now) {
            Progress::None => Lead::Wait,
            Progress::Step => self.begin_step(),
            Progress::Ended => Lead::MindTheBound,
        }
    }
}

impl Release {
    /// Opens the collection.
    pub(super) fn collection<'a, 'b>(&'a mut self, cx: &'a mut Cx<'b>) -> CollectContext<'a, 'b> {
        CollectContext {
            cx,
            rules: self.rules,
            round: &mut self.round,
            collector: &mut self.collector,
            intervals: &mut self.intervals,
            memory: &self.memory,
            replicas: &self.replicas,
        }
    }

    pub(super) fn lead(&mut self, cx: &mut Cx<'_>, next: Lead) {
        match next {
            Lead::Wait => {}
            Lead::Begin => {
                // Nodes that are about to leave keep nothing.
                if self.collector.leaves() {
                    let me = cx.me();
                    self.round.leaves(me);
                    self.name_as_written(cx, |page| page.is_kept_by(me));
                }
                let next = self.collection(cx).begin();
                self.lead(cx, next);
            }
            Lead::CheckGoals => self.check_goals(cx),
            Lead::MindTheBound => {
                let next = self.collection(cx).mind_the_bound();
                self.lead(cx, next);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effects;
    use crate::shell::Shell;
    use crate::time::Time;
    use pagemesh_wire::SegmentId;
    use pagemesh_wire::peer::{Payload, Refusal, Spread};

    const ME: NodeId = NodeId(2);
    const OTHERS: [NodeId; 3] = [NodeId(1), NodeId(3), NodeId(4)];

    /// Leads as the home of a segment, at this time.
    fn lead<T>(
        home: &mut Release,
        at: u64,
        work: impl FnOnce(&mut CollectContext<'_, '_>) -> T,
    ) -> T {
        let mut cx = Cx {
            now: Time(at),
            shell: &mut Shell::of_four(ME),
            effects: &mut Effects::default(),
        };
        work(&mut home.collection(&mut cx))
    }

    fn home() -> Release {
        Release::new(Rules {
            segment: SegmentId::new(ME, 1),
            size: 16,
            spread: Spread::Lazy,
        })
    }

    /// The number of the round under way.
    fn number(home: &mut Release) -> u64 {
        let order = home.round.order(NodeSet::EMPTY, &VectorTime::ZERO);
        order.expect("a round is under way").0
    }

    #[test]
    fn a_report_begins_one_round_and_a_late_one_none() {
        let mut home = home();
        let floor = VectorTime::from_iter([(ME, 1)]);
        let full = |of: &mut CollectContext<'_, '_>| of.somebody_is_full(NodeId(3), &floor, false);
        assert_eq!(lead(&mut home, 1, full), Lead::Begin);
        assert_eq!(lead(&mut home, 1, |of| of.begin()), Lead::Wait);
        assert_eq!(lead(&mut home, 1, full), Lead::Wait, "it is under way");
        home.round.give_up();
        assert_eq!(lead(&mut home, 1, full), Lead::Begin);
    }

    #[test]
    fn a_round_asks_what_its_members_know_when_all_have_said_how_much() {
        let mut home = home();
        lead(&mut home, 1, |of| of.begin());
        let round = number(&mut home);
        let all: NodeSet = OTHERS.into_iter().collect();
        assert!(home.round.order(all, &VectorTime::ZERO).is_some());
        let knows = Reply::Policy(Payload::of(&VectorTime::ZERO));
        for (node, next) in OTHERS
            .into_iter()
            .zip([Lead::Wait, Lead::Wait, Lead::CheckGoals])
        {
            assert_eq!(
                lead(&mut home, 2, |of| of.collected(node, round, &knows)),
                next
            );
        }
        assert_eq!(lead(&mut home, 3, |of| of.heard(round + 1)), Lead::Wait);
        assert_eq!(lead(&mut home, 3, |of| of.gone(NodeId(3))), Lead::Begin);
    }

    #[test]
    fn a_member_that_does_not_know_the_leader_ends_the_round() {
        let mut home = home();
        lead(&mut home, 1, |of| of.begin());
        let round = number(&mut home);
        let refused = Reply::Refused(Refusal::NotFound);
        let next = lead(&mut home, 2, |of| of.collected(NodeId(3), round, &refused));
        assert_eq!(next, Lead::Wait);
        assert!(!home.round.is_under_way() && home.collector.is_reporting());
    }
}
