//! Whether the wall clock of this host was set.

use pagemesh_os::clock;
use pagemesh_wire::local::Trouble;

/// Whether somebody has set the wall clock since this daemon started. Only the expiry of join tokens
/// goes by that clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WallClock {
    /// The wall clock less the time since the host started, in nanoseconds.
    began: i128,
}

/// Less is what keeps a clock right.
const SET: u64 = 60_000_000_000;

impl WallClock {
    pub(crate) fn new() -> Self {
        Self {
            began: Self::offset(),
        }
    }

    fn offset() -> i128 {
        i128::from(clock::wall()) - i128::from(clock::since_boot())
    }

    pub(super) fn problem(self) -> Option<String> {
        self.judge(Self::offset())
    }

    fn judge(self, offset: i128) -> Option<String> {
        let set = offset - self.began;
        let seconds = set.unsigned_abs() / 1_000_000_000;
        let whither = if set < 0 { "back" } else { "forward" };
        (set.unsigned_abs() > u128::from(SET)).then(|| {
            Trouble::ClockSet.line(format_args!(
                "the clock of this host was set {whither} by {seconds} s since its daemon started; \
                 join tokens expire by it, and nothing else: see that it is right, then replace \
                 the daemon (`pagemesh daemon --replace`)"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_is_told_and_one_that_drifts_is_not() {
        let clock = WallClock { began: 5 };
        assert_eq!(clock.judge(5 + i128::from(SET)), None);
        let back = clock.judge(-3_600_000_000_000).unwrap();
        assert!(back.contains("set back by 3600 s"), "{back}");
        let forward = clock.judge(120_000_000_005).unwrap();
        assert!(forward.contains("set forward by 120 s"), "{forward}");
        assert_eq!(WallClock::new().problem(), None);
    }
}
