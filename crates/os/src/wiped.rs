//! A word that is zero in every child, however it was forked.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU32;

/// The smallest unit that the kernel wipes, in bytes.
const PAGE: usize = crate::memfd::PAGE;

/// See the module. The word starts as zero, too.
#[derive(Debug)]
pub struct Wiped(NonNull<AtomicU32>);

// SAFETY: the page lives as long as the value and is only reached through an atomic, from any
// thread.
unsafe impl Send for Wiped {}
// SAFETY: as above.
unsafe impl Sync for Wiped {}

impl Wiped {
    /// A new word.
    ///
    /// # Errors
    /// As mmap(2) and madvise(2).
    pub fn create() -> io::Result<Self> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a free address, so no memory in use changes.
        let base = unsafe { mmap_anonymous(null_mut(), PAGE, rights, MapFlags::PRIVATE)? };
        let wiped = Self(NonNull::new(base.cast()).expect("mmap never gives the null page"));
        // SAFETY: the advice concerns only what was just mapped.
        unsafe { madvise(base, PAGE, Advice::LinuxWipeOnFork)? };
        Ok(wiped)
    }

    /// The word.
    #[must_use]
    #[inline]
    pub fn word(&self) -> &AtomicU32 {
        // SAFETY: it is mapped as long as `self` lives, aligned, and any bits are
        // a number.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Wiped {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped; references borrow from `self`.
        let unmapped = unsafe { munmap(self.0.as_ptr().cast(), PAGE) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    /// The value that a child made by `fork` finds in the word.
    fn found(word: &AtomicU32, fork: fn() -> libc::pid_t) -> i32 {
        let child = fork();
        if child == 0 {
            let seen = word.load(Relaxed) as i32;
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(seen) };
        }
        let mut status = -1;
        // SAFETY: waits for the child just made.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status));
        libc::WEXITSTATUS(status)
    }

    #[test]
    fn children_find_zero_even_without_handlers() {
        let wiped = Wiped::create().unwrap();
        wiped.word().store(7, Relaxed);
        // SAFETY: the child loads an atomic and exits.
        assert_eq!(found(wiped.word(), || unsafe { libc::fork() }), 0);
        // SAFETY: as above; without the C library's knowledge.
        let raw = || unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32 };
        assert_eq!(found(wiped.word(), raw), 0);
        assert_eq!(wiped.word().load(Relaxed), 7);
    }
}
