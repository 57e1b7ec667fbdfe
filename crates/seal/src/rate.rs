//! Limits the rate of handshakes that others can make a host compute.

use core::time::Duration;

/// A token bucket for expensive work.
#[derive(Clone, Debug)]
pub(crate) struct Rate {
    left: u32,
    filled: Duration,
}

/// Time per token. A handshake takes about a tenth of a millisecond: in the long run at most one
/// hundredth of a processor is spent on handshakes.
const EVERY: Duration = Duration::from_millis(10);

/// Size of the bucket: enough for a cluster whose hosts all start, or come back, at once.
const BURST: u32 = 256;

impl Rate {
    pub(crate) const fn full() -> Self {
        Self {
            left: BURST,
            filled: Duration::ZERO,
        }
    }

    /// Takes one token from the bucket; false if it is empty.
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
