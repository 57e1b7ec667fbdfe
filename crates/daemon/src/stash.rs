//! Contents that left the memory of this node and may still be needed: until
//! their receiver has acknowledged them, nobody else may have them.

use pagemesh_os::memfd::{PAGE, PageBytes};
use pagemesh_wire::{PageIndex, SegmentId};
use std::collections::HashMap;

/// Page contents by page. In this process's memory for now.
#[derive(Debug, Default)]
pub(crate) struct Stash {
    pages: HashMap<(SegmentId, PageIndex), Box<PageBytes>>,
    /// Boxes to use again: giving a page away should not allocate.
    spare: Vec<Box<PageBytes>>,
}

/// Boxes kept for reuse.
const SPARE: usize = 256;

impl Stash {
    /// Room for the contents of a page, replacing what was kept of it.
    pub(crate) fn room(&mut self, segment: SegmentId, page: PageIndex) -> &mut PageBytes {
        let spare = &mut self.spare;
        self.pages
            .entry((segment, page))
            .or_insert_with(|| spare.pop().unwrap_or_else(|| Box::new([0; PAGE])))
    }

    /// What is kept of a page.
    pub(crate) fn get(&self, segment: SegmentId, page: PageIndex) -> Option<&PageBytes> {
        self.pages.get(&(segment, page)).map(|bytes| &**bytes)
    }

    /// Keeps the page no more.
    pub(crate) fn drop(&mut self, segment: SegmentId, page: PageIndex) {
        if let Some(bytes) = self.pages.remove(&(segment, page))
            && self.spare.len() < SPARE
        {
            self.spare.push(bytes);
        }
    }

    /// Keeps no page of the segment any more.
    pub(crate) fn forget(&mut self, segment: SegmentId) {
        self.pages.retain(|(of, _), _| *of != segment);
    }

    /// How many pages are kept.
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_until_told_otherwise() {
        let (segment, page) = (SegmentId(1), PageIndex(2));
        let mut stash = Stash::default();
        stash.room(segment, page)[0] = 7;
        assert_eq!(stash.get(segment, page).unwrap()[0], 7);
        stash.drop(segment, page);
        assert!(stash.get(segment, page).is_none());
        stash.room(segment, page);
        stash.room(SegmentId(2), page);
        stash.forget(segment);
        assert_eq!(stash.len(), 1);
    }
}
