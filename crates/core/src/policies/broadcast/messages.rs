//! The messages of the policy to itself on other nodes.

use super::PAGES;
use pagemesh_wire::peer::DiffName;
use pagemesh_wire::{NodeId, PageIndex};
use serde::{Deserialize, Serialize};

/// The stores of one node before one of its arrivals at a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Phase {
    pub(super) node: NodeId,
    /// Which of its arrivals, from one.
    pub(super) number: u64,
    /// The pages, a bit each.
    pub(super) pages: u64,
}

impl Phase {
    /// The diffs of its pages.
    pub(super) fn diffs(self) -> impl Iterator<Item = DiffName> {
        let pages = (0..PAGES).filter(move |page| self.pages >> page & 1 == 1);
        pages.map(move |page| DiffName {
            page: PageIndex(page),
            node: self.node,
            interval: self.number,
        })
    }
}

/// Phases in the order that the home has given them; all nodes apply them in this order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Phases {
    /// The place of the first.
    pub(super) from: u64,
    /// At most [`Phases::LIMIT`].
    pub(super) list: Vec<Phase>,
    /// How many there are at the home.
    pub(super) total: u64,
}

impl Phases {
    /// Phases in one message: some 4 KiB.
    pub(super) const LIMIT: usize = 256;
}

/// The payload of the policy in barrier messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Ride {
    /// To the home: so many phases are applied here, and these of this node come next. Arrivals
    /// may overtake each other: each has all that the home has not told of yet.
    Arrival { applied: u64, phases: Vec<Phase> },
    /// From the home: apply all these, then go on.
    Departure(Phases),
}

/// Repairs: the data that a node lacks when the barrier is open.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Body {
    /// To the home: which phases are there from this place on?
    More { from: u64 },
    /// The answer.
    Phases(Phases),
    /// To the node that made them: these diffs did not come.
    DiffRequest(Vec<DiffName>),
}
