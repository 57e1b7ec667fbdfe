//! Signals as events of a descriptor.

use rustix::io::{Errno, read};
use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// Signals that arrive at a descriptor instead of a handler.
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl Signals {
    /// Blocks these signals in the calling thread, and in the threads that it starts from now on,
    /// and delivers them to the descriptor instead.
    ///
    /// # Errors
    /// If the kernel gives no descriptor.
    pub fn catch(numbers: &[i32]) -> io::Result<Self> {
        // SAFETY: an all-zero sigset_t is valid memory for sigemptyset to fill.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: `set` is ours and alive; sigaddset refuses bad numbers.
        unsafe {
            libc::sigemptyset(&raw mut set);
            for number in numbers {
                libc::sigaddset(&raw mut set, *number);
            }
        }
        // SAFETY: both pointers are to live memory or null as documented.
        let failed =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        // SAFETY: `set` is a valid signal set; -1 asks for a new descriptor.
        let fd =
            unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: signalfd just returned this descriptor; it has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The next signal that arrived, if any.
    ///
    /// # Errors
    /// If the descriptor fails.
    pub fn next(&self) -> io::Result<Option<i32>> {
        // A signalfd_siginfo has 128 bytes and starts with the signal's number.
        let mut info = [0; 128];
        match read(&self.0, &mut info) {
            Ok(128) => Ok(Some(i32::from_ne_bytes([
                info[0], info[1], info[2], info[3],
            ]))),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Makes writes beyond the file size limit fail; otherwise SIGXFSZ would end the process.
pub fn ignore_file_limit() {
    // SAFETY: SIG_IGN installs no handler code.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

thread_local! {
    /// The signal mask from before this thread became quiet.
    static BEFORE: Cell<Option<libc::sigset_t>> = const { Cell::new(None) };
}

/// While this lives, no signal handler runs in this thread, except for signals that the thread
/// itself causes, because a handler might need what the thread holds. Signals are delivered only
/// during [`aside`].
#[derive(Debug)]
pub struct Quiet {
    /// True if the thread was quiet already.
    within: bool,
    _here: PhantomData<*const ()>,
}

impl Quiet {
    /// Makes the thread quiet from now on.
    #[must_use]
    pub fn begin() -> Self {
        let within = BEFORE.get().is_some();
        if !within {
            BEFORE.set(Some(block_all()));
        }
        Self {
            within,
            _here: PhantomData,
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if !self.within
            && let Some(before) = BEFORE.take()
        {
            set_mask(&before);
        }
    }
}

/// Runs `wait`. In a quiet thread signals are delivered meanwhile, with the mask from before.
pub fn aside<T>(wait: impl FnOnce() -> T) -> T {
    let Some(before) = BEFORE.take() else {
        return wait();
    };
    set_mask(&before);
    let outcome = wait();
    block_all();
    BEFORE.set(Some(before));
    outcome
}

/// Blocks all signals but those that a thread itself causes; returns the previous mask.
fn block_all() -> libc::sigset_t {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both are memory of this function for the calls to fill; they cannot fail.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for own in [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGILL,
            libc::SIGFPE,
            libc::SIGTRAP,
            libc::SIGABRT,
            libc::SIGSYS,
        ] {
            libc::sigdelset(all.as_mut_ptr(), own);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

fn set_mask(mask: &libc::sigset_t) {
    // SAFETY: a set that pthread_sigmask has filled; it cannot fail.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal, getpid};

    #[test]
    fn a_signal_waits_to_be_read() {
        let signals = Signals::catch(&[libc::SIGUSR1]).unwrap();
        assert_eq!(signals.next().unwrap(), None);
        // Sent to this thread, whose mask was changed, because other tests run in parallel.
        let thread = rustix::thread::gettid();
        // SAFETY: tgkill takes plain numbers.
        let failed = unsafe {
            libc::syscall(
                libc::SYS_tgkill,
                getpid().as_raw_nonzero().get(),
                thread.as_raw_nonzero().get(),
                Signal::USR1.as_raw(),
            )
        };
        assert_eq!(failed, 0);
        assert_eq!(signals.next().unwrap(), Some(libc::SIGUSR1));
    }
}
