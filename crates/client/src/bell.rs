//! Sleeping until rung, until a moment, or until a signal.
//!
//! The standard library's condition variables sleep through signals; a language
//! whose Ctrl-C handler runs when a call returns needs the call to return.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags};
use rustix::time::Timespec;

use crate::fork::Generation;
use crate::{Error, Result};

/// The moment `timeout` from now; `None`, for ever, if that is beyond counting.
pub fn after(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}

/// What is left until `until`, as system calls like it.
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

/// Sleeps while `word` is `value`; wakes also for no reason.
fn sleep(word: &AtomicU32, value: u32, until: Option<Instant>) -> Result<()> {
    match futex::wait(word, Flags::PRIVATE, value, left(until)?.as_ref()) {
        Ok(()) | Err(Errno::AGAIN) => Ok(()),
        Err(Errno::TIMEDOUT) => Err(Error::TimedOut),
        Err(Errno::INTR) => Err(Error::Interrupted),
        Err(error) => Err(Error::System(error.into())),
    }
}

fn wake_one(word: &AtomicU32) {
    // Fails only for an unmapped word, which a reference is not.
    let _ = futex::wake(word, Flags::PRIVATE, 1);
}

/// Wakes one thread of this process.
#[derive(Debug, Default)]
pub struct Bell(AtomicU32);

impl Bell {
    /// How often it was rung; to be read before the reason to sleep is checked.
    pub fn rings(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Rings.
    pub fn ring(&self) {
        self.0.fetch_add(1, Ordering::Release);
        wake_one(&self.0);
    }

    /// Sleeps until it has been rung more than `rings` times.
    pub fn wait(&self, rings: u32, until: Option<Instant>) -> Result<()> {
        sleep(&self.0, rings, until)
    }
}

/// Lets one thread of this process in at a time. In a forked child, where those
/// who were in do not exist, it is open.
#[derive(Debug, Default)]
pub struct Gate(AtomicU32);

// The low bits; the others say in which process that is so.
const OPEN: u32 = 0;
const SHUT: u32 = 1;
/// Shut, and perhaps somebody sleeps before it.
const AWAITED: u32 = 2;
const BITS: u32 = 2;

impl Gate {
    /// Enters if nobody is in.
    pub fn try_enter(&self) -> bool {
        let seen = self.0.load(Ordering::Relaxed);
        let [open, shut] = [OPEN, SHUT].map(here);
        // What a parent left here counts as open.
        let is_open = seen == open || seen >> BITS != open >> BITS;
        is_open
            && self
                .0
                .compare_exchange(seen, shut, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// Enters when nobody is in.
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

    /// Leaves. Only who entered may leave, in the process where it entered.
    pub fn leave(&self) {
        if self.0.swap(here(OPEN), Ordering::Release) == here(AWAITED) {
            wake_one(&self.0);
        }
    }
}

/// A state in this process.
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
