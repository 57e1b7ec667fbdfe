//! The allocator of this library. The program may be inside its own allocator when a signal handler
//! makes a System V call, and a child of vfork or of a multi-threaded process may find any lock
//! taken; therefore this allocator has no locks.
//!
//! Sizes are powers of two, each with a list of free pieces; if the list is empty, a piece is cut
//! from one range of addresses. Large blocks are mapped individually.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bytes of the address range; memory is used as pieces are touched.
const STRETCH: usize = 1 << 28;
/// Bytes of the smallest piece: room for the index of the next free one.
const SMALLEST: usize = 16;
/// Number of piece sizes: from 16 bytes to 1 MiB.
const CLASSES: usize = 17;

/// A lock-free allocator; see the module.
pub struct Heap {
    base: AtomicUsize,
    used: AtomicUsize,
    /// The first free piece of each size, in the lower half: its offset in units of [`SMALLEST`]
    /// above the base, plus one. The upper half counts the changes of the list.
    free: [AtomicU64; CLASSES],
}

impl Heap {
    pub const fn new() -> Self {
        Self {
            base: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            free: [const { AtomicU64::new(0) }; CLASSES],
        }
    }

    fn base(&self) -> usize {
        let base = self.base.load(Ordering::Acquire);
        if base != 0 {
            return base;
        }
        let fresh = map(STRETCH);
        if fresh == 0 {
            return 0;
        }
        let put = self
            .base
            .compare_exchange(0, fresh, Ordering::AcqRel, Ordering::Acquire);
        if let Err(other) = put {
            unmap(fresh, STRETCH);
            return other;
        }
        fresh
    }

    fn take(&self, class: usize) -> *mut u8 {
        let base = self.base();
        if base == 0 {
            return null_mut();
        }
        let list = &self.free[class];
        let mut seen = list.load(Ordering::Acquire);
        while let Some(place) = (seen as u32).checked_sub(1) {
            let address = base + place as usize * SMALLEST;
            // Another thread may have taken it meanwhile: then the value is not the index of a
            // piece, and the exchange fails.
            // SAFETY: pieces are never returned to the system.
            let next = unsafe { &*(address as *const AtomicU64) }.load(Ordering::Relaxed);
            let changed = (seen >> 32).wrapping_add(1) << 32;
            let then = changed | u64::from(next as u32);
            match list.compare_exchange_weak(seen, then, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return address as *mut u8,
                Err(now) => seen = now,
            }
        }
        let size = SMALLEST << class;
        let at = self.used.fetch_add(2 * size, Ordering::Relaxed);
        if at > STRETCH - 2 * size {
            return null_mut();
        }
        // A piece is aligned to its size.
        (base + at.next_multiple_of(size)) as *mut u8
    }

    fn give(&self, piece: *mut u8, class: usize) {
        let place = (piece as usize - self.base()) / SMALLEST + 1;
        let list = &self.free[class];
        // SAFETY: the piece belongs to this allocator again, large enough and aligned.
        let next = unsafe { &*(piece.cast::<AtomicU64>()) };
        let mut seen = list.load(Ordering::Acquire);
        loop {
            next.store(u64::from(seen as u32), Ordering::Relaxed);
            let changed = (seen >> 32).wrapping_add(1) << 32;
            let then = changed | place as u64;
            match list.compare_exchange_weak(seen, then, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }
}

/// The size class for a layout; `None` if it is too large.
fn class(layout: Layout) -> Option<usize> {
    let size = layout.size().max(layout.align()).max(SMALLEST);
    let class = size.next_power_of_two().trailing_zeros() - SMALLEST.trailing_zeros();
    (class < CLASSES as u32).then_some(class as usize)
}

// SAFETY: pieces are at least as large and as aligned as requested, because the base is aligned to
// a page and larger alignments get pieces cut at multiples of their size from it or a mapping; a
// piece has one user until it is freed.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class(layout) {
            Some(class) => self.take(class),
            None => map(layout.size()) as *mut u8,
        }
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        match class(layout) {
            Some(class) => self.give(piece, class),
            None => unmap(piece as usize, layout.size()),
        }
    }
}

/// Maps memory; 0 if there is none.
fn map(length: usize) -> usize {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh mapping touches no memory in use.
    let base = unsafe { libc::mmap(null_mut(), length, rights, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        0
    } else {
        base as usize
    }
}

fn unmap(base: usize, length: usize) {
    // SAFETY: exactly what `map` mapped.
    unsafe { libc::munmap(base as *mut libc::c_void, length) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn pieces_do_not_overlap_and_come_again() {
        let heap = Heap::new();
        let layout = Layout::from_size_align(100, 8).unwrap();
        // SAFETY: used as an allocator is used.
        let pieces: Vec<_> = (0..100).map(|_| unsafe { heap.alloc(layout) }).collect();
        let places: BTreeSet<_> = pieces.iter().map(|piece| *piece as usize).collect();
        assert_eq!(places.len(), 100);
        for (one, next) in places.iter().zip(places.iter().skip(1)) {
            assert!(next - one >= 100);
        }
        for piece in pieces {
            // SAFETY: as above.
            unsafe { heap.dealloc(piece, layout) };
        }
        // SAFETY: as above.
        let again = unsafe { heap.alloc(layout) } as usize;
        assert!(places.contains(&again));
    }

    #[test]
    fn threads_never_get_the_same_piece() {
        static SHARED: Heap = Heap::new();
        let work = || {
            let layout = Layout::from_size_align(64, 8).unwrap();
            for round in 0..20_000_usize {
                // SAFETY: used as an allocator is used; the piece belongs to this thread alone.
                unsafe {
                    let one = SHARED.alloc(layout).cast::<usize>();
                    let two = SHARED.alloc(layout).cast::<usize>();
                    one.write(round);
                    two.write(!round);
                    assert_eq!((one.read(), two.read()), (round, !round));
                    SHARED.dealloc(one.cast(), layout);
                    SHARED.dealloc(two.cast(), layout);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(work);
            }
        });
    }
}
