//! Pages that threads of the home used before the node was told of any fault ([`crate::trapping`]).

use super::ahead::WalkContext;
use super::page::Copy;
use crate::effect::{DiffWork, Effect, PageRange, Rights, Source};

impl WalkContext<'_, '_> {
    /// These pages have frames, and were zeros: so are their twins. An interval of the home that ends now
    /// names them. A process that has arrived at a barrier is not told of it before another node
    /// arrives, so that node learns of the interval.
    pub(super) fn were_stored_to(&mut self, pages: &[PageRange]) {
        let source = Source::Zero;
        for range in pages {
            // The driver may tell the pages twice, if it was replaced in between.
            if !range.iter().all(|(_, page)| self.starts_from_zeros(page)) {
                continue;
            }
            for (_, index) in range.iter() {
                self.memory.put(self.cx, index, Copy::Frame);
                let page = self.memory.pages.page(index);
                (page.rights, page.blank) = (Rights::Write, true);
                let _ = self.memory.pages.begin_twin(index);
            }
            let pages = *range;
            self.cx
                .push(Effect::Diffs(DiffWork::Twin { pages, source }));
        }
    }
}
