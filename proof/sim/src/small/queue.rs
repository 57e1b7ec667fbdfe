//! Events in the order of their times, and the lines that a failure shows.

use pagemesh_core::Time;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Events, in order of time and then of scheduling, and the clock that they set.
pub(crate) struct Queue<E> {
    now: Time,
    events: BinaryHeap<Reverse<(Time, u64, E)>>,
    scheduled: u64,
}

impl<E: Ord> Queue<E> {
    pub(crate) fn new() -> Self {
        Self {
            now: Time(1_000),
            events: BinaryHeap::new(),
            scheduled: 0,
        }
    }

    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// How many events were ever scheduled.
    pub(crate) fn scheduled(&self) -> u64 {
        self.scheduled
    }

    pub(crate) fn schedule(&mut self, at: Time, event: E) {
        self.scheduled += 1;
        self.events.push(Reverse((at, self.scheduled, event)));
    }

    /// When the next event happens.
    pub(crate) fn next_time(&self) -> Option<Time> {
        self.events.peek().map(|Reverse((at, ..))| *at)
    }

    /// Nothing happens until then.
    pub(crate) fn pass(&mut self, now: Time) {
        self.now = now;
    }

    /// The next event; the clock says its time from now on.
    pub(crate) fn next(&mut self) -> Option<E> {
        let Reverse((at, _, event)) = self.events.pop()?;
        self.now = at;
        Some(event)
    }
}

/// The last lines of a run.
pub(crate) struct Log {
    lines: VecDeque<String>,
    most: usize,
}

impl Log {
    /// A log that keeps so many lines. To write them takes about half of the time of a run.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            lines: VecDeque::new(),
            most,
        }
    }

    pub(crate) fn note(&mut self, now: Time, host: usize, what: impl FnOnce() -> String) {
        if self.most == 0 {
            return;
        }
        if self.lines.len() == self.most {
            self.lines.pop_front();
        }
        let line = format!("{:>12} h{} {}", now.0, host + 1, what());
        self.lines.push_back(line);
    }

    /// All lines that are kept, one below the other.
    pub(crate) fn lines(&self) -> String {
        let lines: Vec<_> = self.lines.iter().map(String::as_str).collect();
        lines.join("\n")
    }
}
