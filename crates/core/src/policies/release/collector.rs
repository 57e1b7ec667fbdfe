//! What a node knows of the garbage collection that the home leads (T16): what it is about to drop,
//! and whether it has reported that it is time to collect.

use super::messages::{Body, Full};
use super::say;
use crate::backoff::Backoff;
use crate::caller::Caller;
use crate::continuation::Continuation;
use crate::limits::WHOLE_AT_ONCE;
use crate::shell::Cx;
use crate::timers::Timer;
use pagemesh_wire::peer::{Payload, Reply};
use pagemesh_wire::{NodeId, NodeSet, PageIndex, SegmentId, VectorTime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// One node's part in the collection of one segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Collector {
    segment: SegmentId,
    collecting: Option<Collecting>,
    /// The call of the last round in which this node took part.
    led: Option<Caller>,
    /// Set while the home is told that it is time to collect, at ever longer intervals.
    report: Option<Backoff>,
    /// This node leaves.
    leaves: bool,
}

/// A collection that the home has announced and that this node has not finished.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Collecting {
    time: VectorTime,
    keepers: NodeSet,
    /// The call to answer when this node is ready.
    caller: Option<Caller>,
    /// Pages that are to be made whole; `None` until everything up to `time` is known.
    todo: Option<BTreeSet<PageIndex>>,
    /// Those of them before this one are under way.
    #[serde(default)]
    next: PageIndex,
    /// The leading home is gone, and its successor has yet to say what comes of the round.
    #[serde(rename = "led_by_the_dead")]
    leader_gone: bool,
}

/// What becomes of a report that is due.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// It is not due.
    None,
    /// It is sent again.
    Again,
    /// It is not necessary any more.
    Ended,
}

impl Collector {
    pub(super) fn new(segment: SegmentId) -> Self {
        Self {
            segment,
            collecting: None,
            led: None,
            report: None,
            leaves: false,
        }
    }

    /// This node leaves from now on.
    pub(super) fn leave(&mut self) {
        self.leaves = true;
    }

    pub(super) fn leaves(&self) -> bool {
        self.leaves
    }

    /// What is about to be collected.
    pub(super) fn time(&self) -> Option<&VectorTime> {
        let collecting = self.collecting.as_ref();
        collecting.map(|collecting| &collecting.time)
    }

    /// Whether a living home leads a collection.
    pub(super) fn is_led(&self) -> bool {
        let collecting = self.collecting.as_ref();
        collecting.is_some_and(|collecting| !collecting.leader_gone)
    }

    /// The home is about to collect `time`. Returns false if its call is of a round that was given
    /// up: other keepers have been chosen since.
    pub(super) fn reach(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        time: VectorTime,
        keepers: NodeSet,
    ) -> bool {
        let late = |led: Caller| led.node == caller.node && led.call > caller.call;
        if self.led.is_some_and(late) {
            cx.ready(Continuation::Answer(caller, Reply::Done));
            return false;
        }
        self.led = Some(caller);
        if let Some(former) = self.collecting.take()
            && let Some(caller) = former.caller
        {
            cx.ready(Continuation::Answer(caller, Reply::Done));
        }
        self.collecting = Some(Collecting {
            time,
            keepers,
            caller: Some(caller),
            todo: None,
            next: PageIndex(0),
            leader_gone: false,
        });
        true
    }

    /// What is to be collected and the possible keepers, if all of it is known and the pages that
    /// this node is to keep are not made whole yet.
    pub(super) fn to_make_whole(&self, known: &VectorTime) -> Option<(VectorTime, NodeSet)> {
        let collecting = self.collecting.as_ref()?;
        let due = collecting.todo.is_none() && known.covers(&collecting.time);
        due.then(|| (collecting.time.clone(), collecting.keepers.clone()))
    }

    /// These pages are to be made whole, a few at a time.
    pub(super) fn makes_whole(&mut self, todo: BTreeSet<PageIndex>) {
        if let Some(collecting) = &mut self.collecting {
            collecting.todo = Some(todo);
        }
    }

    /// The next pages to make whole; they are under way from now on.
    pub(super) fn next_to_make_whole(&mut self) -> Vec<PageIndex> {
        let Some(collecting) = &mut self.collecting else {
            return Vec::new();
        };
        let room = WHOLE_AT_ONCE.saturating_sub(collecting.under_way());
        let waiting = collecting.waiting().take(room);
        let pages: Vec<PageIndex> = waiting.collect();
        if let Some(last) = pages.last() {
            collecting.next = PageIndex(last.0.saturating_add(1));
        }
        pages
    }

    /// A page is whole now, or lost.
    pub(super) fn is_whole(&mut self, cx: &mut Cx<'_>, page: PageIndex) {
        let Some(collecting) = &mut self.collecting else {
            return;
        };
        let todo = collecting.todo.as_mut();
        if !todo.is_some_and(|todo| todo.remove(&page)) {
            return;
        }
        let few = collecting.under_way() <= WHOLE_AT_ONCE / 2;
        if few && collecting.waiting().next().is_some() {
            // Not here: one page after the other may be made whole without any message.
            cx.arm(cx.now, Timer::Segment(self.segment));
        }
        self.answer(cx);
    }

    /// Answers the home, if all pages are whole that this node is to keep.
    pub(super) fn answer(&mut self, cx: &mut Cx<'_>) {
        let Some(collecting) = &mut self.collecting else {
            return;
        };
        let done = collecting.todo.as_ref().is_some_and(BTreeSet::is_empty);
        if done && let Some(caller) = collecting.caller.take() {
            let reached = Reply::Policy(Payload::of(&collecting.time));
            cx.ready(Continuation::Answer(caller, reached));
        }
    }

    /// The home is gone: it will not say what is to be dropped. Returns whether anything was about
    /// to be.
    pub(super) fn leader_gone(&mut self) -> bool {
        let Some(collecting) = &mut self.collecting else {
            return false;
        };
        collecting.caller = None;
        collecting.leader_gone = true;
        true
    }

    /// This much is dropped now. Returns the possible keepers, if this node took part in that
    /// round.
    pub(super) fn dropped(&mut self, upto: &VectorTime) -> NodeSet {
        let collecting = self.collecting.take_if(|one| one.time == *upto);
        collecting.map_or(NodeSet::EMPTY, |one| one.keepers)
    }

    /// This node is no member any more.
    pub(super) fn clear(&mut self) {
        self.collecting = None;
    }

    /// Whether the home is being told that it is time to collect.
    pub(super) fn is_reporting(&self) -> bool {
        self.report.is_some()
    }

    /// The home is told from now on that it is time to collect.
    pub(super) fn report(&mut self, cx: &mut Cx<'_>) {
        self.report = Some(cx.backoff(Timer::Segment(self.segment)));
    }

    /// Tells the home that it is time to collect what is behind this floor.
    pub(super) fn say_full(&self, cx: &mut Cx<'_>, floor: &VectorTime) {
        let home = cx.home(self.segment);
        let full = Full {
            floor: floor.clone(),
            leaving: self.leaves,
        };
        say(cx, self.segment, home, &Body::Full(full));
    }

    /// Something was collected: the report has arrived.
    pub(super) fn end_report(&mut self) {
        self.report = None;
    }

    /// The home may not have received the report: it is repeated as long as it is `wanted`.
    pub(super) fn report_due(&mut self, cx: &mut Cx<'_>, wanted: bool) -> Report {
        let timer = Timer::Segment(self.segment);
        let Some(backoff) = &mut self.report else {
            return Report::None;
        };
        if !wanted {
            cx.end(backoff, timer);
            self.report = None;
            return Report::Ended;
        }
        if cx.fire(backoff, timer) {
            Report::Again
        } else {
            Report::None
        }
    }
}

impl Collecting {
    /// Number of pages that are being made whole.
    fn under_way(&self) -> usize {
        let todo = self.todo.as_ref();
        todo.map_or(0, |todo| todo.range(..self.next).count())
    }

    /// Pages that are to be made whole and are not under way.
    fn waiting(&self) -> impl Iterator<Item = PageIndex> + '_ {
        let todo = self.todo.iter();
        todo.flat_map(|todo| todo.range(self.next..)).copied()
    }
}

/// The keeper of pages that no remaining node has written: the home or, if the home leaves, the
/// first of those that remain. All nodes that collect choose the same.
pub(super) fn keeper_of_rest(home: NodeId, keepers: &NodeSet) -> NodeId {
    if keepers.contains(home) {
        return home;
    }
    keepers.iter().next().unwrap_or(home)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effects;
    use crate::shell::Shell;
    use crate::time::Time;
    use core::time::Duration;
    use pagemesh_wire::CallId;

    const ME: NodeId = NodeId(2);
    const HOME: NodeId = NodeId(1);
    const PAGE: PageIndex = PageIndex(4);

    fn caller(call: u64) -> Caller {
        Caller {
            node: HOME,
            call: CallId(call),
        }
    }

    fn with(work: impl FnOnce(&mut Collector, &mut Cx<'_>)) {
        let mut effects = Effects::default();
        let mut shell = Shell::of_four(ME);
        let mut cx = Cx {
            now: Time(1),
            shell: &mut shell,
            effects: &mut effects,
        };
        work(&mut Collector::new(SegmentId::new(HOME, 1)), &mut cx);
    }

    /// The calls that were answered since.
    fn answered(cx: &mut Cx<'_>) -> Vec<u64> {
        let calls = cx.shell.ready.drain(..).map(|next| match next {
            Continuation::Answer(caller, _) => caller.call.0,
            other => panic!("no answer: {other:?}"),
        });
        calls.collect()
    }

    #[test]
    fn the_home_is_answered_when_all_kept_pages_are_whole() {
        with(|collector, cx| {
            let time = VectorTime::from_iter([(HOME, 3)]);
            let keepers = NodeSet::only(ME);
            assert!(collector.reach(cx, caller(7), time.clone(), keepers.clone()));
            assert_eq!(collector.to_make_whole(&VectorTime::ZERO), None);
            let known = collector.to_make_whole(&time);
            assert_eq!(known, Some((time.clone(), keepers.clone())));
            collector.makes_whole(BTreeSet::from([PAGE]));
            assert_eq!(collector.to_make_whole(&time), None, "under way");
            collector.answer(cx);
            collector.is_whole(cx, PageIndex(5));
            assert_eq!(answered(cx), []);
            collector.is_whole(cx, PAGE);
            collector.answer(cx);
            assert_eq!(answered(cx), [7], "once");
            assert_eq!(collector.dropped(&VectorTime::ZERO), NodeSet::EMPTY);
            assert_eq!(collector.dropped(&time), keepers);
        });
    }

    #[test]
    fn thousands_of_pages_are_made_whole_a_few_at_a_time() {
        with(|collector, cx| {
            let time = VectorTime::from_iter([(HOME, 3)]);
            assert!(collector.reach(cx, caller(7), time, NodeSet::only(ME)));
            let all: BTreeSet<PageIndex> = (0..1000).map(PageIndex).collect();
            collector.makes_whole(all.clone());
            let mut under_way: BTreeSet<PageIndex> = BTreeSet::new();
            let mut begun = Vec::new();
            for turn in 0.. {
                let next = collector.next_to_make_whole();
                under_way.extend(&next);
                begun.extend(next);
                assert!(under_way.len() <= WHOLE_AT_ONCE);
                // Those in the middle become whole first, down to half of what may be under way.
                while under_way.len() > WHOLE_AT_ONCE / 2 || begun.len() == 1000 {
                    let Some(page) = under_way.iter().nth(under_way.len() / 2).copied() else {
                        break;
                    };
                    under_way.remove(&page);
                    collector.is_whole(cx, page);
                }
                if under_way.is_empty() {
                    assert!(turn > 10);
                    break;
                }
                let more = begun.len() < 1000;
                let due = cx.shell.timers.pop_due(cx.now);
                assert_eq!(due, more.then_some(Timer::Segment(collector.segment)));
            }
            assert_eq!(begun, all.into_iter().collect::<Vec<_>>());
            assert_eq!(answered(cx), [7]);
        });
    }

    #[test]
    fn a_call_of_a_round_that_was_given_up_changes_nothing() {
        with(|collector, cx| {
            let time = |interval| VectorTime::from_iter([(HOME, interval)]);
            assert!(collector.reach(cx, caller(7), time(3), NodeSet::only(ME)));
            assert!(collector.reach(cx, caller(9), time(4), NodeSet::only(ME)));
            assert!(!collector.reach(cx, caller(8), time(3), NodeSet::only(HOME)));
            assert_eq!(answered(cx), [7, 8]);
            assert_eq!(collector.time(), Some(&time(4)));
            assert!(collector.is_led() && collector.leader_gone() && !collector.is_led());
        });
    }

    #[test]
    fn a_report_is_repeated_as_long_as_it_is_wanted() {
        with(|collector, cx| {
            assert_eq!(collector.report_due(cx, true), Report::None);
            collector.report(cx);
            assert_eq!(collector.report_due(cx, true), Report::None, "too early");
            cx.now = cx.now + Duration::from_secs(1);
            assert_eq!(collector.report_due(cx, true), Report::Again);
            assert_eq!(collector.report_due(cx, false), Report::Ended);
            assert!(!collector.is_reporting());
        });
    }

    #[test]
    fn all_nodes_choose_the_same_keeper_for_the_rest() {
        let keepers: NodeSet = [ME, NodeId(3)].into_iter().collect();
        assert_eq!(keeper_of_rest(HOME, &keepers), ME);
        assert_eq!(keeper_of_rest(NodeId(3), &keepers), NodeId(3));
        assert_eq!(keeper_of_rest(HOME, &NodeSet::EMPTY), HOME);
    }
}
