//! When the node is to look at the time.

use crate::experiment::Ticks;
use pagemesh_core::Time;
use pagemesh_os::clock;

/// Nanoseconds of this daemon's absence after which it must not judge the silence of others.
const LONG_PAUSE: u64 = 1_000_000_000;

/// Nanoseconds within which every member sends two signs of life.
const HEARING: u64 = 1_200_000_000;

/// The node's next deadline, and what puts it off.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    next: Option<Time>,
    /// No deadline fires before this time (monotonic nanoseconds).
    patience: u64,
    /// In an experiment: deadlines fire at ticks only.
    ticks: Option<Ticks>,
}

impl Deadlines {
    /// From now on deadlines fire at ticks only.
    pub(crate) fn tick(&mut self, ticks: Ticks) {
        self.ticks = Some(ticks);
    }

    /// The node's time at `now`.
    pub(super) fn time(&self, now: Time) -> Time {
        self.ticks.map_or(now, |ticks| ticks.time(now.0))
    }

    /// The node has this deadline next.
    pub(super) fn set(&mut self, next: Option<Time>) {
        self.next = next;
    }

    /// When the next one fires.
    pub(super) fn next(&self) -> Option<u64> {
        let next = self.next?.0.max(self.patience);
        Some(self.ticks.map_or(next, |ticks| ticks.due(next)))
    }

    /// After a long pause since `last`, in which this node received nothing: waits for signs of
    /// life before the node may judge the silence of others.
    pub(crate) fn listen_first(&mut self, last: Time) {
        let now = clock::monotonic();
        // After a handover `last` is not known: there was no pause.
        if last > Time::ZERO && now.saturating_sub(last.0) > LONG_PAUSE {
            self.patience = now + HEARING;
        }
    }
}
