//! What a node knows of one page of a segment of policy `release`.

use super::lingering::Staying;
use super::notices::Notices;
use super::usage::Unasked;
use crate::backoff::Backoff;
use crate::effect::Rights;
use crate::prefetch::Ahead;
use crate::time::Time;
use pagemesh_wire::peer::{Access, DiffName};
use pagemesh_wire::{MappingId, NodeId, NodeSet, RequestId, VectorTime};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Where the contents of a page are that this node has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Copy {
    /// Nowhere.
    #[default]
    None,
    /// In the stash: something is to be merged before it may be seen.
    Stash,
    /// In the frame, with everything this node must see.
    Frame,
}

/// One page on one node.
///
/// *INV-frame-is-current*: a page in its frame has all modifications this node
/// knows of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Page {
    pub(super) copy: Copy,
    /// What the mappings of this node may have.
    pub(super) rights: Rights,
    /// There is a twin: mappings may store.
    pub(super) twin: bool,
    /// The interval of this node that names the page and whose diff is not made yet.
    pub(super) undiffed: Option<u64>,
    /// How often it was written anew after its diff had been asked for.
    pub(super) returns: u8,
    /// Why it may stay writable, or may not.
    pub(super) staying: Staying,
    /// What came of it before it was asked for.
    pub(super) unasked: Unasked,
    /// Who wrote it, and what of that is in the copy.
    pub(super) notices: Notices,
    /// Who has all that is collected; none if nothing is, or if it is not known here.
    pub(super) keeper: Option<NodeId>,
    /// Who has asked for it or written it, as far as is known here.
    pub(super) users: NodeSet,
    /// The page is being made whole.
    pub(super) miss: Option<Box<Miss>>,
    /// Modifications of it were lost with this node.
    pub(super) lost: Option<NodeId>,
    /// It was mapped because pages before it were used, or since it was announced, and nobody
    /// has stopped at it since.
    pub(super) believed: bool,
}

impl Page {
    /// Nothing is being done about it.
    pub(super) fn is_idle(&self) -> bool {
        self.miss.is_none() && self.lost.is_none()
    }
}

/// A page being made whole.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Miss {
    /// Accesses that wait, each mapping and kind once.
    pub(super) faults: Vec<(MappingId, Access)>,
    /// It was asked for before anybody touched it.
    pub(super) ahead: Option<Ahead>,
    /// Who was asked for a copy to start from.
    pub(super) base: Option<(NodeId, RequestId)>,
    /// Who said that it has no copy.
    pub(super) baseless: NodeSet,
    /// Who was asked for which diffs.
    pub(super) asked: BTreeMap<RequestId, (NodeId, BTreeSet<DiffName>)>,
    /// Who does not have which diff.
    pub(super) absent: BTreeMap<DiffName, NodeSet>,
    /// Elsewhere this much is collected: a copy to start from must have it.
    pub(super) floor: VectorTime,
    pub(super) backoff: Backoff,
    /// Since when.
    pub(super) since: Time,
}

impl Miss {
    pub(super) fn new(backoff: Backoff, since: Time) -> Self {
        Self {
            faults: Vec::new(),
            ahead: None,
            base: None,
            baseless: NodeSet::EMPTY,
            asked: BTreeMap::new(),
            absent: BTreeMap::new(),
            floor: VectorTime::ZERO,
            backoff,
            since,
        }
    }

    /// Who was asked for something that has not come, or one of them.
    pub(super) fn asks(&self) -> Option<NodeId> {
        let base = self.base.map(|(node, _)| node);
        base.or_else(|| self.asked.values().next().map(|(node, _)| *node))
    }

    /// Whether this diff is on its way, as far as one can know.
    pub(super) fn awaits(&self, name: &DiffName) -> bool {
        self.asked.values().any(|(_, names)| names.contains(name))
    }
}
