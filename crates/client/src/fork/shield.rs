//! Prevents a fork while another thread is changing data that the child inherits.
//!
//! A child has only the thread that forked; data that another thread was changing at that moment
//! would stay inconsistent for ever. Therefore a thread enters the shield before it changes such
//! data, and a fork closes the shield while no thread is inside.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::futex::{self, Flags};

/// The shield between forks and the threads that change what children inherit.
pub static SHIELD: Shield = Shield::new();

/// Counts the threads inside, and whether it is closed; see the module.
#[derive(Debug)]
pub struct Shield(AtomicU32);

/// Bit of the shield's word: a fork is under way, or waits until all threads inside have left. The
/// other bits count the threads inside.
const CLOSED: u32 = 1 << 31;

thread_local! {
    /// How many times this thread has entered without leaving.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

impl Shield {
    /// An open shield with no thread inside.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Enters; waits while a fork is under way. A thread that is inside may enter again.
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

    /// Leaves: the data that this thread changed is consistent again.
    pub fn leave(&self) {
        let depth = DEPTH.get() - 1;
        DEPTH.set(depth);
        if depth == 0 {
            self.0.fetch_sub(1, Ordering::Release);
        }
    }

    /// True if this thread is inside.
    pub fn is_inside(&self) -> bool {
        DEPTH.get() > 0
    }

    /// Closes the shield once no thread is inside. Returns false if this thread itself is inside (a
    /// signal handler that forks), or if other threads are still inside after `patience`.
    pub fn close(&self, patience: Duration) -> bool {
        if DEPTH.get() > 0 {
            return false;
        }
        let end = Instant::now() + patience;
        // Several threads may try to fork at once.
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

    /// Opens the shield and wakes the threads that wait to enter.
    pub fn open(&self) {
        self.0.fetch_and(!CLOSED, Ordering::Release);
        // `FUTEX_WAKE` fails only for an unmapped word; a reference is mapped.
        let _ = futex::wake(&self.0, Flags::PRIVATE, u32::MAX >> 1);
    }
}

/// Yields the processor; false once `end` has passed.
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
