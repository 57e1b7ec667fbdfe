//! Before a barrier is reached: which of the pages that stayed writable were stored to.
//! Those that were not need not be named to others.

use crate::driver::Driver;
use crate::pages::Pages;
use core::convert::Infallible;
use pagemesh_core::{At, Input};
use pagemesh_os::memfd::PAGE;
use pagemesh_wire::SegmentId;

impl Driver {
    /// Tells the node which pages it need not name. Stores that a process makes from now on need
    /// not be seen at this barrier.
    pub(crate) fn look_at_kept_writable(&mut self, segment: SegmentId) {
        let kept_writable = self.node.kept_writable(segment);
        if kept_writable.is_empty() {
            return;
        }
        let is_untouched =
            |driver: &Self, page| driver.executor.pages.is_untouched((segment, page));
        let report = |driver: &mut Self, pages| {
            driver.feed(Input::Untouched { segment, pages });
            Ok(())
        };
        let looked: Result<_, Infallible> = kept_writable.look(self, is_untouched, report);
        let Ok(pages) = looked;
        self.feed(Input::Untouched { segment, pages });
        self.executor.recorder.burn("Untouched");
    }
}

impl Pages {
    /// Whether a page is as its twin is.
    fn is_untouched(&self, at: At) -> bool {
        let mut page = [0; PAGE];
        let twin = self.changes.twin_of(at);
        twin.is_some_and(|twin| self.look(at, &mut page).is_ok() && *twin == page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff_store::{Changes, DiffStore};
    use crate::stash::Stash;
    use pagemesh_wire::PageIndex;

    #[test]
    fn one_byte_is_enough() {
        let at = (SegmentId(1 << 48), PageIndex(2));
        let changes = Changes::new(DiffStore::create().unwrap());
        let mut pages = Pages::new(Stash::create().unwrap(), changes);
        let mut contents = [7; PAGE];
        pages.put(at, &contents);
        assert!(
            !pages.is_untouched(at),
            "there is nothing to compare it with"
        );
        pages.changes.twin(at, &contents).unwrap();
        assert!(pages.is_untouched(at));
        contents[PAGE - 1] = 8;
        pages.put(at, &contents);
        assert!(!pages.is_untouched(at));
    }
}
