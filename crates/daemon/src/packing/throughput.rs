//! The throughput of a link: so many bytes in so little time that it cannot be slow.
//!
//! Probes wait behind bursts of pages, so a fast link in use can look slow. The number of pages
//! asked for ahead is bounded, so pages that left some time ago have arrived.

use pagemesh_compress::PAGE;

/// Bytes of one window. Twice the bytes of a segment that may be under way at once (`AHEAD` in the
/// core's limits), which a queue on the path can have swallowed.
const WINDOW: usize = 1024 * PAGE;

/// The clock is read after so many bytes.
const LOOK: usize = 64 * PAGE;

/// Bytes that left, since when.
#[derive(Debug, Default)]
pub(super) struct Throughput {
    bytes: usize,
    looked: usize,
    since: u64,
}

impl Throughput {
    /// Bytes leave. Returns the time if a whole window left in less than `nanos` for each page.
    pub(super) fn sent(
        &mut self,
        bytes: usize,
        nanos: u64,
        clock: impl FnOnce() -> u64,
    ) -> Option<u64> {
        self.bytes += bytes;
        if self.bytes < self.looked + LOOK && self.bytes < WINDOW {
            return None;
        }
        let now = clock();
        self.looked = self.bytes;
        let late = now.saturating_sub(self.since) > nanos * (WINDOW / PAGE) as u64;
        let complete = self.bytes >= WINDOW;
        if late || complete {
            *self = Self {
                since: now,
                ..Self::default()
            };
        }
        (complete && !late).then_some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends so many pages, one each `step`, at most `nanos` a page being fast; how
    /// often that was seen.
    fn walk(throughput: &mut Throughput, now: &mut u64, pages: usize, step: u64) -> usize {
        let sent = (0..pages).filter(|_| {
            *now += step;
            throughput.sent(PAGE, 60_000, || *now).is_some()
        });
        sent.count()
    }

    #[test]
    fn a_walk_over_a_fast_link_is_seen() {
        let (mut throughput, mut now) = (Throughput::default(), 1_000_000_000);
        walk(&mut throughput, &mut now, 64, 6_000);
        assert_eq!(walk(&mut throughput, &mut now, 4096, 6_000), 4);
        // A pause is no walk, but neither does it matter for long.
        now += 1_000_000_000;
        assert!(walk(&mut throughput, &mut now, 4096, 6_000) >= 3);
    }

    #[test]
    fn a_slow_link_is_never_taken_for_fast() {
        let (mut throughput, mut now) = (Throughput::default(), 1_000_000_000);
        assert_eq!(walk(&mut throughput, &mut now, 10_000, 330_000), 0);
        // Even if a queue swallows at once all that may be under way.
        for _ in 0..20 {
            assert_eq!(walk(&mut throughput, &mut now, 512, 1_000), 0);
            assert_eq!(walk(&mut throughput, &mut now, 512, 330_000), 0);
            now += 512 * 330_000;
        }
    }
}
