//! When the node is to look at the time.

use crate::experiment::Ticks;
use pagemesh_core::Time;

/// The node's next deadline.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    next: Option<Time>,
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
        let next = self.next?.0;
        Some(self.ticks.map_or(next, |ticks| ticks.due(next)))
    }
}
