//! One page, opened for the length of one input.

use super::messages::Body;
use super::page::Page;
use super::{Views, said, say};
use crate::effect::{Effect, Source};
use crate::shell::Cx;
use crate::timers::Timer;
use pagemesh_wire::peer::{Message, Subject};
use pagemesh_wire::{NodeId, PageIndex, SegmentId};

/// A page with everything needed to work on it.
pub(super) struct PageContext<'a, 'b> {
    pub(super) cx: &'a mut Cx<'b>,
    pub(super) views: &'a mut Views,
    pub(super) index: PageIndex,
}

impl Views {
    /// Opens a page.
    pub(super) fn at<'a, 'b>(
        &'a mut self,
        cx: &'a mut Cx<'b>,
        index: PageIndex,
    ) -> PageContext<'a, 'b> {
        let views = self;
        PageContext { cx, views, index }
    }

    /// What this node knows of a page; if it has not heard of it, what is so before it moves.
    pub(super) fn page(&mut self, cx: &Cx<'_>, index: PageIndex) -> &mut Page {
        let home = self.segment.home();
        let here = home == cx.me();
        let page = self.pages.entry(index);
        page.or_insert_with(|| Page::new(home, here))
    }
}

impl<'b> PageContext<'_, 'b> {
    pub(super) fn page(&mut self) -> &mut Page {
        self.views.page(self.cx, self.index)
    }

    /// The page, and what else is changed with it.
    pub(super) fn parts(&mut self) -> (&mut Page, &mut Cx<'b>) {
        (self.views.page(self.cx, self.index), self.cx)
    }

    pub(super) fn id(&self) -> (SegmentId, PageIndex) {
        (self.views.segment, self.index)
    }

    pub(super) fn timer(&self) -> Timer {
        let (segment, page) = self.id();
        Timer::Subject(Subject::Page { segment, page })
    }

    pub(super) fn home(&self) -> NodeId {
        self.cx.home(self.views.segment)
    }

    pub(super) fn say(&mut self, to: NodeId, body: &Body) {
        say(self.cx, self.views.segment, to, body);
    }

    /// Says it with the page behind it.
    pub(super) fn say_page(&mut self, to: NodeId, body: &Body, source: Source) {
        let (segment, page) = self.id();
        let message = Message::PolicyPage(said(segment, body));
        self.cx
            .send_page(to, message, Some((segment, page, source)));
    }

    pub(super) fn fill(&mut self, source: Source) {
        let pages = self.id().into();
        self.cx.push(Effect::Fill { pages, source });
    }

    pub(super) fn evict(&mut self, keep: bool) {
        let pages = self.id().into();
        self.cx.push(Effect::Evict { pages, keep });
    }

    pub(super) fn drop_stash(&mut self) {
        let (segment, page) = self.id();
        self.cx.push(Effect::DropStash { segment, page });
    }

    /// Gives up what has come of publications with this page.
    pub(super) fn drop_arriving(&mut self) {
        let (segment, page) = self.id();
        self.views.arriving.drop_with(self.cx, segment, page);
    }
}
