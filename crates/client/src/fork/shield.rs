//! Keeps a fork from finding data half-changed.
//!
//! A child has only the thread that forked; what another thread was changing at
//! that moment stays half-changed for ever. So whoever changes something enters
//! the shield first, and a fork closes it while nobody is in.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::futex::{self, Flags};

/// Between forks and everybody who changes what children inherit.
pub static SHIELD: Shield = Shield::new();

/// See the module.
#[derive(Debug)]
pub struct Shield(AtomicU32);

/// A fork is under way, or waits until those who are in have left. The other
/// bits say how many threads are in.
const CLOSED: u32 = 1 << 31;

thread_local! {
    /// How often this thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

impl Shield {
    /// A shield that nobody has entered.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Waits while a fork is under way. May be entered again by who is in.
    pub fn enter(&self) {
        let depth = DEPTH.get();
        DEPTH.set(depth + 1);
        if depth > 0 {
            return;
        }
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            if seen & CLOSED != 0 {
                let _ = futex::wait(&self.0, Flags::PRIVATE, seen, None);
                seen = self.0.load(Ordering::Relaxed);
                continue;
            }
            let (more, relaxed) = (seen + 1, Ordering::Relaxed);
            match self
                .0
                .compare_exchange_weak(seen, more, Ordering::Acquire, relaxed)
            {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// What was changed is whole.
    pub fn leave(&self) {
        let depth = DEPTH.get() - 1;
        DEPTH.set(depth);
        if depth == 0 {
            self.0.fetch_sub(1, Ordering::Release);
        }
    }

    /// Whether this thread is in.
    pub fn is_inside(&self) -> bool {
        DEPTH.get() > 0
    }

    /// Closes it when nobody is in any more. Not if this thread itself is in, which
    /// happens to a signal handler that forks; and not if others do not come out.
    pub fn close(&self, patience: Duration) -> bool {
        if DEPTH.get() > 0 {
            return false;
        }
        let end = Instant::now() + patience;
        // Several threads may want to fork at once.
        while self.0.fetch_or(CLOSED, Ordering::Relaxed) & CLOSED != 0 {
            if !wait(end) {
                return false;
            }
        }
        while self.0.load(Ordering::Acquire) != CLOSED {
            if !wait(end) {
                self.open();
                return false;
            }
        }
        true
    }

    /// Lets everybody in again.
    pub fn open(&self) {
        self.0.fetch_and(!CLOSED, Ordering::Release);
        // Fails only for an unmapped word, which a reference is not.
        let _ = futex::wake(&self.0, Flags::PRIVATE, u32::MAX >> 1);
    }
}

/// Leaves the processor to others; false if it took too long.
fn wait(end: Instant) -> bool {
    std::thread::yield_now();
    Instant::now() < end
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn it_closes_only_while_nobody_is_in() {
        static SHIELD: Shield = Shield::new();
        let shield = &SHIELD;
        let short = Duration::from_millis(5);
        shield.enter();
        shield.enter();
        let by_another = || {
            std::thread::spawn(move || SHIELD.close(short))
                .join()
                .unwrap()
        };
        assert!(!by_another());
        shield.leave();
        assert!(!shield.close(short) && !by_another(), "still in");
        shield.leave();
        assert!(shield.close(short));
        assert!(!by_another(), "already closed");
        let entered = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                shield.enter();
                entered.store(true, Ordering::SeqCst);
                shield.leave();
            });
            std::thread::sleep(Duration::from_millis(20));
            assert!(!entered.load(Ordering::SeqCst));
            shield.open();
        });
        assert!(entered.load(Ordering::SeqCst));
    }
}
