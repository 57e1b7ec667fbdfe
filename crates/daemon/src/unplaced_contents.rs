//! Contents of pages for whose frames there was no memory: they must not be lost.

use pagemesh_core::At;
use pagemesh_os::memfd::PageBytes;
use pagemesh_wire::SegmentId;
use std::collections::HashMap;

/// Usually empty, and then it costs nothing.
#[derive(Debug, Default)]
pub(crate) struct UnplacedContents {
    pages: HashMap<At, Box<PageBytes>>,
    /// How many of them were noted for the next daemon.
    noted: usize,
}

impl UnplacedContents {
    /// The contents that should be in the page's frame, and are not.
    pub(crate) fn get(&self, at: At) -> Option<&PageBytes> {
        if self.pages.is_empty() {
            return None;
        }
        self.pages.get(&at).map(|bytes| &**bytes)
    }

    /// There is no memory for the page. True if that is news.
    pub(crate) fn enter(&mut self, at: At, bytes: &PageBytes) -> bool {
        self.pages.insert(at, Box::new(*bytes)).is_none()
    }

    /// The page's frame has other contents now, or none any more.
    pub(crate) fn leave(&mut self, at: At) -> Option<Box<PageBytes>> {
        if self.pages.is_empty() {
            return None;
        }
        self.pages.remove(&at)
    }

    /// Whether no page waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// How many pages wait, if that was not noted.
    pub(crate) fn news(&mut self) -> Option<usize> {
        let pages = self.pages.len();
        let noted = std::mem::replace(&mut self.noted, pages);
        (pages != noted).then_some(pages)
    }

    /// The daemon before noted so many.
    pub(crate) fn was_noted(&mut self, pages: usize) {
        self.noted = pages;
    }

    /// How many were noted.
    pub(crate) fn noted(&self) -> usize {
        self.noted
    }

    /// A segment is gone.
    pub(crate) fn forget(&mut self, segment: SegmentId) {
        self.pages.retain(|(of, _), _| *of != segment);
    }
}
