//! A hash in which only the distance to now counts: two states that differ by
//! when they happened are one.

use pagemesh_core::Time;
use pagemesh_core::limits::USE_GUARD;
use std::hash::{Hash, Hasher};
use std::time::Duration;
use twox_hash::XxHash3_128;

/// Older than anything a node still measures from.
const LONG_AGO: i64 = -(USE_GUARD.as_nanos() as i64);

/// About what one host's state takes, in bytes.
const STATE: usize = 4096;

/// Later than anything an exploration waits for; signs of life are.
const NEVER: i64 = 10_000_000_000;

/// Hashes the state of one host. A node's times are the only signed numbers in
/// it (see [`Time`]): that is how they are told from all others. A state is many
/// small values: they are hashed together, which is much faster than one by one.
pub(crate) struct Timeless {
    bytes: Vec<u8>,
    now: i64,
    long_ago: i64,
}

impl Timeless {
    /// A hasher for a host whose clock says `now`.
    pub(crate) fn at(now: Time) -> Self {
        Self {
            bytes: Vec::with_capacity(STATE),
            now: now.0 as i64,
            long_ago: LONG_AGO,
        }
    }

    /// The same where nodes measure from longer ago.
    pub(crate) fn since(now: Time, past: Duration) -> Self {
        Self {
            long_ago: -(past.as_nanos() as i64),
            ..Self::at(now)
        }
    }

    /// The hash of everything so far, long enough to stand for it.
    pub(crate) fn digest(&self) -> u128 {
        XxHash3_128::oneshot(&self.bytes)
    }
}

impl Hasher for Timeless {
    fn finish(&self) -> u64 {
        self.digest() as u64
    }

    fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn write_i64(&mut self, time: i64) {
        let distance = time.saturating_sub(self.now).clamp(self.long_ago, NEVER);
        self.write(&distance.to_le_bytes());
    }
}

/// The digest of something without times.
pub(super) fn digest(what: &impl Hash) -> u128 {
    let mut hasher = Timeless::at(Time::ZERO);
    what.hash(&mut hasher);
    hasher.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(now: u64, what: &impl Hash) -> u128 {
        let mut hasher = Timeless::at(Time(now));
        what.hash(&mut hasher);
        hasher.digest()
    }

    #[test]
    fn only_the_distance_to_now_counts() {
        let due = |now: u64| (7_u64, Time(now + 5), Time(now - 3));
        assert_eq!(at(100, &due(100)), at(900, &due(900)));
        assert_ne!(at(100, &due(100)), at(101, &due(100)));
        assert_ne!(at(0, &7_u64), at(1, &Time(7)));
    }

    #[test]
    fn what_is_long_ago_is_not_measured() {
        let (second, later) = (Time(1_000_000_000), 5_000_000_000);
        assert_eq!(at(later, &second), at(later + 1, &second));
    }
}
