//! Protects and evicts pages, in one system call for all pages of a range where possible, else page
//! by page.

use super::{LENGTH, Pages, TRIES, ZEROS};
use crate::counters::{Count, Counters};
use crate::mapping::Mapping;
use crate::segment::Segment;
use crate::stash::Stash;
use pagemesh_core::{At, Mappings, PageRange};
use pagemesh_os::uffd::Outcome;

impl Pages {
    /// Stops stores to pages in these mappings of their segment.
    pub(crate) fn protect(&self, mappings: Mappings, pages: PageRange, counters: &mut Counters) {
        if self.unprotected {
            return;
        }
        let ids = self.ids_of(pages.segment).iter().copied();
        for id in ids.filter(|id| mappings.contains(*id)) {
            let mapping = self.mappings.get(id).filter(|mapping| mapping.write);
            let part = mapping.and_then(|mapping| Some((mapping, mapping.place.part(pages)?)));
            let Some((mapping, (address, length))) = part else {
                continue;
            };
            let outcome = mapping.uffd.protect(address, length);
            if !matches!(outcome, Outcome::Done | Outcome::Gone) {
                pages
                    .iter()
                    .for_each(|at| protect_page(mapping, at, counters));
            }
        }
    }

    /// Takes pages away from all mappings; `keep` puts their contents into the stash.
    pub(crate) fn evict(&mut self, pages: PageRange, keep: bool, counters: &mut Counters) {
        if keep {
            self.protect(Mappings::All, pages, counters);
        }
        // Page by page if the previous daemon may have done a part, or if a page may have no frame.
        let given_back = self.segments.is_given_back(pages.segment);
        if pages.count == 1 || self.again || given_back || !self.waiting.is_empty() {
            return pages
                .iter()
                .for_each(|at| self.evict_page(at, keep, counters));
        }
        let Some(segment) = self.segments.get(pages.segment) else {
            return;
        };
        if keep {
            keep_frames(&mut self.stash, segment, pages);
        }
        if let Err(error) = segment.punch_run(pages.first, pages.count) {
            tracing::error!(?pages, %error, "pages cannot be taken away");
        }
        counters.add(Count::PagesEvicted, pages.count.into());
        self.wake_all(pages);
    }

    /// As [`Pages::evict`], for a protected page.
    fn evict_page(&mut self, at: At, keep: bool, counters: &mut Counters) {
        if let Some(bytes) = self.waiting.leave(at).filter(|_| keep) {
            self.keep(at, &bytes);
            return;
        }
        let Some(segment) = self.segments.get(at.0) else {
            if keep && self.segments.is_given_back(at.0) {
                self.keep(at, ZEROS);
            }
            return;
        };
        // The previous daemon did this: the stash has the contents, the frame only zeros.
        let kept = self.again && !segment.has(at.1) && self.stash.get(at.0, at.1).is_some();
        if keep && !kept {
            keep_frame(&mut self.stash, segment, at);
        }
        if let Err(error) = segment.punch(at.1) {
            tracing::error!(segment = %at.0, page = %at.1, %error, "a page cannot be taken away");
        }
        counters.add(Count::PagesEvicted, 1);
        self.wake_all(at.into());
    }

    /// Wakes the threads that wait for these pages in any mapping.
    fn wake_all(&self, pages: PageRange) {
        for id in self.ids_of(pages.segment) {
            if let Some(mapping) = self.mappings.get(*id)
                && let Some((address, length)) = mapping.place.part(pages)
            {
                mapping.uffd.wake(address, length);
            }
        }
    }
}

fn protect_page(mapping: &Mapping, at: At, counters: &mut Counters) {
    let Some(address) = mapping.place.address(at.1) else {
        return;
    };
    let mut outcome = Outcome::Retry;
    for _ in 0..TRIES {
        outcome = mapping.uffd.protect(address, LENGTH);
        if outcome != Outcome::Retry {
            break;
        }
    }
    match outcome {
        // A process that exits or unmapped the page cannot store to it any more.
        Outcome::Done | Outcome::Gone | Outcome::Unregistered => {}
        other => {
            counters.add(Count::PlacingFailed, 1);
            tracing::error!(page = %at.1, ?other, "a page could not be protected");
        }
    }
}

/// Copies frames into the stash.
fn keep_frames(stash: &mut Stash, segment: &Segment, pages: PageRange) {
    let (of, first) = (pages.segment, pages.first);
    let all_at_once = stash.keep_run(of, first, pages.count, |rooms| {
        segment.read_run(first, rooms)
    });
    if all_at_once.is_err() {
        pages.iter().for_each(|at| keep_frame(stash, segment, at));
    }
}

/// Copies a frame into the stash.
fn keep_frame(stash: &mut Stash, segment: &Segment, (of, page): At) {
    let copied = stash.keep(of, page, |room| segment.read(page, room));
    if let Err(error) = copied {
        tracing::error!(segment = %of, %page, %error, "a page cannot be kept");
    }
}
