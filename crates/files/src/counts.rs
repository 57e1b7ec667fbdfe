//! Where what was read came from.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a view.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    here: AtomicU64,
    came: AtomicU64,
    read: AtomicU64,
    past: AtomicU64,
    bytes: AtomicU64,
}

/// What was read through a view. What the kernel still had of a file is not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Pages that this host cached.
    pub here: u64,
    /// Pages that other hosts cached.
    pub came: u64,
    /// Pages that were read from the directory, to be cached.
    pub read: u64,
    /// Reads that went past the cache: of files that are written to, or were just changed.
    pub past: u64,
    /// Bytes read from the directory.
    pub bytes: u64,
}

impl Counts {
    /// Pages of one request were found in caches.
    pub(crate) fn found(&self, here: u64, came: u64) {
        self.here.fetch_add(here, Ordering::Relaxed);
        self.came.fetch_add(came, Ordering::Relaxed);
    }

    /// Pages were read from the directory.
    pub(crate) fn read_pages(&self, pages: u64) {
        self.read.fetch_add(pages, Ordering::Relaxed);
    }

    /// A read went past the cache.
    pub(crate) fn went_past(&self) {
        self.past.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes were read from the directory.
    pub(crate) fn read_bytes(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// All counters.
    pub(crate) fn read(&self) -> Counted {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counted {
            here: get(&self.here),
            came: get(&self.came),
            read: get(&self.read),
            past: get(&self.past),
            bytes: get(&self.bytes),
        }
    }
}
