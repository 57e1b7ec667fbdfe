//! Inquiries: how a node asks other nodes for intervals that it does not know, and what goes on
//! when it knows enough.

use super::messages::{Body, IntervalRequest};
use super::say;
use crate::backoff::Backoff;
use crate::continuation::Continuation;
use crate::shell::Cx;
use crate::timers::Timer;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::{NodeId, NodeSet, RequestId, SegmentId, VectorTime};
use serde::{Deserialize, Serialize};

/// The inquiries of this node in one segment, and the goals that they serve.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Inquiries {
    segment: SegmentId,
    goals: Vec<Goal>,
    under_way: SortedMap<NodeId, Inquiry>,
    synced: InitialSync,
}

/// Something that goes on when enough is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Goal {
    /// It is enough to know this, if that is known ...
    time: Option<VectorTime>,
    /// ... or all that these nodes know.
    hear: NodeSet,
    then: OnReply,
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
    /// Learning what this node, a ward, has named.
    Ward(NodeId),
    /// Copies that may have what nobody knows.
    Doubts,
}

/// An inquiry under way, repeated until it is answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Inquiry {
    request: RequestId,
    backoff: Backoff,
}

/// Whether this node has asked what happened before it first used the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum InitialSync {
    NotYet,
    UnderWay,
    Done,
}

impl Inquiries {
    pub(super) fn new(segment: SegmentId) -> Self {
        Self {
            segment,
            goals: Vec::new(),
            under_way: SortedMap::new(),
            synced: InitialSync::NotYet,
        }
    }

    /// Number of goals that are not reached.
    pub(super) fn goals(&self) -> usize {
        self.goals.len()
    }

    /// Whether this node knows what happened before it first used the segment.
    pub(super) fn is_synced(&self) -> bool {
        self.synced == InitialSync::Done
    }

    /// Before its first access, this node asks the home what happened before: it may read what was
    /// written before it came. Returns false if that was begun before, or is not necessary.
    pub(super) fn begin_sync(&mut self, cx: &mut Cx<'_>, known: &VectorTime) -> bool {
        if self.synced != InitialSync::NotYet {
            return false;
        }
        let home = cx.home(self.segment);
        if home == cx.me() && self.segment.home() == home {
            self.synced = InitialSync::Done;
            return false;
        }
        self.synced = InitialSync::UnderWay;
        self.ask(cx, known, None, (home, OnReply::Greeted));
        true
    }

    /// This node has been told what happened before.
    pub(super) fn end_sync(&mut self) {
        self.synced = InitialSync::Done;
    }

    /// `then` goes on when `from` has told all it knows, or all of `time` is known. If `from`
    /// cannot be asked, all members are.
    pub(super) fn ask(
        &mut self,
        cx: &mut Cx<'_>,
        known: &VectorTime,
        time: Option<VectorTime>,
        (from, then): (NodeId, OnReply),
    ) {
        let hear = if from == cx.me() || !cx.is_alive(from) {
            cx.shell.peers()
        } else {
            NodeSet::only(from)
        };
        self.ask_nodes(cx, known, time, (hear, then));
    }

    /// As [`Inquiries::ask`], where all these nodes are to tell what they know.
    pub(super) fn ask_nodes(
        &mut self,
        cx: &mut Cx<'_>,
        known: &VectorTime,
        time: Option<VectorTime>,
        (hear, then): (NodeSet, OnReply),
    ) {
        for node in hear.iter() {
            self.inquire(cx, known, node);
        }
        self.goals.push(Goal { time, hear, then });
    }

    /// Asks a node for what it knows.
    pub(super) fn inquire(&mut self, cx: &mut Cx<'_>, known: &VectorTime, node: NodeId) {
        self.end(cx, node);
        let request = cx.next_request();
        let backoff = cx.backoff(Timer::Segment(self.segment));
        self.under_way.insert(node, Inquiry { request, backoff });
        send_inquiry(cx, self.segment, known, (node, request));
    }

    /// Whether an answer is to the present inquiry of a node.
    pub(super) fn is_current(&self, from: NodeId, request: RequestId) -> bool {
        let inquiry = self.under_way.get(&from);
        inquiry.is_some_and(|inquiry| inquiry.request == request)
    }

    /// A node has told all it knows.
    pub(super) fn told_all(&mut self, cx: &mut Cx<'_>, from: NodeId) {
        if let Some(inquiry) = self.under_way.get(&from) {
            cx.progressed(from, &inquiry.backoff);
        }
        self.end(cx, from);
        for goal in &mut self.goals {
            goal.hear.remove(from);
        }
    }

    /// Takes the goals that are reached by a node that knows this.
    pub(super) fn take_reached(&mut self, known: &VectorTime) -> Vec<OnReply> {
        let reached = |goal: &mut Goal| {
            let knows = goal.time.as_ref().is_some_and(|goal| known.covers(goal));
            knows || goal.hear.is_empty()
        };
        let reached = self.goals.extract_if(.., reached);
        reached.map(|goal| goal.then).collect()
    }

    /// An inquired node is gone: ask all live members. Intervals that no survivor knows are
    /// discarded.
    pub(super) fn gone(&mut self, cx: &mut Cx<'_>, known: &VectorTime, node: NodeId) {
        self.end(cx, node);
        let mut orphans = false;
        let peers = cx.shell.peers();
        for goal in &mut self.goals {
            let only = goal.hear == NodeSet::only(node);
            goal.hear.remove(node);
            if only && goal.time.is_some() {
                goal.hear = peers.clone();
                orphans = true;
            }
        }
        if orphans {
            for peer in peers.iter() {
                self.inquire(cx, known, peer);
            }
        }
    }

    /// Repeats inquiries that are due.
    pub(super) fn due(&mut self, cx: &mut Cx<'_>, known: &VectorTime) {
        let timer = Timer::Segment(self.segment);
        let mut again = Vec::new();
        for (node, inquiry) in &mut self.under_way {
            if cx.fire_to([*node], &mut inquiry.backoff, timer) {
                again.push((*node, inquiry.request));
            }
        }
        for inquiry in again {
            send_inquiry(cx, self.segment, known, inquiry);
        }
    }

    /// This node is no member any more: nothing goes on.
    pub(super) fn clear(&mut self) {
        self.goals.clear();
        self.under_way.clear();
    }

    fn end(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        if let Some(inquiry) = self.under_way.remove(&node) {
            cx.end(&inquiry.backoff, Timer::Segment(self.segment));
        }
    }
}

fn send_inquiry(
    cx: &mut Cx<'_>,
    segment: SegmentId,
    known: &VectorTime,
    (node, request): (NodeId, RequestId),
) {
    let inquire = IntervalRequest {
        request,
        time: known.clone(),
        epoch: cx.shell.view.epoch,
    };
    say(cx, segment, node, &Body::IntervalRequest(inquire));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effects;
    use crate::shell::Shell;
    use crate::time::Time;

    const ME: NodeId = NodeId(2);
    const HOME: NodeId = NodeId(1);
    const OTHER: NodeId = NodeId(3);

    /// Runs something on the inquiries of one of four members; returns what it returns, and how
    /// many messages it has sent.
    fn with<T>(work: impl FnOnce(&mut Inquiries, &mut Cx<'_>) -> T) -> (T, usize) {
        let mut effects = Effects::default();
        let mut shell = Shell::of_four(ME);
        let mut cx = Cx {
            now: Time(1),
            shell: &mut shell,
            effects: &mut effects,
        };
        let mut inquiries = Inquiries::new(SegmentId::new(HOME, 1));
        let found = work(&mut inquiries, &mut cx);
        (found, effects.len())
    }

    fn whole(inquiries: &mut Inquiries, cx: &mut Cx<'_>, from: NodeId) {
        let goal = VectorTime::from_iter([(OTHER, 3)]);
        let then = (from, OnReply::Whole);
        inquiries.ask(cx, &VectorTime::ZERO, Some(goal), then);
    }

    #[test]
    fn a_goal_is_reached_when_it_is_known_or_all_have_told() {
        let ((), sent) = with(|inquiries, cx| {
            whole(inquiries, cx, OTHER);
            let known = VectorTime::from_iter([(OTHER, 2)]);
            assert!(inquiries.take_reached(&known).is_empty());
            let known = VectorTime::from_iter([(OTHER, 4)]);
            assert_eq!(inquiries.take_reached(&known), [OnReply::Whole]);
            whole(inquiries, cx, OTHER);
            inquiries.told_all(cx, OTHER);
            let reached = inquiries.take_reached(&VectorTime::ZERO);
            assert_eq!(reached, [OnReply::Whole]);
            assert_eq!(inquiries.goals(), 0);
        });
        assert_eq!(sent, 2);
    }

    #[test]
    fn all_members_are_asked_in_place_of_one_that_is_gone() {
        let ((), sent) = with(|inquiries, cx| {
            whole(inquiries, cx, OTHER);
            inquiries.gone(cx, &VectorTime::ZERO, OTHER);
            assert!(inquiries.take_reached(&VectorTime::ZERO).is_empty());
            for node in cx.shell.peers().iter() {
                inquiries.told_all(cx, node);
            }
            assert_eq!(inquiries.take_reached(&VectorTime::ZERO).len(), 1);
        });
        assert_eq!(sent, 1 + 3);
    }

    #[test]
    fn the_home_is_asked_once_before_the_first_access() {
        let ((), sent) = with(|inquiries, cx| {
            assert!(inquiries.begin_sync(cx, &VectorTime::ZERO));
            assert!(!inquiries.begin_sync(cx, &VectorTime::ZERO));
            assert!(!inquiries.is_synced());
            inquiries.told_all(cx, HOME);
            let reached = inquiries.take_reached(&VectorTime::ZERO);
            assert_eq!(reached, [OnReply::Greeted]);
            inquiries.end_sync();
            assert!(inquiries.is_synced());
        });
        assert_eq!(sent, 1);
    }
}
