//! Begins to report the faults of a segment whose accesses the kernel has served so far.

use super::Pages;
use crate::mapping::Mapping;
use pagemesh_core::PageRange;
use pagemesh_os::memfd::PAGE;
use pagemesh_wire::{ClientId, PageIndex, SegmentId};
use std::io;

impl Pages {
    /// From now on the faults of a segment's mappings are reported. Returns the pages that have
    /// frames, and the processes with a mapping of which that failed: they would store unseen.
    ///
    /// No frame is made meanwhile: the kernel ends the accesses that it serves before it registers
    /// their mapping, and the frames are listed after that.
    pub(crate) fn trap(&self, id: SegmentId) -> (io::Result<Vec<PageRange>>, Vec<ClientId>) {
        let mappings = self.ids_of(id).iter();
        let mappings = mappings.filter_map(|id| self.mappings.get(*id));
        let failed = mappings.filter(|mapping| register(mapping).is_err());
        let failed = failed.map(|mapping| mapping.client).collect();
        (self.framed(id), failed)
    }

    /// The pages of a segment that have frames.
    pub(crate) fn framed(&self, id: SegmentId) -> io::Result<Vec<PageRange>> {
        let Some(segment) = self.segments.get(id) else {
            return Ok(Vec::new());
        };
        let pages = |bytes: u64| (bytes / PAGE as u64) as u32;
        let runs = segment.memory.extents()?.into_iter();
        let runs = runs.map(|(offset, length)| PageRange {
            segment: id,
            first: PageIndex(pages(offset)),
            count: pages(length),
        });
        Ok(runs.collect())
    }
}

/// Registers what is left of a mapping: its process may have mapped something else over a part.
fn register(mapping: &Mapping) -> io::Result<()> {
    let (address, length) = mapping.place.range();
    for (address, length) in mapping.uffd.parts(address, length) {
        match mapping.uffd.register(address, length) {
            // It has exited since.
            Err(_) if mapping.uffd.is_orphan() => return Ok(()),
            done => done?,
        }
    }
    Ok(())
}
