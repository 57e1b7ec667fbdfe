//! Memory that the next one to want a page will get, warm.
//!
//! The kernel hands out those pages first that were given back last. Whoever writes a page
//! and gives it back leaves it in the caches of this processor, and the next page that is
//! placed there is made of it. A page that nobody has touched for long costs about a microsecond more, at a
//! moment when a thread waits. The page is never mapped, so no processor has to forget it:
//! doing the same to anonymous memory costs more than it gains.

use crate::memfd::{PAGE, PageBytes};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use rustix::io::pwrite;
use std::io;
use std::os::fd::OwnedFd;

/// See the module.
#[derive(Debug)]
pub struct Spare(OwnedFd);

impl Spare {
    /// Takes nothing yet.
    ///
    /// # Errors
    /// As memfd_create(2).
    pub fn create() -> io::Result<Self> {
        let fd = memfd_create("pagemesh-spare", MemfdFlags::CLOEXEC)?;
        Ok(Self(fd))
    }

    /// Takes a page, writes it and gives it back.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn warm(&self) -> io::Result<()> {
        const NOTHING: &PageBytes = &[0; PAGE];
        pwrite(&self.0, NOTHING, 0)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.0, flags, 0, PAGE as u64)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::fstat;

    #[test]
    fn what_was_taken_is_given_back() {
        let spare = Spare::create().expect("memfd");
        for _ in 0..3 {
            spare.warm().expect("memory");
            assert_eq!(fstat(&spare.0).expect("fstat").st_blocks, 0);
        }
    }
}
