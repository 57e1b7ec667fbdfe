//! Which pages of shared memory have a frame on this host, found out without touching them.

use rustix::param::page_size;
use std::io;

/// For each page from `address` on whether it has a frame.
///
/// Of memory that this process may not change the kernel says that all of it has frames.
///
/// # Errors
/// As mincore(2).
pub fn frames(address: usize, pages: usize) -> io::Result<Vec<bool>> {
    let mut found = vec![0_u8; pages];
    let start = std::ptr::without_provenance_mut(address);
    // SAFETY: the kernel reads no memory there, and stores one byte for each page into `found`.
    match unsafe { libc::mincore(start, pages * page_size(), found.as_mut_ptr()) } {
        0 => Ok(found.into_iter().map(|byte| byte & 1 != 0).collect()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{Region, Shape};

    #[test]
    fn pages_that_were_touched_have_frames() {
        let page = page_size();
        let shape = Shape {
            words: page / 8,
            bytes: 3 * page,
        };
        let region = Region::create("frames", shape).unwrap();
        let base = region.words().as_ptr().addr();
        assert_eq!(frames(base, 4).unwrap(), [false; 4]);
        region.words()[0].store(1, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(frames(base, 4).unwrap(), [true, false, false, false]);
    }

    #[test]
    fn memory_that_is_not_mapped_is_an_error() {
        assert!(frames(page_size(), 1).is_err());
    }
}
