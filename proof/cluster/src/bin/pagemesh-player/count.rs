//! Counting from many processes at once: every step must be kept.

use crate::say;
use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use pagemesh::{Access, Mapping, Mesh, Segment};
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Args)]
pub(crate) struct Count {
    segment: String,
    /// What keeps the counter whole
    #[arg(long, value_enum)]
    by: By,
    /// How often
    #[arg(long)]
    rounds: u64,
    /// How many processes start together
    #[arg(long)]
    parties: u32,
    /// Where the counter is
    #[arg(long, default_value_t = 0)]
    at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    /// A lock of the segment; the counter itself is loaded and stored.
    Lock,
    /// An atomic addition.
    Atomic,
    /// A `pthread_mutex_t` in the 64 bytes after the counter, made by the test.
    Mutex,
}

/// The barrier at which counters start; its number is also that of their lock.
const START: u64 = 1;

impl Count {
    pub(crate) fn play(self) -> Result<()> {
        let mesh = Mesh::connect()?;
        let segment = mesh.open(&self.segment, Access::Writable)?;
        let memory = segment.map()?;
        segment.barrier(START, self.parties).wait()?;
        for _ in 0..self.rounds {
            self.step(&segment, &memory)?;
        }
        say("counted")?;
        // Stays until all are done, so that the locks need not come from the dead.
        segment.barrier(START, self.parties).wait()?;
        Ok(())
    }

    fn step(&self, segment: &Segment, memory: &Mapping) -> Result<()> {
        let counter = memory.atomic_u64(self.at)?;
        match self.by {
            By::Atomic => {
                counter.fetch_add(1, Ordering::SeqCst);
            }
            By::Lock => {
                let guard = segment.lock(START).lock()?;
                ensure!(
                    !guard.recovered(),
                    "nobody died, yet the lock was recovered"
                );
                raise(counter);
                guard.unlock();
            }
            By::Mutex => {
                let mutex = Mutex::in_memory(memory, self.at + 64);
                mutex.lock()?;
                raise(counter);
                mutex.unlock()?;
            }
        }
        Ok(())
    }
}

/// Not atomic: of two processes at once one loses a step.
fn raise(counter: &AtomicU64) {
    let seen = counter.load(Ordering::Relaxed);
    counter.store(seen + 1, Ordering::Relaxed);
}

/// A mutex for the processes of one node.
struct Mutex(*mut libc::pthread_mutex_t);

impl Mutex {
    fn in_memory(memory: &Mapping, at: usize) -> Self {
        assert!(at + size_of::<libc::pthread_mutex_t>() <= memory.len());
        // SAFETY: just checked to lie in the mapping.
        Self(unsafe { memory.as_ptr().add(at) }.cast())
    }

    fn lock(&self) -> Result<()> {
        // SAFETY: the test has made a mutex there, and nothing removes it.
        let failed = unsafe { libc::pthread_mutex_lock(self.0) };
        ensure!(failed == 0, "pthread_mutex_lock: {failed}");
        Ok(())
    }

    fn unlock(&self) -> Result<()> {
        // SAFETY: as above; this thread has locked it.
        let failed = unsafe { libc::pthread_mutex_unlock(self.0) };
        ensure!(failed == 0, "pthread_mutex_unlock: {failed}");
        Ok(())
    }
}
