//! A round of garbage collection, at the home that leads it (T16).
//!
//! *Know*: each member says what it knows. *Gather*: the home learns all of that itself, so that it
//! can answer every inquiry completely. *Reach*: each member learns all of that, and makes the
//! pages whole that it is to keep. *Drop*: each member drops it. Every step is a call, repeated
//! until it is answered. If a member dies before anything is dropped, the round begins anew. At a
//! barrier that all members reach the first two steps are done already.
//!
//! The successor of a home that is gone cannot know whether members had begun to drop. It inquires
//! of all members first (*Hear*), and lets all of them drop what any of them has dropped
//! (*Settle*).

use super::Release;
use super::full::Fullness;
use super::learn::{Goal, OnReply};
use super::messages::Collect;
use crate::continuation::Continuation;
use crate::shell::Cx;
use pagemesh_wire::peer::Reply;
use pagemesh_wire::{NodeId, NodeSet, VectorTime};
use serde::{Deserialize, Serialize};

/// A round under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Round {
    number: u64,
    step: Step,
    /// The members that have not done the step yet.
    missing: NodeSet,
    /// The members that may keep pages.
    keepers: NodeSet,
    /// What is collected.
    time: VectorTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Step {
    Hear,
    Settle,
    Know,
    Gather,
    Reach,
    Drop,
}

impl Release {
    /// At the home: a node holds too much, or leaves.
    pub(super) fn somebody_is_full(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        floor: &VectorTime,
        leaving: bool,
    ) {
        if cx.home(self.segment) != cx.me() {
            return;
        }
        if leaving {
            self.leavers.insert(from);
        }
        // The report was sent before the last round, and has arrived after it.
        let late = !leaving && !floor.covers(&self.history.floor) && self.round_was_just_now(cx);
        if self.round.is_none() && !late {
            self.begin_round(cx);
        }
    }

    fn round_was_just_now(&self, cx: &Cx<'_>) -> bool {
        let ended = self.round_ended;
        ended.is_some_and(|ended| cx.now - ended < cx.pace().resend_ceiling)
    }

    /// Begins a round in which nodes that are about to leave keep nothing.
    pub(super) fn begin_round(&mut self, cx: &mut Cx<'_>) {
        if self.leaving {
            let me = cx.me();
            self.leavers.insert(me);
            self.give_up_pages(cx, me);
        }
        let acting = self.segment.home() != cx.me();
        let step = if acting { Step::Hear } else { Step::Know };
        self.open_round(cx, step, VectorTime::ZERO);
    }

    fn open_round(&mut self, cx: &mut Cx<'_>, step: Step, time: VectorTime) {
        let everybody = cx.shell.alive;
        self.round = Some(Round {
            number: cx.next_request().0,
            step,
            missing: everybody,
            keepers: everybody.without(self.leavers),
            time,
        });
        self.begin_step(cx);
    }

    /// At the home: a barrier has opened, and these nodes have told all they knew. If these are all
    /// members, a round need not ask them; and if one is due soon, now is better than in the middle
    /// of the next phase.
    pub(super) fn barrier_opened(&mut self, cx: &mut Cx<'_>, nodes: NodeSet) {
        let soon = self.remembered(cx) > cx.pace().notices as usize / 2;
        let leads = self.segment.home() == cx.me() && self.round.is_none() && !self.leaving;
        if soon && leads && cx.shell.alive.without(nodes).is_empty() {
            let time = self.time();
            self.open_round(cx, Step::Reach, time);
        }
    }

    fn begin_step(&mut self, cx: &mut Cx<'_>) {
        let Some(round) = &mut self.round else { return };
        round.missing = cx.shell.alive;
        let (number, time, keepers) = (round.number, round.time.clone(), round.keepers);
        let step = match round.step {
            Step::Hear => return self.hear_for_round(cx, None, number),
            Step::Gather => return self.hear_for_round(cx, Some(time), number),
            Step::Settle => {
                let time = self.rumoured.clone();
                Collect::Drop { time }
            }
            Step::Know => Collect::Know,
            Step::Reach => Collect::Reach { time, keepers },
            Step::Drop => Collect::Drop { time },
        };
        for to in cx.shell.alive.iter() {
            let call = self.envelope(&step);
            cx.ready(Continuation::Call { to, call, number });
        }
    }

    /// Goes on with the round when all members have told all they know, or everything in `time` is
    /// known.
    fn hear_for_round(&mut self, cx: &mut Cx<'_>, time: Option<VectorTime>, number: u64) {
        let hear = cx.shell.peers();
        for node in hear.iter() {
            self.inquire(cx, node);
        }
        let then = OnReply::Heard(number);
        self.goals.push(Goal { time, hear, then });
        self.check_goals(cx);
    }

    /// All members have told what they know.
    pub(super) fn heard_for_round(&mut self, cx: &mut Cx<'_>, number: u64) {
        let current = self.round.as_mut().filter(|round| round.number == number);
        if let Some(round) = current
            && matches!(round.step, Step::Hear | Step::Gather)
        {
            round.missing = NodeSet::EMPTY;
            self.advance_round(cx);
        }
    }

    /// At the home: a member has done a step.
    pub(super) fn collected(&mut self, cx: &mut Cx<'_>, from: NodeId, number: u64, reply: &Reply) {
        let Some(round) = self.round.as_mut().filter(|round| round.number == number) else {
            return;
        };
        match reply {
            Reply::Policy(reached) if round.step == Step::Know => {
                round.time.join(&reached.read().unwrap_or_default());
            }
            // That member does not know yet that this node leads now.
            Reply::Refused(_) if cx.is_alive(from) => {
                self.round = None;
                return self.begin_round_later(cx);
            }
            _ => {}
        }
        if let Some(round) = &mut self.round {
            round.missing.remove(from);
        }
        self.advance_round(cx);
    }

    fn begin_round_later(&mut self, cx: &mut Cx<'_>) {
        let backoff = cx.backoff(crate::timers::Timer::Segment(self.segment));
        self.full = Fullness::Said(backoff);
    }

    fn advance_round(&mut self, cx: &mut Cx<'_>) {
        let Some(round) = self.round.as_mut().filter(|round| round.missing.is_empty()) else {
            return;
        };
        round.step = match round.step {
            Step::Hear => Step::Settle,
            Step::Settle => Step::Know,
            Step::Know => Step::Gather,
            Step::Gather => Step::Reach,
            Step::Reach => Step::Drop,
            Step::Drop => {
                self.round = None;
                self.round_ended = Some(cx.now);
                return self.mind_the_bound(cx);
            }
        };
        self.begin_step(cx);
    }

    /// A member is gone. As long as nothing is dropped, the round begins anew, with other keepers
    /// and without what only that member knew.
    pub(super) fn round_lost(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        self.leavers.remove(node);
        let Some(round) = &mut self.round else { return };
        if round.step != Step::Drop {
            return self.begin_round(cx);
        }
        round.missing.remove(node);
        self.advance_round(cx);
    }
}
