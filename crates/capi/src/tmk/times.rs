//! A histogram of waiting times, exact to a sixteenth.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of buckets per power of two.
const PARTS: u64 = 16;

/// Longest waiting time in nanoseconds; longer waits count as this long: 69 seconds.
const LONGEST: u64 = (1 << 36) - 1;

/// Number of waits by length.
pub struct Times(Vec<AtomicU64>);

impl Times {
    /// An empty histogram.
    pub fn new() -> Self {
        let places = place(LONGEST) + 1;
        Self((0..places).map(|_| AtomicU64::new(0)).collect())
    }

    /// Adds a wait.
    pub fn add(&self, wait: Duration) {
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(LONGEST);
        self.0[place(nanos.min(LONGEST))].fetch_add(1, Ordering::Relaxed);
    }

    /// As JSON: nanoseconds and number of waits, for each bucket that is not empty.
    pub fn json(&self) -> String {
        let pairs = self.0.iter().enumerate().filter_map(|(place, count)| {
            let count = count.load(Ordering::Relaxed);
            (count > 0).then(|| format!("[{},{count}]", length(place)))
        });
        format!("[{}]", pairs.collect::<Vec<_>>().join(","))
    }
}

fn place(nanos: u64) -> usize {
    let power = nanos.max(PARTS).ilog2() - PARTS.ilog2();
    (u64::from(power) * PARTS + (nanos >> power)) as usize
}

/// The middle of a bucket, in nanoseconds.
fn length(place: usize) -> u64 {
    let place = place as u64;
    if place < 2 * PARTS {
        return place;
    }
    let power = place / PARTS - 1;
    ((place - power * PARTS) << power) + (1 << (power - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_length_has_a_place_near_it() {
        let mut last = 0;
        for nanos in (0..200_000).chain([1 << 30, LONGEST]) {
            let place = place(nanos);
            assert!(place >= last);
            last = place;
            let off = length(place).abs_diff(nanos);
            assert!(off * 2 * PARTS <= nanos, "{nanos}: {}", length(place));
        }
    }

    #[test]
    fn waits_are_told_by_length() {
        let times = Times::new();
        for nanos in [7, 7, 100_000, u64::MAX] {
            times.add(Duration::from_nanos(nanos));
        }
        let long = length(place(LONGEST));
        let hundred = length(place(100_000));
        let expected = format!("[[7,2],[{hundred},1],[{long},1]]");
        assert_eq!(times.json(), expected);
    }
}
