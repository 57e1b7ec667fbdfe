//! How many handshakes a host may be made to compute.

use core::time::Duration;

/// A bucket of leave to do something dear.
#[derive(Clone, Debug)]
pub(crate) struct Rate {
    left: u32,
    filled: Duration,
}

/// A handshake costs about a tenth of a millisecond: at most one hundredth of a
/// processor goes there for long.
const EVERY: Duration = Duration::from_millis(10);

/// A cluster that starts, or comes back, all at once.
const BURST: u32 = 256;

impl Rate {
    pub(crate) const fn full() -> Self {
        Self {
            left: BURST,
            filled: Duration::ZERO,
        }
    }

    /// Takes leave once, if there is some.
    pub(crate) fn take(&mut self, now: Duration) -> bool {
        let since = now.saturating_sub(self.filled);
        let more = since.as_nanos() / EVERY.as_nanos();
        if more > 0 {
            self.left =
                u32::try_from(more).map_or(BURST, |more| BURST.min(self.left.saturating_add(more)));
            self.filled = now;
        }
        let leave = self.left > 0;
        self.left -= u32::from(leave);
        leave
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_gets_little() {
        let mut rate = Rate::full();
        let second = (0..1_000_000_u64).map(Duration::from_micros);
        let taken = second.filter(|now| rate.take(*now)).count();
        assert!(
            (BURST as usize..BURST as usize + 101).contains(&taken),
            "{taken}"
        );
        assert!(rate.take(Duration::from_secs(9)));
    }
}
