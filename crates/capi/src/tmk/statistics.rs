//! Statistics of a Tmk program, as printed by `--stats`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pagemesh::{Guarded, Job};

use super::times::Times;

/// Counts since `Tmk_startup`.
pub struct Statistics {
    began: Instant,
    user: f64,
    system: f64,
    barriers: AtomicU64,
    locks: AtomicU64,
    waits: AtomicU64,
    /// Time at each barrier in nanoseconds, in order, for the first [`BARRIERS`] of them.
    barrier_times: Guarded<Vec<u64>>,
    lock_times: Times,
}

/// Barriers whose times are told.
const BARRIERS: usize = 4096;

impl Statistics {
    /// Starts counting.
    pub fn start() -> Self {
        let (user, system) = processor_seconds();
        Self {
            began: Instant::now(),
            user,
            system,
            barriers: AtomicU64::new(0),
            locks: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            barrier_times: Guarded::default(),
            lock_times: Times::new(),
        }
    }

    /// Runs `wait`, in which the program waits at a barrier, and counts it.
    pub fn barrier<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.barriers.fetch_add(1, Ordering::Relaxed);
        let (result, took) = timed(wait);
        let mut times = self.barrier_times.lock();
        if times.len() < BARRIERS {
            times.push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        }
        result
    }

    /// Runs `wait`, in which the program waits for a lock, and counts it.
    pub fn lock<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.locks.fetch_add(1, Ordering::Relaxed);
        let (result, took) = timed(wait);
        self.lock_times.add(took);
        result
    }

    /// Counts a wait for a condition.
    pub fn wait(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    /// The statistics as one line of JSON after a keyword by which it is found.
    pub fn line(&self, job: &Job) -> String {
        let (user, system) = processor_seconds();
        let [barriers, locks, waits] =
            [&self.barriers, &self.locks, &self.waits].map(|count| count.load(Ordering::Relaxed));
        format!(
            "Tmk: {{\"rank\":{},\"processes\":{},\"seconds\":{:.6},\"barriers\":{barriers},\
             \"locks\":{locks},\"waits\":{waits},\"user\":{:.6},\"system\":{:.6},\
             \"barrier_times\":{:?},\"lock_times\":{}}}",
            job.rank(),
            job.size(),
            self.began.elapsed().as_secs_f64(),
            user - self.user,
            system - self.system,
            self.barrier_times.lock().as_slice(),
            self.lock_times.json(),
        )
    }
}

fn timed<T>(wait: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let result = wait();
    (result, began.elapsed())
}

/// CPU time of this process so far, in user and in system mode, in seconds.
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
