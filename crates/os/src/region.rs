//! Memory that outlives its process: a sealed memfd, mapped shared.
//!
//! The next process that maps the descriptor sees what is stored here, however the process that
//! stored it ended. At most one process maps a region with bytes at a time; others may hold the
//! descriptor. A region has two parts: words, which are stored and loaded atomically, and bytes.
//! The words say which of the bytes are valid.

use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, SealFlags, fallocate, fchmod, fcntl_add_seals,
    fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::slice;
use std::sync::atomic::AtomicU64;

/// A mapped region.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    shape: Shape,
    fd: OwnedFd,
}

/// The sizes of a region's parts. Regions are sparse: only touched pages take memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of words.
    pub words: usize,
    /// Number of bytes behind the words.
    pub bytes: usize,
}

const WORD: usize = size_of::<AtomicU64>();

// SAFETY: the mapping lives as long as the value and belongs to it alone.
unsafe impl Send for Region {}
// SAFETY: shared access is to atomic words, and to bytes that no thread changes meanwhile.
unsafe impl Sync for Region {}

impl Region {
    /// A new region, all zeros, which no process can resize.
    ///
    /// # Errors
    /// As memfd_create(2), ftruncate(2) and mmap(2).
    pub fn create(name: &str, shape: Shape) -> io::Result<Self> {
        let base = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = match memfd_create(name, base | MemfdFlags::NOEXEC_SEAL) {
            // Kernels before 6.3 reject the flag.
            Err(Errno::INVAL) => memfd_create(name, base)?,
            made => made?,
        };
        fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
        ftruncate(&fd, shape.size() as u64)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Self::map(fd, shape)
    }

    /// Maps a region that another process made.
    ///
    /// # Errors
    /// `InvalidData` if it has another shape; else as mmap(2).
    pub fn map(fd: OwnedFd, shape: Shape) -> io::Result<Self> {
        let whole = fstat(&fd)?.st_size == shape.size() as i64;
        // A region that could shrink would end this process with SIGBUS.
        if !whole || !fcntl_get_seals(&fd)?.contains(SealFlags::SHRINK) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the memory to take over has another size",
            ));
        }
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses a free address, so no memory in use changes.
        let base = unsafe { mmap(null_mut(), shape.size(), rights, flags, &fd, 0)? };
        let base = NonNull::new(base.cast()).expect("mmap never gives the null page");
        let region = Self { base, shape, fd };
        // Excluded from core dumps: a dump would allocate every hole, and reveal private keys.
        // SAFETY: the advice concerns only what was just mapped.
        unsafe { madvise(base.as_ptr().cast(), shape.size(), Advice::LinuxDontDump)? };
        Ok(region)
    }

    /// Excludes the region from children forked from now on.
    ///
    /// # Errors
    /// As madvise(2).
    pub fn hide_from_children(&self) -> io::Result<()> {
        // SAFETY: the advice concerns this mapping alone, which lives as long as `self`.
        let hidden = unsafe {
            let size = self.shape.size();
            madvise(self.base.as_ptr().cast(), size, Advice::LinuxDontFork)
        };
        Ok(hidden?)
    }

    /// The word with this index.
    ///
    /// # Panics
    /// If the index is too large.
    #[must_use]
    #[inline]
    pub fn word(&self, index: usize) -> &AtomicU64 {
        &self.words()[index]
    }

    /// All words.
    #[must_use]
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: this many words lie at the start of the mapping, which is aligned to a page and
        // lives as long as `self`; they are only reached as atomics.
        unsafe { slice::from_raw_parts(self.base.as_ptr().cast(), self.shape.words) }
    }

    /// The bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: they lie in the mapping behind the words; they do not change while `self` is
        // borrowed, since no other process maps the region.
        unsafe { slice::from_raw_parts(self.first_byte(), self.shape.bytes) }
    }

    /// The bytes, mutable.
    #[must_use]
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.first_byte(), self.shape.bytes) }
    }

    /// Returns the memory of these bytes to the kernel; they read as zeros from now on. The range
    /// consists of whole pages of the host.
    ///
    /// # Errors
    /// As fallocate(2).
    ///
    /// # Panics
    /// If the range is not inside the bytes.
    pub fn clear(&mut self, bytes: Range<usize>) -> io::Result<()> {
        assert!(bytes.start <= bytes.end && bytes.end <= self.shape.bytes);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let start = (self.shape.words * WORD + bytes.start) as u64;
        Ok(fallocate(&self.fd, flags, start, bytes.len() as u64)?)
    }

    /// Allocates memory for those of these bytes that have none, all at once rather than page by
    /// page at the first touch. Their contents stay.
    ///
    /// # Errors
    /// As madvise(2) with `MADV_POPULATE_WRITE`, which came with Linux 5.14.
    ///
    /// # Panics
    /// If the range is not inside the bytes.
    pub fn populate(&mut self, bytes: Range<usize>) -> io::Result<()> {
        assert!(bytes.start <= bytes.end && bytes.end <= self.shape.bytes);
        let page = rustix::param::page_size();
        let before = self.shape.words * WORD + bytes.start;
        let start = before - before % page;
        let length = self.shape.words * WORD + bytes.end - start;
        // SAFETY: these bytes lie in the mapping, and nothing that they hold changes.
        unsafe {
            let at = self.base.as_ptr().add(start).cast();
            Ok(madvise(at, length, Advice::LinuxPopulateWrite)?)
        }
    }

    fn first_byte(&self) -> *mut u8 {
        // SAFETY: still in the mapping, or one past its end.
        unsafe { self.base.as_ptr().add(self.shape.words * WORD) }
    }
}

impl Shape {
    const fn size(self) -> usize {
        self.words * WORD + self.bytes
    }
}

impl AsRef<[AtomicU64]> for Region {
    fn as_ref(&self) -> &[AtomicU64] {
        self.words()
    }
}

impl AsFd for Region {
    /// The descriptor that is kept for the next process.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map`; all borrows are over.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.shape.size()) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    const SHAPE: Shape = Shape {
        words: 512,
        bytes: 8192,
    };

    #[test]
    fn a_core_dump_leaves_it_out() {
        let shape = Shape {
            words: 0,
            bytes: 1 << 40,
        };
        let region = Region::create("pagemesh-undumped", shape).unwrap();
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", region.base.as_ptr().addr());
        let mapped = smaps.lines().skip_while(|line| !line.starts_with(&start));
        let flags = mapped
            .skip(1)
            .find(|line| line.starts_with("VmFlags:"))
            .unwrap();
        assert!(flags.split_whitespace().any(|flag| flag == "dd"), "{flags}");
    }

    #[test]
    fn what_was_stored_is_there_for_the_next() {
        let mut first = Region::create("test", SHAPE).unwrap();
        first.bytes_mut()[8191] = 7;
        first.word(511).store(9, Ordering::Release);
        let fd = first.as_fd().try_clone_to_owned().unwrap();
        drop(first);
        let mut next = Region::map(fd, SHAPE).unwrap();
        assert_eq!(next.word(511).load(Ordering::Acquire), 9);
        assert_eq!((next.bytes()[0], next.bytes()[8191]), (0, 7));
        next.clear(4096..8192).unwrap();
        assert_eq!(next.bytes()[8191], 0);
        assert_eq!(next.word(511).load(Ordering::Acquire), 9);
    }

    #[test]
    fn memory_is_given_ahead_and_holds_what_it_held() {
        let mut region = Region::create("test", SHAPE).unwrap();
        region.bytes_mut()[4095] = 3;
        let blocks = |region: &Region| fstat(region.as_fd()).unwrap().st_blocks;
        let before = blocks(&region);
        region.populate(100..8000).unwrap();
        assert_eq!((region.bytes()[4095], region.bytes()[4096]), (3, 0));
        assert!(blocks(&region) > before, "both pages have memory");
        region.populate(8192..8192).unwrap();
    }

    #[test]
    fn another_shape_is_refused() {
        let region = Region::create("test", SHAPE).unwrap();
        let fd = region.as_fd().try_clone_to_owned().unwrap();
        let larger = Shape {
            bytes: 1 << 20,
            ..SHAPE
        };
        assert!(Region::map(fd, larger).is_err());
        let loose = memfd_create("loose", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&loose, SHAPE.size() as u64).unwrap();
        assert!(Region::map(loose, SHAPE).is_err());
    }
}
