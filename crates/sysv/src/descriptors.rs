//! Closing of descriptors: this library's own descriptors, which the program does not know of, stay
//! open when a program that becomes a daemon closes all possible numbers. For the program they do
//! not exist.

use crate::{Result, raw};
use libc::{c_int, c_long, c_uint};
use pagemesh_os::kept;

/// See close(2).
#[unsafe(no_mangle)]
pub extern "C" fn close(fd: c_int) -> c_int {
    raw::told(shut(fd)) as c_int
}

/// See dup(2).
#[unsafe(no_mangle)]
pub extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    if old == new {
        let open = raw::ask(libc::SYS_fcntl, [old as usize, libc::F_GETFD as usize, 0]);
        return raw::told(open.map(|_| c_long::from(new))) as c_int;
    }
    raw::told(duplicate(old, new, 0)) as c_int
}

/// See dup(2).
#[unsafe(no_mangle)]
pub extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    raw::told(duplicate(old, new, flags)) as c_int
}

/// See close_range(2).
#[unsafe(no_mangle)]
pub extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    raw::told(shut_range(first, last, flags)) as c_int
}

/// See closefrom(3).
#[unsafe(no_mangle)]
pub extern "C" fn closefrom(first: c_int) {
    let _ = shut_range(c_uint::try_from(first).unwrap_or(0), c_uint::MAX, 0);
}

pub fn shut(fd: c_int) -> Result<c_long> {
    if kept::is_kept(fd) {
        return Err(libc::EBADF);
    }
    raw::ask(libc::SYS_close, [fd as usize, 0, 0])
}

pub fn shut_range(first: c_uint, last: c_uint, flags: c_int) -> Result<c_long> {
    if first > last {
        return Err(libc::EINVAL);
    }
    for range in kept::others(first..=last) {
        let (first, last) = (*range.start() as usize, *range.end() as usize);
        raw::ask(libc::SYS_close_range, [first, last, flags as usize])?;
    }
    Ok(0)
}

/// Duplicates a descriptor. A program that requests a number of this library's gets an error, as if
/// the kernel were just allocating the number in another thread.
fn duplicate(old: c_int, new: c_int, flags: c_int) -> Result<c_long> {
    if kept::is_kept(new) {
        return Err(libc::EBUSY);
    }
    if kept::is_kept(old) {
        return Err(libc::EBADF);
    }
    raw::ask(libc::SYS_dup3, [old as usize, new as usize, flags as usize])
}
