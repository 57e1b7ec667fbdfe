//! Pages that threads of the home used before the node was told of any fault ([`crate::trapping`]).

use super::Release;
use super::ahead::WalkContext;
use super::page::Copy;
use crate::effect::{DiffWork, Effect, PageRange, Rights, Source};
use crate::shell::Cx;

impl Release {
    /// These pages have frames: an interval of the home that ends now names them, and their twins are
    /// zeros. A process that has arrived at a barrier is not told of it before another node arrives,
    /// so that node learns of the interval.
    pub(super) fn name_untrapped(&mut self, cx: &mut Cx<'_>, pages: &[PageRange]) {
        self.initial_sync(cx);
        self.walk(cx).were_stored_to(pages);
        self.end_interval(cx);
    }
}

impl WalkContext<'_, '_> {
    /// These pages have frames, and were zeros.
    fn were_stored_to(&mut self, pages: &[PageRange]) {
        let source = Source::Zero;
        for range in pages {
            // The driver may tell the pages twice, if it was replaced in between.
            if !range.iter().all(|(_, page)| self.starts_from_zeros(page)) {
                continue;
            }
            for (_, index) in range.iter() {
                let page = self.memory.pages.page(index);
                (page.copy, page.rights) = (Copy::Frame, Rights::Write);
                page.blank = true;
                let _ = self.memory.pages.begin_twin(index);
            }
            let pages = *range;
            self.cx
                .push(Effect::Diffs(DiffWork::Twin { pages, source }));
        }
    }
}
