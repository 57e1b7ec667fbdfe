//! Timers are data: a set of times and what to look at then.

use crate::time::Time;
use pagemesh_wire::peer::Subject;
use pagemesh_wire::{CallId, NodeId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

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
}

/// All timers of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Timers(BTreeSet<(Time, Timer)>);

impl Timers {
    /// Look at `timer` at `at`.
    pub(crate) fn arm(&mut self, at: Time, timer: Timer) {
        self.0.insert((at, timer));
    }

    /// The earliest time at which something may be due.
    pub(crate) fn next(&self) -> Option<Time> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Takes out one timer whose time has come.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<Timer> {
        let (at, timer) = *self.0.first()?;
        if at > now {
            return None;
        }
        self.0.remove(&(at, timer));
        Some(timer)
    }
}
