//! The effects of a node, while they are carried out.

use super::Life;
use pagemesh_core::{Effects, Input};
use pagemesh_wire::peer::Ask;

/// The effects of one node's input, and their results.
#[derive(Default)]
pub(crate) struct Reaction {
    /// Their memory, from one to the next.
    pub(crate) effects: Effects,
    /// Inputs that effects gave rise to.
    pub(crate) answers: Vec<Input<'static>>,
    /// The ask whose effects are being carried out.
    pub(crate) heard: Option<Ask>,
    /// The effect being carried out was carried out before by a daemon that was killed: its
    /// datagrams were sent, and are sent once more.
    pub(crate) repeats: bool,
    /// Hosts that are gone when the present effects have been carried out.
    pub(crate) departing: Vec<(usize, Life)>,
}
