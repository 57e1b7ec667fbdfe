//! Segment memory in this process's address space.
#![allow(unsafe_code)]

use std::fmt;
use std::ops::Range;
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use pagemesh_wire::PAGE_SIZE;
use pagemesh_wire::local::View;

use crate::{Error, Result, Segment};

mod region;

/// The view of an ordinary read-only mapping under policy `views`.
pub const INCONSISTENT: View = View::INCONSISTENT;

pub use region::{Region, reserve};

/// A mapping of a segment. Clones share it; it is unmapped when the last one is dropped.
///
/// Other processes change the memory at any time. The safe methods copy bytes in and out, or give
/// atomics; [`Mapping::as_ptr`] and the slices are for callers that know from a lock or barrier
/// that no other process interferes. Read-only mappings fault at stores.
#[derive(Clone)]
pub struct Mapping(Arc<Region>);

impl Mapping {
    pub(crate) fn new(
        segment: &Segment,
        address: Option<usize>,
        offset: u64,
        length: u64,
        (write, view): (bool, Option<View>),
    ) -> Result<Self> {
        if !segment.mesh().connection().is_ours() {
            return Err(Error::Forked);
        }
        let page = PAGE_SIZE as u64;
        let aligned = |number: u64| number.is_multiple_of(page);
        if !aligned(offset) || !address.is_none_or(|a| a != 0 && aligned(a as u64)) {
            return Err(Error::Invalid(
                "offset and address of a mapping are multiples of the page size",
            ));
        }
        let end = offset.checked_add(length);
        let length = usize::try_from(length).ok();
        let (Some(end), Some(length)) = (end, length) else {
            return Err(OUTSIDE);
        };
        if !segment.contains(&(offset..end)) {
            return Err(OUTSIDE);
        }
        let region = Arc::new(Region::new(
            segment,
            address,
            offset,
            length,
            (write, view),
        )?);
        segment.mesh().add(&region);
        Ok(Self(region))
    }

    /// An existing mapping of this segment in the process that covers these bytes; otherwise a new
    /// one for reading.
    pub(crate) fn find_or_make(segment: &Segment, offset: u64, length: u64) -> Result<Self> {
        let view = segment.has_views().then_some(INCONSISTENT);
        let covers = |region: &Arc<Region>| {
            let end = region.offset + region.span() as u64;
            let place = region.offset <= offset && offset + length <= end;
            region.segment.same(segment) && place && region.view == view
        };
        match segment.mesh().find(covers) {
            Some(region) => Ok(Self(region)),
            None => Self::new(segment, None, offset, length, (false, view)),
        }
    }

    /// A pointer to its first byte.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.0.base.as_ptr()
    }

    /// The number of bytes that were asked for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.length
    }

    /// Always false: a mapping has at least one byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// True if the mapping permits stores.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.0.write
    }

    /// The segment that it maps.
    #[must_use]
    pub fn segment(&self) -> &Segment {
        &self.0.segment
    }

    /// Offset of its first byte in the segment.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.0.offset
    }

    /// The parts that are still mapped, in order: the whole range, unless the program has unmapped
    /// some of it directly, or has mapped something else over it.
    #[doc(hidden)]
    #[must_use]
    pub fn held(&self) -> Vec<Range<usize>> {
        self.0.held()
    }

    /// Children that are forked from now on have no mapping here: the addresses are free in them.
    pub fn keep_from_children(&self) {
        self.0.keep_from_children();
    }

    /// True if `read(2)`, `write(2)` and other system calls can access this memory while its pages
    /// are on other nodes. If false, the daemon can only serve accesses from user space, and such
    /// calls fail with `EFAULT` unless the program has touched every page just before; `pagemesh
    /// doctor` says how to allow it.
    #[must_use]
    pub fn serves_system_calls(&self) -> bool {
        self.0.serves_system_calls()
    }

    /// The memory as bytes.
    ///
    /// # Safety
    /// No process of the cluster may store to it while the slice exists.
    #[must_use]
    pub unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: the region lives as long as `self`; the caller promises the rest.
        unsafe { slice::from_raw_parts(self.as_ptr(), self.len()) }
    }

    /// The memory as a mutable slice.
    ///
    /// # Safety
    /// No other process or thread in the cluster may load from it or store to it while the slice
    /// exists.
    ///
    /// # Panics
    /// If the mapping is read-only.
    #[must_use]
    #[expect(clippy::mut_from_ref, reason = "the memory is shared; see Safety")]
    pub unsafe fn as_mut_slice(&self) -> &mut [u8] {
        assert!(self.0.write, "the mapping is read-only");
        // SAFETY: the region lives as long as `self`; the caller promises the rest.
        unsafe { slice::from_raw_parts_mut(self.as_ptr(), self.len()) }
    }

    /// Copies bytes out, from `at` on. If another process stores to them meanwhile, each byte is
    /// old or new.
    ///
    /// # Errors
    /// [`Error::Invalid`] if they do not lie in the mapping.
    pub fn read(&self, at: usize, bytes: &mut [u8]) -> Result<()> {
        let from = self.span_of(at, bytes.len())?;
        // SAFETY: both are valid for that many bytes; a Rust reference to the shared side never
        // exists, and any byte is a valid u8.
        unsafe { ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    /// As [`Mapping::read`]. Returns false if the bytes cannot be read, because they are lost, where
    /// the kernel can find that out; elsewhere SIGBUS ends the process, as for any load.
    pub(crate) fn read_if_served(&self, at: usize, bytes: &mut [u8]) -> Result<bool> {
        let from = self.span_of(at, bytes.len())?;
        if !self.serves_system_calls() {
            return self.read(at, bytes).map(|()| true);
        }
        let span = |start: *mut u8| libc::iovec {
            iov_base: start.cast(),
            iov_len: bytes.len(),
        };
        let (local, remote) = (span(bytes.as_ptr().cast_mut()), span(from));
        // SAFETY: the bytes are this function's to write, and the kernel checks the other side.
        let copied = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        if copied == bytes.len() as isize {
            return Ok(true);
        }
        match std::io::Error::last_os_error().raw_os_error() {
            // A filter of system calls forbids it.
            Some(libc::EPERM | libc::ENOSYS) if copied < 0 => self.read(at, bytes).map(|()| true),
            _ => Ok(false),
        }
    }

    /// Copies bytes in, from `at` on. If another process loads them meanwhile, each byte is old or
    /// new.
    ///
    /// # Errors
    /// [`Error::Invalid`] if they do not lie in the mapping, or it is read-only.
    pub fn write(&self, at: usize, bytes: &[u8]) -> Result<()> {
        let to = self.span_of(at, bytes.len())?;
        self.check_writable()?;
        // SAFETY: as in `read`.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    /// Loads eight bytes at once, in this host's byte order; works on read-only mappings, too.
    ///
    /// # Errors
    /// [`Error::Invalid`] if they do not lie in the mapping, aligned.
    pub fn load_u64(&self, at: usize) -> Result<u64> {
        Ok(self.atomic::<AtomicU64>(at)?.load(Ordering::Acquire))
    }

    /// A byte of the shared memory.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it does not lie in the mapping, or that is read-only.
    pub fn atomic_u8(&self, at: usize) -> Result<&AtomicU8> {
        self.check_writable()?;
        self.atomic(at)
    }

    /// Two bytes of the shared memory, in this host's byte order.
    ///
    /// # Errors
    /// [`Error::Invalid`] if they do not lie in the mapping, aligned, or it is
    /// read-only.
    pub fn atomic_u16(&self, at: usize) -> Result<&AtomicU16> {
        self.check_writable()?;
        self.atomic(at)
    }

    /// Four bytes of the shared memory, in this host's byte order.
    ///
    /// # Errors
    /// [`Error::Invalid`] if they do not lie in the mapping, aligned, or it is
    /// read-only.
    pub fn atomic_u32(&self, at: usize) -> Result<&AtomicU32> {
        self.check_writable()?;
        self.atomic(at)
    }

    /// Eight bytes of the shared memory, in this host's byte order. Atomic in the whole cluster
    /// under policy `sequential`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if they do not lie in the mapping, aligned, or it is
    /// read-only.
    pub fn atomic_u64(&self, at: usize) -> Result<&AtomicU64> {
        self.check_writable()?;
        self.atomic(at)
    }

    /// `count` times four bytes of the shared memory, from `at` on, in this host's byte order.
    ///
    /// # Errors
    /// As [`Mapping::atomic_u32`].
    pub fn atomic_u32s(&self, at: usize, count: usize) -> Result<&[AtomicU32]> {
        self.check_writable()?;
        self.atomics(at, count)
    }

    /// `count` times eight bytes of the shared memory, from `at` on, in this host's byte order.
    ///
    /// # Errors
    /// As [`Mapping::atomic_u64`].
    pub fn atomic_u64s(&self, at: usize, count: usize) -> Result<&[AtomicU64]> {
        self.check_writable()?;
        self.atomics(at, count)
    }

    /// [`Segment::wait_change`] for the byte `at` of this mapping.
    ///
    /// # Errors
    /// As there.
    pub fn wait_change(&self, at: usize, expected: u8, timeout: Option<Duration>) -> Result<u8> {
        self.span_of(at, 1)?;
        let offset = self.0.offset + at as u64;
        self.0.segment.wait_change(offset, expected, timeout)
    }

    /// For each of the mapping's pages that these bytes lie in, whether this host has a frame for it.
    /// A page with a frame may still have to be fetched: its contents may be out of date.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty range, one outside of the mapping, or one that the program has
    /// unmapped.
    pub fn frames(&self, bytes: Range<usize>) -> Result<Vec<bool>> {
        let length = bytes
            .end
            .checked_sub(bytes.start)
            .filter(|length| *length > 0);
        let place = self.span_of(bytes.start, length.ok_or(OUTSIDE)?)?;
        let first = bytes.start / PAGE_SIZE;
        let pages = bytes.end.div_ceil(PAGE_SIZE) - first;
        let start = place.addr() - bytes.start % PAGE_SIZE;
        let gone = Error::Invalid("the memory is not mapped any more");
        pagemesh_os::frames::frames(start, pages).map_err(|_| gone)
    }

    /// Keeps the pages of these bytes of the mapping here, writable; see
    /// [`Segment::write_lock`] (M14).
    ///
    /// # Errors
    /// As there.
    pub fn write_lock(&self, bytes: Range<usize>) -> Result<crate::WriteLock> {
        let in_segment = |at: usize| self.0.offset + at as u64;
        let bytes = in_segment(bytes.start)..in_segment(bytes.end);
        self.0.segment.write_lock(bytes)
    }

    /// The byte at an offset of the segment that the mapping is known to cover.
    pub(crate) fn byte(&self, offset: u64) -> u8 {
        let at = usize::try_from(offset - self.0.offset).expect("covered, so addressable");
        assert!(at < self.0.span());
        // SAFETY: it lies in the region, which lives as long as `self`.
        let byte = unsafe { AtomicU8::from_ptr(self.as_ptr().add(at)) };
        byte.load(Ordering::Acquire)
    }

    fn atomic<T>(&self, at: usize) -> Result<&T> {
        Ok(&self.atomics(at, 1)?[0])
    }

    fn atomics<T>(&self, at: usize, count: usize) -> Result<&[T]> {
        let length = count.saturating_mul(size_of::<T>());
        let place = self.span_of(at, length)?.cast::<T>();
        if !place.is_aligned() {
            return Err(Error::Invalid("the place in the mapping is not aligned"));
        }
        // SAFETY: they are in the mapping and aligned; `T` is an atomic integer, for
        // which any bytes are valid and which others may change.
        Ok(unsafe { slice::from_raw_parts(place, count) })
    }

    fn span_of(&self, at: usize, length: usize) -> Result<*mut u8> {
        match at.checked_add(length) {
            // SAFETY: the place is within the mapping, or one past its end.
            Some(end) if end <= self.0.length => Ok(unsafe { self.as_ptr().add(at) }),
            _ => Err(OUTSIDE),
        }
    }

    fn check_writable(&self) -> Result<()> {
        if self.0.write {
            Ok(())
        } else {
            Err(Error::Invalid("the mapping is read-only"))
        }
    }
}

const OUTSIDE: Error = Error::Invalid("these bytes do not lie in the segment's mapping");

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping")
            .field("segment", &self.0.segment.name())
            .field("address", &self.0.base)
            .field("offset", &self.0.offset)
            .field("length", &self.0.length)
            .field("write", &self.0.write)
            .finish()
    }
}
