//! Checkers of nodes and threads while a cluster runs, beside the checks in the kernels.

use crate::check::Check;
use crate::golden::Golden;
use crate::hints::Hints;
use crate::lines::Lines;
use crate::storms::Storms;
use crate::witness::History;
use pagemesh_core::{Effect, Event};
use pagemesh_wire::NodeId;
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Ask, Message};

/// All checkers.
#[derive(Default)]
pub(crate) struct Checkers {
    /// The contents that a single shared memory would have.
    pub(crate) golden: Golden,
    /// The loads and stores of threads.
    pub(crate) history: History,
    /// The owners that messages and events name.
    hints: Hints,
    /// How often nodes resend a request.
    storms: Storms,
    /// The orders in which queues of grants promise to serve nodes.
    pub(crate) lines: Lines,
}

impl Checkers {
    /// Checks a message that a node sends, perhaps because of a request; `knows` tells which
    /// members the node knows.
    pub(crate) fn said(
        &mut self,
        header: &Header,
        message: &Message,
        heard: Option<&Ask>,
        knows: impl Fn(NodeId) -> bool,
    ) -> Check {
        self.hints.said(header.from, header.to, message)?;
        self.lines.said(header.from, header.to, message, knows)?;
        match (heard, message) {
            (Some(heard), Message::Ask(said)) => Hints::forwarded(header.from, heard, said),
            _ => Ok(()),
        }
    }

    /// Checks an event that the node of a host emits.
    pub(crate) fn told(&mut self, host: usize, event: &Event) -> Check {
        self.storms.told(host, event)
    }

    /// Takes note of what a turn of a node grants, before any of its effects is carried out.
    pub(crate) fn granted(&mut self, turn: &[Effect]) {
        self.hints.granted(turn);
    }
}
