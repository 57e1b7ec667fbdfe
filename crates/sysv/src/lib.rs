//! `libpagemesh_sysv.so`: replaces the System V calls of the C library (M2, M3), so that programs
//! share segments, semaphores and queues with the whole cluster without knowing it.
//!
//! Loaded before a program by `pagemesh run --sysv` or `LD_PRELOAD`. It replaces `shmget shmat
//! shmdt shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl`, also when made through
//! `syscall`, and asks the daemon of this host. It also replaces `close` and similar calls, because
//! some programs close descriptors they do not know of, and `munmap` and similar calls, because a
//! segment that is unmapped is no longer attached.
//!
//! The calls it replaces are system calls, which may be made anywhere: in signal handlers, while
//! the program is inside malloc, by children of vfork. Therefore signals are delivered only while a
//! call waits, and memory comes from an allocator of this library's own, which has no locks. The
//! program's memory is read and written as the kernel does it: inaccessible memory gives EFAULT.

mod descriptors;
mod futex;
mod heap;
mod layout;
mod memory;
mod msg;
mod node;
mod proc;
mod raw;
mod sem;
mod shm;
mod user;

use pagemesh_os::signals::Quiet;

#[global_allocator]
static HEAP: heap::Heap = heap::Heap::new();

/// The result of a call, or the error for errno.
type Result<T> = std::result::Result<T, libc::c_int>;

/// Behaves as a system call: returns the value, or -1 and sets errno; otherwise errno is unchanged.
fn system_call(work: impl FnOnce() -> Result<libc::c_long>) -> libc::c_long {
    // SAFETY: every thread has an errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above; it belongs to this thread.
    let before = unsafe { *errno };
    let quiet = Quiet::begin();
    let outcome = work();
    drop(quiet);
    let (value, after) = match outcome {
        Ok(value) => (value, before),
        Err(error) => (-1, error),
    };
    // SAFETY: as above.
    unsafe { *errno = after };
    value
}
