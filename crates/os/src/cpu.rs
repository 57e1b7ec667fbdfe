//! Which processors this process may use, and how soon it gets one.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, sched_yield};
use std::io;
use std::mem::{size_of, zeroed};

/// The shortest turn a thread may ask for, in nanoseconds.
const SHORT_TURN: u64 = 100_000;

/// The weight of a thread that goes first, as a nice value: seven times that of others.
const WEIGHT: i32 = -9;

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

/// How soon a thread gets a processor that others want, too.
///
/// It asks for short turns: whoever asks for shorter turns than the thread that runs gets the
/// processor as soon as it is woken, unless it owes others a turn; otherwise it may have to wait
/// until the other's turn of some milliseconds is over (EEVDF). Kernels before 6.12 take no notice.
/// Those it starts have no part in it.
#[derive(Debug)]
pub struct Standing {
    usual: libc::sched_attr,
    /// The kernel lets it weigh more.
    may_rise: bool,
    heavy: bool,
}

impl Standing {
    /// Of the calling thread, which every other call has to come from, too. Whoever has set its
    /// weight keeps that; to weigh more needs `CAP_SYS_NICE` or a limit (`RLIMIT_NICE`).
    ///
    /// # Errors
    /// If the kernel does not let us: nothing is different then.
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

    /// Whether it may weigh more.
    #[must_use]
    pub fn may_rise(&self) -> bool {
        self.may_rise
    }

    /// When woken from now on. A thread owes others the less the more it weighs, but giving way
    /// means nothing any more: it would get the next turn, too.
    pub fn go_first(&mut self) {
        if self.may_rise && !self.heavy {
            self.heavy = schedule(&self.heavy()).is_ok();
            self.may_rise = self.heavy;
        }
    }

    /// As any other, if it gives way.
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

/// Schedules the calling thread so.
fn schedule(wanted: &libc::sched_attr) -> io::Result<()> {
    // SAFETY: the structure is as long as it says; the kernel reads it.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *wanted, 0) };
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
            // Older kernels say nothing of turns.
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
