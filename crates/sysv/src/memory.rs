//! `munmap` and similar calls over attached segments: as in the kernel, memory that the program
//! unmaps, or maps something else over, is no longer attached.
//!
//! Only calls that the dynamic linker resolves are replaced. Memory that a program unmaps by a bare
//! system call is noticed later, at the latest when it forks ([`shm::reconcile`]).

use crate::{Result, raw, shm, system_call};
use libc::{c_int, c_long, c_void, off_t, size_t};
use pagemesh::mapped_within;
use std::ops::Range;

/// See munmap(2).
#[unsafe(no_mangle)]
pub extern "C" fn munmap(address: *mut c_void, length: size_t) -> c_int {
    unmap(address as usize, length) as c_int
}

/// See mmap(2).
#[unsafe(no_mangle)]
pub extern "C" fn mmap(
    address: *mut c_void,
    length: size_t,
    rights: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    let arguments = [
        address as usize,
        length,
        rights as usize,
        flags as usize,
        fd as usize,
        offset as usize,
    ];
    map(arguments) as *mut c_void
}

/// As [`mmap`].
#[unsafe(no_mangle)]
pub extern "C" fn mmap64(
    address: *mut c_void,
    length: size_t,
    rights: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    mmap(address, length, rights, flags, fd, offset)
}

/// See mremap(2). The last argument is passed only with some flags; since arguments are in
/// registers, it may be absent.
#[unsafe(no_mangle)]
pub extern "C" fn mremap(
    old: *mut c_void,
    old_length: size_t,
    new_length: size_t,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    let arguments = [
        old as usize,
        old_length,
        new_length,
        flags as usize,
        new as usize,
    ];
    remap(arguments) as *mut c_void
}

/// See remap_file_pages(2).
#[unsafe(no_mangle)]
pub extern "C" fn remap_file_pages(
    start: *mut c_void,
    length: size_t,
    rights: c_int,
    page: size_t,
    flags: c_int,
) -> c_int {
    let arguments = [
        start as usize,
        length,
        rights as usize,
        page,
        flags as usize,
    ];
    remap_pages(arguments) as c_int
}

pub fn unmap(address: usize, length: usize) -> c_long {
    let arguments = [address, length, 0, 0, 0, 0];
    let work = || raw::pass(libc::SYS_munmap, arguments);
    replace(&pages(address, length), work)
}

pub fn map(arguments: [usize; 6]) -> c_long {
    let [address, length, _, flags, ..] = arguments;
    let work = || raw::pass(libc::SYS_mmap, arguments);
    if flags as c_int & libc::MAP_FIXED == 0 {
        return raw::told(work());
    }
    replace(&pages(address, length), work)
}

/// Refuses to move or extend a segment, because the daemon would not serve it at the new place.
pub fn remap(arguments: [usize; 5]) -> c_long {
    let [old, old_length, new_length, flags, new] = arguments;
    let work = || {
        raw::pass(
            libc::SYS_mremap,
            [old, old_length, new_length, flags, new, 0],
        )
    };
    let fixed = flags as c_int & libc::MREMAP_FIXED != 0;
    let stays = flags as c_int & !libc::MREMAP_MAYMOVE == 0;
    let source = pages(old, old_length.max(1));
    if mapped_within(&source).is_some() {
        let kept = pages(old, new_length);
        if !stays || kept.is_empty() || kept.end > source.end {
            return raw::told(Err(libc::EINVAL));
        }
        return replace(&(kept.end..source.end), work);
    }
    if fixed {
        return replace(&pages(new, new_length), work);
    }
    raw::told(work())
}

/// Refuses to map other pages of a segment in place of these, because the daemon would not serve
/// them.
pub fn remap_pages(arguments: [usize; 5]) -> c_long {
    let [start, length, rights, page, flags] = arguments;
    if mapped_within(&pages(start, length)).is_some() {
        return raw::told(Err(libc::EINVAL));
    }
    let arguments = [start, length, rights, page, flags, 0];
    raw::told(raw::pass(libc::SYS_remap_file_pages, arguments))
}

/// Lets the kernel unmap or replace the memory first, and only then counts the segment as no longer
/// attached there.
fn replace(range: &Range<usize>, work: impl FnOnce() -> Result<c_long>) -> c_long {
    if range.is_empty() || mapped_within(range).is_none() {
        return raw::told(work());
    }
    system_call(|| {
        let done = work()?;
        shm::forget(range);
        Ok(done)
    })
}

/// The range of pages that contain any of these bytes.
fn pages(start: usize, length: usize) -> Range<usize> {
    const MASK: usize = pagemesh::PAGE_SIZE - 1;
    start & !MASK..start.saturating_add(length).saturating_add(MASK) & !MASK
}
