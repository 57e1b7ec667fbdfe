//! `Tmk_distribute`: copies the value of a variable to the same variable in all other processes.
//!
//! Values wait in a queue in the shared heap. After each barrier and each lock a process checks
//! whether the queue has grown, and copies new values; the last process to copy a value removes it.
//! So a value becomes visible together with its sender's stores: as with all shared memory, after
//! synchronization.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use pagemesh::{Heap, Job, undisturbed};

use super::image::{self, Place};

/// Roots of the heap: the number of values ever sent, and the ends of the queue.
const SENT: usize = 0;
const FIRST: usize = 1;
const LAST: usize = 2;

/// The lock of the queue; the locks of programs have 32-bit numbers.
const LINE: u64 = 1 << 40;

/// Limit of the queue's length; a longer one means that it was overwritten.
const LIMIT: usize = 1 << 20;

/// The state of a process with respect to the queue.
pub struct Distribution {
    rank: u64,
    parties: u64,
    /// Number of values that it has received.
    seen: AtomicU64,
}

/// A value in the queue, in the shared heap; its bytes follow.
#[derive(Clone, Copy)]
#[repr(C)]
struct Value {
    /// Address of the next value; 0 if there is none yet.
    next: u64,
    /// The value's number, counted from 1.
    number: u64,
    sender: u64,
    /// Number of processes that have not copied it.
    awaited: u64,
    object: u64,
    offset: u64,
    size: u64,
}

impl Distribution {
    /// The state of a process in a job that has received no values.
    pub fn new(job: &Job) -> Self {
        Self {
            rank: job.rank().into(),
            parties: job.size().into(),
            seen: AtomicU64::new(0),
        }
    }

    /// Sends the value of a variable.
    ///
    /// # Safety
    /// The address must be that of a variable of this size, which no thread stores to meanwhile.
    pub unsafe fn send(&self, heap: &Heap, variable: *const u8, size: usize) -> Result<(), String> {
        let start = variable as usize;
        let memory = heap.memory().as_ptr() as usize;
        if (memory..memory + heap.memory().len()).contains(&start) || size == 0 {
            // The variable is in shared memory already.
            return Ok(());
        }
        let place = image::place_of(start, size).ok_or(
            "this is no global or static variable, so other processes do not have it; point to \
             one, or use shared memory (Tmk_malloc)",
        )?;
        if self.parties < 2 {
            return Ok(());
        }
        let say = |error: pagemesh::Error| error.to_string();
        let block = heap
            .allocate((size_of::<Value>() + size) as u64)
            .map_err(say)?;
        let guard = undisturbed(|| heap.lock(LINE).lock()).map_err(say)?;
        let number = heap.root(SENT).map_err(say)? + 1;
        let value = Value {
            next: 0,
            number,
            sender: self.rank,
            awaited: self.parties - 1,
            object: place.object,
            offset: place.offset,
            size: size as u64,
        };
        // SAFETY: the block has room for both, and has no other user; the caller's promise.
        unsafe {
            block.cast::<Value>().write(value);
            let bytes = block.add(size_of::<Value>()).as_ptr();
            ptr::copy_nonoverlapping(variable, bytes, size);
        }
        let address = block.as_ptr() as u64;
        match heap.root(LAST).map_err(say)? {
            0 => heap.set_root(FIRST, address),
            last => {
                let mut before = read(heap, last)?;
                before.next = address;
                write(last, before);
                Ok(())
            }
        }
        .and_then(|()| heap.set_root(LAST, address))
        .and_then(|()| heap.set_root(SENT, number))
        .map_err(say)?;
        guard.unlock();
        Ok(())
    }

    /// Copies the new values.
    pub fn catch_up(&self, heap: &Heap) -> Result<(), String> {
        let say = |error: pagemesh::Error| error.to_string();
        let seen = self.seen.load(Ordering::Acquire);
        if heap.root(SENT).map_err(say)? == seen {
            return Ok(());
        }
        let guard = undisturbed(|| heap.lock(LINE).lock()).map_err(say)?;
        let seen = self.seen.load(Ordering::Acquire);
        let mut at = heap.root(FIRST).map_err(say)?;
        for _ in 0..LIMIT {
            if at == 0 {
                break;
            }
            let mut value = read(heap, at)?;
            if value.number > seen && value.sender != self.rank {
                copy(at, value)?;
                value.awaited = value.awaited.saturating_sub(1);
                write(at, value);
            }
            at = value.next;
        }
        shorten(heap)?;
        let sent = heap.root(SENT).map_err(say)?;
        self.seen.store(sent, Ordering::Release);
        guard.unlock();
        Ok(())
    }
}

/// Removes the values at the front of the queue that all processes have copied.
fn shorten(heap: &Heap) -> Result<(), String> {
    let say = |error: pagemesh::Error| error.to_string();
    for _ in 0..LIMIT {
        let at = heap.root(FIRST).map_err(say)?;
        if at == 0 {
            break;
        }
        let value = read(heap, at)?;
        if value.awaited > 0 {
            break;
        }
        heap.set_root(FIRST, value.next).map_err(say)?;
        if value.next == 0 {
            heap.set_root(LAST, 0).map_err(say)?;
        }
        heap.free(at as *const u8).map_err(say)?;
    }
    Ok(())
}

/// Loads a value of the queue, if the bytes there can be one.
fn read(heap: &Heap, at: u64) -> Result<Value, String> {
    const DAMAGED: &str = "the line of distributed values is damaged: some process stored beyond \
                           its memory";
    let start = heap.memory().as_ptr() as u64;
    let end = start + heap.memory().len() as u64;
    let header = size_of::<Value>() as u64;
    if at < start || !at.is_multiple_of(header.next_power_of_two()) || at > end - header {
        return Err(DAMAGED.to_owned());
    }
    // SAFETY: it lies in the heap, aligned; any bytes are numbers.
    let value = unsafe { ptr::with_exposed_provenance::<Value>(at as usize).read() };
    if value.size > end - header - at {
        return Err(DAMAGED.to_owned());
    }
    Ok(value)
}

/// Stores a changed value.
fn write(at: u64, value: Value) {
    // SAFETY: `read` checked that it lies in the heap; this thread holds the queue's lock.
    unsafe { ptr::with_exposed_provenance_mut::<Value>(at as usize).write(value) }
}

/// Copies a value to this process's variable.
fn copy(at: u64, value: Value) -> Result<(), String> {
    let place = Place {
        object: value.object,
        offset: value.offset,
    };
    let size = value.size as usize;
    let variable = image::address_of(place, size).ok_or_else(|| {
        format!(
            "process {} sent a variable that this process does not have: all processes must run \
             the same build of the program",
            value.sender
        )
    })?;
    let bytes = ptr::with_exposed_provenance::<u8>(at as usize + size_of::<Value>());
    // SAFETY: `read` checked that the bytes lie in the heap, and only the sender uses them; the
    // destination was checked to be a variable of the program, which asked for this copy.
    unsafe {
        ptr::copy_nonoverlapping(bytes, ptr::with_exposed_provenance_mut(variable), size);
    }
    Ok(())
}
