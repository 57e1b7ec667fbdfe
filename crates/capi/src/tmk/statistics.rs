//! What a Tmk program did, as `--stats` tells it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use pagemesh::Job;

/// Since `Tmk_startup`.
pub struct Statistics {
    began: Instant,
    barriers: AtomicU64,
    locks: AtomicU64,
    waits: AtomicU64,
}

impl Statistics {
    /// Begins to count.
    pub fn start() -> Self {
        Self {
            began: Instant::now(),
            barriers: AtomicU64::new(0),
            locks: AtomicU64::new(0),
            waits: AtomicU64::new(0),
        }
    }

    /// The program came to a barrier.
    pub fn barrier(&self) {
        self.barriers.fetch_add(1, Ordering::Relaxed);
    }

    /// The program wants a lock.
    pub fn lock(&self) {
        self.locks.fetch_add(1, Ordering::Relaxed);
    }

    /// The program waits for a condition.
    pub fn wait(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    /// One line of JSON after a word by which it is found.
    pub fn line(&self, job: &Job) -> String {
        let [barriers, locks, waits] =
            [&self.barriers, &self.locks, &self.waits].map(|count| count.load(Ordering::Relaxed));
        format!(
            "Tmk: {{\"rank\":{},\"processes\":{},\"seconds\":{:.6},\"barriers\":{barriers},\
             \"locks\":{locks},\"waits\":{waits}}}",
            job.rank(),
            job.size(),
            self.began.elapsed().as_secs_f64(),
        )
    }
}
