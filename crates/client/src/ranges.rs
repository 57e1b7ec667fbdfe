//! The list of address ranges where segments are mapped. Reading it neither blocks nor allocates,
//! because its readers stand in for `munmap` and similar calls, which allocators make.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One entry of the list: a range, or free.
#[derive(Debug)]
struct Slot {
    start: AtomicUsize,
    /// 0 while the slot is free or being filled.
    end: AtomicUsize,
}

/// A fixed number of entries of the list.
#[derive(Debug)]
struct Chunk {
    slots: [Slot; 32],
    next: OnceLock<Box<Chunk>>,
}

static LIST: Chunk = Chunk::new();

/// An entry of the list; dropping it removes the range.
#[derive(Debug)]
pub struct Claim(&'static Slot);

impl Claim {
    /// Adds a range to the list.
    pub fn new(range: &Range<usize>) -> Self {
        let mut chunk = &LIST;
        loop {
            if let Some(slot) = chunk.slots.iter().find(|slot| slot.take(range)) {
                return Self(slot);
            }
            chunk = chunk.next.get_or_init(|| Box::new(Chunk::new()));
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.end.store(0, Ordering::Release);
        self.0.start.store(0, Ordering::Release);
    }
}

/// A listed range that overlaps `bytes`.
#[must_use]
pub fn mapped_within(bytes: &Range<usize>) -> Option<Range<usize>> {
    let chunks = std::iter::successors(Some(&LIST), |chunk| chunk.next.get().map(|next| &**next));
    let mut ranges = chunks
        .flat_map(|chunk| &chunk.slots)
        .filter_map(Slot::range);
    ranges.find(|range| range.start < bytes.end && bytes.start < range.end)
}

impl Chunk {
    const fn new() -> Self {
        Self {
            slots: [const { Slot::new() }; 32],
            next: OnceLock::new(),
        }
    }
}

impl Slot {
    const fn new() -> Self {
        Self {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
        }
    }

    /// Stores the range in this entry if it is free. No range starts at 0.
    fn take(&self, range: &Range<usize>) -> bool {
        let (new, relaxed) = (range.start, Ordering::Relaxed);
        let taken = self
            .start
            .compare_exchange(0, new, Ordering::Acquire, relaxed);
        if taken.is_ok() {
            self.end.store(range.end, Ordering::Release);
        }
        taken.is_ok()
    }

    fn range(&self) -> Option<Range<usize>> {
        let end = self.end.load(Ordering::Acquire);
        (end != 0).then(|| self.start.load(Ordering::Relaxed)..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_until_they_are_given_up() {
        // Far from the mappings of other tests.
        let at = |number: usize| 0x10_0000 + number * 0x1000..0x10_0800 + number * 0x1000;
        let claims: Vec<_> = (0..100).map(|number| Claim::new(&at(number))).collect();
        for number in 0..100 {
            let Range { start, end } = at(number);
            assert_eq!(mapped_within(&(end - 1..end)), Some(start..end));
            assert_eq!(mapped_within(&(start - 0x100..start + 1)), Some(start..end));
            assert_eq!(mapped_within(&(end..end + 1)), None);
            assert_eq!(mapped_within(&(start - 1..start)), None);
        }
        drop(claims);
        assert_eq!(mapped_within(&(0x10_0000..0x20_0000)), None);
        let again = Claim::new(&at(7));
        assert_eq!(mapped_within(&(0x10_0000..0x20_0000)), Some(at(7)));
        drop(again);
    }
}
