//! `libpagemesh_sysv.so`: stands in for the System V calls of the C library
//! (M2, M3), so that programs share segments, semaphores and queues with the
//! whole cluster without knowing it.
//!
//! Loaded before a program by `pagemesh run --sysv` or `LD_PRELOAD`. It takes over
//! `shmget shmat shmdt shmctl semget semop semtimedop semctl msgget msgsnd msgrcv
//! msgctl`, also when made through `syscall`, and asks the daemon of this host. It also stands in for
//! `close` and its kin, for programs close what they do not know of, and for `munmap` and its kin,
//! for a segment that is unmapped is attached no more.
//!
//! The calls it stands in for are system calls, which may be made anywhere: in
//! signal handlers, while the program is inside malloc, by children of vfork. So
//! signals come only while a call waits, and memory comes from an allocator of
//! this library's own, which has no locks. The program's memory is read and written
//! as the kernel does it: what cannot be is EFAULT.

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

/// What a call returns, or the error that it leaves in errno.
type Result<T> = std::result::Result<T, libc::c_int>;

/// Does what a system call does: returns its value, or -1 and sets errno. Leaves
/// errno alone otherwise.
fn system_call(work: impl FnOnce() -> Result<libc::c_long>) -> libc::c_long {
    // SAFETY: errno is always there.
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
