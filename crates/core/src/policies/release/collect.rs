//! Garbage collection (T16): records that all nodes have need not be kept.
//!
//! The home leads, in rounds ([`super::round`]); this file has what every node does in one, and
//! when it is time for one: a node holds too much, or leaves.

use super::Release;
use super::collector::{Report, keeper_of_rest};
use super::history::History;
use super::inquiries::OnReply;
use super::lead::{CollectContext, Lead};
use super::memory::Memory;
use super::messages::Collect;
use super::page::{Copy, Page};
use super::repair::deputy_of;
use super::requests::Requests;
use crate::caller::Caller;
use crate::continuation::Continuation;
use crate::effect::{DiffWork, Effect, Mappings, Rights};
use crate::shell::Cx;
use pagemesh_wire::peer::{Payload, Reply};
use pagemesh_wire::{NodeId, NodeSet, PageIndex, VectorTime};
use std::collections::BTreeSet;

impl Memory {
    /// Everything up to a time is collected: drops what it covers of a page, and notes its keeper.
    fn forget(&mut self, cx: &mut Cx<'_>, index: PageIndex, upto: &VectorTime, keepers: NodeSet) {
        let (segment, me) = (self.segment, cx.me());
        let keeper_of_rest = keeper_of_rest(cx.home(segment), &keepers);
        let on = self.replicated;
        let Some(page) = self.pages.get_mut(&index) else {
            return;
        };
        if keepers != NodeSet::EMPTY {
            let writer = page.notices.last_writer(upto, &keepers);
            let keeper = writer.unwrap_or(keeper_of_rest);
            page.keeper = Some(keeper);
            page.deputy = on.then(|| deputy_of(keeper, &keepers)).flatten();
        }
        let useless = page.copy == Copy::Stash && page.notices.lacks(upto) && !page.is_kept_by(me);
        if page.undiffed.is_some_and(|interval| upto.has(me, interval)) {
            // The diff was not requested, so no node needs it.
            page.twin = false;
            page.blank = false;
            page.rights = page.rights.min(Rights::Read);
            self.pages.take_undiffed(index);
            let page = index;
            cx.push(Effect::Protect {
                pages: (segment, page).into(),
                mappings: Mappings::All,
            });
            cx.push(Effect::Diffs(DiffWork::DropTwin { segment, page }));
        }
        self.pages.forget_notices(index, upto);
        if useless {
            self.drop_copy(cx, index);
        }
        if let Some(page) = self.pages.get_mut(&index)
            && page.copy != Copy::None
        {
            page.notices.apply_all(upto.iter());
        }
    }

    /// With what is collected, the intervals of gone nodes that nobody has heard of: this node may have
    /// diffs of them.
    fn with_untold(&self, cx: &Cx<'_>, history: &History, upto: &VectorTime) -> VectorTime {
        let mut all = upto.clone();
        if self.replicated {
            for node in self.diffs.nodes() {
                if cx.is_gone(node) && history.time().get(node) <= upto.get(node) {
                    all.raise(node, u64::MAX);
                }
            }
        }
        all
    }

    /// Drops the diffs up to a time.
    fn forget_diffs(&mut self, cx: &mut Cx<'_>, history: &History, upto: &VectorTime) {
        let (segment, upto) = (self.segment, self.with_untold(cx, history, upto));
        self.diffs.collect(&upto);
        cx.push(Effect::Diffs(DiffWork::Forget { segment, upto }));
    }

    /// The pages touched in this time that a node is to keep, of these possible keepers, and that are not
    /// whole.
    fn to_be_kept_by(
        &self,
        me: NodeId,
        time: &VectorTime,
        (keepers, rest): (&NodeSet, NodeId),
    ) -> BTreeSet<PageIndex> {
        let is_mine = |(_, page): &(PageIndex, &Page)| {
            if !page.notices.any_in(time) || page.lost.is_some() || page.copy == Copy::Frame {
                return false;
            }
            let keeper = page.notices.last_writer(time, keepers).unwrap_or(rest);
            let deputy = || deputy_of(keeper, keepers) == Some(me);
            keeper == me || self.replicated && deputy()
        };
        let pages = self.pages.iter().filter(is_mine);
        pages.map(|(index, _)| index).collect()
    }
}

impl Release {
    /// A step of the home's collection; its call is answered when it is done.
    pub(super) fn collect(&mut self, cx: &mut Cx<'_>, caller: Caller, step: Collect) {
        match step {
            Collect::Know => {
                // What is not kept yet is for the next round.
                self.backup(cx).want_kept();
                let reached = Reply::Policy(Payload::of(
                    &*self.replicas.tellable(&self.intervals.history, cx.me()),
                ));
                cx.ready(Continuation::Answer(caller, reached));
            }
            Collect::Reach { time, keepers } => {
                self.backup(cx).others_know(&time);
                if self.collector.reach(cx, caller, time.clone(), keepers) {
                    self.open_goal(cx, Some(time), caller.node, OnReply::Whole);
                }
            }
            Collect::Drop { time } => {
                self.forget(cx, &time);
                cx.ready(Continuation::Answer(caller, Reply::Done));
            }
        }
    }

    /// Begins to make more of the pages whole that this node is to keep, as far as there is room.
    pub(super) fn make_more_whole(&mut self, cx: &mut Cx<'_>) {
        let pages = self.collector.next_to_make_whole();
        let mut requests = Requests::many();
        for page in pages {
            self.open_miss_with(cx, page, None, &mut requests);
        }
        requests.send(cx, self.rules.segment, self.intervals.history.floor());
    }

    /// All nodes have reached `upto`: drops what it covers, as no node will request any of it
    /// again.
    pub(super) fn forget(&mut self, cx: &mut Cx<'_>, upto: &VectorTime) {
        self.collector.end_report();
        if !self.intervals.history.time().covers(upto) {
            return self.skip_to(cx, upto);
        }
        let keepers = self.collector.dropped(upto);
        let touched = self.memory.pages.which(|page| page.notices.any_in(upto));
        self.intervals.missed_round |= keepers == NodeSet::EMPTY && !touched.is_empty();
        for index in touched {
            self.memory.forget(cx, index, upto, keepers.clone());
        }
        self.raise_floor(cx, upto);
    }

    /// Forgets the intervals up to a time, and their diffs. A copy that was requested before may lack
    /// what no write notice names any more.
    fn raise_floor(&mut self, cx: &mut Cx<'_>, upto: &VectorTime) {
        self.intervals.history.collect(upto);
        self.push.collect(cx.me(), upto);
        self.memory.forget_diffs(cx, &self.intervals.history, upto);
        self.check_goals(cx);
        let mut requests = Requests::many();
        for index in self.memory.pages.which(|page| page.miss.is_some()) {
            if let Some(miss) = self.memory.pages.miss(index) {
                miss.base = None;
                miss.baseless = NodeSet::EMPTY;
            }
            self.go_on_with(cx, index, &mut requests);
        }
        requests.send(cx, self.rules.segment, self.intervals.history.floor());
        self.repaired(cx);
    }

    /// Other nodes have collected intervals that this node never heard of, since it took no part:
    /// no copy here can be trusted.
    pub(super) fn skip_to(&mut self, cx: &mut Cx<'_>, floor: &VectorTime) {
        self.intervals.missed_round = true;
        self.end_interval(cx);
        for index in self.memory.pages.which(|page| page.copy == Copy::Frame) {
            self.memory.stow(cx, index, true);
        }
        for index in self.memory.pages.which(|_| true) {
            self.memory.drop_copy(cx, index);
            self.memory.pages.forget_notices(index, floor);
        }
        self.raise_floor(cx, floor);
    }
}

impl CollectContext<'_, '_> {
    /// Finds the pages that this node is to keep, if everything that will be collected is known here.
    /// Returns whether they are to be made whole now.
    pub(super) fn find_what_to_keep(&mut self) -> bool {
        let known = self.intervals.history.time();
        let Some((time, keepers)) = self.collector.to_make_whole(known) else {
            return false;
        };
        let (me, home) = (self.cx.me(), self.cx.home(self.rules.segment));
        let keepers = (&keepers, keeper_of_rest(home, &keepers));
        let todo = self.memory.to_be_kept_by(me, &time, keepers);
        self.collector.makes_whole(todo);
        true
    }

    /// Begins a round of collection, or asks the home for one, if this node holds too much or
    /// leaves.
    pub(super) fn mind_the_bound(&mut self) -> Lead {
        let busy = self.collector.is_reporting() || self.round.is_under_way();
        if busy || !self.wants_round() {
            return Lead::Wait;
        }
        if self.cx.home(self.rules.segment) == self.cx.me() {
            return Lead::Begin;
        }
        if !self.collector.is_led() {
            self.collector.report(self.cx);
            self.say_full();
        }
        Lead::Wait
    }

    fn wants_round(&self) -> bool {
        let much = self.remembered() > self.cx.pace().notices as usize;
        let leaves = self.collector.leaves() && self.is_needed();
        let heard = &self.intervals.heard;
        much || leaves || self.replicas.wants_repair(self.cx, heard)
    }

    /// What counts against the bound.
    pub(super) fn remembered(&self) -> usize {
        let (pages, diffs) = (&self.memory.pages, &self.memory.diffs);
        let twins = self.cx.pace().twins as usize;
        pages.remembered(diffs.len(), twins) + self.intervals.history.len()
    }

    /// Whether another node may need what only this node has.
    pub(super) fn is_needed(&self) -> bool {
        let me = self.cx.me();
        let kept = |page: &Page| page.is_kept_by(me) && page.copy != Copy::None;
        let mut pages = self.memory.pages.iter();
        let keeps = pages.any(|(_, page)| kept(page) && page.lost.is_none());
        let history = &self.intervals.history;
        keeps
            || history.time().get(me) > history.floor().get(me)
            || self.replicas.keeps_for_wards(history.floor())
            || self.replicas.repair.is_some()
    }

    fn say_full(&mut self) {
        let floor = self.intervals.history.floor();
        self.collector.say_full(self.cx, floor);
    }

    /// Repeats the report to the home, if that is due.
    pub(super) fn report_due(&mut self) -> Lead {
        let is_home = self.cx.home(self.rules.segment) == self.cx.me();
        let wanted = self.wants_round() && !is_home;
        match self.collector.report_due(self.cx, wanted) {
            Report::None => Lead::Wait,
            Report::Again => {
                self.say_full();
                Lead::Wait
            }
            Report::Ended => Lead::MindTheBound,
        }
    }
}
