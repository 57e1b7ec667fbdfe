//! Time windows that end at clock ticks only, as MIRAGE+'s did (M10): its `timesleep`
//! counted ticks, so who slept for Δ woke up to a tick early, or, where it slept again
//! until all of Δ was over, up to a tick late. An experiment: nothing else needs it.

use pagemesh_core::Time;
use std::fmt;
use std::time::Duration;

/// How the clock ticks by which windows end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// From one tick to the next: 100 µs to 1 s.
    pub length: Duration,
    /// All of a window has passed when it ends; else up to a tick of it is missing.
    pub strict: bool,
}

impl Tick {
    /// Shorter ticks would be shorter than the time a daemon takes to wake up.
    const SHORTEST: Duration = Duration::from_micros(100);
    const LONGEST: Duration = Duration::from_secs(1);

    /// A tick of a length that makes sense.
    pub(crate) fn of(length: &str) -> Option<Self> {
        let length = humantime::parse_duration(length).ok()?;
        let sensible = (Self::SHORTEST..=Self::LONGEST).contains(&length);
        sensible.then_some(Self {
            length,
            strict: false,
        })
    }
}

impl fmt::Display for Tick {
    /// As in a description of an experiment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sleep = if self.strict { "strict" } else { "early" };
        write!(f, "tick={}us,sleep={sleep}", self.length.as_micros())
    }
}

/// A clock that ticks, from the moment on at which it was made: the clocks of two hosts
/// do not tick together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    length: u64,
    strict: bool,
    origin: u64,
}

impl Ticks {
    pub(crate) fn new(tick: Tick, now: u64) -> Self {
        Self {
            length: u64::try_from(tick.length.as_nanos()).unwrap_or(u64::MAX),
            strict: tick.strict,
            origin: now,
        }
    }

    /// The time that the node is told. The clock of one that wakes early stands still between
    /// ticks, so a window begins, for it, at the last tick.
    pub(crate) fn time(&self, now: u64) -> Time {
        let since = now.saturating_sub(self.origin);
        Time(if self.strict || now < self.origin {
            now
        } else {
            now - since % self.length
        })
    }

    /// When something ends that is due then: at a tick.
    pub(crate) fn due(&self, deadline: u64) -> u64 {
        let since = deadline.saturating_sub(self.origin);
        let ticks = since.div_ceil(self.length);
        self.origin
            .saturating_add(ticks.saturating_mul(self.length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Milliseconds between the beginning of a window of 20 ms, `after` a tick, and its
    /// end, where ticks come every 10 ms.
    fn slept(sleep: &str, after: u64) -> u64 {
        const MS: u64 = 1_000_000;
        let mut tick = Tick::of("10ms").unwrap();
        tick.strict = sleep == "strict";
        let ticks = Ticks::new(tick, 3 * MS);
        let began = 3 * MS + 70 * MS + after * MS;
        let ends = ticks.due(ticks.time(began).0 + 20 * MS);
        assert!(ticks.time(ends).0 >= ticks.time(began).0 + 20 * MS);
        assert!(ticks.time(ends - 1).0 < ticks.time(began).0 + 20 * MS || tick.strict);
        (ends - began) / MS
    }

    #[test]
    fn who_sleeps_by_ticks_wakes_early_or_late() {
        for (after, early, strict) in [(0, 20, 20), (1, 19, 29), (5, 15, 25), (9, 11, 21)] {
            assert_eq!(slept("early", after), early, "{after} ms after a tick");
            assert_eq!(slept("strict", after), strict, "{after} ms after a tick");
        }
    }

    #[test]
    fn before_the_first_tick_time_is_what_it_is() {
        let ticks = Ticks::new(Tick::of("1ms").unwrap(), 500);
        assert_eq!((ticks.time(400), ticks.due(400)), (Time(400), 500));
    }
}
