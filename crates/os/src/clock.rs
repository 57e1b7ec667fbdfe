//! Clocks.

use rustix::time::{ClockId, clock_gettime};

/// The monotonic clock in nanoseconds.
#[must_use]
pub fn monotonic() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// The wall clock in nanoseconds since 1970; people set it.
#[must_use]
pub fn wall() -> u64 {
    nanoseconds(ClockId::Realtime)
}

/// The time since the host started in nanoseconds, with what it slept.
#[must_use]
pub fn since_boot() -> u64 {
    nanoseconds(ClockId::Boottime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
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
