//! What a node of a segment with a replica notes about single pages: which of its own are not at its
//! backup, and what it keeps for others.

use crate::effect::Effect;
use crate::shell::Cx;
use pagemesh_sorted::LongMap;
use pagemesh_wire::peer::Spare;
use pagemesh_wire::{NodeId, NodeSet, PageIndex, SegmentId, Version};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Contents of a page that another node owns, or owned when it died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Replica {
    /// The version that has these contents.
    pub(super) version: Version,
    /// Where in the stash they are; nowhere if they are zeros.
    pub(super) place: Option<PageIndex>,
    /// Whose death makes it matter.
    pub(super) of: NodeId,
}

/// The notes about pages.
///
/// A page is *behind* if its owner, this node, has or may have contents that its backup has not. Only
/// pages that are not behind leave. Pages that were never moved nor stored to are on no list: they are
/// zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Book {
    /// The node that keeps what this one has.
    pub(super) backup: Option<NodeId>,
    /// There is no node that could.
    pub(super) alone: bool,
    /// Owned pages that are behind.
    pub(super) behind: BTreeSet<PageIndex>,
    /// Those of them that may have been stored to since the last commit began: the next one has all.
    pub(super) stored: BTreeSet<PageIndex>,
    /// Those that are to leave.
    pub(super) wanted: BTreeSet<PageIndex>,
    /// Those of which even what others have seen may be on this node only.
    pub(super) endangered: BTreeSet<PageIndex>,
    /// Those that a backup has which leaves: it goes when another one has them.
    pub(super) owed: BTreeSet<PageIndex>,
    /// The pages of the commit under way: they neither change nor leave.
    pub(super) frozen: BTreeSet<PageIndex>,
    /// Owned pages that are behind since they came, and who gave them: what that node's backup has
    /// is to be kept so long.
    pub(super) givers: LongMap<PageIndex, NodeId>,
    /// Pages that this node gave away, to whom and at which version, until they are at the backup of
    /// their new owner.
    pub(super) given: LongMap<PageIndex, (NodeId, Version)>,
    /// What this node keeps.
    pub(super) replicas: LongMap<PageIndex, Replica>,
    /// The newest version of each page that was in this node's memory, and is not any more.
    pub(super) seen: LongMap<PageIndex, Version>,
    /// A ward died before this node had all that others had seen of it.
    pub(super) unsure: bool,
    /// Pages whose owner may be gone, to be requested, and those of them that are requested.
    pub(super) orphans: BTreeSet<PageIndex>,
    pub(super) requested: BTreeSet<PageIndex>,
    /// Places in the stash without a page below `fresh`, counted from the end of all indices, and places
    /// that were never used.
    free: BTreeSet<u32>,
    fresh: u32,
}

impl Book {
    /// A place in the stash.
    pub(super) fn place(&mut self) -> PageIndex {
        let place = self.free.pop_first().unwrap_or_else(|| {
            self.fresh += 1;
            self.fresh - 1
        });
        PageIndex(u32::MAX - place)
    }

    /// Contents in the stash are needed no more.
    pub(super) fn vacate(&mut self, cx: &mut Cx<'_>, segment: SegmentId, place: PageIndex) {
        let number = u32::MAX - place.0;
        if number < self.fresh {
            self.free.insert(number);
        }
        cx.push(Effect::DropStash {
            segment,
            page: place,
        });
    }

    /// The replica of a page is needed no more. The stash of the page itself stays while that is `passing`.
    pub(super) fn drop_replica(
        &mut self,
        cx: &mut Cx<'_>,
        (segment, page): (SegmentId, PageIndex),
        passing: bool,
    ) {
        let replica = self.replicas.remove(&page);
        let place = replica.and_then(|replica| replica.place);
        if let Some(place) = place.filter(|place| *place != page || !passing) {
            self.vacate(cx, segment, place);
        }
    }

    /// The stash of the page itself is a replica: this node gave the page to its own backup.
    pub(super) fn keeps_stash(&self, page: PageIndex) -> bool {
        let replica = self.replicas.get(&page);
        replica.is_some_and(|replica| replica.place == Some(page))
    }

    /// This node has become the owner of a page.
    pub(super) fn came(&mut self, cx: &mut Cx<'_>, at: (SegmentId, PageIndex)) {
        self.drop_replica(cx, at, false);
        self.given.remove(&at.1);
        self.behind.insert(at.1);
    }

    /// A page leaves, or is dropped: it is another node's matter.
    pub(super) fn went(&mut self, page: PageIndex) {
        self.behind.remove(&page);
        self.stored.remove(&page);
        self.wanted.remove(&page);
        self.endangered.remove(&page);
        self.owed.remove(&page);
        self.frozen.remove(&page);
        self.givers.remove(&page);
    }

    /// The page may be stored to from now on.
    pub(super) fn store(&mut self, page: PageIndex) {
        self.stored.insert(page);
        self.behind.insert(page);
    }

    /// What this node could restore a page from that has no owner, if it has no copy.
    pub(super) fn spare(&self, page: PageIndex) -> Spare {
        let replica = self.replicas.get(&page);
        let seen = self.seen.get(&page).copied().unwrap_or_default();
        Spare::Replica {
            version: replica.map(|replica| replica.version),
            seen,
            sure: !self.unsure,
        }
    }

    /// Contents of a page leave this node's memory.
    pub(super) fn saw(&mut self, page: PageIndex, version: Version) {
        if version > Version(0) {
            let seen = self.seen.entry(page).or_default();
            *seen = version.max(*seen);
        }
    }

    /// A node is gone: what it owned has no owner, as far as this node knows.
    pub(super) fn orphaned_by(&mut self, node: NodeId) {
        let orphans = &mut self.orphans;
        self.given.retain(|page, (to, _)| {
            let gone = *to == node;
            if gone {
                orphans.insert(*page);
            }
            !gone
        });
        let kept = self.replicas.iter();
        let kept = kept.filter(|(_, replica)| replica.of == node);
        self.orphans.extend(kept.map(|(page, _)| *page));
        self.endangered.extend(&self.behind);
    }

    /// Lives are over, and their numbers are to be forgotten.
    pub(super) fn forget_names(&mut self, over: &NodeSet) {
        for replica in self.replicas.values_mut() {
            if over.contains(replica.of) {
                replica.of = NodeId::NONE;
            }
        }
        self.given.retain(|_, (to, _)| !over.contains(*to));
        self.givers.retain(|_, giver| !over.contains(*giver));
    }
}
