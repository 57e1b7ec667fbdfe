//! Timers are data: a set of times, each with the timers due then.

use crate::time::Time;
use pagemesh_sorted::Entry;
use pagemesh_sorted::LongMap;
use pagemesh_wire::peer::Subject;
use pagemesh_wire::{CallId, NodeId, RequestId, SegmentId};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Timers. A stale timer is harmless: the service that it concerns checks whether it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Timer {
    /// When to repeat the request to join.
    Join,
    /// When to send the next heartbeat.
    Heartbeat,
    /// When to check whether this member is still alive.
    Suspect(NodeId),
    /// When to repeat a call.
    Call(CallId),
    /// When something about a page or lock is due: a resend, or the end of a time window, of a pin,
    /// of a search.
    Subject(Subject),
    /// When to check pages of this segment that were asked for ahead and have not come.
    Ahead(SegmentId),
    /// When the policy of this segment has something due.
    Segment(SegmentId),
    /// When an epoch of global memory is over, or summaries have been waited for long enough.
    Epoch,
    /// When a lookup of shared pages is to be repeated or given up.
    Lookup(RequestId),
    /// When more shared pages are to be told to the nodes with their directory.
    SharedPages,
    /// When to ask again, while this node leaves, that owners take back their pages.
    HandBack,
    /// When more pages that were kept for others are to go, because the host wants its memory back.
    GiveBack,
    /// When more pages of segments that are trapped from now on are to be taken in.
    Frames,
}

/// All timers of a node, each with the number of times it was armed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Timers(LongMap<Time, Moment>);

/// The timers of one moment, in order. Pages that are asked for together are due together, and are
/// armed and come in order; so most insertions at the back and removals at the front need no
/// search.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Moment(VecDeque<(Timer, u32)>);

impl Moment {
    fn arm(&mut self, timer: Timer) {
        if self.0.back().is_none_or(|(last, _)| *last < timer) {
            return self.0.push_back((timer, 1));
        }
        match self.place(timer) {
            Ok(place) => self.0[place].1 += 1,
            Err(place) => self.0.insert(place, (timer, 1)),
        }
    }

    fn disarm(&mut self, timer: Timer) {
        let front = self.0.front().filter(|(first, _)| *first == timer);
        let place = front.map_or_else(|| self.place(timer), |_| Ok(0));
        let Ok(place) = place else { return };
        self.0[place].1 -= 1;
        if self.0[place].1 == 0 {
            self.0.remove(place);
        }
    }

    fn place(&self, timer: Timer) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| other.cmp(&timer))
    }
}

impl Timers {
    /// Arms `timer` for `at`.
    pub(crate) fn arm(&mut self, at: Time, timer: Timer) {
        self.0.entry(at).or_default().arm(timer);
    }

    /// Takes back one arming of `timer` for `at`.
    pub(crate) fn disarm(&mut self, at: Time, timer: Timer) {
        if let Entry::Occupied(mut moment) = self.0.entry(at) {
            moment.get_mut().disarm(timer);
            if moment.get().0.is_empty() {
                moment.remove();
            }
        }
    }

    /// The earliest time at which a timer is due.
    pub(crate) fn next(&self) -> Option<Time> {
        self.0.first_key_value().map(|(at, _)| *at)
    }

    /// Takes out one timer that is due.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<Timer> {
        let mut first = self.0.first_entry()?;
        if *first.key() > now {
            return None;
        }
        let timer = first.get_mut().0.pop_front();
        if first.get().0.is_empty() {
            first.remove();
        }
        timer.map(|(timer, _)| timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_that_somebody_else_waits_for_stays() {
        let mut timers = Timers::default();
        let (early, late) = (Time(1), Time(2));
        timers.arm(late, Timer::Join);
        timers.arm(early, Timer::Heartbeat);
        timers.arm(early, Timer::Heartbeat);
        timers.disarm(early, Timer::Heartbeat);
        assert_eq!(timers.next(), Some(early));
        timers.disarm(early, Timer::Heartbeat);
        timers.disarm(early, Timer::Heartbeat);
        assert_eq!(timers.next(), Some(late));
        assert_eq!(timers.pop_due(early), None);
        assert_eq!(timers.pop_due(late), Some(Timer::Join));
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn what_is_due_together_comes_in_order_whatever_the_order_it_was_armed_in() {
        let mut timers = Timers::default();
        let due = Time(7);
        let suspect = |node| Timer::Suspect(NodeId(node));
        for node in [4, 6, 2, 9, 6, 1] {
            timers.arm(due, suspect(node));
        }
        for gone in [4, 6, 5] {
            timers.disarm(due, suspect(gone));
        }
        let popped = core::iter::from_fn(|| timers.pop_due(due));
        assert_eq!(popped.collect::<Vec<_>>(), [1, 2, 6, 9].map(suspect));
        assert_eq!(timers, Timers::default());
    }
}
