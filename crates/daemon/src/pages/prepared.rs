//! Allocates frames while their contents are under way.

use super::Pages;
use crate::blank::BLANK;
use pagemesh_core::At;
use pagemesh_wire::{MappingId, PageIndex};

impl Pages {
    /// Allocates the frame of a page that a thread waits for and that is under way.
    pub(crate) fn prepare(&mut self, id: MappingId, page: PageIndex) {
        if let Some(mapping) = self.mappings.get(id) {
            self.prepare_frame((mapping.segment, page));
        }
    }

    fn prepare_frame(&mut self, at: At) {
        let Some(segment) = self.segments.get(at.0) else {
            return;
        };
        // Contents came for another thread or are unplaced: the frame is for them.
        if self.waiting.get(at).is_some() || segment.has_memory(at.1) {
            return;
        }
        // If there is no memory now, the page is placed as usual when it comes.
        self.prepared = segment.write(at.1, BLANK).is_ok().then_some(at);
    }

    /// Number of these pages before the one whose frame is allocated: that one is placed by itself.
    pub(super) fn unprepared(&self, (of, first): At, count: usize) -> usize {
        let prepared = self.prepared.filter(|(segment, _)| *segment == of);
        let step = prepared.and_then(|(_, page)| page.0.checked_sub(first.0));
        step.map_or(count, |step| count.min(step as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Fresh;
    use super::*;
    use crate::diff_store::Changes;
    use crate::diff_store::DiffStore;
    use crate::payload::Payload;
    use crate::stash::Stash;
    use pagemesh_core::Source;
    use pagemesh_os::memfd::{PAGE, PageBytes};
    use pagemesh_wire::SegmentId;

    const AT: At = (SegmentId(1 << 48), PageIndex(2));

    fn pages() -> Pages {
        let changes = Changes::new(DiffStore::create().unwrap());
        let mut pages = Pages::new(Stash::create().unwrap(), changes);
        pages.put((AT.0, PageIndex(0)), &[1; PAGE]);
        pages
    }

    fn frame(pages: &Pages) -> PageBytes {
        let mut page = [0; PAGE];
        pages.look(AT, &mut page).unwrap();
        page
    }

    #[test]
    fn what_is_prepared_has_memory_and_no_contents() {
        let mut pages = pages();
        pages.prepare_frame(AT);
        assert!(pages.segments.get(AT.0).unwrap().has_memory(AT.1));
        assert!(!pages.has(AT));
        // The next daemon does what this one might have done, and had not.
        pages.again = true;
        pages.fill(AT, &Fresh::From(Source::Zero), Payload::NONE);
        assert_eq!(frame(&pages), [0; PAGE]);
        assert!(pages.has(AT));
    }

    #[test]
    fn nothing_is_prepared_where_contents_are() {
        let mut pages = pages();
        pages.put(AT, &[7; PAGE]);
        pages.prepare_frame(AT);
        assert_eq!((frame(&pages), pages.prepared), ([7; PAGE], None));
        // They wait for memory.
        let other = (AT.0, PageIndex(3));
        pages.waiting.enter(other, &[8; PAGE]);
        pages.prepare_frame(other);
        assert!(!pages.segments.get(AT.0).unwrap().has_memory(other.1));
    }

    #[test]
    fn a_run_is_placed_up_to_what_is_prepared() {
        let mut pages = pages();
        let from = |first| (AT.0, PageIndex(first));
        assert_eq!(pages.unprepared(from(0), 8), 8);
        pages.prepare_frame(AT);
        let counts = [0, 1, 2, 3].map(|first| pages.unprepared(from(first), 8));
        assert_eq!(counts, [2, 1, 0, 8]);
        let elsewhere = (SegmentId(2 << 48), PageIndex(0));
        assert_eq!(pages.unprepared(elsewhere, 8), 8);
    }
}
