//! Telling a forked child from its parent, for the price of a load.
//!
//! A child inherits the connection and the lock words' `Held by me`, but is not
//! the client the daemon knows; whatever it did with them would be done in its
//! parent's name. Its mappings are left out of the child (`MADV_DONTFORK`).
//! A child handler that attaches them again at the same addresses will start
//! from [`crate::mapping`]'s registry; it may use system calls only, since the
//! other threads of the parent may have been inside malloc.
#![allow(unsafe_code)]

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many forks lie between the first process and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Which process in a line of forks something belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(u32);

impl Generation {
    /// This process.
    pub fn current() -> Self {
        static WATCH: Once = Once::new();
        WATCH.call_once(|| {
            // SAFETY: the handler only adds to an atomic, which is allowed in
            // the child of a process with threads. This library is never
            // unloaded: the connection's descriptor is, by then, in use.
            let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            assert_eq!(failed, 0, "no memory for a fork handler");
        });
        Self(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether this process is still the one it was.
    pub fn is_current(self) -> bool {
        GENERATION.load(Ordering::Relaxed) == self.0
    }
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_another_generation() {
        let ours = Generation::current();
        // SAFETY: the child only loads an atomic and exits without unwinding.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let status = i32::from(ours.is_current());
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(status) };
        }
        let mut status = -1;
        // SAFETY: waits for the child just made.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert!(ours.is_current());
    }
}
