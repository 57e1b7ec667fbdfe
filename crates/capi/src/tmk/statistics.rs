//! What a Tmk program did, as `--stats` tells it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use pagemesh::Job;

/// Since `Tmk_startup`.
pub struct Statistics {
    began: Instant,
    user: f64,
    system: f64,
    barriers: AtomicU64,
    locks: AtomicU64,
    waits: AtomicU64,
}

impl Statistics {
    /// Begins to count.
    pub fn start() -> Self {
        let (user, system) = processor_seconds();
        Self {
            began: Instant::now(),
            user,
            system,
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
        let (user, system) = processor_seconds();
        let [barriers, locks, waits] =
            [&self.barriers, &self.locks, &self.waits].map(|count| count.load(Ordering::Relaxed));
        format!(
            "Tmk: {{\"rank\":{},\"processes\":{},\"seconds\":{:.6},\"barriers\":{barriers},\
             \"locks\":{locks},\"waits\":{waits},\"user\":{:.6},\"system\":{:.6}}}",
            job.rank(),
            job.size(),
            self.began.elapsed().as_secs_f64(),
            user - self.user,
            system - self.system,
        )
    }
}

/// What this process has used so far, as user and as system.
fn processor_seconds() -> (f64, f64) {
    // SAFETY: all zeros is a valid rusage; the kernel fills it, or leaves it so.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    (seconds(usage.ru_utime), seconds(usage.ru_stime))
}
