//! When the driver begins to trap accesses: until only its home has ever used a segment, the kernel
//! serves the first accesses to its pages, and the node hears nothing of them (TB1).
//!
//! A segment that a process creates is *untrapped* where nothing forbids it. It is trapped, for
//! good, as soon as anything concerns its pages but the loads and stores of this node's processes: a
//! message or a call of another node, whose first access to a page, a lock or a barrier goes to the
//! home; a request about pages; a bound to memory; a release that is put back; the end of the
//! membership. [`Effect::Trap`] then has the driver serve the faults from now on and list the pages
//! that have frames, and the next input, [`Input::Trapped`](crate::Input::Trapped), tells which
//! these are. What concerns the pages waits here until then.
//!
//! *INV-trapped-before-told*: no other node is told anything about a segment that is untrapped.

use crate::caller::Caller;
use crate::effect::{Effect, PageRange};
use crate::event::Event;
use crate::global::Budgets;
use crate::input::Request;
use crate::segment::Segment;
use crate::shell::Cx;
use pagemesh_wire::peer::{Access, Call, Message};
use pagemesh_wire::{ClientId, MappingId, NodeId, PageIndex, SegmentId, Ticket};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};

/// Messages that wait at most; others are sent again.
const MESSAGES: usize = 1024;

/// Segments of which the driver is asked for the pages, and what waits for its answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Trapping {
    /// The driver has not told their pages.
    asked: BTreeSet<SegmentId>,
    /// The pages that it has told, and that no policy has taken in yet: many of them take long.
    told: VecDeque<PageRange>,
    /// Segments of these pages.
    incomplete: BTreeSet<SegmentId>,
    waiting: Vec<Delayed>,
}

/// A thing that waits until it is known which pages have frames.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Delayed {
    Fault(MappingId, PageIndex, Access),
    Request(Ticket, ClientId, Request),
    Message(NodeId, Message),
    Call(Caller, Call),
    Budgets(Budgets),
}

impl Trapping {
    /// Begins to trap a segment, unless that has begun.
    pub(crate) fn begin(&mut self, cx: &mut Cx<'_>, segment: &mut Segment) {
        let id = segment.info.id;
        if !core::mem::replace(&mut segment.trapped, true) {
            self.asked.insert(id);
            cx.push(Effect::Trap { segment: id });
        }
    }

    /// Begins to trap a segment. True if what concerns its pages has to [wait](Self::wait).
    pub(crate) fn delays(&mut self, cx: &mut Cx<'_>, segment: &mut Segment) -> bool {
        self.begin(cx, segment);
        let id = &segment.info.id;
        self.is_busy() && (self.asked.contains(id) || self.incomplete.contains(id))
    }

    /// Begins to trap all these segments. True if what concerns them all has to wait.
    pub(crate) fn delay_all<'a>(
        &mut self,
        cx: &mut Cx<'_>,
        segments: impl Iterator<Item = &'a mut Segment>,
    ) -> bool {
        for segment in segments {
            self.begin(cx, segment);
        }
        self.is_busy()
    }

    fn is_busy(&self) -> bool {
        !self.asked.is_empty() || !self.incomplete.is_empty()
    }

    /// Keeps what has to wait.
    pub(crate) fn wait(&mut self, waiting: Delayed) {
        let is_message = matches!(waiting, Delayed::Message(..));
        if !is_message || self.waiting.len() < MESSAGES {
            self.waiting.push(waiting);
        }
    }

    /// Keeps a message about a segment that is not known to be trapped yet. Contents do not wait: no
    /// node has any of such a segment.
    pub(crate) fn wait_for_frames(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Message) {
        if message.carries_page() {
            return cx.emit(Event::Stale {});
        }
        self.wait(Delayed::Message(from, message));
    }

    /// Other budgets than those that wait here count.
    pub(crate) fn forget_budgets(&mut self) {
        let is_budgets = |waiting: &Delayed| matches!(waiting, Delayed::Budgets(_));
        self.waiting.retain(|waiting| !is_budgets(waiting));
    }

    /// A request is withdrawn. True if it waited here.
    pub(crate) fn cancel(&mut self, ticket: Ticket) -> bool {
        let before = self.waiting.len();
        let is_it =
            |waiting: &Delayed| matches!(waiting, Delayed::Request(of, ..) if *of == ticket);
        self.waiting.retain(|waiting| !is_it(waiting));
        self.waiting.len() < before
    }

    /// The driver has told the pages of a segment.
    pub(crate) fn tell(&mut self, segment: SegmentId, pages: Vec<PageRange>) {
        self.asked.remove(&segment);
        self.incomplete.insert(segment);
        self.told.extend(pages);
    }

    /// Whether pages are to be taken in.
    pub(crate) fn is_told(&self) -> bool {
        !self.incomplete.is_empty()
    }

    /// Whether some of them are left.
    pub(crate) fn has_more(&self) -> bool {
        !self.told.is_empty()
    }

    /// The next pages of one segment to be taken in, not more than these.
    pub(crate) fn next(&mut self, mut most: u32) -> Vec<PageRange> {
        let segment = self.told.front().map(|pages| pages.segment);
        let mut next = Vec::new();
        while most > 0
            && let Some(pages) = self.told.front_mut()
            && Some(pages.segment) == segment
        {
            let count = pages.count.min(most);
            next.push(PageRange { count, ..*pages });
            most -= count;
            pages.first.0 += count;
            pages.count -= count;
            if pages.count == 0 {
                self.told.pop_front();
            }
        }
        next
    }

    /// What need not wait any more, if all pages are known.
    pub(crate) fn end(&mut self) -> Vec<Delayed> {
        if !self.told.is_empty() {
            return Vec::new();
        }
        self.incomplete.clear();
        match self.is_busy() {
            true => Vec::new(),
            false => core::mem::take(&mut self.waiting),
        }
    }
}
