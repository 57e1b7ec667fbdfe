//! Lazy release consistency (TreadMarks): what a node wrote becomes visible to
//! whoever acquires after it released. Decision 0019 says how.
//!
//! Not reachable yet: no segment of this policy can be created.

use super::{Inspection, Letter, Who};
use crate::effect::{Effect, Reply};
use crate::shell::Cx;
use core::time::Duration;
use pagemesh_wire::local::Advice;
use pagemesh_wire::peer::{Access, Refusal, Spread};
use pagemesh_wire::{
    ClientId, MappingId, NodeId, PageCount, PageIndex, SegmentId, Ticket, Version,
};
use serde::{Deserialize, Serialize};

/// The pages of one segment as this node knows them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Release {
    segment: SegmentId,
    spread: Spread,
}

#[expect(
    clippy::unused_self,
    clippy::needless_pass_by_ref_mut,
    reason = "the entry points of every policy"
)]
impl Release {
    pub(super) fn new(segment: SegmentId, spread: Spread) -> Self {
        Self { segment, spread }
    }

    pub(super) fn fault(&mut self, cx: &mut Cx<'_>, who: Who, page: PageIndex, _: Access) {
        cx.push(Effect::Fail {
            mapping: who.mapping,
            segment: self.segment,
            page,
            why: Refusal::Invalid("policy release is not built yet".into()),
        });
    }

    pub(super) fn advise(
        &mut self,
        _: &mut Cx<'_>,
        _: (ClientId, Option<MappingId>),
        _: (PageIndex, PageCount),
        _: Advice,
    ) {
    }

    pub(super) fn look_ahead(&mut self, _: &mut Cx<'_>) {}

    pub(super) fn letter(&mut self, _: &mut Cx<'_>, _: NodeId, _: PageIndex, _: Letter) {}

    pub(super) fn due(&mut self, _: &mut Cx<'_>, _: PageIndex) {}

    pub(super) fn use_confirmed(&mut self, _: &mut Cx<'_>, _: PageIndex, _: bool) {}

    pub(super) fn unchanged(&mut self, _: &mut Cx<'_>, _: PageIndex) {}

    pub(super) fn unmapped(&mut self, _: MappingId) {}

    pub(super) fn watch(&mut self, cx: &mut Cx<'_>, ticket: Ticket, _: PageIndex) {
        cx.reply(ticket, Reply::Changed);
    }

    pub(super) fn pin(
        &mut self,
        cx: &mut Cx<'_>,
        ticket: Ticket,
        _: ClientId,
        _: PageIndex,
        _: PageCount,
    ) {
        cx.reply(ticket, Reply::Done);
    }

    pub(super) fn unpin(&mut self, _: &mut Cx<'_>, _: ClientId, _: PageIndex, _: PageCount) {}

    pub(super) fn forsake(&mut self, _: &mut Cx<'_>, _: PageIndex, _: Duration) {}

    pub(super) fn forsake_pins(&mut self, _: &mut Cx<'_>) {}

    pub(super) fn cancel(&mut self, _: Ticket) -> bool {
        false
    }

    pub(super) fn client_gone(&mut self, _: &mut Cx<'_>, _: ClientId) {}

    pub(super) fn member_gone(&mut self, _: &mut Cx<'_>, _: NodeId) {}

    pub(super) fn expelled(&mut self, _: &mut Cx<'_>) {}

    pub(super) fn hand_over(&mut self, _: &mut Cx<'_>, _: NodeId, _: usize) -> usize {
        0
    }

    pub(super) fn legacy(&self, _: NodeId) -> Vec<(PageIndex, Version, NodeId)> {
        Vec::new()
    }

    pub(super) fn learn(&mut self, _: &mut Cx<'_>, _: PageIndex, _: NodeId, _: Version) {}

    pub(super) fn inspect(&self, _: NodeId, _: PageIndex, _: usize) -> Inspection {
        Inspection::default()
    }
}
