//! Which pages of a process were written since they were last protected: one system call for a
//! whole range (Linux 6.7 or later).
//!
//! Only `bench diff` uses it, for comparison: see `docs/performance.md`.

use linux_raw_sys::general::__u64;
use rustix::fs::{Mode, OFlags, open};
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

/// The page table of a process.
#[derive(Debug)]
pub struct Pagemap(OwnedFd);

/// `struct pm_scan_arg` of `linux/fs.h`, which older headers lack.
#[repr(C)]
#[derive(Debug, Default)]
struct Scan {
    size: __u64,
    flags: __u64,
    start: __u64,
    end: __u64,
    walk_end: __u64,
    vec: __u64,
    vec_len: __u64,
    max_pages: __u64,
    category_inverted: __u64,
    category_mask: __u64,
    category_anyof_mask: __u64,
    return_mask: __u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    start: __u64,
    end: __u64,
    categories: __u64,
}

const SCAN: Opcode = opcode::read_write::<Scan>(b'f', 16);
const WP_MATCHING: u64 = 1;
const CHECK_WPASYNC: u64 = 2;
const IS_WRITTEN: u64 = 1 << 1;
const IS_PRESENT: u64 = 1 << 3;

/// Maximum number of runs of pages that one call returns.
const RUNS: usize = 512;

impl Pagemap {
    /// Opens the page table of this process.
    ///
    /// # Errors
    /// As open(2).
    pub fn own() -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(Self(open("/proc/self/pagemap", flags, Mode::empty())?))
    }

    /// The addresses in `range` that were written since they were last protected, as runs of whole
    /// pages; protects them again. The range must be registered with a descriptor of
    /// [`Uffd::handshake_async`](crate::uffd::Uffd::handshake_async).
    ///
    /// # Errors
    /// As the `PAGEMAP_SCAN` ioctl: `ENOTTY` before Linux 6.7.
    pub fn take_written(
        &self,
        range: Range<u64>,
        mut each: impl FnMut(Range<u64>),
    ) -> io::Result<()> {
        let mut found = [Found::default(); RUNS];
        let mut start = range.start;
        while start < range.end {
            let mut scan = Scan {
                size: size_of::<Scan>() as u64,
                flags: WP_MATCHING | CHECK_WPASYNC,
                start,
                end: range.end,
                vec: found.as_mut_ptr() as u64,
                vec_len: RUNS as u64,
                category_mask: IS_WRITTEN | IS_PRESENT,
                return_mask: IS_WRITTEN,
                ..Scan::default()
            };
            // SAFETY: PAGEMAP_SCAN reads and writes one `pm_scan_arg`, and writes at most `vec_len`
            // regions at `vec`, which live and are borrowed exclusively.
            let count = unsafe { ioctl(&self.0, Counting(Updater::<SCAN, _>::new(&mut scan))) }?;
            for run in &found[..count.min(RUNS)] {
                each(run.start..run.end);
            }
            start = scan.walk_end.max(start + 1);
        }
        Ok(())
    }
}

/// An ioctl whose return value is a count.
struct Counting<'a, T>(Updater<'a, SCAN, T>);

// SAFETY: as `Updater`, which does everything but return the result.
unsafe impl<T> rustix::ioctl::Ioctl for Counting<'_, T> {
    type Output = usize;

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.0.opcode()
    }

    fn as_ptr(&mut self) -> *mut core::ffi::c_void {
        self.0.as_ptr()
    }

    unsafe fn output_from_ptr(
        out: rustix::ioctl::IoctlOutput,
        _: *mut core::ffi::c_void,
    ) -> rustix::io::Result<usize> {
        Ok(usize::try_from(out).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{Region, Shape};
    use crate::uffd::Uffd;
    use std::sync::atomic::Ordering;

    #[test]
    fn written_pages_are_told_once() {
        let shape = Shape {
            words: 8 * 512,
            bytes: 0,
        };
        let region = Region::create("test", shape).unwrap();
        let base = region.words().as_ptr() as u64;
        let uffd = Uffd::create(None).map(|(uffd, _)| uffd);
        let Ok(uffd) = uffd.and_then(|uffd| uffd.handshake_async().map(|()| uffd)) else {
            eprintln!("skipped: this kernel cannot");
            return;
        };
        let write = |page: usize| region.word(page * 512).store(1, Ordering::Relaxed);
        (0..8).for_each(write);
        uffd.register(base, 8 * 4096).unwrap();
        uffd.protect(base, 8 * 4096);
        let pagemap = Pagemap::own().unwrap();
        let written = || {
            let mut pages = Vec::new();
            let range = base..base + 8 * 4096;
            let each = |run: Range<u64>| {
                pages.extend(((run.start - base) / 4096)..((run.end - base) / 4096))
            };
            pagemap.take_written(range, each).unwrap();
            pages
        };
        assert_eq!(written(), []);
        [1, 2, 6].into_iter().for_each(write);
        assert_eq!(written(), [1, 2, 6]);
        write(7);
        assert_eq!(written(), [7]);
    }
}
