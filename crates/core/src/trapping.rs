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
use crate::effect::Effect;
use crate::global::Budgets;
use crate::input::Request;
use crate::segment::Segment;
use crate::services::Services;
use crate::shell::Cx;
use crate::timers::Timer;
use crate::{Event, PageRange};
use pagemesh_wire::peer::{Access, Call, Message, Refusal, SegmentInfo};
use pagemesh_wire::{ClientId, MappingId, NodeId, NodeSet, PageIndex, SegmentId, Ticket};
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
    waiting: Vec<Waiting>,
}

/// A thing that waits until it is known which pages have frames.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Waiting {
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
    fn delay_all<'a>(
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
    pub(crate) fn wait(&mut self, waiting: Waiting) {
        let is_message = matches!(waiting, Waiting::Message(..));
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
        self.wait(Waiting::Message(from, message));
    }

    /// A request is withdrawn. True if it waited here.
    pub(crate) fn cancel(&mut self, ticket: Ticket) -> bool {
        let before = self.waiting.len();
        let is_it =
            |waiting: &Waiting| matches!(waiting, Waiting::Request(of, ..) if *of == ticket);
        self.waiting.retain(|waiting| !is_it(waiting));
        self.waiting.len() < before
    }

    /// The driver has told the pages of a segment.
    fn tell(&mut self, segment: SegmentId, pages: Vec<PageRange>) {
        self.asked.remove(&segment);
        self.incomplete.insert(segment);
        self.told.extend(pages);
    }

    /// The next pages of one segment to be taken in, not more than these.
    fn next(&mut self, mut most: u32) -> Vec<PageRange> {
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
    fn end(&mut self) -> Vec<Waiting> {
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

impl Services {
    /// The segment, which a process of this node is about to have open.
    pub(crate) fn open_new(
        &mut self,
        cx: &Cx<'_>,
        info: &SegmentInfo,
    ) -> Result<&mut Segment, Refusal> {
        let is_new = !self.segments.contains_key(&info.id);
        let may_be_untrapped = is_new && self.may_be_untrapped(cx, info);
        let lost = self.rejoin.lost(info.id);
        let segment = self.segments.take_part(lost, info)?;
        if may_be_untrapped && segment.policy.may_be_untrapped() {
            segment.trapped = false;
        }
        Ok(segment)
    }

    /// Whether a segment that a process here has just created may be untrapped.
    fn may_be_untrapped(&self, cx: &Cx<'_>, info: &SegmentInfo) -> bool {
        cx.shell.config.traps_late
            && !cx.checks_races()
            && !cx.shell.memory.is_bounded()
            && !self.membership.upgrade.makes_room()
            && info.id.home() == cx.me()
            && info.attached == NodeSet::only(cx.me())
            && info.spec.replicas == 0
            && self.reductions.of(info.id).is_empty()
    }

    /// Whether a request has to wait because it concerns the pages of segments that are untrapped.
    pub(crate) fn delays_request(&mut self, cx: &mut Cx<'_>, request: &Request) -> bool {
        if matches!(request, Request::Leave | Request::MakeRoom { .. }) {
            return self.trapping.delay_all(cx, self.segments.values_mut());
        }
        let segment = request.about_pages_of();
        let segment = segment.and_then(|id| self.segments.get_mut(&id));
        segment.is_some_and(|segment| self.trapping.delays(cx, segment))
    }

    /// Whether a call has to wait, because it concerns an untrapped segment and another node makes
    /// it, or declares what nodes accumulate.
    pub(crate) fn delays_call(&mut self, cx: &mut Cx<'_>, caller: Caller, call: &Call) -> bool {
        let segment = match call {
            Call::Reduce { segment, .. } => Some(*segment),
            Call::Policy(call) => Some(call.segment),
            call if caller.node != cx.me() => call.key().map(|key| key.segment),
            _ => None,
        };
        let segment = segment.and_then(|id| self.segments.get_mut(&id));
        segment.is_some_and(|segment| self.trapping.delays(cx, segment))
    }

    /// Whether a bound to the memory of this node has to wait.
    pub(crate) fn delays_budgets(&mut self, cx: &mut Cx<'_>, budgets: Budgets) -> bool {
        budgets.is_bound() && self.trapping.delay_all(cx, self.segments.values_mut())
    }

    /// The driver traps a segment from now on; these of its pages have frames.
    pub(crate) fn trapped(&mut self, cx: &mut Cx<'_>, segment: SegmentId, pages: Vec<PageRange>) {
        cx.emit(Event::Trapped { segment });
        self.trapping.tell(segment, pages);
    }

    /// Takes in some of the pages that the driver has told; called after every input.
    pub(crate) fn take_frames_in(&mut self, cx: &mut Cx<'_>) {
        if self.trapping.incomplete.is_empty() {
            return;
        }
        let pages = self.trapping.next(cx.pace().frames_at_once);
        if let Some(first) = pages.first() {
            self.take_in(cx, first.segment, &pages);
        }
        if !self.trapping.told.is_empty() {
            return cx.arm(cx.now, Timer::Frames);
        }
        for waiting in self.trapping.end() {
            self.resume(cx, waiting);
        }
    }

    fn take_in(&mut self, cx: &mut Cx<'_>, id: SegmentId, pages: &[PageRange]) {
        let leaving = self.leaving.has_begun();
        let takes_part = self.membership.not_taking_part(leaving).is_none();
        if let Some(segment) = self.segments.get_mut(&id).filter(|_| takes_part) {
            return segment.policy.trapped(cx, pages);
        }
        // The membership has ended: no access may find these pages.
        for pages in pages {
            let (pages, keep) = (*pages, false);
            cx.push(Effect::Evict { pages, keep });
        }
    }

    fn resume(&mut self, cx: &mut Cx<'_>, waiting: Waiting) {
        match waiting {
            Waiting::Fault(mapping, page, access) => self.fault(cx, mapping, page, access),
            Waiting::Request(ticket, client, request) => self.request(cx, ticket, client, request),
            Waiting::Message(from, message) => self.message(cx, from, message),
            Waiting::Call(caller, call) => self.execute(cx, caller, call),
            Waiting::Budgets(budgets) => self.budgets(cx, budgets),
        }
    }
}
