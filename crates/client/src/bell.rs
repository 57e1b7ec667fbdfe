//! Sleeping until a wake-up, a deadline or a signal.
//!
//! The standard library's condition variables do not return when a signal arrives; a language whose
//! Ctrl-C handler runs when a call returns needs the call to return.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags};
use rustix::time::Timespec;

use crate::fork::Generation;
use crate::{Error, Result};

/// The moment `timeout` from now; `None` (no deadline) if it cannot be represented.
pub fn after(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}

/// The time left until `until`, in the form that system calls take.
pub fn left(until: Option<Instant>) -> Result<Option<Timespec>> {
    let Some(until) = until else { return Ok(None) };
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(Error::TimedOut);
    }
    Ok(Some(left.try_into().unwrap_or(Timespec {
        tv_sec: i64::MAX,
        tv_nsec: 0,
    })))
}

/// Sleeps while `word` is `value`; may wake spuriously.
fn sleep(word: &AtomicU32, value: u32, until: Option<Instant>) -> Result<()> {
    match futex::wait(word, Flags::PRIVATE, value, left(until)?.as_ref()) {
        Ok(()) | Err(Errno::AGAIN) => Ok(()),
        Err(Errno::TIMEDOUT) => Err(Error::TimedOut),
        Err(Errno::INTR) => Err(Error::Interrupted),
        Err(error) => Err(Error::System(error.into())),
    }
}

fn wake_one(word: &AtomicU32) {
    // `FUTEX_WAKE` fails only for an unmapped word; a reference is mapped.
    let _ = futex::wake(word, Flags::PRIVATE, 1);
}

/// A counter on which one thread of this process sleeps until another thread raises it.
#[derive(Debug, Default)]
pub struct Bell(AtomicU32);

impl Bell {
    /// How often the bell was rung. Read it before checking the reason to sleep.
    pub fn rings(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Raises the counter and wakes one sleeping thread.
    pub fn ring(&self) {
        self.0.fetch_add(1, Ordering::Release);
        wake_one(&self.0);
    }

    /// Sleeps until it has been rung more than `rings` times.
    pub fn wait(&self, rings: u32, until: Option<Instant>) -> Result<()> {
        sleep(&self.0, rings, until)
    }
}

/// A mutex between the threads of this process. In a forked child it is open, because the threads
/// that held it do not exist there.
#[derive(Debug, Default)]
pub struct Gate(AtomicU32);

// The state is in the low bits; the other bits hold the generation of the process that set it.
const OPEN: u32 = 0;
const SHUT: u32 = 1;
/// Shut, and a thread may be sleeping on it.
const AWAITED: u32 = 2;
const BITS: u32 = 2;

impl Gate {
    /// Enters if no thread is inside.
    pub fn try_enter(&self) -> bool {
        let seen = self.0.load(Ordering::Relaxed);
        let [open, shut] = [OPEN, SHUT].map(here);
        // A state that a parent process left here counts as open.
        let is_open = seen == open || seen >> BITS != open >> BITS;
        is_open
            && self
                .0
                .compare_exchange(seen, shut, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// Enters once no thread is inside.
    pub fn enter(&self, until: Option<Instant>) -> Result<()> {
        if self.try_enter() {
            return Ok(());
        }
        let [shut, awaited] = [SHUT, AWAITED].map(here);
        loop {
            let before = self.0.swap(awaited, Ordering::Acquire);
            if before != shut && before != awaited {
                return Ok(());
            }
            sleep(&self.0, awaited, until)?;
        }
    }

    /// Leaves. Only the thread that entered may leave, in the process where it entered.
    pub fn leave(&self) {
        if self.0.swap(here(OPEN), Ordering::Release) == here(AWAITED) {
            wake_one(&self.0);
        }
    }
}

/// This state, marked with the current process's generation.
fn here(state: u32) -> u32 {
    Generation::current().number() << BITS | state
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn a_gate_lets_one_in_at_a_time() {
        let gate = Gate::default();
        let inside = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        gate.enter(None).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                        inside.fetch_sub(1, Ordering::Relaxed);
                        gate.leave();
                    }
                });
            }
        });
        assert!(gate.try_enter());
        assert!(!gate.try_enter());
        let timed_out = gate.enter(after(Duration::from_millis(5)));
        assert!(matches!(timed_out, Err(Error::TimedOut)));
        gate.leave();
        assert!(gate.try_enter());
    }

    #[test]
    fn a_bell_rung_before_the_wait_is_heard() {
        let bell = Bell::default();
        let rings = bell.rings();
        bell.ring();
        bell.wait(rings, None).unwrap();
        let silence = bell.wait(bell.rings(), after(Duration::from_millis(5)));
        assert!(matches!(silence, Err(Error::TimedOut)));
    }
}
