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
    /// How much longer than `wait` the message is waited for, because its receiver has answered
    /// others.
    #[serde(default)]
    prolonged: Duration,
    /// The message was sent again.
    #[serde(default)]
    repeated: bool,
}

impl Backoff {
    /// The schedule of a message that is first sent now.
    pub(crate) fn start(now: Time, wait: Duration) -> Self {
        Self {
            due: now + wait,
            wait,
            prolonged: Duration::ZERO,
            repeated: false,
        }
    }

    /// When the next resend is due.
    pub(crate) fn due(&self) -> Time {
        self.due
    }

    /// When the message was last sent.
    pub(crate) fn said(&self) -> Time {
        let ago = self.wait + self.prolonged;
        Time(self.due.0.saturating_sub(ago.as_nanos() as u64))
    }

    /// When the message was sent, if it was sent once.
    pub(crate) fn said_once(&self) -> Option<Time> {
        (!self.repeated).then(|| self.said())
    }

    /// How long the message is waited for, if its receiver is silent.
    pub(crate) fn wait(&self) -> Duration {
        self.wait
    }

    /// The receiver has answered others: the message is waited for until `later`.
    pub(crate) fn prolong(&mut self, later: Time) {
        self.prolonged += later - self.due;
        self.due = later;
    }

    /// A thread waits from now on: if the message was sent once, it is not waited for longer than
    /// `wait`.
    pub(crate) fn hurry(&mut self, now: Time, wait: Duration) {
        let due = (self.said() + wait).max(now);
        if !self.repeated && due < self.due {
            let said = self.said();
            self.wait = wait;
            self.due = due;
            self.prolonged = (due - said).saturating_sub(wait);
        }
    }

    /// Returns true if a resend is due, and doubles the next wait.
    pub(crate) fn fire(&mut self, now: Time, pace: &Pace) -> bool {
        if now < self.due {
            return false;
        }
        self.repeat(now, pace);
        true
    }

    /// The message is sent again; the next wait is twice as long.
    pub(crate) fn repeat(&mut self, now: Time, pace: &Pace) {
        self.wait = (self.wait * 2).min(pace.resend_ceiling);
        self.due = now + self.wait;
        (self.prolonged, self.repeated) = (Duration::ZERO, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_waited_for_longer_was_asked_when_it_was_asked() {
        let pace = Pace::default();
        let wait = Duration::from_nanos(10);
        let mut backoff = Backoff::start(Time(100), wait);
        backoff.prolong(Time(118));
        assert!(!backoff.fire(Time(110), &pace));
        assert_eq!((backoff.said(), backoff.wait()), (Time(100), wait));
        assert_eq!(backoff.said_once(), Some(Time(100)));
        assert!(backoff.fire(Time(118), &pace));
        assert_eq!((backoff.said(), backoff.said_once()), (Time(118), None));
        assert_eq!(backoff.due(), Time(138));
    }

    #[test]
    fn a_thread_that_waits_shortens_the_first_wait() {
        let (wait, long) = (Duration::from_nanos(10), Duration::from_nanos(40));
        for (now, due) in [(103, 110), (125, 125)] {
            let mut backoff = Backoff::start(Time(100), long);
            backoff.hurry(Time(now), wait);
            assert_eq!((backoff.due(), backoff.said()), (Time(due), Time(100)));
            assert_eq!(backoff.wait(), wait);
        }
        let mut backoff = Backoff::start(Time(100), wait);
        assert!(backoff.fire(Time(110), &Pace::default()));
        let resent = backoff.clone();
        backoff.hurry(Time(111), wait);
        assert_eq!(backoff, resent);
    }
}
