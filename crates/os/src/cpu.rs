//! Which processors this process may use, and how soon it gets one.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, sched_yield};
use std::io;
use std::mem::{size_of, zeroed};

/// The shortest turn a thread may ask for, in nanoseconds.
const SHORT_TURN: u64 = 100_000;

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

/// Asks for short turns for the calling thread, not for those it starts. Whoever
/// asks for shorter turns than the thread that runs gets the processor as soon as it is woken;
/// otherwise it may have to wait until the other's turn of some milliseconds is over
/// (EEVDF). Kernels before 6.12 take no notice.
///
/// # Errors
/// If the kernel does not let us: nothing is different then.
pub fn ask_for_short_turns() -> io::Result<()> {
    let mut wanted = scheduling()?;
    wanted.sched_runtime = SHORT_TURN;
    wanted.sched_flags |= libc::SCHED_FLAG_RESET_ON_FORK as u64;
    // SAFETY: the structure is as long as it says; the kernel reads it.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// How the calling thread is scheduled.
fn scheduling() -> io::Result<libc::sched_attr> {
    let size = size_of::<libc::sched_attr>();
    // SAFETY: it is made of integers, for which zero is a value.
    let mut now: libc::sched_attr = unsafe { zeroed() };
    // SAFETY: the kernel writes no more than the size it is told.
    let done = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut now, size, 0) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn short_turns_are_for_one_thread() {
        let turn = || scheduling().unwrap().sched_runtime;
        let asks = thread::spawn(move || {
            let before = turn();
            ask_for_short_turns().unwrap();
            (before, turn(), thread::spawn(turn).join().unwrap())
        });
        let (before, after, child) = asks.join().unwrap();
        // Older kernels say nothing of turns.
        let expected = if before == 0 { 0 } else { SHORT_TURN };
        assert_eq!((after, child), (expected, before));
    }
}
