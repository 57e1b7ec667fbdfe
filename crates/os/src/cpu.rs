//! Which processors this process may use, and how soon a thread gets one.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, sched_yield};
use std::io;
use std::mem::{size_of, zeroed};

/// The shortest turn that a thread may request, in nanoseconds.
const SHORT_TURN: u64 = 100_000;

/// The nice value of a thread that goes first: it weighs seven times as much as others.
const WEIGHT: i32 = -9;

/// The number of processors that this process may use; at least one.
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

/// Yields this processor to another runnable thread.
pub fn yield_now() {
    sched_yield();
}

/// The scheduling priority of a thread on a processor with contention.
///
/// The thread requests short turns: a thread that wakes gets the processor at once if it requests
/// shorter turns than the running thread, unless it owes others a turn; otherwise it may have to
/// wait for the end of the other's turn of some milliseconds (EEVDF). Kernels before 6.12 ignore
/// the request. Threads that it starts do not inherit it.
#[derive(Debug)]
pub struct Standing {
    usual: libc::sched_attr,
    /// True if the kernel permits a greater weight.
    may_rise: bool,
    heavy: bool,
}

impl Standing {
    /// The standing of the calling thread; all other methods must be called from that thread, too.
    /// A thread whose weight was set before keeps it; a greater weight needs `CAP_SYS_NICE` or a
    /// limit (`RLIMIT_NICE`).
    ///
    /// # Errors
    /// If the kernel refuses; then nothing has changed.
    pub fn ask() -> io::Result<Self> {
        let mut usual = scheduling()?;
        usual.sched_runtime = SHORT_TURN;
        usual.sched_flags |= libc::SCHED_FLAG_RESET_ON_FORK as u64;
        let mut standing = Self {
            usual,
            may_rise: usual.sched_nice == 0,
            heavy: false,
        };
        standing.go_first();
        schedule(&usual)?;
        standing.heavy = false;
        Ok(standing)
    }

    /// True if a greater weight is permitted.
    #[must_use]
    pub fn may_rise(&self) -> bool {
        self.may_rise
    }

    /// Raises the weight, so that the thread goes first when it is woken. The more a thread weighs,
    /// the less it owes others; but `sched_yield` no longer helps others, because this thread would
    /// get the next turn, too.
    pub fn go_first(&mut self) {
        if self.may_rise && !self.heavy {
            self.heavy = schedule(&self.heavy()).is_ok();
            self.may_rise = self.heavy;
        }
    }

    /// Restores the usual weight, so that `sched_yield` lets others run.
    pub fn take_turns(&mut self) {
        if self.heavy {
            self.heavy = schedule(&self.usual).is_err();
        }
    }

    fn heavy(&self) -> libc::sched_attr {
        libc::sched_attr {
            sched_nice: WEIGHT,
            ..self.usual
        }
    }
}

/// Sets the scheduling of the calling thread.
fn schedule(wanted: &libc::sched_attr) -> io::Result<()> {
    // SAFETY: the structure is as long as it says; the kernel reads it.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *wanted, 0) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The present scheduling of the calling thread.
fn scheduling() -> io::Result<libc::sched_attr> {
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the structure consists of integers, for which zero is a value.
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

    fn now() -> (u64, i32) {
        let now = scheduling().unwrap();
        (now.sched_runtime, now.sched_nice)
    }

    #[test]
    fn one_thread_goes_first_and_takes_turns() {
        let asks = thread::spawn(move || {
            let before = now();
            let mut standing = Standing::ask().unwrap();
            let usual = now();
            standing.go_first();
            let (first, child) = (now(), thread::spawn(now).join().unwrap());
            standing.take_turns();
            // Older kernels report no turn length.
            let turn = if before.0 == 0 { 0 } else { SHORT_TURN };
            let weight = if standing.may_rise() {
                WEIGHT
            } else {
                before.1
            };
            assert_eq!((usual, first), ((turn, before.1), (turn, weight)));
            assert_eq!((now(), child), (usual, before));
        });
        asks.join().unwrap();
    }

    #[test]
    fn who_has_chosen_a_weight_keeps_it() {
        let asks = thread::spawn(|| {
            let mut chosen = scheduling().unwrap();
            chosen.sched_nice = 3;
            schedule(&chosen).unwrap();
            let mut standing = Standing::ask().unwrap();
            standing.go_first();
            assert_eq!((standing.may_rise(), now().1), (false, 3));
        });
        asks.join().unwrap();
    }
}
