//! Epochs (G8, G9): an initiator collects the ages of all nodes, computes a plan and tells it to
//! all. The node with most idle pages ends the epoch: after the time T, when it has taken as many
//! pages as its weight, or when a node says that the ages are not true any more. While no page is
//! sent anywhere there are no epochs and no messages.

use super::plan::plan;
use crate::event::Event;
use crate::shell::Cx;
use crate::time::Time;
use crate::timers::Timer;
use core::time::Duration;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::NodeId;
use pagemesh_wire::peer::{AgeSummary, EpochPlan, Global, Message};
use serde::{Deserialize, Serialize};

/// Two requests for a new epoch are at least this far apart; also the time for which an initiator
/// waits for summaries.
const PAUSE: Duration = Duration::from_millis(50);

/// A plan holds for so many times T, because its successor may be late.
const HOLDS: u32 = 2;

/// The epochs as this node knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Epochs {
    /// The plan that holds, or held last.
    current: Option<EpochPlan>,
    began: Time,
    /// Pages taken from others in it.
    taken: u32,
    /// This node is computing the next one.
    collecting: Option<Collecting>,
    /// When a new one was last asked for.
    asked: Option<Time>,
}

/// Summaries of an initiator.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Collecting {
    epoch: u64,
    until: Time,
    summaries: SortedMap<NodeId, AgeSummary>,
}

impl Epochs {
    /// The number of the epoch; zero before the first.
    pub(crate) fn number(&self) -> u64 {
        self.current.as_ref().map_or(0, |plan| plan.epoch)
    }

    /// The plan of the epoch.
    pub(crate) fn current(&self) -> Option<&EpochPlan> {
        self.current.as_ref()
    }

    /// A new epoch is wanted: there is no plan, or it is not true any more. Asks the initiator;
    /// true if this node is to begin it.
    pub(crate) fn want(&mut self, cx: &mut Cx<'_>) -> bool {
        if self.asked.is_some_and(|asked| cx.now < asked + PAUSE) {
            return false;
        }
        self.asked = Some(cx.now);
        let initiator = self.current.as_ref().map(|plan| plan.initiator);
        // If the initiator was silent the last time, the coordinator stands in for it.
        let lapsed = cx.now >= self.began + self.holds();
        let initiator = initiator.filter(|node| cx.is_alive(*node) && !lapsed);
        let initiator = initiator.unwrap_or(cx.coordinator());
        if initiator == cx.me() {
            return self.may_begin(cx);
        }
        let epoch = self.number();
        cx.send(initiator, Message::Global(Global::EndEpoch { epoch }));
        false
    }

    fn may_begin(&self, cx: &Cx<'_>) -> bool {
        let just_begun = self.current.is_some() && cx.now < self.began + PAUSE;
        self.collecting.is_none() && !just_begun
    }

    fn holds(&self) -> Duration {
        let plan = self.current.as_ref();
        plan.map_or(Duration::ZERO, |plan| {
            Duration::from_millis(plan.duration.into()) * HOLDS
        })
    }

    /// A node wants a new epoch. One that does not know the present one is told it. True if this
    /// node is to begin the next.
    pub(crate) fn end(&mut self, cx: &mut Cx<'_>, from: NodeId, epoch: u64) -> bool {
        let holds = cx.now < self.began + self.holds();
        match &self.current {
            Some(plan) if epoch < plan.epoch && holds => {
                let begin = Message::Global(Global::Begin(plan.clone()));
                cx.send(from, begin);
                false
            }
            _ => self.may_begin(cx),
        }
    }

    /// As the initiator: asks all nodes for their ages.
    pub(crate) fn begin(&mut self, cx: &mut Cx<'_>, ages: AgeSummary) {
        let epoch = self.number() + 1;
        let until = cx.now + PAUSE;
        self.collecting = Some(Collecting {
            epoch,
            until,
            summaries: SortedMap::from([(cx.me(), ages)]),
        });
        for node in cx.shell.peers().iter() {
            cx.send(node, Message::Global(Global::Summarize { epoch }));
        }
        cx.arm(until, Timer::Epoch);
        self.finish_if_complete(cx);
    }

    /// Another node is initiator and wants the ages of this one.
    pub(crate) fn summarize(&self, cx: &mut Cx<'_>, from: NodeId, epoch: u64, ages: AgeSummary) {
        let ages = Box::new(ages);
        cx.send(from, Message::Global(Global::Summary { epoch, ages }));
    }

    /// The ages of another node have come.
    pub(crate) fn summary(&mut self, cx: &mut Cx<'_>, from: NodeId, epoch: u64, ages: AgeSummary) {
        let collecting = self.collecting.as_mut();
        let Some(collecting) = collecting.filter(|collecting| collecting.epoch == epoch) else {
            return cx.emit(Event::Stale {});
        };
        collecting.summaries.insert(from, ages);
        self.finish_if_complete(cx);
    }

    fn finish_if_complete(&mut self, cx: &mut Cx<'_>) {
        let complete = self.collecting.as_ref().is_some_and(|collecting| {
            let heard = |node| collecting.summaries.contains_key(&node);
            cx.shell.peers().iter().all(heard)
        });
        if complete {
            self.finish(cx);
        }
    }

    fn finish(&mut self, cx: &mut Cx<'_>) {
        let Some(collecting) = self.collecting.take() else {
            return;
        };
        let rate = u64::from(self.taken) * 1000
            / u64::try_from((cx.now - self.began).as_millis().max(1)).unwrap_or(u64::MAX);
        // This node took its share of all.
        let weights = self.current.as_ref().map_or(&[][..], |plan| &plan.weights);
        let all: u64 = weights.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mine = weights.iter().find(|(node, _)| *node == cx.me());
        let mine = mine.map_or(0, |(_, weight)| u64::from(*weight));
        let rate = rate.saturating_mul(all.max(1)) / mine.max(1);
        let plan = plan(collecting.epoch, &collecting.summaries, rate, cx.me());
        cx.emit(Event::EpochBegan {});
        for node in cx.shell.peers().iter() {
            cx.send(node, Message::Global(Global::Begin(plan.clone())));
        }
        self.adopt(cx, plan);
    }

    /// An initiator tells the plan of a new epoch.
    pub(crate) fn told(&mut self, cx: &mut Cx<'_>, plan: EpochPlan) {
        if plan.weights.len() > EpochPlan::LIMIT {
            return cx.emit(Event::Malformed {});
        }
        if plan.epoch <= self.number() {
            return cx.emit(Event::Stale {});
        }
        self.collecting = None;
        self.adopt(cx, plan);
    }

    fn adopt(&mut self, cx: &mut Cx<'_>, plan: EpochPlan) {
        (self.began, self.taken) = (cx.now, 0);
        let duration = Duration::from_millis(plan.duration.into());
        let me = cx.me();
        let until = cx.now + duration * HOLDS;
        cx.shell.memory.adopt(&plan, me, until);
        if plan.initiator == me {
            cx.arm(cx.now + duration, Timer::Epoch);
        }
        self.current = Some(plan);
    }

    /// A page of another node was taken. True if this node is to begin the next epoch: it has taken
    /// as many as its weight.
    pub(crate) fn taken(&mut self, cx: &Cx<'_>) -> bool {
        self.taken += 1;
        let plan = self.current.as_ref();
        plan.filter(|plan| plan.initiator == cx.me())
            .is_some_and(|plan| {
                let weight = plan.weights.iter().find(|(node, _)| *node == cx.me());
                weight.is_some_and(|(_, weight)| self.taken >= *weight) && self.may_begin(cx)
            })
    }

    /// The timer is due: summaries that have not come are done without, or T is over. True if this
    /// node is to begin the next epoch.
    pub(crate) fn due(&mut self, cx: &mut Cx<'_>) -> bool {
        if let Some(collecting) = &self.collecting {
            if cx.now >= collecting.until {
                self.finish(cx);
            }
            return false;
        }
        let plan = self.current.as_ref();
        plan.filter(|plan| plan.initiator == cx.me())
            .is_some_and(|plan| {
                let duration = Duration::from_millis(plan.duration.into());
                self.taken > 0 && cx.now >= self.began + duration
            })
    }
}
