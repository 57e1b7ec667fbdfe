//! The messages of the policy to itself on other nodes.

use pagemesh_wire::{NodeId, NodeSet, PageIndex, RequestId};
use serde::{Deserialize, Serialize};

/// How old contents are: contents with a greater stamp are newer. Each move of the consistent copy
/// raises the version, each refresh the number.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub(super) struct Stamp {
    pub(super) version: u64,
    pub(super) number: u64,
}

impl Stamp {
    /// Whether a node can have counted so far. Others are refused, so that no count overflows.
    pub(super) fn is_possible(self) -> bool {
        self.version.max(self.number) < 1 << 62
    }
}

/// Pages that were published as one, and the stamp of the first of them. A newer publication of a
/// run has a greater stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) first: PageIndex,
    pub(super) count: u32,
    pub(super) stamp: Stamp,
}

impl Run {
    pub(super) fn of_one(page: PageIndex, stamp: Stamp) -> Self {
        let (first, count) = (page, 1);
        Self {
            first,
            count,
            stamp,
        }
    }

    pub(super) fn pages(self) -> impl Iterator<Item = PageIndex> {
        (0..self.count).map(move |step| PageIndex(self.first.0 + step))
    }

    /// Whether it lies in a segment of so many pages.
    pub(super) fn fits(self, size: u32) -> bool {
        let end = self.first.0.checked_add(self.count);
        let inside = end.is_some_and(|end| end <= size);
        inside && (1..=super::RUN).contains(&self.count) && self.stamp.is_possible()
    }

    /// Whether it has a page in common with another one.
    pub(super) fn meets(self, other: Self) -> bool {
        self.first.0 < other.first.0 + other.count && other.first.0 < self.first.0 + self.count
    }

    /// What lies in front of the pages of another one that it meets, and behind them. The stamp is
    /// still that of its own first page.
    pub(super) fn without(self, other: Self) -> impl Iterator<Item = Self> {
        let end = self.first.0 + self.count;
        let before = self.first.0..other.first.0.clamp(self.first.0, end);
        let behind = (other.first.0 + other.count).clamp(self.first.0, end)..end;
        let rest = [before, behind].into_iter().filter(|rest| !rest.is_empty());
        rest.map(move |rest| Self {
            first: PageIndex(rest.start),
            count: rest.end - rest.start,
            ..self
        })
    }

    pub(super) fn contains(self, page: PageIndex) -> bool {
        let step = page.0.checked_sub(self.first.0);
        step.is_some_and(|step| step < self.count)
    }
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) enum Wish {
    /// The prefix of the page.
    Prefix,
    /// The whole page.
    Whole,
    /// The consistent copy itself.
    Move,
    /// The consistent copy; if the page is lost, it begins anew with zeros.
    Anew,
}

/// A request for a page, which nodes pass on to the holder of the consistent copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Want {
    /// The first page, and how many; more than one only with [`Wish::Whole`].
    pub(super) page: PageIndex,
    pub(super) count: u32,
    pub(super) wish: Wish,
    pub(super) asker: NodeId,
    pub(super) request: RequestId,
    /// How often it was passed on.
    pub(super) hops: u8,
    /// How often the asker has repeated it.
    pub(super) tries: u8,
}

/// The consistent copy goes to the receiver; the page is behind the message.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Pass {
    pub(super) page: PageIndex,
    pub(super) stamp: Stamp,
    /// Nodes that want it next, in order.
    pub(super) queue: Vec<(NodeId, RequestId)>,
}

/// An inconsistent copy; the page is behind the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Refresh {
    pub(super) page: PageIndex,
    pub(super) stamp: Stamp,
    /// Bytes of the page that are valid; the others are zeros.
    pub(super) bytes: u16,
    pub(super) run: Run,
    /// The node that has the consistent copy.
    pub(super) holder: NodeId,
    /// The request that this answers; none if it answers none.
    pub(super) answers: RequestId,
}

/// What a node knows of a page whose holder is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Found {
    pub(super) page: PageIndex,
    pub(super) round: RequestId,
    /// The latest move known, and where it led.
    pub(super) version: u64,
    pub(super) hint: NodeId,
    /// The consistent copy is here, or on its way from here.
    pub(super) holds: bool,
    /// A copy is here, or this node answers for zeros, which have no stamp.
    pub(super) copy: Option<Copied>,
    /// The number of the newest refresh seen here.
    pub(super) number: u64,
}

/// A copy: the greatest is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct Copied {
    pub(super) stamp: Stamp,
    pub(super) whole: bool,
}

/// All messages of the policy.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Body {
    /// To the home: refreshes are of use here.
    Listen,
    /// To the home: they are not; of a node that knew of this generation of listeners.
    Deaf { generation: u64 },
    /// From the home: who listens.
    Listeners { generation: u64, nodes: NodeSet },
    /// To the home: that has arrived.
    Heard { generation: u64 },
    /// See [`Want`].
    Want(Want),
    /// See [`Pass`].
    Pass(Pass),
    /// The pass with this version has arrived.
    Passed { page: PageIndex, version: u64 },
    /// See [`Refresh`].
    Refresh(Refresh),
    /// This is the newest publication of these pages.
    Newest { run: Run, bytes: u16 },
    /// These pages of the publication did not come.
    Missing { run: Run, pages: Vec<PageIndex> },
    /// From the home, which knows the members of this epoch: what is known of this page?
    Census {
        page: PageIndex,
        round: RequestId,
        epoch: u64,
    },
    /// See [`Found`].
    Found(Found),
    /// From the home: the holder is gone, and the copy here is the consistent one from now on. No
    /// living node has seen a refresh with a greater number.
    Become {
        page: PageIndex,
        version: u64,
        number: u64,
    },
    /// To the home: there is no copy here any more.
    NoCopy { page: PageIndex, version: u64 },
    /// From the home, in answer to a request: the page is lost with this node.
    Lost {
        page: PageIndex,
        request: RequestId,
        with: NodeId,
    },
    /// From the holder to its backup: be the replica of these pages, as they were published, or as
    /// they are.
    Keep { run: Run },
    /// To the holder: they are kept.
    Kept { run: Run },
    /// From a holder, present or former: another node keeps the page, which has moved so often.
    Release {
        page: PageIndex,
        version: u64,
        holder: NodeId,
    },
    /// From the node that answers for pages that never moved: be the replica of those that are
    /// still zeros.
    Zeros,
    /// To that node: they are kept.
    ZerosKept,
    /// From a backup that leaves: another node must keep these pages; and zeros, if so.
    Leaving { pages: Vec<PageIndex>, zeros: bool },
    /// To it: another node answers for zeros.
    ReleaseZeros,
}
