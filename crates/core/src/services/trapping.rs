//! Segments that are trapped late: which may be, what has to wait, and the pages that have frames.

use super::Services;
use crate::caller::Caller;
use crate::effect::{Effect, PageRange};
use crate::event::Event;
use crate::global::Budgets;
use crate::input::Request;
use crate::segment::Segment;
use crate::shell::Cx;
use crate::timers::Timer;
use crate::trapping::Delayed;
use pagemesh_wire::peer::{Call, Refusal, SegmentInfo};
use pagemesh_wire::{NodeSet, SegmentId};

impl Services {
    /// The segment, which a process of this node is about to have open.
    pub(super) fn open_new(
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
    pub(super) fn delays_request(&mut self, cx: &mut Cx<'_>, request: &Request) -> bool {
        if matches!(request, Request::Leave | Request::MakeRoom { .. }) {
            return self.trapping.delay_all(cx, self.segments.values_mut());
        }
        let segment = request.about_pages_of();
        let segment = segment.and_then(|id| self.segments.get_mut(&id));
        segment.is_some_and(|segment| self.trapping.delays(cx, segment))
    }

    /// Whether a call has to wait, because it concerns an untrapped segment and another node makes
    /// it, or declares what nodes accumulate.
    pub(super) fn delays_call(&mut self, cx: &mut Cx<'_>, caller: Caller, call: &Call) -> bool {
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
    pub(super) fn delays_budgets(&mut self, cx: &mut Cx<'_>, budgets: Budgets) -> bool {
        budgets.is_bound() && self.trapping.delay_all(cx, self.segments.values_mut())
    }

    /// The driver traps a segment from now on; these of its pages have frames.
    pub(super) fn trapped(&mut self, cx: &mut Cx<'_>, segment: SegmentId, pages: Vec<PageRange>) {
        cx.emit(Event::Trapped { segment });
        self.trapping.tell(segment, pages);
    }

    /// Takes in some of the pages that the driver has told; called after every input.
    pub(super) fn take_frames_in(&mut self, cx: &mut Cx<'_>) {
        if !self.trapping.is_told() {
            return;
        }
        let pages = self.trapping.next(cx.pace().frames_at_once);
        if let Some(first) = pages.first() {
            self.take_in(cx, first.segment, &pages);
        }
        if self.trapping.has_more() {
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

    fn resume(&mut self, cx: &mut Cx<'_>, waiting: Delayed) {
        match waiting {
            Delayed::Fault(mapping, page, access) => self.fault(cx, mapping, page, access),
            Delayed::Request(ticket, client, request) => self.request(cx, ticket, client, request),
            Delayed::Message(from, message) => self.message(cx, from, message),
            Delayed::Call(caller, call) => self.execute(cx, caller, call),
            Delayed::Budgets(budgets) => self.budgets(cx, budgets),
        }
    }
}
