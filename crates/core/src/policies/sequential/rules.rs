//! The settings of a segment, which its opening fixes.

use crate::limits::{WINDOW_LIMIT, WINDOW_MAX};
use crate::timers::Timer;
use core::time::Duration;
use pagemesh_wire::peer::{Ask, Manager, Subject, Window};
use pagemesh_wire::{PageIndex, SegmentId};
use serde::{Deserialize, Serialize};

/// Settings that hold for all pages of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Rules {
    pub(super) segment: SegmentId,
    pub(super) manager: Manager,
    pub(super) window: Window,
}

impl Rules {
    pub(super) fn subject(&self, page: PageIndex) -> Subject {
        Subject::Page {
            segment: self.segment,
            page,
        }
    }

    pub(super) fn timer(&self, page: PageIndex) -> Timer {
        Timer::Subject(self.subject(page))
    }

    /// How long a node may keep a page that other nodes request.
    pub(super) fn longest_window(self) -> Duration {
        match self.window {
            Window::Auto => WINDOW_MAX,
            Window::Nanos(nanos) => Duration::from_nanos(nanos).min(WINDOW_LIMIT),
        }
    }

    /// Whether nodes learn from accesses how long a page is to stay, and with which rights.
    pub(super) fn learns(self) -> bool {
        self.window == Window::Auto
    }

    /// Whether a request is for the library site to put in order.
    pub(super) fn goes_to_library(self, ask: &Ask) -> bool {
        self.manager == Manager::Fixed && !ask.by_library
    }
}
