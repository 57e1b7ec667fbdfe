//! One page, opened for the length of one input.

use super::Views;
use super::page::Page;
use super::page_here::PageHere;
use crate::executor::At;
use crate::shell::Cx;
use pagemesh_sorted::LongMap;
use pagemesh_wire::{NodeId, PageIndex};

/// A page with everything needed to work on it, and what else of the segment changes with it.
pub(super) struct PageContext<'a, 'b> {
    pub(super) cx: &'a mut Cx<'b>,
    pub(super) views: &'a mut Views,
    pub(super) at: At,
}

impl Views {
    /// Opens a page.
    pub(super) fn at<'a, 'b>(
        &'a mut self,
        cx: &'a mut Cx<'b>,
        index: PageIndex,
    ) -> PageContext<'a, 'b> {
        let at = (self.segment, index);
        let views = self;
        PageContext { cx, views, at }
    }

    pub(super) fn page(&mut self, cx: &Cx<'_>, index: PageIndex) -> &mut Page {
        known(&mut self.pages, cx.me(), (self.segment, index))
    }
}

impl<'b> PageContext<'_, 'b> {
    pub(super) fn page(&mut self) -> &mut Page {
        self.views.page(self.cx, self.at.1)
    }

    /// The page without what else changes with it.
    pub(super) fn here(&mut self) -> PageHere<'_, 'b> {
        PageHere {
            page: known(&mut self.views.pages, self.cx.me(), self.at),
            cx: self.cx,
            at: self.at,
            mappings: &self.views.mappings,
            arriving: &mut self.views.arriving,
        }
    }
}

/// What this node knows of a page; if it has not heard of it, what is so before it moves.
fn known(pages: &mut LongMap<PageIndex, Page>, me: NodeId, (segment, index): At) -> &mut Page {
    let home = segment.home();
    let page = pages.entry(index);
    page.or_insert_with(|| Page::new(home, home == me))
}
