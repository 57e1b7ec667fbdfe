//! Fork handling: the child keeps its parent's segments, under a connection of its own.
//!
//! Just before the fork every connection asks its daemon for another connection for the child,
//! which has the same segments open. In the child, before `fork` returns, each connection is
//! replaced by that one; each mapping is mapped again at its old address and attached to the daemon
//! (the kernel does not copy it into the child, `MADV_DONTFORK`, because the daemon would not serve
//! the child's copy). Other threads of the parent may have been inside malloc, so all this is done
//! by system calls, without allocating.
//!
//! A child that was created without the fork handlers (by a bare system call) or whose daemon did
//! not answer has neither connection nor mappings: its calls fail, and its accesses to segment
//! addresses fault. No child ever reads zeros there.
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

/// The fork handlers, set once there is something that children may inherit.
static HANDLERS: OnceLock<Handlers> = OnceLock::new();

/// Callbacks around a fork. `expect_child`, `forget_child` and `inherit` may only do what is
/// allowed in the child of a multi-threaded process: system calls and atomics, without allocating.
#[derive(Clone, Copy, Debug)]
pub struct Handlers {
    /// Runs first, while other threads continue: it may wait for them and allocate.
    pub survey: fn(),
    /// Runs before the fork.
    pub expect_child: fn(),
    /// Runs after the fork, in the parent.
    pub forget_child: fn(),
    /// Runs after the fork, in the child.
    pub inherit: fn(),
}

/// Sets the handlers that run at each fork from now on.
pub fn on_fork(handlers: Handlers) {
    let _ = HANDLERS.set(handlers);
}

/// How long a fork waits for the threads inside the shield.
const PATIENCE: Duration = Duration::from_secs(1);

/// The generation of this process; the kernel wipes it in every child, which gets another one.
static MARK: OnceLock<Wiped> = OnceLock::new();

/// The last generation given in this line of processes.
static LAST: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// True while this thread forks and has closed the shield.
    static FORKING: Cell<bool> = const { Cell::new(false) };
}

/// Identifies one process in a line of forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(u32);

impl Generation {
    /// The generation of this process.
    pub fn current() -> Self {
        let mark = MARK.get_or_init(watch).word();
        match mark.load(Ordering::Relaxed) {
            0 => Self::begin(mark),
            number => Self(number),
        }
    }

    /// Begins a new generation for this process.
    fn begin(mark: &AtomicU32) -> Self {
        let next = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        // Another thread may have begun it first.
        let begun = mark.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed);
        Self(begun.map_or_else(|other| other, |_| next))
    }

    /// True if the current process has this generation.
    pub fn is_current(self) -> bool {
        let mark = MARK.get().map(Wiped::word);
        mark.is_some_and(|mark| mark.load(Ordering::Relaxed) == self.0)
    }

    /// A small number, never 0, different in parent and child.
    pub fn number(self) -> u32 {
        self.0
    }
}

/// The generation that something belongs to; a child may take it over.
#[derive(Debug)]
pub struct Belonging(AtomicU32);

impl Belonging {
    /// Belongs to this process.
    pub fn new() -> Self {
        Self(AtomicU32::new(Generation::current().0))
    }

    /// True if it belongs to this process.
    pub fn is_ours(&self) -> bool {
        Generation(self.0.load(Ordering::Relaxed)).is_current()
    }

    /// Makes it belong to this process.
    pub fn take_over(&self) {
        self.0.store(Generation::current().0, Ordering::Relaxed);
    }
}

/// Installs the fork handlers, if they are not installed.
pub fn watch_forks() {
    Generation::current();
}

/// Installs the fork handlers.
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
    // If the shield was not closed, the inherited data may be inconsistent: leave it alone; it
    // keeps the parent's generation.
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

    /// The exit status of a child that runs `work`.
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
