//! Garbage collection (T16): records that all nodes have need not be kept.
//!
//! The home leads, in rounds ([`super::round`]); this file has what every node does in one.

use super::Release;
use super::full::Fullness;
use super::learn::OnReply;
use super::messages::Collect;
use super::page::Copy;
use crate::caller::Caller;
use crate::continuation::Continuation;
use crate::effect::{DiffWork, Effect, Rights};
use crate::shell::Cx;
use pagemesh_wire::peer::{Payload, Reply};
use pagemesh_wire::{NodeId, NodeSet, PageIndex, VectorTime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// On every node: what is about to be collected.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Collecting {
    pub(super) time: VectorTime,
    keepers: NodeSet,
    /// The call to answer when this node is ready.
    caller: Option<Caller>,
    /// Pages that are being made whole; `None` until everything up to `time` is known.
    todo: Option<BTreeSet<PageIndex>>,
    /// The leading home is gone, and its successor has yet to say what comes of the round.
    pub(super) led_by_the_dead: bool,
}

impl Release {
    /// A step of the home's collection; its call is answered when it is done.
    pub(super) fn collect(&mut self, cx: &mut Cx<'_>, caller: Caller, step: Collect) {
        match step {
            Collect::Know => {
                let reached = Reply::Policy(Payload::of(&self.history.time));
                cx.ready(Continuation::Answer(caller, reached));
            }
            Collect::Reach { time, keepers } => self.reach(cx, caller, time, keepers),
            Collect::Drop { time } => {
                self.forget(cx, &time);
                cx.ready(Continuation::Answer(caller, Reply::Done));
            }
        }
    }

    fn reach(&mut self, cx: &mut Cx<'_>, caller: Caller, time: VectorTime, keepers: NodeSet) {
        let late = |led: Caller| led.node == caller.node && led.call > caller.call;
        if self.led.is_some_and(late) {
            // The call is of a round that was given up: other keepers have been chosen since.
            return cx.ready(Continuation::Answer(caller, Reply::Done));
        }
        self.led = Some(caller);
        if let Some(former) = self.collecting.take()
            && let Some(caller) = former.caller
        {
            cx.ready(Continuation::Answer(caller, Reply::Done));
        }
        self.collecting = Some(Collecting {
            time: time.clone(),
            keepers,
            caller: Some(caller),
            todo: None,
            led_by_the_dead: false,
        });
        self.open_goal(cx, Some(time), caller.node, OnReply::Whole);
    }

    /// Everything that will be collected is known here: makes the pages whole that this node is to
    /// keep.
    pub(super) fn make_whole(&mut self, cx: &mut Cx<'_>) {
        let Some(collecting) = &mut self.collecting else {
            return;
        };
        if collecting.todo.is_some() || !self.history.time.covers(&collecting.time) {
            return;
        }
        let (time, keepers) = (collecting.time.clone(), collecting.keepers);
        let me = cx.me();
        let keeper_of_rest = self.keeper_of_rest(cx, keepers);
        let mut todo = BTreeSet::new();
        for (index, page) in &self.pages {
            let touched = page.notices.any_in(&time);
            if !touched || page.lost.is_some() || page.copy == Copy::Frame {
                continue;
            }
            let writer = page.notices.last_writer(&time, keepers);
            if writer.unwrap_or(keeper_of_rest) == me {
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

    /// The keeper of pages that no remaining node has written: the home or, if the home leaves, the
    /// first of those that remain. All nodes that collect choose the same.
    fn keeper_of_rest(&self, cx: &Cx<'_>, keepers: NodeSet) -> NodeId {
        let home = cx.home(self.segment);
        let first = keepers.iter().next().unwrap_or(home);
        if keepers.contains(home) { home } else { first }
    }

    /// A node is gone. If it was the home, no node will say what is to be dropped, unless some node
    /// has dropped it already.
    pub(super) fn leader_gone(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        if node == self.segment.home()
            && let Some(collecting) = &mut self.collecting
        {
            collecting.caller = None;
            collecting.led_by_the_dead = true;
            self.mind_the_bound(cx);
        }
    }

    /// A page is whole now, or lost.
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
            let reached = Reply::Policy(Payload::of(&collecting.time));
            cx.ready(Continuation::Answer(caller, reached));
        }
    }

    /// All nodes have reached `upto`: drops what it covers, as no node will request any of it
    /// again.
    pub(super) fn forget(&mut self, cx: &mut Cx<'_>, upto: &VectorTime) {
        self.full = Fullness::No;
        if !self.history.time.covers(upto) {
            return self.skip_to(cx, upto);
        }
        let keepers = self
            .collecting
            .take_if(|collecting| collecting.time == *upto)
            .map_or(NodeSet::EMPTY, |collecting| collecting.keepers);
        let touched = self.pages_where(|page| page.notices.any_in(upto));
        for index in touched {
            self.forget_page(cx, index, upto, keepers);
        }
        self.forget_history(cx, upto);
        self.begin_misses_anew(cx);
    }

    /// The floor has risen: a copy that was requested before may lack what no write notice names
    /// any more.
    fn begin_misses_anew(&mut self, cx: &mut Cx<'_>) {
        for index in self.pages_where(|page| page.miss.is_some()) {
            if let Some(miss) = self.miss(index) {
                miss.base = None;
                miss.baseless = NodeSet::EMPTY;
            }
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
        let (segment, me) = (self.segment, cx.me());
        let keeper_of_rest = self.keeper_of_rest(cx, keepers);
        let Some(page) = self.pages.get_mut(&index) else {
            return;
        };
        if keepers != NodeSet::EMPTY {
            let writer = page.notices.last_writer(upto, keepers);
            page.keeper = Some(writer.unwrap_or(keeper_of_rest));
        }
        let useless =
            page.copy == Copy::Stash && page.notices.lacks(upto) && page.keeper != Some(me);
        if page.undiffed.is_some_and(|interval| upto.has(me, interval)) {
            // The diff was not requested, so no node needs it.
            page.undiffed = None;
            self.undiffed -= 1;
            page.twin = false;
            page.rights = page.rights.min(Rights::Read);
            let page = index;
            cx.push(Effect::Protect { segment, page });
            cx.push(Effect::Diffs(DiffWork::DropTwin { segment, page }));
        }
        self.forget_notices(index, upto);
        if useless {
            self.drop_copy(cx, index);
        }
        if let Some(page) = self.pages.get_mut(&index)
            && page.copy != Copy::None
        {
            page.notices.apply_all(upto.iter());
        }
    }

    fn forget_notices(&mut self, index: PageIndex, upto: &VectorTime) {
        let Some(page) = self.pages.get_mut(&index) else {
            return;
        };
        let had = page.notices.len();
        page.notices.forget(upto);
        self.notices -= had - page.notices.len();
        self.named -= usize::from(had > 0 && page.notices.is_empty());
    }

    fn forget_history(&mut self, cx: &mut Cx<'_>, upto: &VectorTime) {
        self.history.collect(upto);
        self.forget_regulars(cx.me(), upto);
        self.held.retain(|name| !upto.has(name.node, name.interval));
        self.early
            .retain(|name| !upto.has(name.node, name.interval));
        cx.push(Effect::Diffs(DiffWork::Forget {
            segment: self.segment,
            upto: upto.clone(),
        }));
        self.check_goals(cx);
    }

    /// Other nodes have collected intervals that this node never heard of, since it took no part:
    /// no copy here can be trusted.
    pub(super) fn skip_to(&mut self, cx: &mut Cx<'_>, floor: &VectorTime) {
        self.end_interval(cx);
        for index in self.pages_where(|page| page.copy == Copy::Frame) {
            self.stow(cx, index);
        }
        for index in self.pages_where(|_| true) {
            self.drop_copy(cx, index);
            self.forget_notices(index, floor);
        }
        self.forget_history(cx, floor);
        self.begin_misses_anew(cx);
    }
}
