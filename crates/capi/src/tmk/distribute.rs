//! `Tmk_distribute`: the value of a variable, copied to where all the other
//! processes have that variable.
//!
//! Values stand in a line in the shared heap. After each barrier and each lock a
//! process looks whether the line has become longer, and copies what is new;
//! who is last to have copied a value takes it out. So a value is there when its
//! sender's stores are: as with all shared memory, after synchronization.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use pagemesh::{Heap, Job, undisturbed};

use super::image::{self, Place};

/// Roots of the heap: how many values were ever sent; the line's ends.
const SENT: usize = 0;
const FIRST: usize = 1;
const LAST: usize = 2;

/// The lock of the line, which is no program's: those have 32 bits.
const LINE: u64 = 1 << 40;

/// Longer than this no line is, unless somebody destroyed it.
const LIMIT: usize = 1 << 20;

/// What a process knows of the line.
pub struct Distribution {
    rank: u64,
    parties: u64,
    /// How many values it has had.
    seen: AtomicU64,
}

/// A value in the line, in the shared heap; its bytes follow.
#[derive(Clone, Copy)]
#[repr(C)]
struct Value {
    /// Address of the next one; 0 if there is none yet.
    next: u64,
    /// Counted from 1.
    number: u64,
    sender: u64,
    /// Processes that have not copied it.
    awaited: u64,
    object: u64,
    offset: u64,
    size: u64,
}

impl Distribution {
    /// Of a process in a job, which has had none.
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
    /// So many bytes at the address are the variable's, and nobody stores to it.
    pub unsafe fn send(&self, heap: &Heap, variable: *const u8, size: usize) -> Result<(), String> {
        let start = variable as usize;
        let memory = heap.memory().as_ptr() as usize;
        if (memory..memory + heap.memory().len()).contains(&start) || size == 0 {
            // Shared as it is.
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
        // SAFETY: the block has room for both, and is nobody else's; the caller's
        // promise.
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

    /// Copies the values that are new.
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

/// Takes out of the line's front what everybody has.
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

/// A value of the line, if what is there can be one.
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

/// Changes a value that was read.
fn write(at: u64, value: Value) {
    // SAFETY: `read` found that it lies in the heap; we have the line's lock.
    unsafe { ptr::with_exposed_provenance_mut::<Value>(at as usize).write(value) }
}

/// Copies a value to where this process has the variable.
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
    // SAFETY: `read` found that the bytes lie in the heap, and they are nobody's
    // but the sender's; the variable was found to be one, of the program's that
    // asked for this.
    unsafe {
        ptr::copy_nonoverlapping(bytes, ptr::with_exposed_provenance_mut(variable), size);
    }
    Ok(())
}
