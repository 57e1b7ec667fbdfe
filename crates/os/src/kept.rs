//! Descriptors of this library in a program that does not know of them.
//!
//! A program that becomes a daemon closes every descriptor number there may be, without meaning
//! descriptors that it does not know of. Therefore the library's descriptors are marked, and have
//! numbers that few programs choose themselves; the replacements of `close(2)` check the marks
//! first.

use rustix::io::fcntl_dupfd_cloexec;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// The library's descriptors get numbers from here on, if available. Below 1024, the default limit
/// of a process.
const HIGH: RawFd = 900;

/// Limit of the numbers that can be marked.
const MOST: usize = 1 << 16;

static MARKS: [AtomicU64; MOST / 64] = [const { AtomicU64::new(0) }; MOST / 64];

/// While this lives, a descriptor counts as the library's. Drop it before the descriptor.
#[derive(Debug)]
pub struct Mark(RawFd);

impl Mark {
    /// Marks a descriptor, which must stay open as long as the mark.
    pub fn of(fd: impl AsFd) -> Self {
        let fd = fd.as_fd().as_raw_fd();
        if let Some((word, bit)) = place(fd) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Self(fd)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if let Some((word, bit)) = place(self.0) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

/// Moves a descriptor to a high number and marks it.
#[must_use]
pub fn kept(fd: OwnedFd) -> (Mark, OwnedFd) {
    let fd = moved_up(fd);
    (Mark::of(&fd), fd)
}

/// The descriptor under a higher number, or unchanged if none is available.
#[must_use]
pub fn moved_up(fd: OwnedFd) -> OwnedFd {
    fcntl_dupfd_cloexec(&fd, HIGH).unwrap_or(fd)
}

/// True if the descriptor is marked as the library's.
#[must_use]
pub fn is_kept(fd: RawFd) -> bool {
    place(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// The numbers of a range that are not marked.
pub fn others(range: RangeInclusive<u32>) -> impl Iterator<Item = RangeInclusive<u32>> {
    let (mut next, last) = (Some(*range.start()), *range.end());
    std::iter::from_fn(move || {
        let mut first = next.filter(|first| *first <= last)?;
        while is_kept(RawFd::try_from(first).unwrap_or(-1)) {
            first = first.checked_add(1).filter(|first| *first <= last)?;
        }
        let marked = (first..=last.min(MOST as u32)).find(|number| is_kept(*number as RawFd));
        next = marked.and_then(|marked| marked.checked_add(1));
        Some(first..=marked.map_or(last, |marked| marked - 1))
    })
}

fn place(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(fd).ok()?;
    Some((MARKS.get(number / 64)?, 1 << (number % 64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_are_left_out() {
        let (one, other) = std::io::pipe().unwrap();
        let one = moved_up(one.into());
        let other = moved_up(other.into());
        let (low, high) = (one.as_raw_fd(), other.as_raw_fd());
        assert!(HIGH <= low && low < high, "{low} {high}");
        let marks = (Mark::of(&one), Mark::of(&other));
        assert!(is_kept(low) && is_kept(high) && !is_kept(3) && !is_kept(-1));
        let (low, high) = (low as u32, high as u32);
        let all: Vec<_> = others(3..=u32::MAX).collect();
        assert!(all.starts_with(&[3..=low - 1]), "{all:?}");
        assert!(all.ends_with(&[high + 1..=u32::MAX]), "{all:?}");
        assert!(
            all.iter()
                .all(|range| !range.contains(&low) && !range.contains(&high))
        );
        assert_eq!(others(low..=low).count(), 0);
        drop(marks);
        assert_eq!(others(3..=high).collect::<Vec<_>>(), [3..=high]);
    }
}
