//! How a node learns what happened before: news on acquires, and inquiries when there was more than
//! fits a datagram.

use super::messages::{Body, IntervalReply, IntervalRequest, News};
use super::{InitialSync, Release};
use crate::backoff::Backoff;
use crate::continuation::Continuation;
use crate::shell::Cx;
use crate::timers::Timer;
use pagemesh_wire::{NodeId, NodeSet, RequestId, VectorTime};
use serde::{Deserialize, Serialize};

/// Something that goes on when enough is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Goal {
    /// It is enough to know this, if that is known ...
    pub(super) time: Option<VectorTime>,
    /// ... or all that these nodes know.
    pub(super) hear: NodeSet,
    pub(super) then: OnReply,
}

/// What goes on when a goal is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum OnReply {
    /// A continuation of another service.
    Ready(Continuation),
    /// Making the pages whole that this node is to keep.
    Whole,
    /// The round of collection with this number, which this node leads.
    Heard(u64),
    /// This node's first accesses.
    Greeted,
}

/// An inquiry under way, repeated until it is answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Inquiry {
    request: RequestId,
    backoff: Backoff,
}

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
        if self.history.time.covers(&news.goal) {
            return true;
        }
        self.open_goal(cx, Some(news.goal.clone()), from, OnReply::Ready(next));
        false
    }

    /// `next` becomes ready when all that any member knows is known here. For a token that was made
    /// anew, because its last holders are not known.
    pub(super) fn hear_everybody(&mut self, cx: &mut Cx<'_>, next: Continuation) {
        let hear = cx.shell.peers();
        if hear.is_empty() {
            return cx.ready(next);
        }
        for node in hear.iter() {
            self.inquire(cx, node);
        }
        let then = OnReply::Ready(next);
        let time = None;
        self.goals.push(Goal { time, hear, then });
    }

    /// `then` goes on when `from` has told all it knows, or all of `time` is known.
    pub(super) fn open_goal(
        &mut self,
        cx: &mut Cx<'_>,
        time: Option<VectorTime>,
        from: NodeId,
        then: OnReply,
    ) {
        let hear = if from == cx.me() || !cx.is_alive(from) {
            cx.shell.peers()
        } else {
            NodeSet::only(from)
        };
        for node in hear.iter() {
            self.inquire(cx, node);
        }
        self.goals.push(Goal { time, hear, then });
        self.check_goals(cx);
    }

    /// Before its first access, this node asks the home what happened before: it may read what was
    /// written before it came.
    pub(super) fn initial_sync(&mut self, cx: &mut Cx<'_>) {
        if self.synced != InitialSync::NotYet {
            return;
        }
        let home = cx.home(self.segment);
        if home == cx.me() && self.segment.home() == home {
            self.synced = InitialSync::Done;
            return;
        }
        self.synced = InitialSync::UnderWay;
        self.open_goal(cx, None, home, OnReply::Greeted);
    }

    pub(super) fn inquire(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        self.end_inquiry(cx, node);
        let request = cx.next_request();
        let backoff = cx.backoff(Timer::Segment(self.segment));
        let inquiry = Inquiry { request, backoff };
        self.inquiries.insert(node, inquiry);
        self.say_inquiry(cx, node, request);
    }

    fn say_inquiry(&self, cx: &mut Cx<'_>, node: NodeId, request: RequestId) {
        let inquire = IntervalRequest {
            request,
            time: self.time(),
            epoch: cx.shell.view.epoch,
        };
        self.say(cx, node, &Body::IntervalRequest(inquire));
    }

    /// Takes in the intervals that are new in some news. A record that depends on an unknown
    /// interval is not taken.
    pub(super) fn take_in(&mut self, cx: &mut Cx<'_>, from: NodeId, news: &News) {
        let me = cx.me();
        self.hears_of(from, &news.goal);
        self.heed_floor(cx, &news.floor);
        if self.history.lacks_any(me, &news.records) {
            let written = self.written_before(&news.records);
            self.end_interval_of(cx, &written);
        }
        for record in &news.records {
            if self.history.take(me, self.size, record) {
                let rank = self.history.rank(record.node, record.index);
                for page in record.each_page() {
                    self.noticed(cx, page, (record.node, record.index), rank);
                }
            }
        }
        if from == cx.home(self.segment) && self.history.time.covers(&news.goal) {
            self.home_time.join(&news.goal);
        }
        self.check_goals(cx);
        self.mind_the_bound(cx);
    }

    /// This much is collected at some node. If it is what this node is about to drop, this node
    /// drops it now: the home may be gone before it says so.
    fn heed_floor(&mut self, cx: &mut Cx<'_>, floor: &VectorTime) {
        self.rumoured.join(floor);
        let due = |collecting: &super::Collecting| collecting.time == *floor;
        if !self.history.time.covers(floor) {
            self.skip_to(cx, floor);
        } else if self.collecting.as_ref().is_some_and(due) {
            self.forget(cx, floor);
        }
    }

    /// Another node inquires. The answer is all that the asking node will ever learn of the nodes
    /// that it knows to be gone: so this node must not take anything from them any more
    /// (*INV-dead-tell-nothing*), and does not answer while it has an older member view.
    pub(super) fn inquired(&mut self, cx: &mut Cx<'_>, from: NodeId, inquire: &IntervalRequest) {
        self.hears_of(from, &inquire.time);
        if cx.shell.view.epoch < inquire.epoch {
            return;
        }
        let told = IntervalReply {
            request: inquire.request,
            news: self.news(&inquire.time),
        };
        self.say(cx, from, &Body::IntervalReply(told));
    }

    /// The answer to an inquiry. What did not fit is asked for at once.
    pub(super) fn told(&mut self, cx: &mut Cx<'_>, from: NodeId, told: &IntervalReply) {
        let before = self.history.time.intervals();
        self.take_in(cx, from, &told.news);
        let current = self.inquiries.get(&from);
        if current.is_none_or(|inquiry| inquiry.request != told.request) {
            return;
        }
        if self.history.time.covers(&told.news.goal) {
            self.end_inquiry(cx, from);
            for goal in &mut self.goals {
                goal.hear.remove(from);
            }
            self.check_goals(cx);
        } else if self.history.time.intervals() > before {
            self.end_inquiry(cx, from);
            self.inquire(cx, from);
        }
    }

    fn end_inquiry(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        if let Some(inquiry) = self.inquiries.remove(&node) {
            cx.end(&inquiry.backoff, Timer::Segment(self.segment));
        }
    }

    /// Lets everything go on whose goal is reached now.
    pub(super) fn check_goals(&mut self, cx: &mut Cx<'_>) {
        let time = &self.history.time;
        let reached = |goal: &mut Goal| {
            let known = goal.time.as_ref().is_some_and(|goal| time.covers(goal));
            known || goal.hear.is_empty()
        };
        let reached: Vec<_> = self.goals.extract_if(.., reached).collect();
        for goal in reached {
            match goal.then {
                OnReply::Ready(next) => cx.ready(next),
                OnReply::Whole => self.make_whole(cx),
                OnReply::Heard(round) => self.heard_for_round(cx, round),
                OnReply::Greeted => {
                    self.synced = InitialSync::Done;
                    for page in self.pages_where(|page| page.miss.is_some()) {
                        self.go_on(cx, page);
                    }
                }
            }
        }
    }

    /// The inquired node is gone: ask all live members. Intervals that no survivor knows are
    /// discarded.
    pub(super) fn source_gone(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        self.end_inquiry(cx, node);
        let mut orphans = false;
        let peers = cx.shell.peers();
        for goal in &mut self.goals {
            let only = goal.hear == NodeSet::only(node);
            goal.hear.remove(node);
            if only && goal.time.is_some() {
                goal.hear = peers;
                orphans = true;
            }
        }
        if orphans {
            for peer in peers.iter() {
                self.inquire(cx, peer);
            }
        }
        self.check_goals(cx);
    }

    /// Repeats inquiries and reports of fullness that are due.
    pub(super) fn due_again(&mut self, cx: &mut Cx<'_>) {
        self.inquiries_due(cx);
        self.full_due(cx);
    }

    /// Repeats inquiries that are due.
    fn inquiries_due(&mut self, cx: &mut Cx<'_>) {
        let timer = Timer::Segment(self.segment);
        let mut again = Vec::new();
        for (node, inquiry) in &mut self.inquiries {
            if cx.fire(&mut inquiry.backoff, timer) {
                again.push((*node, inquiry.request));
            }
        }
        for (node, request) in again {
            self.say_inquiry(cx, node, request);
        }
    }
}
