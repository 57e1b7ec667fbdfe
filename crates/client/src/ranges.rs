//! Where segments are mapped: a list for those who may neither wait nor allocate,
//! since they stand in for `munmap` and its kin, which allocators call.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A range, or room for one.
#[derive(Debug)]
struct Slot {
    start: AtomicUsize,
    /// 0 while the slot is free or being filled.
    end: AtomicUsize,
}

/// Some of the list.
#[derive(Debug)]
struct Chunk {
    slots: [Slot; 32],
    next: OnceLock<Box<Chunk>>,
}

static LIST: Chunk = Chunk::new();

/// A range on the list, until this is dropped.
#[derive(Debug)]
pub struct Claim(&'static Slot);

impl Claim {
    /// Puts a range on the list.
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

/// The range of a mapping of some segment that has any of these bytes.
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

    /// Fills it, if it is free. No range starts at 0.
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
        // Far from where any mapping of other tests is.
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
