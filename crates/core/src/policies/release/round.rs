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

use super::messages::Collect;
use crate::time::Time;
use pagemesh_wire::{NodeId, NodeSet, VectorTime};
use serde::{Deserialize, Serialize};

/// At the home: the collection under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Leader {
    round: Option<Round>,
    /// When the last round ended.
    ended: Option<Time>,
    /// Nodes that must not keep pages because they leave.
    leavers: NodeSet,
}

/// A round under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Round {
    number: u64,
    step: Step,
    /// The members that have not done the step yet.
    missing: NodeSet,
    /// The members that may keep pages.
    keepers: NodeSet,
    /// What is collected.
    time: VectorTime,
    /// In a segment with replicas: the members that take part in the segment. Others keep nothing.
    #[serde(default)]
    holders: Option<NodeSet>,
}

/// A step of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Step {
    Hear,
    Settle,
    Know,
    Gather,
    Reach,
    Drop,
}

/// What the leader has to do for the step of its round.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Let all members tell what they know, or learn all of this time.
    Hear(Option<VectorTime>),
    /// Let all members do this.
    Call(Collect),
}

/// What an answer has made of the round.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Members are missing, or there is no round.
    None,
    /// The next step begins.
    Step,
    /// The round is done.
    Ended,
}

impl Leader {
    pub(super) fn is_under_way(&self) -> bool {
        self.round.is_some()
    }

    /// A node leaves, and keeps nothing from now on.
    pub(super) fn leaves(&mut self, node: NodeId) {
        self.leavers.insert(node);
    }

    /// When the last round ended.
    pub(super) fn ended(&self) -> Option<Time> {
        self.ended
    }

    /// Begins a round of these members.
    pub(super) fn begin(&mut self, number: u64, members: NodeSet, step: Step, time: VectorTime) {
        self.round = Some(Round {
            number,
            step,
            missing: members.clone(),
            keepers: members.without(&self.leavers),
            time,
            holders: None,
        });
    }

    /// Only members that take part in the segment keep pages. They are those that say what they know;
    /// at a barrier of all members, all of them.
    pub(super) fn of_holders_only(&mut self) {
        if let Some(round) = &mut self.round {
            let all = round.step == Step::Reach;
            let missing = if all { &round.missing } else { &NodeSet::EMPTY };
            round.holders = Some(missing.clone());
        }
    }

    /// Gives the round up.
    pub(super) fn give_up(&mut self) {
        self.round = None;
    }

    /// What these members have to do in this step of the round, and the number of the round.
    /// `dropped` is what any of them may have dropped.
    pub(super) fn order(&mut self, members: NodeSet, dropped: &VectorTime) -> Option<(u64, Order)> {
        let round = self.round.as_mut()?;
        round.missing = members;
        let (time, keepers) = (round.time.clone(), round.keepers());
        let order = match round.step {
            Step::Hear => Order::Hear(None),
            Step::Gather => Order::Hear(Some(time)),
            Step::Settle => Order::Call(Collect::Drop {
                time: dropped.clone(),
            }),
            Step::Know => Order::Call(Collect::Know),
            Step::Reach => Order::Call(Collect::Reach { time, keepers }),
            Step::Drop => Order::Call(Collect::Drop { time }),
        };
        Some((round.number, order))
    }

    /// All members have told what they know. Returns whether a step of the round is done by that.
    pub(super) fn heard(&mut self, number: u64) -> bool {
        let Some(round) = self.of(number) else {
            return false;
        };
        let hears = matches!(round.step, Step::Hear | Step::Gather);
        if hears {
            round.missing = NodeSet::EMPTY;
        }
        hears
    }

    /// Whether this round is under way.
    pub(super) fn leads(&self, number: u64) -> bool {
        let round = self.round.as_ref();
        round.is_some_and(|round| round.number == number)
    }

    /// A member has done a step; it has said what it knows, if it was asked for that.
    pub(super) fn done(&mut self, from: NodeId, number: u64, knows: Option<VectorTime>) {
        let Some(round) = self.of(number) else { return };
        if let Some(knows) = knows.filter(|_| round.step == Step::Know) {
            round.time.join(&knows);
            if let Some(holders) = &mut round.holders {
                holders.insert(from);
            }
        }
        round.missing.remove(from);
    }

    /// Goes to the next step if no member is missing.
    pub(super) fn advance(&mut self, now: Time) -> Progress {
        let Some(round) = self.round.as_mut().filter(|round| round.missing.is_empty()) else {
            return Progress::None;
        };
        round.step = match round.step {
            Step::Hear => Step::Settle,
            Step::Settle => Step::Know,
            Step::Know => Step::Gather,
            Step::Gather => Step::Reach,
            Step::Reach => Step::Drop,
            Step::Drop => {
                self.round = None;
                self.ended = Some(now);
                return Progress::Ended;
            }
        };
        Progress::Step
    }

    /// A member is gone. Returns whether the round must begin anew, with other keepers and without
    /// what only that member knew: that is so as long as nothing is dropped.
    pub(super) fn gone(&mut self, node: NodeId) -> bool {
        self.leavers.remove(node);
        let Some(round) = &mut self.round else {
            return false;
        };
        round.missing.remove(node);
        round.step != Step::Drop
    }

    fn of(&mut self, number: u64) -> Option<&mut Round> {
        self.round.as_mut().filter(|round| round.number == number)
    }
}

impl Round {
    /// The members that may keep pages, and take part in the segment if that matters.
    fn keepers(&self) -> NodeSet {
        let holders = self.holders.as_ref().unwrap_or(&self.keepers);
        let keepers = self.keepers.intersection(holders);
        if keepers.is_empty() {
            self.keepers.clone()
        } else {
            keepers
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);

    fn members() -> NodeSet {
        [A, B].into_iter().collect()
    }

    fn order(leader: &mut Leader) -> Order {
        let order = leader.order(members(), &VectorTime::ZERO);
        order.map(|(_, order)| order).expect("a round is under way")
    }

    #[test]
    fn a_round_collects_what_any_member_knows() {
        let mut leader = Leader::default();
        leader.leaves(B);
        leader.begin(9, members(), Step::Know, VectorTime::ZERO);
        assert_eq!(order(&mut leader), Order::Call(Collect::Know));
        leader.done(A, 9, Some(VectorTime::from_iter([(A, 2)])));
        assert_eq!(leader.advance(Time(1)), Progress::None);
        leader.done(B, 8, Some(VectorTime::from_iter([(B, 7)])));
        assert_eq!(leader.advance(Time(1)), Progress::None, "another round's");
        leader.done(B, 9, Some(VectorTime::from_iter([(B, 3)])));
        assert_eq!(leader.advance(Time(1)), Progress::Step);
        let time = VectorTime::from_iter([(A, 2), (B, 3)]);
        assert_eq!(order(&mut leader), Order::Hear(Some(time.clone())));
        assert!(leader.heard(9));
        assert_eq!(leader.advance(Time(1)), Progress::Step);
        let reach = Collect::Reach {
            time: time.clone(),
            keepers: NodeSet::only(A),
        };
        assert_eq!(order(&mut leader), Order::Call(reach));
        for step in [Progress::Step, Progress::Ended] {
            assert!(leader.is_under_way() && leader.leads(9) && !leader.heard(9));
            leader.done(A, 9, None);
            leader.done(B, 9, None);
            assert_eq!(leader.advance(Time(5)), step);
            if step == Progress::Step {
                let time = time.clone();
                assert_eq!(order(&mut leader), Order::Call(Collect::Drop { time }));
            }
        }
        assert_eq!(leader.ended(), Some(Time(5)));
    }

    #[test]
    fn a_death_begins_the_round_anew_unless_something_is_dropped() {
        let mut leader = Leader::default();
        assert!(!leader.gone(B), "there is no round");
        leader.begin(1, members(), Step::Reach, VectorTime::ZERO);
        assert!(leader.gone(B));
        leader.begin(2, members(), Step::Drop, VectorTime::ZERO);
        assert!(!leader.gone(B));
        leader.done(A, 2, None);
        assert_eq!(leader.advance(Time(1)), Progress::Ended);
    }
}
