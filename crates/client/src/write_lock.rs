//! Keeping pages on this node for a series of stores (M14).

use std::ops::Range;

use pagemesh_wire::local::Request;
use pagemesh_wire::{ByteOffset, PAGE_SIZE, PageCount, PageIndex};

use crate::fork::Generation;
use crate::{Access, Error, Result, Segment};

/// Pages that stay on this node, writable, until this is dropped, for one second at most.
#[derive(Debug)]
#[must_use = "the pages may leave when this is dropped"]
pub struct WriteLock {
    segment: Segment,
    first: PageIndex,
    count: PageCount,
    /// The process that made it: a forked child has a copy, which keeps no pages.
    holder: Generation,
}

impl WriteLock {
    pub(crate) fn new(segment: &Segment, bytes: Range<u64>, short: bool) -> Result<Self> {
        if segment.access() == Access::ReadOnly {
            return Err(Error::Invalid("the segment was opened read-only"));
        }
        let outside = Error::Invalid("these bytes do not lie in the segment");
        if !segment.contains(&bytes) {
            return Err(outside);
        }
        let page = |byte| ByteOffset(byte).page();
        let (Some(first), Some(last)) = (page(bytes.start), page(bytes.end - 1)) else {
            return Err(outside);
        };
        let count = PageCount(last.0 - first.0 + 1);
        let (of, holder) = (segment.clone(), Generation::current());
        let segment = segment.id();
        of.mesh().done(match short {
            true => Request::PinShort {
                segment,
                first,
                count,
            },
            false => Request::Pin {
                segment,
                first,
                count,
            },
        })?;
        Ok(Self {
            segment: of,
            first,
            count,
            holder,
        })
    }

    /// The range of bytes that stays: whole pages.
    #[must_use]
    pub fn bytes(&self) -> Range<u64> {
        let start = self.first.offset().0;
        start..start + u64::from(self.count.0) * PAGE_SIZE as u64
    }
}

impl Drop for WriteLock {
    fn drop(&mut self) {
        if !self.holder.is_current() {
            return;
        }
        self.segment.mesh().connection().tell(Request::Unpin {
            segment: self.segment.id(),
            first: self.first,
            count: self.count,
        });
    }
}
