//! How a node learns what happened before: news on acquires, and answers to its inquiries
//! ([`super::inquiries`]) when there was more than fits a datagram.

use super::Release;
use super::inquiries::OnReply;
use super::lead::Lead;
use super::messages::{IntervalReply, News};
use crate::continuation::Continuation;
use crate::shell::Cx;
use pagemesh_wire::{NodeId, VectorTime};

impl Release {
    /// An acquire: takes in news from `from`. Returns true if everything up to its goal is known
    /// now; else `next` becomes ready when it is.
    pub(super) fn learn_news(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        news: &News,
        next: Continuation,
    ) -> bool {
        self.take_in(cx, from, news);
        if self.intervals.history.time().covers(&news.goal) {
            return true;
        }
        self.open_goal(cx, Some(news.goal.clone()), from, OnReply::Ready(next));
        false
    }

    /// `then` goes on when `from` has told all it knows, or all of `time` is known.
    pub(super) fn open_goal(
        &mut self,
        cx: &mut Cx<'_>,
        time: Option<VectorTime>,
        from: NodeId,
        then: OnReply,
    ) {
        let known = self.intervals.history.time();
        self.intervals.inquiries.ask(cx, known, time, (from, then));
        self.check_goals(cx);
    }

    /// Before its first access, this node asks the home what happened before.
    pub(super) fn initial_sync(&mut self, cx: &mut Cx<'_>) {
        if self
            .intervals
            .inquiries
            .begin_sync(cx, self.intervals.history.time())
        {
            self.check_goals(cx);
        }
    }

    /// Takes in the intervals that are new in some news. A record that depends on an unknown
    /// interval is not taken.
    pub(super) fn take_in(&mut self, cx: &mut Cx<'_>, from: NodeId, news: &News) {
        let me = cx.me();
        self.intervals.heard.knows(from, &news.goal);
        self.heed_floor(cx, &news.floor);
        if self.intervals.history.lacks_any(me, &news.records) {
            let goes_in_place =
                |name: &_| self.memory.diffs.is_early(name) && !self.push.is_running_out(name.page);
            let written = self
                .memory
                .pages
                .written_before(&news.records, goes_in_place);
            self.end_interval_of(cx, &written);
        }
        for record in &news.records {
            if self.intervals.history.take(me, self.rules.size, record) {
                let rank = self.intervals.history.rank(record.node, record.index);
                for page in record.each_page() {
                    let by = (record.node, record.index);
                    if self.at(cx, page).noticed(by, rank) {
                        self.open_miss(cx, page, None);
                    }
                }
            }
        }
        if from == cx.home(self.rules.segment) && self.intervals.history.time().covers(&news.goal) {
            self.intervals.heard.home_told(&news.goal);
        }
        self.backup(cx).others_know(&news.goal);
        self.check_goals(cx);
        self.lead(cx, Lead::MindTheBound);
    }

    /// This much is collected at some node. If it is what this node is about to drop, this node
    /// drops it now: the home may be gone before it says so.
    fn heed_floor(&mut self, cx: &mut Cx<'_>, floor: &VectorTime) {
        self.intervals.heard.collected(floor);
        if !self.intervals.history.time().covers(floor) {
            self.skip_to(cx, floor);
        } else if self.collector.time() == Some(floor) {
            self.forget(cx, floor);
        }
    }

    /// The answer to an inquiry. What did not fit is asked for at once.
    pub(super) fn told(&mut self, cx: &mut Cx<'_>, from: NodeId, told: &IntervalReply) {
        let before = self.intervals.history.time().intervals();
        self.take_in(cx, from, &told.news);
        if !self.intervals.inquiries.is_current(from, told.request) {
            return;
        }
        if self.intervals.history.time().covers(&told.news.goal) {
            self.intervals.inquiries.told_all(cx, from);
            self.check_goals(cx);
        } else if self.intervals.history.time().intervals() > before {
            self.intervals.inquire(cx, from);
        }
    }

    /// Lets everything go on whose goal is reached now.
    pub(super) fn check_goals(&mut self, cx: &mut Cx<'_>) {
        for then in self
            .intervals
            .inquiries
            .take_reached(self.intervals.history.time())
        {
            match then {
                OnReply::Ready(next) => cx.ready(next),
                OnReply::Whole => {
                    if self.collection(cx).find_what_to_keep() {
                        self.make_more_whole(cx);
                        self.collector.answer(cx);
                    }
                }
                OnReply::Heard(round) => {
                    let next = self.collection(cx).heard(round);
                    self.lead(cx, next);
                }
                OnReply::Ward(node) => {
                    let known = self.intervals.history.time();
                    if self.replicas.ward_told(node, known) {
                        self.advance_ward(cx, node);
                    }
                }
                OnReply::Doubts => self.end_doubts(cx),
                OnReply::Greeted => {
                    self.intervals.inquiries.end_sync();
                    let waiting = self.memory.pages.which(|page| page.miss.is_some());
                    self.go_on(cx, waiting);
                }
            }
        }
    }
}
