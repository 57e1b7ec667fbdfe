//! What is checked of nodes and threads while a cluster runs, beside the kernels' own checks.

use crate::check::Check;
use crate::golden::Golden;
use crate::hints::Hints;
use crate::lines::Lines;
use crate::storms::Storms;
use crate::witness::History;
use pagemesh_core::Event;
use pagemesh_wire::NodeId;
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Ask, Message};

/// All of it.
#[derive(Default)]
pub(crate) struct Checkers {
    /// What memory would hold if there were one.
    pub(crate) golden: Golden,
    /// What threads saw and stored.
    pub(crate) history: History,
    /// What is said of owners.
    hints: Hints,
    /// How often nodes repeat themselves.
    storms: Storms,
    /// What is said of those who wait.
    pub(crate) lines: Lines,
}

impl Checkers {
    /// A node sends a message, perhaps in answer to an ask; `knows` says which nodes it knows.
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

    /// The node of a host tells something about itself.
    pub(crate) fn told(&mut self, host: usize, event: &Event) -> Check {
        self.hints.told(event);
        self.storms.told(host, event)
    }
}
