//! Frames for pages of files: the frames are a segment's, and the service of shared pages
//! (`global/shared`) says what lies in them. No process maps the segment: the process that reads
//! files has its memory as a file.

use super::hooks::{Due, Gone, Hooks, Open, ProgramRequest, Who};
use crate::effect::Effect;
use crate::event::Event;
use crate::inspection::Inspection;
use crate::shell::Cx;
use pagemesh_wire::peer::{Access, Message, Policy, Refusal};
use pagemesh_wire::{ClientId, NodeId, PageIndex, SegmentId, Ticket};
use serde::{Deserialize, Serialize};

/// One segment of frames, at its home.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Files {
    segment: SegmentId,
}

/// Why a segment of frames does nothing that other segments do.
const FRAMES: &str =
    "the segment holds pages of files for `pagemesh cache`, and is no memory of programs";

impl Open for Files {
    fn open(segment: SegmentId, _: u32, chosen: Policy) -> Option<Result<Self, Refusal>> {
        (chosen == Policy::Files).then_some(Ok(Self { segment }))
    }
}

impl Hooks for Files {
    fn fault(&mut self, cx: &mut Cx<'_>, who: Who, page: PageIndex, _: Access) {
        cx.push(Effect::Fail {
            mapping: who.mapping,
            segment: self.segment,
            page,
            why: Refusal::Invalid(FRAMES.into()),
        });
    }

    fn request(&mut self, cx: &mut Cx<'_>, who: (Ticket, ClientId), _: ProgramRequest) {
        cx.refuse(who.0, Refusal::Invalid(FRAMES.into()));
    }

    fn message(&mut self, cx: &mut Cx<'_>, _: NodeId, _: Message) {
        cx.emit(Event::Stale {});
    }

    fn due(&mut self, _: &mut Cx<'_>, _: Due) {}

    fn gone(&mut self, _: &mut Cx<'_>, _: Gone) {}

    /// The pages are in the file.
    fn hand_over(&mut self, _: &mut Cx<'_>, _: NodeId, _: usize) -> usize {
        0
    }

    fn inspect(&self, _: NodeId, _: PageIndex, _: usize) -> Inspection {
        Inspection::default()
    }

    fn may_open(&self, node: NodeId) -> Result<(), Refusal> {
        let is_home = node == self.segment.home();
        is_home
            .then_some(())
            .ok_or_else(|| Refusal::Invalid(FRAMES.into()))
    }

    fn is_inherited(&self) -> bool {
        false
    }
}
