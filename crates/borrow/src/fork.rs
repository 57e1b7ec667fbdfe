//! Forks: the child gets a copy of the large allocations.
//!
//! The copy is made before the fork, in a second segment, by the thread that forks. The client
//! library hands both segments on to the child; there the second one takes the place of the first.
//! What other threads store while the copy is made may be missing in the child.

use crate::pool::{Held, Memory, complain};
use crate::settings::settings;
use pagemesh::PAGE_SIZE;
use std::cell::UnsafeCell;
use std::ptr;

/// The pool's lock, while a thread forks.
struct Forking(UnsafeCell<Option<Held>>);

// SAFETY: only the thread that holds the pool's lock accesses it.
unsafe impl Sync for Forking {}

static FORKING: Forking = Forking(UnsafeCell::new(None));

thread_local! {
    /// This thread forks, and holds the pool's lock.
    static HOLDS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

unsafe extern "C" {
    /// The C library's fork, by the name that this library does not replace.
    fn __fork() -> libc::pid_t;
}

/// Installs the handlers. The client library's are installed, because it is connected.
pub fn watch() {
    // SAFETY: the handlers stay, because a library that is loaded before a program is never
    // unloaded.
    let failed = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    assert_eq!(failed, 0, "no memory for fork handlers");
}

/// Forks, or fails with ENOMEM and a message if the child could not get its copy.
pub fn fork() -> libc::pid_t {
    if let Err(why) = prepare() {
        release();
        complain(format_args!("fork is refused: {why}"));
        // SAFETY: every thread has an errno.
        unsafe { *libc::__errno_location() = libc::ENOMEM };
        return -1;
    }
    // SAFETY: as the program's own call.
    let child = unsafe { __fork() };
    // The handlers did it, in parent and child, unless there are none yet.
    release();
    child
}

/// Takes the pool's lock and makes the copy.
fn prepare() -> Result<(), String> {
    let Some(mut held) = Held::take() else {
        return Ok(());
    };
    let done = held.pool().map_or(Ok(()), |pool| {
        let bytes = pool.ranges.used().map(|(_, pages)| pages * PAGE_SIZE).sum();
        let Some(memory) = pool.memory.as_ref().filter(|_| bytes > 0) else {
            return Ok(());
        };
        fits(bytes)?;
        let copy = Memory::for_child(&pool.mesh, memory.mapping.len());
        let copy = copy.map_err(|error| format!("no memory for the child's copy: {error}"))?;
        for (start, pages) in pool.ranges.used() {
            let at = start * PAGE_SIZE;
            // SAFETY: the range lies in both mappings, which are distinct.
            unsafe {
                let from = memory.mapping.as_ptr().add(at);
                let to = copy.mapping.as_ptr().add(at);
                ptr::copy_nonoverlapping(from, to, pages * PAGE_SIZE);
            }
        }
        pool.copy = Some(copy);
        Ok(())
    });
    // SAFETY: this thread has just taken the lock.
    unsafe { *FORKING.0.get() = Some(held) };
    HOLDS.set(true);
    done
}

/// Whether a copy of so many bytes may be made.
fn fits(bytes: usize) -> Result<(), String> {
    if let Some(limit) = settings().fork_limit {
        if bytes > limit {
            return Err(format!(
                "the child needs a copy of {bytes} bytes of borrowed memory, and `pagemesh borrow \
                 --fork-limit` allows {limit}; raise it, or start children by posix_spawn or vfork"
            ));
        }
        return Ok(());
    }
    let available = available();
    if bytes > available {
        return Err(format!(
            "the child needs a copy of {bytes} bytes of borrowed memory, and this host has \
             {available} available; free some, or start children by posix_spawn or vfork"
        ));
    }
    Ok(())
}

/// MemAvailable, in bytes.
fn available() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kibibytes.unwrap_or(0) << 10
}

/// Gives the pool's lock back, if this thread forks.
fn release() {
    if HOLDS.replace(false) {
        // SAFETY: this thread holds the lock.
        let held = unsafe { (*FORKING.0.get()).take() };
        if let Some(mut held) = held
            && let Some(pool) = held.pool()
        {
            pool.copy = None;
        }
    }
}

extern "C" fn before() {
    // `forkpty` and its like do not pass by here before.
    if !HOLDS.get()
        && let Err(why) = prepare()
    {
        complain(format_args!("a child gets no borrowed memory: {why}"));
    }
}

extern "C" fn in_parent() {
    release();
}

extern "C" fn in_child() {
    if !HOLDS.get() {
        return;
    }
    // SAFETY: this thread holds the lock.
    let held = unsafe { &mut *FORKING.0.get() };
    if let Some(pool) = held.as_mut().and_then(Held::pool) {
        let copy = pool.copy.take();
        // The child must not use the parent's mapping: without a copy, its accesses fault.
        let place = pool
            .memory
            .take()
            .map(|memory| memory.mapping.as_ptr() as usize);
        if let (Some(copy), Some(place)) = (copy, place) {
            let Memory { segment, mapping } = copy;
            let length = mapping.len() as u64;
            drop(mapping);
            match segment.map_at(Some(place), 0, length, true) {
                Ok(mapping) => pool.memory = Some(Memory { segment, mapping }),
                Err(error) => complain(format_args!("a child gets no borrowed memory: {error}")),
            }
        }
    }
    release();
}
