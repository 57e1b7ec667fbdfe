//! What a node knows of one page of a segment of policy `release`.

use super::kept_writable::Staying;
use super::messages::CopyRequest;
use super::notices::Notices;
use crate::backoff::Backoff;
use crate::effect::{Rights, Source};
use crate::prefetch::Ahead;
use crate::time::Time;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::{Access, DiffName};
use pagemesh_wire::{MappingId, NodeId, NodeSet, RequestId, VectorTime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A page that was written again this many times after its diff had been made is kept writable from
/// then on, because comparing it costs less than a fault.
const PATTERN: u8 = 1;

/// After so many copies each of which cost the next store a fault of its own, a page is not protected
/// for copies: its diff is made instead.
const COPIES: u8 = 2;

/// Where this node has the contents of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Copy {
    /// Nowhere.
    #[default]
    None,
    /// In the stash: diffs must be merged before the page may be seen.
    Stash,
    /// In the frame, with everything this node must see.
    Frame,
}

/// One page on one node.
///
/// *INV-frame-is-current*: a page in its frame has all modifications this node knows of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Page {
    pub(super) copy: Copy,
    /// The rights of this node's mappings.
    pub(super) rights: Rights,
    /// There is a twin: mappings may store, unless [`Page::is_given`].
    pub(super) twin: bool,
    /// The frame was filled with zeros, and no diff of it was made since: the twin, if there is one,
    /// is zeros, and without a twin the frame holds zeros.
    #[serde(default)]
    pub(super) blank: bool,
    /// The interval of this node that names the page and whose diff is not made yet.
    pub(super) undiffed: Option<u64>,
    /// How often the page was written again after its diff had been made.
    pub(super) returns: u8,
    /// Copies in a row that were sent of the page before it was stored to by a fault of its own.
    #[serde(default)]
    pub(super) cost_a_fault: u8,
    /// Whether the page may be kept writable.
    pub(super) staying: Staying,
    /// Its write notices, and which of them are in the copy.
    pub(super) notices: Notices,
    /// The node whose copy has all that is collected; `None` if nothing is collected, or if this
    /// node does not know it.
    pub(super) keeper: Option<NodeId>,
    /// In a segment with replicas, the second node whose copy has all that is collected.
    #[serde(default)]
    pub(super) deputy: Option<NodeId>,
    /// Set while the page is being made whole.
    pub(super) miss: Option<Box<Miss>>,
    /// The page is lost: modifications of it were lost with this node.
    pub(super) lost: Option<NodeId>,
    /// The page was mapped without a fault, because pages before it were used or because it was
    /// announced, and has not faulted since.
    pub(super) believed: bool,
    /// The page was in use when it was put out of sight.
    #[serde(default)]
    pub(super) was_used: bool,
    /// When its contents came where they are, or a mapping got a right to them last.
    #[serde(default)]
    pub(super) granted: Time,
}

impl Page {
    /// Whether the frame is protected as it was when this node named it: another node has got its
    /// contents, so the diff of that name must have no store after that. The diff is made when it is
    /// requested, or before the next store.
    pub(super) fn is_given(&self) -> bool {
        self.undiffed.is_some() && self.rights < Rights::Write
    }

    /// Whether the page is to stay writable when its diff is made.
    pub(super) fn stays_writable(&self) -> bool {
        self.returns >= PATTERN
    }

    /// Whether the page is to stay writable when a copy of it is sent. Where a walk stores to many pages
    /// by one fault, protecting them costs less than making their diffs.
    pub(super) fn stays_writable_for_copies(&self) -> bool {
        self.stays_writable() && self.cost_a_fault >= COPIES
    }

    /// A thread stores to the page: by a fault of its own, or by that of a page before it.
    pub(super) fn is_stored_to(&mut self, own_fault: bool) {
        if self.is_given() {
            self.cost_a_fault = match own_fault {
                true => self.cost_a_fault.saturating_add(1),
                false => 0,
            };
        }
    }

    /// The source of the twin that the page is to get.
    pub(super) fn before_store(&self) -> Source {
        if self.blank {
            Source::Zero
        } else {
            Source::Frame
        }
    }

    /// Whether a store needs nothing but the right to it.
    pub(super) fn may_become_writable(&self) -> bool {
        self.copy == Copy::Frame && self.rights < Rights::Write && self.is_idle()
    }

    /// Whether what is collected of the page is in the copy of a node, which must not drop it.
    pub(super) fn is_kept_by(&self, node: NodeId) -> bool {
        self.keeper == Some(node) || self.deputy == Some(node)
    }

    /// Whether the page is neither being made whole nor lost.
    pub(super) fn is_idle(&self) -> bool {
        self.miss.is_none() && self.lost.is_none()
    }
}

/// A page that is being made whole.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Miss {
    /// Faults that wait; each mapping and kind of access once.
    pub(super) faults: Vec<(MappingId, Access)>,
    /// Set if the page was requested before a thread touched it.
    pub(super) ahead: Option<Ahead>,
    /// The thread is expected to store to the page that was requested before.
    #[serde(default)]
    pub(super) stores: bool,
    /// The node that was asked for a base copy, and the request.
    pub(super) base: Option<(NodeId, RequestId)>,
    /// A base copy has arrived: what it lacks is requested as diffs. Else copies of two nodes that wrote
    /// the page concurrently, each without the other's stores, would replace each other for ever.
    #[serde(default)]
    pub(super) based: bool,
    /// Nodes that said that they have no copy.
    pub(super) baseless: NodeSet,
    /// Requests for diffs that are not answered: the node that was asked, and the diffs.
    pub(super) asked: SortedMap<RequestId, (NodeId, BTreeSet<DiffName>)>,
    /// Nodes that said that they do not have a diff.
    pub(super) absent: SortedMap<DiffName, NodeSet>,
    /// This much is collected elsewhere: a base copy must have it.
    pub(super) floor: VectorTime,
    pub(super) backoff: Backoff,
    /// When the miss began.
    pub(super) since: Time,
    /// Requests of other nodes that were left to this node, and wait for its copy.
    #[serde(default)]
    pub(super) readers: Vec<CopyRequest>,
}

impl Miss {
    pub(super) fn new(backoff: Backoff, since: Time) -> Self {
        Self {
            faults: Vec::new(),
            ahead: None,
            stores: false,
            base: None,
            based: false,
            baseless: NodeSet::EMPTY,
            asked: SortedMap::new(),
            absent: SortedMap::new(),
            floor: VectorTime::ZERO,
            backoff,
            since,
            readers: Vec::new(),
        }
    }

    /// A node that was asked for something that has not come, if there is one.
    pub(super) fn asks(&self) -> Option<NodeId> {
        self.all_asked().next()
    }

    /// The nodes that were asked for something that has not come.
    pub(super) fn all_asked(&self) -> impl Iterator<Item = NodeId> + '_ {
        let base = self.base.iter().map(|(node, _)| *node);
        base.chain(self.asked.values().map(|(node, _)| *node))
    }

    /// Whether this diff is requested and not answered.
    pub(super) fn awaits(&self, name: &DiffName) -> bool {
        self.asked.values().any(|(_, names)| names.contains(name))
    }
}
