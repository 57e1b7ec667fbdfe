//! Access to the program's memory, which may be unmapped: it is read and written as system calls do
//! it.

use crate::Result;
use crate::raw::pass;
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
    if is_there(theirs, count, out) {
        copy_directly(ours, theirs, count, out);
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
        copy_directly(ours.iov_base as usize, theirs, count, out);
        return Ok(());
    }
    Err(libc::EFAULT)
}

fn copy_directly(ours: usize, theirs: usize, count: usize, out: bool) {
    let (from, to) = if out { (ours, theirs) } else { (theirs, ours) };
    // SAFETY: the program guarantees that its address is valid, and most often the kernel has said
    // so; the other is memory of this library.
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, count) };
}

/// Bytes that [`probe`] reads or writes.
const PROBED: usize = 8;

/// True if a range of at most two pages is certainly there: for so little, asking is much faster
/// than having the kernel copy.
fn is_there(address: usize, count: usize, to_write: bool) -> bool {
    let (first, last) = (address, address.wrapping_add(count).wrapping_sub(PROBED));
    if count < PROBED {
        return !to_write && probe(first, false);
    }
    count <= 4096 && probe(first, to_write) && (first == last || probe(last, to_write))
}

/// True if eight bytes can be read, or written, which they are.
fn probe(address: usize, to_write: bool) -> bool {
    const NO_SUCH: usize = usize::MAX;
    if address == 0 {
        // No mask, for this system call.
        return false;
    }
    if to_write {
        // Writes the thread's signal mask.
        let arguments = [NO_SUCH, 0, address, PROBED, 0, 0];
        return pass(libc::SYS_rt_sigprocmask, arguments) == Ok(0);
    }
    // Reads a signal mask, and refuses to do what is asked for with it.
    let arguments = [NO_SUCH, address, 0, PROBED, 0, 0];
    pass(libc::SYS_rt_sigprocmask, arguments) == Err(libc::EINVAL)
}

fn part(address: usize, count: usize) -> iovec {
    iovec {
        iov_base: address as *mut c_void,
        iov_len: count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    /// Two pages, of which the second is not there.
    fn half() -> usize {
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: new memory, of which nothing else knows.
        unsafe {
            let at = libc::mmap(null_mut(), 2 * 4096, rights, anonymous, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            assert_eq!(libc::munmap(at.byte_add(4096), 4096), 0);
            at as usize
        }
    }

    #[test]
    fn what_is_not_there_is_an_error_and_what_is_there_is_copied() {
        let end = half() + 4096;
        for count in [1, 6, 8, 9, 72, 4096] {
            let bytes: Vec<_> = (0..count).map(|byte| (byte % 251) as u8).collect();
            assert_eq!(write_bytes(end - count, &bytes), Ok(()));
            assert_eq!(read_bytes(end - count, count).as_ref(), Ok(&bytes));
            for missing in [end - count + 1, end, 0, 1, usize::MAX - 3] {
                assert_eq!(read_bytes(missing, count), Err(libc::EFAULT), "{count}");
                assert_eq!(write_bytes(missing, &bytes), Err(libc::EFAULT), "{count}");
            }
        }
        assert_eq!(read_bytes(0, 0), Ok(Vec::new()));
        let long = vec![7; 10_000];
        let mut place = vec![0; 10_000];
        assert_eq!(write_bytes(place.as_mut_ptr() as usize, &long), Ok(()));
        assert_eq!(place, long);
    }
}
