//! Prevents the program from unmapping its segments' memory by accident: replaces the C library's
//! calls that could, and refuses or translates them.
//!
//! Only calls that the dynamic linker resolves are replaced: those of the program and its
//! libraries, but not calls inside the C library, nor bare system calls.

use std::ffi::{c_int, c_long, c_void};
use std::ops::Range;
use std::ptr::null_mut;

use pagemesh::{Error, PAGE_SIZE, mapped_within};

use crate::error::{Failure, Outcome, call};
use crate::segment::pagemesh_unmap;

/// Advice that destroys contents, or gives forked children memory that the daemon does not serve.
const HARMFUL: [c_int; 4] = [
    libc::MADV_REMOVE,
    libc::MADV_DOFORK,
    libc::MADV_HWPOISON,
    102, // MADV_GUARD_INSTALL, of Linux 6.13
];

/// The pages among these bytes that map a segment, if any.
fn touched(address: *mut c_void, length: usize) -> Option<Range<usize>> {
    let start = address as usize;
    let end = start.saturating_add(length.max(1));
    mapped_within(&(start..end))
}

fn refuse<T>(what: &str) -> Outcome<T> {
    Err(Failure::invalid(what))
}

/// Unmaps a segment if the range covers all of it; otherwise unmaps nothing of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(address: *mut c_void, length: usize) -> c_int {
    let Some(range) = touched(address, length) else {
        // SAFETY: the caller's promise; no memory of this library is touched.
        return unsafe { libc::syscall(libc::SYS_munmap, address, length) as c_int };
    };
    let start = address as usize;
    if range.start == start && range.len() == length.next_multiple_of(PAGE_SIZE) {
        return pagemesh_unmap(address);
    }
    call(-1, || {
        refuse("munmap of part of a segment, or of more than that; use pagemesh_unmap")
    })
}

/// Refuses to map anything over a segment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: usize,
    rights: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    if flags & libc::MAP_FIXED != 0 && touched(address, length).is_some() {
        let taken = Error::AddressTaken(address as usize);
        return call(libc::MAP_FAILED, || Err(taken.into()));
    }
    // SAFETY: the caller's promise; no memory of this library is touched.
    let mapped =
        unsafe { libc::syscall(libc::SYS_mmap, address, length, rights, flags, fd, offset) };
    pointer(mapped)
}

/// As [`mmap`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    length: usize,
    rights: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { mmap(address, length, rights, flags, fd, offset) }
}

/// Refuses to move a segment, or to move anything over one. The last argument is passed only with
/// some flags; since arguments are in registers, it may be absent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_length: usize,
    new_length: usize,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    let target = flags & libc::MREMAP_FIXED != 0 && touched(new, new_length).is_some();
    if target || touched(old, old_length).is_some() {
        return call(libc::MAP_FAILED, || {
            refuse("mremap of a segment, or to where one is; map it anew instead")
        });
    }
    // SAFETY: the caller's promise; no memory of this library is touched.
    let mapped =
        unsafe { libc::syscall(libc::SYS_mremap, old, old_length, new_length, flags, new) };
    pointer(mapped)
}

/// Refuses advice that would destroy shared contents.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int {
    if HARMFUL.contains(&advice) && touched(address, length).is_some() {
        return call(-1, || {
            refuse("madvise that would take away a segment's pages")
        });
    }
    // SAFETY: the caller's promise; other advice does a segment no harm.
    unsafe { libc::syscall(libc::SYS_madvise, address, length, advice) as c_int }
}

fn pointer(result: c_long) -> *mut c_void {
    if result == -1 {
        return libc::MAP_FAILED;
    }
    null_mut::<c_void>().with_addr(result as usize)
}
