//! Timers are data: a set of times and what to look at then.

use crate::time::Time;
use pagemesh_wire::peer::Subject;
use pagemesh_wire::{CallId, NodeId, SegmentId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// What to look at when its time comes. A stale timer is harmless: whoever is
/// looked at knows what is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Timer {
    /// When to repeat the wish to join.
    Join,
    /// When to give the next sign of life.
    Heartbeat,
    /// When to check whether this member still lives.
    Suspect(NodeId),
    /// When to repeat a call.
    Call(CallId),
    /// When something about a page or lock is due: a repetition, the end of a
    /// time window, of a pin, of a search.
    Subject(Subject),
    /// When to look at what was asked for ahead in this segment and stays out.
    Ahead(SegmentId),
    /// When something about who knows what in this segment may have to be said again.
    Order(SegmentId),
}

/// All timers of a node, and how many wait for each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Timers(BTreeMap<(Time, Timer), u32>);

impl Timers {
    /// Look at `timer` at `at`.
    pub(crate) fn arm(&mut self, at: Time, timer: Timer) {
        *self.0.entry((at, timer)).or_default() += 1;
    }

    /// One who armed `timer` at `at` needs it no more.
    pub(crate) fn disarm(&mut self, at: Time, timer: Timer) {
        if let Entry::Occupied(mut armed) = self.0.entry((at, timer)) {
            *armed.get_mut() -= 1;
            if *armed.get() == 0 {
                armed.remove();
            }
        }
    }

    /// The earliest time at which something may be due.
    pub(crate) fn next(&self) -> Option<Time> {
        self.0.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes out one timer whose time has come.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<Timer> {
        let first = self.0.first_entry()?;
        let (at, timer) = *first.key();
        if at > now {
            return None;
        }
        first.remove();
        Some(timer)
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
}
