//! All views of a segment of policy `views` in one process: windows on the same pages, at
//! addresses that differ in some bits only.

use std::ops::Range;

use pagemesh_wire::local::{Request, View};
use pagemesh_wire::{ByteOffset, PAGE_SIZE, PageCount, PageIndex};

use crate::mapping::{Mapping, reserve};
use crate::segment::Access;
use crate::{Error, Result, Segment, WriteLock};

/// Windows of one segment: three bits choose one.
const WINDOWS: usize = 8;

/// The number of a view's window.
const fn window(view: View) -> usize {
    view.short as usize | (view.data_driven as usize) << 1 | (!view.consistent as usize) << 2
}

/// The view of a window; there are no consistent data-driven ones.
fn view(window: usize) -> Option<View> {
    let view = View {
        short: window & 1 != 0,
        data_driven: window & 2 != 0,
        consistent: window & 4 == 0,
    };
    view.is_possible().then_some(view)
}

/// A pointer to the same byte in another view: `stride` is that of [`Views::stride`], and the
/// pointer lies in one of the windows.
#[must_use]
pub fn view_pointer<T>(pointer: *mut T, stride: usize, view: View) -> *mut T {
    pointer.map_addr(|address| (address & !(stride * (WINDOWS - 1))) | (window(view) * stride))
}

/// The windows of a segment; see [`Segment::map_views`].
#[derive(Debug)]
pub struct Views {
    segment: Segment,
    stride: usize,
    windows: [Option<Mapping>; WINDOWS],
}

impl Views {
    pub(crate) fn new(segment: &Segment) -> Result<Self> {
        if !segment.has_views() {
            let why = "only segments of policy views have views; create the segment with it";
            return Err(Error::Invalid(why));
        }
        let size = usize::try_from(segment.size()).map_err(|_| Error::Invalid("too large"))?;
        let stride = size.max(PAGE_SIZE).next_power_of_two();
        let mut taken = None;
        // Another thread may map something into the gap that was found.
        for _ in 0..16 {
            let base = reserve(WINDOWS * stride)?;
            match Self::at(segment, stride, base) {
                Err(Error::AddressTaken(address)) => taken = Some(address),
                done => return done,
            }
        }
        Err(Error::AddressTaken(taken.unwrap_or(0)))
    }

    fn at(segment: &Segment, stride: usize, base: usize) -> Result<Self> {
        let mut windows = [const { None }; WINDOWS];
        for (number, place) in windows.iter_mut().enumerate() {
            let writable = segment.access() == Access::Writable;
            let Some(view) = view(number).filter(|view| !view.consistent || writable) else {
                continue;
            };
            let address = Some(base + number * stride);
            let how = (view.consistent, Some(view));
            *place = Some(Mapping::new(segment, address, 0, segment.size(), how)?);
        }
        Ok(Self {
            segment: segment.clone(),
            stride,
            windows,
        })
    }

    /// The segment.
    #[must_use]
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// The distance between two windows, a power of two: its multiples are the bits that choose
    /// the view.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// The window of a view.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such view, or none in a segment that was opened
    /// read-only.
    pub fn view(&self, view: View) -> Result<&Mapping> {
        let mapping = self.windows[window(view)].as_ref();
        mapping.ok_or(Error::Invalid(
            "a data-driven view is inconsistent, and a consistent one needs a writable opening",
        ))
    }

    /// PURGE of an inconsistent view: drops this node's copies of these bytes, so that the next
    /// access of a demand-driven view fetches them, and one of a data-driven view sleeps until they
    /// pass. Of a short view, drops the prefixes only. PURGE of a consistent view is
    /// [`Views::publish`].
    ///
    /// # Errors
    /// [`Error::Invalid`] for bytes outside of the segment.
    pub fn purge(&self, view: View, bytes: Range<u64>) -> Result<()> {
        self.segment.purge(view, bytes)
    }

    /// Page-out: these bytes are not needed here for a while. Copies leave this node; a consistent
    /// copy stays, and leaves memory. Of a short view, prefixes leave; the whole pages stay here, and
    /// leave all views until they are touched.
    ///
    /// # Errors
    /// [`Error::Invalid`] for bytes outside of the segment.
    pub fn page_out(&self, view: View, bytes: Range<u64>) -> Result<()> {
        self.segment.page_out(view, bytes)
    }

    /// Locks the pages of these bytes into this node, for one second at most; see
    /// [`Segment::write_lock`]. Fails if a consistent copy is on another node, and asks for it: lock
    /// again. A lock of a short view takes the pages out of all views of whole pages; they are back at
    /// the next access.
    ///
    /// # Errors
    /// As [`Segment::write_lock`]; [`Error::Invalid`] for an inconsistent view.
    pub fn lock(&self, view: View, bytes: Range<u64>) -> Result<WriteLock> {
        self.segment.lock_view(view, bytes)
    }

    /// Sends copies of the pages of these bytes to all nodes that use them, as one: no reader sees
    /// some of them new and others old. Returns when they are sent, whether or not any reader
    /// takes them. If `short`, sends the prefixes only. Their consistent copies are on this node.
    ///
    /// # Errors
    /// [`Error::Invalid`] for bytes outside of the segment; [`Error::Refused`] if a consistent copy
    /// is on another node.
    pub fn publish(&self, short: bool, bytes: Range<u64>) -> Result<()> {
        self.segment.publish(short, bytes)
    }

    /// The address of the first window, from which the others are multiples of the stride away.
    /// The first window shows the consistent copies, if the segment was opened writable.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        let some = self.windows.iter().flatten().next();
        let first = some.map_or(std::ptr::null_mut(), Mapping::as_ptr);
        view_pointer(first, self.stride, View::default())
    }
}

pub fn purge(segment: &Segment, view: View, bytes: &Range<u64>) -> Result<()> {
    if view.consistent {
        return send(segment, (view.short, true), bytes);
    }
    let (first, count) = pages(segment, bytes)?;
    segment.mesh().done(Request::Purge {
        segment: segment.id(),
        first,
        count,
        short: view.short,
    })
}

pub fn publish(segment: &Segment, short: bool, bytes: &Range<u64>) -> Result<()> {
    send(segment, (short, false), bytes)
}

/// Publishes; and waits until the replica has it, if so and if the segment has one.
fn send(segment: &Segment, (short, waits): (bool, bool), bytes: &Range<u64>) -> Result<()> {
    let (first, count) = pages(segment, bytes)?;
    segment.mesh().done(Request::Publish {
        segment: segment.id(),
        first,
        count,
        short,
        waits,
    })
}

/// The pages of bytes of a segment.
fn pages(segment: &Segment, bytes: &Range<u64>) -> Result<(PageIndex, PageCount)> {
    let outside = Error::Invalid("these bytes do not lie in the segment");
    if !segment.contains(bytes) {
        return Err(outside);
    }
    let page = |byte| ByteOffset(byte).page();
    match (page(bytes.start), page(bytes.end - 1)) {
        (Some(first), Some(last)) => Ok((first, PageCount(last.0 - first.0 + 1))),
        _ => Err(outside),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e10_bits_of_an_address_choose_the_view() {
        let stride = 1 << 16;
        let at = std::ptr::without_provenance_mut::<u32>(0x7000_0010_0044);
        let mut seen = Vec::new();
        for view in (0..WINDOWS).filter_map(view) {
            let there = view_pointer(at, stride, view);
            assert_eq!(there.addr() % stride, 0x44, "{view:?}");
            assert_eq!(view_pointer(there, stride, View::default()), at);
            seen.push(there.addr());
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(
            seen.len(),
            6,
            "two of eight would be consistent and data-driven"
        );
    }
}
