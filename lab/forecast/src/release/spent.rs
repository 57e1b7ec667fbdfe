//! The time of processes by activity, between the first two times they ask for the time.

use super::host::Host;
use core::ops::AddAssign;

/// An activity of a process that takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// It computes for so many nanoseconds, if its daemon leaves it the processor.
    Computes(u64),
    Page,
    Lock,
    Barrier,
    Condition,
}

/// Nanoseconds of all processes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Computing.
    pub computing: u64,
    /// A daemon used the processor of a process that was to compute.
    pub daemon: u64,
    /// Stopped at pages.
    pub pages: u64,
    /// Waiting for locks.
    pub locks: u64,
    /// At barriers.
    pub barriers: u64,
    /// Waiting for conditions, and for their locks behind that.
    pub conditions: u64,
}

impl Spent {
    fn add(&mut self, doing: Doing, nanos: u64) {
        match doing {
            Doing::Computes(work) => {
                self.computing += work.min(nanos);
                self.daemon += nanos.saturating_sub(work);
            }
            Doing::Page => self.pages += nanos,
            Doing::Lock => self.locks += nanos,
            Doing::Barrier => self.barriers += nanos,
            Doing::Condition => self.conditions += nanos,
        }
    }

    /// As parts of all of it: computing, daemon, pages, locks, barriers, conditions.
    #[must_use]
    pub fn shares(&self) -> [f64; 6] {
        let all = [
            self.computing,
            self.daemon,
            self.pages,
            self.locks,
            self.barriers,
            self.conditions,
        ];
        let sum = all.iter().sum::<u64>().max(1) as f64;
        all.map(|nanos| nanos as f64 / sum)
    }
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        self.computing += other.computing;
        self.daemon += other.daemon;
        self.pages += other.pages;
        self.locks += other.locks;
        self.barriers += other.barriers;
        self.conditions += other.conditions;
    }
}

impl Host {
    /// From now on the process does that.
    pub(super) fn begins(&mut self, doing: Doing, now: u64) {
        self.doing = Some((doing, now));
    }

    /// It goes on with something else.
    pub(super) fn is_over(&mut self, now: u64) {
        if let Some((doing, since)) = self.doing.take()
            && self.notes.len() == 1
        {
            self.spent.add(doing, now - since);
        }
    }
}
