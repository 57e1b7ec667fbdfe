//! Contents of pages for whose frames there was no memory: they must not be lost.

use crate::pages::At;
use pagemesh_os::memfd::PageBytes;
use pagemesh_wire::SegmentId;
use std::collections::HashMap;

/// Usually empty, and then it costs nothing.
#[derive(Debug, Default)]
pub(crate) struct WaitingRoom(HashMap<At, Box<PageBytes>>);

impl WaitingRoom {
    /// What should be in the page's frame, and is not.
    pub(crate) fn get(&self, at: At) -> Option<&PageBytes> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&at).map(|bytes| &**bytes)
    }

    /// There is no memory for the page. True if that is news.
    pub(crate) fn enter(&mut self, at: At, bytes: &PageBytes) -> bool {
        self.0.insert(at, Box::new(*bytes)).is_none()
    }

    /// The page's frame has other contents now, or none any more.
    pub(crate) fn leave(&mut self, at: At) -> Option<Box<PageBytes>> {
        if self.0.is_empty() {
            return None;
        }
        self.0.remove(&at)
    }

    /// How many pages wait.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// A segment is gone.
    pub(crate) fn forget(&mut self, segment: SegmentId) {
        self.0.retain(|(of, _), _| *of != segment);
    }
}
