//! Locks, conditions, barriers, waits for changes, write locks.

use std::ffi::c_int;
use std::time::Duration;

use pagemesh::{Lock, LockGuard};

use crate::error::{Failure, Number, Outcome, call};
use crate::handle::{borrow, limit};
use crate::segment::{Handle, Held};

/// `PAGEMESH_RECOVERED` if the last holder died, otherwise 0.
fn recovered(guard: &LockGuard) -> c_int {
    c_int::from(guard.recovered())
}

/// Takes a lock and stores its guard in the handle.
fn acquire(
    handle: &Handle,
    number: u64,
    take: impl FnOnce(&Lock) -> Outcome<LockGuard>,
) -> Outcome<c_int> {
    let lock = {
        let mut locks = handle.locks.lock();
        let held = locks.entry(number).or_insert_with(|| Held {
            lock: handle.segment.lock(number),
            guard: None,
        });
        held.lock.clone()
    };
    let guard = take(&lock)?;
    let result = recovered(&guard);
    keep(handle, number, guard);
    Ok(result)
}

fn keep(handle: &Handle, number: u64, guard: LockGuard) {
    if let Some(held) = handle.locks.lock().get_mut(&number) {
        held.guard = Some(guard);
    }
}

/// Removes the guard of a lock from the handle.
fn release(handle: &Handle, number: u64) -> Outcome<LockGuard> {
    let mut locks = handle.locks.lock();
    let guard = locks.get_mut(&number).and_then(|held| held.guard.take());
    // In a forked child the guard may be a copy of the parent's.
    let guard = guard.filter(LockGuard::is_held);
    guard.ok_or_else(|| Failure::new(Number::NotHeld))
}

/// Takes a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_lock(segment: *mut Handle, lock: u64) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let handle = unsafe { borrow(segment)? };
        acquire(handle, lock, |lock| Ok(lock.lock()?))
    })
}

/// Takes a lock if it is free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_trylock(segment: *mut Handle, lock: u64) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let handle = unsafe { borrow(segment)? };
        acquire(handle, lock, |lock| {
            lock.try_lock()?.ok_or_else(|| Failure::new(Number::Busy))
        })
    })
}

/// Takes a lock, with a time limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_timedlock(
    segment: *mut Handle,
    lock: u64,
    timeout_ns: i64,
) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let handle = unsafe { borrow(segment)? };
        acquire(handle, lock, |lock| {
            Ok(match limit(timeout_ns) {
                Some(timeout) => lock.lock_timeout(timeout)?,
                None => lock.lock()?,
            })
        })
    })
}

/// Releases a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_unlock(segment: *mut Handle, lock: u64) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let handle = unsafe { borrow(segment)? };
        release(handle, lock)?.unlock();
        Ok(0)
    })
}

/// Waits for a signal, with or without a time limit.
fn wait(handle: &Handle, cond: u64, lock: u64, timeout: Option<Duration>) -> Outcome<c_int> {
    let mut guard = release(handle, lock)?;
    let condition = handle.segment.condition(cond);
    let woken = match timeout {
        Some(timeout) => condition.wait_timeout(&mut guard, timeout),
        None => condition.wait(&mut guard),
    };
    let result = recovered(&guard);
    if guard.is_held() {
        keep(handle, lock, guard);
    }
    woken?;
    Ok(result)
}

/// Waits for a signal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_cond_wait(segment: *mut Handle, cond: u64, lock: u64) -> c_int {
    // SAFETY: the header asks for a handle.
    call(-1, || wait(unsafe { borrow(segment)? }, cond, lock, None))
}

/// Waits for a signal, with a time limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_cond_timedwait(
    segment: *mut Handle,
    cond: u64,
    lock: u64,
    timeout_ns: i64,
) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let handle = unsafe { borrow(segment)? };
        wait(handle, cond, lock, limit(timeout_ns))
    })
}

fn count(woken: u32) -> c_int {
    c_int::try_from(woken).unwrap_or(c_int::MAX)
}

/// Wakes one waiter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_cond_signal(segment: *mut Handle, cond: u64) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let handle = unsafe { borrow(segment)? };
        Ok(count(handle.segment.condition(cond).signal()?))
    })
}

/// Wakes all waiters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_cond_broadcast(segment: *mut Handle, cond: u64) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let handle = unsafe { borrow(segment)? };
        Ok(count(handle.segment.condition(cond).broadcast()?))
    })
}

/// Waits at a barrier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_barrier_wait(
    segment: *mut Handle,
    barrier: u64,
    parties: u32,
) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let handle = unsafe { borrow(segment)? };
        handle.segment.barrier(barrier, parties).wait()?;
        Ok(0)
    })
}

/// Waits at a barrier, with a time limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_barrier_timedwait(
    segment: *mut Handle,
    barrier: u64,
    parties: u32,
    timeout_ns: i64,
) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let handle = unsafe { borrow(segment)? };
        let barrier = handle.segment.barrier(barrier, parties);
        match limit(timeout_ns) {
            Some(timeout) => barrier.wait_timeout(timeout)?,
            None => barrier.wait()?,
        }
        Ok(0)
    })
}

/// Waits while a byte is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_wait_change(
    segment: *mut Handle,
    offset: u64,
    expected: u8,
    timeout_ns: i64,
) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let Handle { segment, .. } = unsafe { borrow(segment)? };
        let byte = segment.wait_change(offset, expected, limit(timeout_ns))?;
        Ok(c_int::from(byte))
    })
}

/// Keeps pages on this node, writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_write_lock(
    segment: *mut Handle,
    offset: u64,
    length: u64,
) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let Handle { segment, pins, .. } = unsafe { borrow(segment)? };
        let pin = segment.write_lock(offset..offset.saturating_add(length))?;
        pins.lock().entry((offset, length)).or_default().push(pin);
        Ok(0)
    })
}

/// Permits pages to leave again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_write_unlock(
    segment: *mut Handle,
    offset: u64,
    length: u64,
) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let Handle { pins, .. } = unsafe { borrow(segment)? };
        let mut pins = pins.lock();
        let of_range = pins.get_mut(&(offset, length));
        let pin = of_range.and_then(Vec::pop);
        if pins.get(&(offset, length)).is_some_and(Vec::is_empty) {
            pins.remove(&(offset, length));
        }
        drop(pins);
        pin.map(|_| 0).ok_or_else(|| Failure::new(Number::NotHeld))
    })
}
