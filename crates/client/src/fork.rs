//! What happens to this library when the process forks: the child keeps its
//! segments, under a connection of its own.
//!
//! Just before the fork every connection asks its daemon for another one, for
//! the child, who then has open what its parent has open. In the child, before
//! `fork` returns, each connection becomes that one, and each mapping is made
//! anew at its old address (it had been left out of the child, `MADV_DONTFORK`,
//! for the child's copy would not be served) and attached to the daemon. The
//! other threads of the parent may have been inside malloc, so all this is
//! done by system calls, without memory of its own.
//!
//! A child that was made without this (by a bare system call, or without help of
//! the daemon) has neither connection nor mappings: its calls fail, and where its
//! parent has segments it finds nothing. Nobody ever finds zeros.
#![allow(unsafe_code)]

mod guarded;
mod shield;
mod words;

pub use guarded::Guarded;
pub use words::complain;

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pagemesh_os::wiped::Wiped;
use shield::SHIELD;

/// What is done about forks, once there is something that children may inherit.
static HANDLERS: OnceLock<Handlers> = OnceLock::new();

/// What is done about a fork. Each may only do what is allowed in the child of a process with
/// threads: system calls and atomics, without memory of its own.
#[derive(Clone, Copy, Debug)]
pub struct Handlers {
    /// First, while other threads go on: it may wait for them and allocate.
    pub survey: fn(),
    /// Before it.
    pub expect_child: fn(),
    /// After it, in the parent.
    pub forget_child: fn(),
    /// After it, in the child.
    pub inherit: fn(),
}

/// From now on these are called at each fork.
pub fn on_fork(handlers: Handlers) {
    let _ = HANDLERS.set(handlers);
}

/// How long a fork waits for those who are changing something.
const PATIENCE: Duration = Duration::from_secs(1);

/// The generation of this process; wiped in every child, which gets another one.
static MARK: OnceLock<Wiped> = OnceLock::new();

/// The last generation in this line of processes.
static LAST: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// This thread is forking, and has closed the shield.
    static FORKING: Cell<bool> = const { Cell::new(false) };
}

/// Which process in a line of forks something belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(u32);

impl Generation {
    /// This process.
    pub fn current() -> Self {
        let mark = MARK.get_or_init(watch).word();
        match mark.load(Ordering::Relaxed) {
            0 => Self::begin(mark),
            number => Self(number),
        }
    }

    /// The first of this process.
    fn begin(mark: &AtomicU32) -> Self {
        let next = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        // Another thread may have been faster.
        let begun = mark.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed);
        Self(begun.map_or_else(|other| other, |_| next))
    }

    /// Whether this process is still the one it was.
    pub fn is_current(self) -> bool {
        let mark = MARK.get().map(Wiped::word);
        mark.is_some_and(|mark| mark.load(Ordering::Relaxed) == self.0)
    }

    /// A small number, never 0, different in parent and child.
    pub fn number(self) -> u32 {
        self.0
    }
}

/// Something of one generation, which a child may take over.
#[derive(Debug)]
pub struct Belonging(AtomicU32);

impl Belonging {
    /// To this process.
    pub fn new() -> Self {
        Self(AtomicU32::new(Generation::current().0))
    }

    /// Whether it belongs to this process.
    pub fn is_ours(&self) -> bool {
        Generation(self.0.load(Ordering::Relaxed)).is_current()
    }

    /// This process takes it over.
    pub fn take_over(&self) {
        self.0.store(Generation::current().0, Ordering::Relaxed);
    }
}

/// From now on, at the latest, forks are noticed.
pub fn watch_forks() {
    Generation::current();
}

/// From now on forks are noticed.
fn watch() -> Wiped {
    // SAFETY: the handlers do what is allowed where they run: in the child of a
    // process with threads, that is system calls and atomics. This library is
    // never unloaded: the connection's descriptor is, by then, in use.
    let failed = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    assert_eq!(failed, 0, "no memory for fork handlers");
    Wiped::create().expect("no memory to notice forks")
}

extern "C" fn before() {
    let handlers = HANDLERS.get();
    if !SHIELD.is_inside()
        && let Some(handlers) = handlers
    {
        (handlers.survey)();
    }
    let closed = SHIELD.close(PATIENCE);
    FORKING.set(closed);
    if closed && let Some(handlers) = handlers {
        (handlers.expect_child)();
    }
}

extern "C" fn in_parent() {
    if FORKING.take() {
        if let Some(handlers) = HANDLERS.get() {
            (handlers.forget_child)();
        }
        SHIELD.open();
    }
}

extern "C" fn in_child() {
    // Without the shield, what is inherited may be half-changed: not touched,
    // it belongs to the parent for ever.
    if FORKING.take() {
        Generation::current();
        if let Some(handlers) = HANDLERS.get() {
            (handlers.inherit)();
        }
        SHIELD.open();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How a child ends that does this.
    fn in_child_of(fork: fn() -> libc::pid_t, work: impl FnOnce() -> bool) -> i32 {
        let child = fork();
        if child == 0 {
            let status = i32::from(!work());
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(status) };
        }
        let mut status = -1;
        // SAFETY: waits for the child just made.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        status
    }

    #[test]
    fn a_child_is_another_generation() {
        let ours = Generation::current();
        // SAFETY: the child touches atomics and exits without unwinding.
        let fork = || unsafe { libc::fork() };
        // SAFETY: as above; the C library does not know of this child.
        let raw = || unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32 };
        for fork in [fork as fn() -> libc::pid_t, raw] {
            let other = || !ours.is_current() && Generation::current() != ours;
            assert_eq!(in_child_of(fork, other), 0);
            assert!(ours.is_current());
        }
        let child_of_child = || {
            let second = Generation::current();
            let third = in_child_of(fork, || !second.is_current());
            third == 0 && second.is_current()
        };
        assert_eq!(in_child_of(fork, child_of_child), 0);
    }

    #[test]
    fn what_others_were_changing_is_whole_in_children() {
        static PAIR: Guarded<(u64, u64)> = Guarded::new((0, 0));
        Generation::current();
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let mut pair = PAIR.lock();
                        pair.0 += 1;
                        std::hint::spin_loop();
                        pair.1 += 1;
                    }
                });
            }
            for _ in 0..100 {
                let whole = || {
                    let pair = PAIR.lock();
                    pair.0 == pair.1
                };
                // SAFETY: the child locks, loads and exits.
                assert_eq!(in_child_of(|| unsafe { libc::fork() }, whole), 0);
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}
