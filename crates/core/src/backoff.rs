//! When to say something again: waits that double up to a ceiling (F20).

use crate::node::Pace;
use crate::time::Time;
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// The schedule of one repeated message.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Backoff {
    due: Time,
    wait: Duration,
}

impl Backoff {
    /// Said for the first time now.
    pub(crate) fn start(now: Time, wait: Duration) -> Self {
        Self {
            due: now + wait,
            wait,
        }
    }

    /// When it is to be said again.
    pub(crate) fn due(&self) -> Time {
        self.due
    }

    /// When it was said last.
    pub(crate) fn said(&self) -> Time {
        Time(self.due.0.saturating_sub(self.wait.as_nanos() as u64))
    }

    /// If it is time to say it again: true, and the next wait is twice as long.
    pub(crate) fn fire(&mut self, now: Time, pace: &Pace) -> bool {
        if now < self.due {
            return false;
        }
        self.wait = (self.wait * 2).min(pace.resend_ceiling);
        self.due = now + self.wait;
        true
    }
}
