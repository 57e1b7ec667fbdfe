//! When to resend: waits that double up to a ceiling (F20).

use crate::config::Pace;
use crate::time::Time;
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// The resend schedule of one message.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Backoff {
    due: Time,
    wait: Duration,
}

impl Backoff {
    /// The schedule of a message that is first sent now.
    pub(crate) fn start(now: Time, wait: Duration) -> Self {
        Self {
            due: now + wait,
            wait,
        }
    }

    /// When the next resend is due.
    pub(crate) fn due(&self) -> Time {
        self.due
    }

    /// When the message was last sent.
    pub(crate) fn said(&self) -> Time {
        Time(self.due.0.saturating_sub(self.wait.as_nanos() as u64))
    }

    /// Returns true if a resend is due, and doubles the next wait.
    pub(crate) fn fire(&mut self, now: Time, pace: &Pace) -> bool {
        if now < self.due {
            return false;
        }
        self.wait = (self.wait * 2).min(pace.resend_ceiling);
        self.due = now + self.wait;
        true
    }
}
