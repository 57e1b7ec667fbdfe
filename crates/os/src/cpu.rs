//! Which processors this process may use.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, sched_yield};
use std::io;

/// How many processors this process may use; at least one.
#[must_use]
pub fn available() -> usize {
    sched_getaffinity(None).map_or(1, |set| (set.count() as usize).max(1))
}

/// Binds the calling thread to one processor.
///
/// # Errors
/// If there is no such processor, or this process may not use it.
pub fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Lets another runnable thread of this processor go first.
pub fn yield_now() {
    sched_yield();
}
