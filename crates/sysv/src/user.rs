//! Access to the program's memory, which may be unmapped: it is read and written as system calls do
//! it.

use crate::Result;
use libc::{c_void, iovec};
use std::mem::{MaybeUninit, size_of};

/// Reads bytes at an address of the program.
pub fn read_bytes(from: usize, count: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    copy(bytes.as_mut_ptr() as usize, from, count, false)?;
    Ok(bytes)
}

/// Writes bytes to an address of the program.
pub fn write_bytes(to: usize, bytes: &[u8]) -> Result<()> {
    copy(bytes.as_ptr() as usize, to, bytes.len(), true)
}

/// Reads a structure of the C library at an address of the program.
pub fn read<T: Plain>(from: usize) -> Result<T> {
    let mut value = MaybeUninit::<T>::uninit();
    copy(value.as_mut_ptr() as usize, from, size_of::<T>(), false)?;
    // SAFETY: all of it was written, and any bytes are a value of a plain type.
    Ok(unsafe { value.assume_init() })
}

/// Writes a structure of the C library to an address of the program.
pub fn write<T: Plain>(to: usize, value: &T) -> Result<()> {
    copy(std::ptr::from_ref(value) as usize, to, size_of::<T>(), true)
}

/// Integers, and structures of integers only.
///
/// # Safety
/// Any bytes are a valid value of the type.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($name:ty),*) => {$(
        // SAFETY: nothing but integers.
        unsafe impl Plain for $name {}
    )*};
}

plain!(i64, libc::timespec);
plain!(libc::shmid_ds, libc::semid_ds, libc::msqid_ds);
plain!(crate::layout::ShmInfo, crate::layout::ShmLimits);
plain!(crate::layout::SemInfo, crate::layout::MsgInfo);

/// Copies between this library's memory and an address of the program.
fn copy(ours: usize, theirs: usize, count: usize, out: bool) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    let ours = part(ours, count);
    let remote = part(theirs, count);
    // SAFETY: `ours` is memory of this library, readable or writable as needed; the kernel checks
    // the other address.
    let done = unsafe {
        if out {
            libc::process_vm_writev(libc::getpid(), &raw const ours, 1, &raw const remote, 1, 0)
        } else {
            libc::process_vm_readv(libc::getpid(), &raw const ours, 1, &raw const remote, 1, 0)
        }
    };
    if usize::try_from(done) == Ok(count) {
        return Ok(());
    }
    let error = std::io::Error::last_os_error().raw_os_error();
    if done < 0 && matches!(error, Some(libc::ENOSYS | libc::EPERM)) {
        // A container forbids the call: copy directly; a bad address then ends the program.
        let (from, to) = if out {
            (ours.iov_base, remote.iov_base)
        } else {
            (remote.iov_base, ours.iov_base)
        };
        // SAFETY: the program guarantees that its address is valid.
        unsafe { std::ptr::copy(from.cast::<u8>(), to.cast::<u8>(), count) };
        return Ok(());
    }
    Err(libc::EFAULT)
}

fn part(address: usize, count: usize) -> iovec {
    iovec {
        iov_base: address as *mut c_void,
        iov_len: count,
    }
}
