//! The monotonic clock.

use rustix::time::{ClockId, clock_gettime};

/// The monotonic clock in nanoseconds.
#[must_use]
pub fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_goes_back() {
        let first = monotonic();
        assert!(first > 0 && monotonic() >= first);
    }
}
