//! Garbage collection (T16): what everybody has need not be remembered.
//!
//! The home leads. *Know*: how far is everybody? *Reach*: know all of that, and
//! make whole the pages whose last writer you are. *Drop*: forget it. Every step
//! is a call, repeated until it is answered; a member that dies answers nothing
//! more, and the round begins anew.

use super::learn::Then;
use super::page::Copy;
use super::{Release, ready};
use crate::calls::Caller;
use crate::effect::{DiffWork, Effect, Rights};
use crate::policies::After;
use crate::shell::Cx;
use pagemesh_wire::peer::{Collect, Message, Reply};
use pagemesh_wire::{NodeId, NodeSet, PageIndex, VectorTime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// On every node: what is about to be collected.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Collecting {
    time: VectorTime,
    keepers: NodeSet,
    /// Who is to hear that this node is ready.
    caller: Option<Caller>,
    /// Pages that are being made whole; none while not even everything is known.
    todo: Option<BTreeSet<PageIndex>>,
}

/// At the home: a round.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Round {
    number: u64,
    step: Step,
    missing: NodeSet,
    keepers: NodeSet,
    time: VectorTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Step {
    Know,
    Reach,
    Drop,
}

impl Release {
    /// More is remembered than should be: it is time to collect.
    pub(super) fn mind_the_bound(&mut self, cx: &mut Cx<'_>) {
        let me = cx.me();
        let much = self.notices + self.history.len() > cx.pace().notices as usize;
        let needed = much || self.leaving && self.is_needed(me);
        if !needed || self.full || self.round.is_some() || self.collecting.is_some() {
            return;
        }
        let home = cx.home(self.segment);
        if home == me {
            let leaves = if self.leaving {
                NodeSet::only(me)
            } else {
                NodeSet::EMPTY
            };
            self.begin_round(cx, leaves);
        } else {
            self.full = true;
            self.say_full(cx);
        }
    }

    /// Repeated until something is collected.
    fn say_full(&self, cx: &mut Cx<'_>) {
        let home = cx.home(self.segment);
        if home == cx.me() {
            return;
        }
        let full = Message::Full {
            segment: self.segment,
            floor: self.history.floor.clone(),
            leaving: self.leaving,
        };
        cx.send(home, full);
        let at = cx.now + cx.pace().resend_ceiling;
        cx.arm(at, crate::timers::Timer::Order(self.segment));
    }

    /// The home may not have heard that this node is full.
    pub(crate) fn collect_due(&mut self, cx: &mut Cx<'_>) {
        if self.full {
            self.full = false;
            self.mind_the_bound(cx);
        }
    }

    /// At the home: a node holds too much.
    pub(super) fn somebody_is_full(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        floor: &VectorTime,
        leaving: bool,
    ) {
        let home = cx.home(self.segment) == cx.me();
        if home && self.round.is_none() && floor.covers(&self.history.floor) {
            let leaves = if leaving {
                NodeSet::only(from)
            } else {
                NodeSet::EMPTY
            };
            self.begin_round(cx, leaves);
        }
    }

    /// A round in which `leaving` keep nothing.
    pub(super) fn begin_round(&mut self, cx: &mut Cx<'_>, leaving: NodeSet) {
        let number = cx.next_request().0;
        let everybody = cx.shell.alive;
        self.round = Some(Round {
            number,
            step: Step::Know,
            missing: everybody,
            keepers: everybody.without(leaving),
            time: VectorTime::ZERO,
        });
        self.say_step(cx, everybody);
    }

    fn say_step(&self, cx: &mut Cx<'_>, to: NodeSet) {
        let Some(round) = &self.round else { return };
        let time = round.time.clone();
        let keepers = round.keepers;
        let step = match round.step {
            Step::Know => Collect::Know,
            Step::Reach => Collect::Reach { time, keepers },
            Step::Drop => Collect::Drop { time },
        };
        for node in to.iter() {
            ready(
                cx,
                After::Collect {
                    to: node,
                    segment: self.segment,
                    step: step.clone(),
                    round: round.number,
                },
            );
        }
    }

    /// At the home: a node has done a step.
    pub(crate) fn collected(&mut self, cx: &mut Cx<'_>, from: NodeId, number: u64, reply: &Reply) {
        let Some(round) = self.round.as_mut().filter(|round| round.number == number) else {
            return;
        };
        if let Reply::Reached(time) = reply
            && round.step == Step::Know
        {
            round.time.join(time);
        }
        round.missing.remove(from);
        self.advance_round(cx);
    }

    fn advance_round(&mut self, cx: &mut Cx<'_>) {
        let Some(round) = self.round.as_mut().filter(|round| round.missing.is_empty()) else {
            return;
        };
        round.step = match round.step {
            Step::Know => Step::Reach,
            Step::Reach => Step::Drop,
            Step::Drop => {
                self.round = None;
                return self.mind_the_bound(cx);
            }
        };
        let everybody = cx.shell.alive;
        round.missing = everybody;
        self.say_step(cx, everybody);
    }

    /// At the home: a member died. Before anything is forgotten there is time to
    /// choose others to keep pages.
    pub(super) fn round_lost(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        let Some(round) = &mut self.round else { return };
        if round.step != Step::Drop && round.keepers.contains(node) {
            let leaving = cx.shell.alive.without(round.keepers);
            return self.begin_round(cx, leaving);
        }
        round.missing.remove(node);
        self.advance_round(cx);
    }

    /// A step of the home's collection. Answered when it is done.
    pub(crate) fn collect(&mut self, cx: &mut Cx<'_>, caller: Caller, step: Collect) {
        match step {
            Collect::Know => {
                ready(cx, After::Answer(caller, Reply::Reached(self.time())));
            }
            Collect::Reach { time, keepers } => self.reach(cx, caller, time, keepers),
            Collect::Drop { time } => {
                self.forget(cx, &time);
                ready(cx, After::Answer(caller, Reply::Done));
            }
        }
    }

    fn reach(&mut self, cx: &mut Cx<'_>, caller: Caller, time: VectorTime, keepers: NodeSet) {
        if let Some(former) = self.collecting.take()
            && let Some(caller) = former.caller
        {
            ready(cx, After::Answer(caller, Reply::Done));
        }
        self.collecting = Some(Collecting {
            time: time.clone(),
            keepers,
            caller: Some(caller),
            todo: None,
        });
        self.open_goal(cx, Some(time), caller.node, Then::Whole);
    }

    /// Everything that will be collected is known: what this node keeps of it must
    /// be whole.
    pub(super) fn make_whole(&mut self, cx: &mut Cx<'_>) {
        let Some(collecting) = &mut self.collecting else {
            return;
        };
        if collecting.todo.is_some() || !self.history.time.covers(&collecting.time) {
            return;
        }
        let (time, keepers) = (collecting.time.clone(), collecting.keepers);
        let me = cx.me();
        let mut todo = BTreeSet::new();
        for (index, page) in &self.pages {
            let touched = page.notices.iter().any(|(node, at)| time.has(*node, *at));
            if !touched || page.lost.is_some() {
                continue;
            }
            let writer = page.last_writer(&self.history, &time, keepers);
            if writer.unwrap_or(cx.home(self.segment)) == me && page.copy != Copy::Frame {
                todo.insert(*index);
            }
        }
        if let Some(collecting) = &mut self.collecting {
            collecting.todo = Some(todo.clone());
        }
        for page in todo {
            self.open_miss(cx, page, None);
        }
        self.say_reached(cx);
    }

    /// A page is whole now, or never will be.
    pub(super) fn is_whole(&mut self, cx: &mut Cx<'_>, page: PageIndex) {
        let todo = self.collecting.as_mut().and_then(|c| c.todo.as_mut());
        if todo.is_some_and(|todo| todo.remove(&page)) {
            self.say_reached(cx);
        }
    }

    fn say_reached(&mut self, cx: &mut Cx<'_>) {
        let Some(collecting) = &mut self.collecting else {
            return;
        };
        let done = collecting.todo.as_ref().is_some_and(BTreeSet::is_empty);
        if done && let Some(caller) = collecting.caller.take() {
            let reached = Reply::Reached(collecting.time.clone());
            ready(cx, After::Answer(caller, reached));
        }
    }

    /// Everybody has come so far: nobody will ask for any of it again.
    fn forget(&mut self, cx: &mut Cx<'_>, upto: &VectorTime) {
        self.full = false;
        if !self.history.time.covers(upto) {
            return self.skip_to(cx, upto);
        }
        let keepers = self
            .collecting
            .take_if(|collecting| collecting.time == *upto)
            .map_or(NodeSet::EMPTY, |collecting| collecting.keepers);
        let touched = self.pages_where(|page| {
            page.notices
                .iter()
                .any(|(node, index)| upto.has(*node, *index))
        });
        for index in touched {
            self.forget_page(cx, index, upto, keepers);
        }
        self.forget_history(cx, upto);
        for index in self.pages_where(|page| page.miss.is_some()) {
            self.go_on(cx, index);
        }
    }

    fn forget_page(
        &mut self,
        cx: &mut Cx<'_>,
        index: PageIndex,
        upto: &VectorTime,
        keepers: NodeSet,
    ) {
        let (segment, me, home) = (self.segment, cx.me(), cx.home(self.segment));
        let Some(page) = self.pages.get_mut(&index) else {
            return;
        };
        if keepers != NodeSet::EMPTY {
            let writer = page.last_writer(&self.history, upto, keepers);
            page.keeper = Some(writer.unwrap_or(home));
        }
        let useless = page.copy == Copy::Stash && page.lacks(upto) && page.keeper != Some(me);
        if page.undiffed.is_some_and(|interval| upto.has(me, interval)) {
            // Nobody asked for its diff, so nobody needs it.
            page.undiffed = None;
            page.twin = false;
            page.rights = page.rights.min(Rights::Read);
            let page = index;
            cx.push(Effect::Protect { segment, page });
            cx.push(Effect::Diffs(DiffWork::DropTwin { segment, page }));
        }
        let had = page.notices.len();
        page.notices.retain(|(node, at)| !upto.has(*node, *at));
        self.notices -= had - page.notices.len();
        if useless {
            self.drop_copy(cx, index);
        }
        if let Some(page) = self.pages.get_mut(&index)
            && page.copy != Copy::None
        {
            page.applied.join(upto);
        }
    }

    fn forget_history(&mut self, cx: &mut Cx<'_>, upto: &VectorTime) {
        self.history.collect(upto);
        self.held.retain(|name| !upto.has(name.node, name.interval));
        cx.push(Effect::Diffs(DiffWork::Forget {
            segment: self.segment,
            upto: upto.clone(),
        }));
        self.check_goals(cx);
    }

    /// Others have collected what this node never heard of, since it took no part:
    /// no copy here can be trusted.
    pub(super) fn skip_to(&mut self, cx: &mut Cx<'_>, floor: &VectorTime) {
        self.end_interval(cx);
        for index in self.pages_where(|page| page.copy == Copy::Frame) {
            self.stow(cx, index);
        }
        for index in self.pages_where(|_| true) {
            self.drop_copy(cx, index);
            if let Some(page) = self.pages.get_mut(&index) {
                let had = page.notices.len();
                page.notices.retain(|(node, at)| !floor.has(*node, *at));
                self.notices -= had - page.notices.len();
            }
        }
        self.forget_history(cx, floor);
        for index in self.pages_where(|page| page.miss.is_some()) {
            self.go_on(cx, index);
        }
    }

    /// Whether somebody may need what only this node has.
    fn is_needed(&self, me: NodeId) -> bool {
        let keeps = self.pages.values().any(|page| page.keeper == Some(me));
        keeps || self.history.time.get(me) > self.history.floor.get(me)
    }

    /// This node leaves: everything it wrote is collected first, and others keep
    /// what it kept. Returns how much is left to do.
    pub(crate) fn hand_over(&mut self, cx: &mut Cx<'_>) -> usize {
        let me = cx.me();
        self.end_interval(cx);
        let waiting = self.pages_where(|page| page.miss.is_some()).len();
        if !self.is_needed(me) {
            return waiting;
        }
        self.leaving = true;
        if self.round.is_none() && self.collecting.is_none() {
            self.give_up_pages(cx, me);
        }
        self.mind_the_bound(cx);
        waiting + 1
    }

    /// Names the pages that this node keeps as if it had written them: so the next
    /// round finds somebody else to keep them.
    fn give_up_pages(&mut self, cx: &mut Cx<'_>, me: NodeId) {
        let segment = self.segment;
        let kept = self.pages_where(|page| {
            page.keeper == Some(me) && page.notices.is_empty() && page.copy == Copy::Frame
        });
        for index in &kept {
            let Some(page) = self.pages.get_mut(index) else {
                continue;
            };
            if !page.twin {
                page.twin = true;
                let page = *index;
                cx.push(Effect::Diffs(DiffWork::Twin { segment, page }));
            }
            self.dirty.insert(*index);
        }
        self.end_interval(cx);
        for index in kept {
            self.make_diff(cx, index, true);
        }
    }
}
