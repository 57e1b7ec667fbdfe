//! Messages of global memory: pages that a node, their donor, keeps for their owner, and epochs.

use super::FilePart;
use crate::{NodeId, PageIndex, RequestId, SegmentId, Version};
use serde::{Deserialize, Serialize};

/// Contents of a page in a donor's memory. The segment's home owns it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct LentPage {
    /// The segment.
    pub segment: SegmentId,
    /// The page.
    pub page: PageIndex,
    /// The version of its contents. A page never has two contents of one version.
    pub version: Version,
}

/// Proves to the owner of a page that its sealed contents are those of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct PageSeal(pub [u8; 16]);

/// putpage (G24): keep these sealed contents, which follow, for their owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Put {
    /// The page.
    pub lent: LentPage,
    /// The driver of the owner writes it.
    pub seal: PageSeal,
    /// The owner's disk has the contents, too: the donor may drop them at any time (G12).
    pub on_disk: bool,
    /// The owner wants [`DonorReply::Kept`].
    pub answer: bool,
    /// Milliseconds since the page was last used.
    pub age: u32,
}

/// A donor has no room for a page that it keeps, and sends it on to another node (G26). The owner's
/// disk has it, too. Its sealed contents follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Forward {
    /// As it came from the owner; no answer is wanted.
    pub put: Put,
    /// Nodes that may still keep it, the receiver included.
    pub rounds: u8,
}

/// The answer to [`Global::Get`]: the sealed contents, which follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Got {
    /// The page.
    pub lent: LentPage,
    /// As it came with [`Put`].
    pub seal: PageSeal,
}

/// The answers of a donor without contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DonorReply {
    /// The page is in the donor's memory.
    Kept(LentPage),
    /// The donor has no room for the page.
    Refused(LentPage),
    /// The donor does not have the page.
    Missing(LentPage),
    /// The donor has sent the page on to another node.
    Moved(LentPage, NodeId),
    /// The donor sent a page that is not the one its owner sealed. No donor says so of itself: the
    /// owner's driver does, in the place of the page.
    Spoiled(LentPage),
}

impl DonorReply {
    /// The page that it is about.
    #[must_use]
    pub fn lent(self) -> LentPage {
        match self {
            Self::Kept(lent)
            | Self::Refused(lent)
            | Self::Missing(lent)
            | Self::Moved(lent, _)
            | Self::Spoiled(lent) => lent,
        }
    }
}

/// Classes of ages: class `n` holds pages that were last used between 2^n and 2^(n+1) milliseconds
/// ago, the first one also younger and the last one also older pages.
pub const AGE_CLASSES: usize = 24;

/// The ages of a node's pages (G9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct AgeSummary {
    /// Pages of memory that the node lends and that are free.
    pub free: u32,
    /// Pages of the node itself, by class of age.
    pub local: [u32; AGE_CLASSES],
    /// Pages of others that are also on their disks, by class of age.
    pub global: [u32; AGE_CLASSES],
}

/// The outcome of an initiator's computation (G9, G11).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EpochPlan {
    /// The number of the epoch; it only grows.
    pub epoch: u64,
    /// Pages older than this many milliseconds are dropped, not sent; zero: no page is sent.
    pub min_age: u32,
    /// For each node the number of pages that it is to take; at most [`EpochPlan::LIMIT`].
    pub weights: Vec<(NodeId, u32)>,
    /// The node that ends this epoch and begins the next.
    pub initiator: NodeId,
    /// The longest duration in milliseconds (T).
    pub duration: u32,
    /// Replacements in the epoch at most (M).
    pub replacements: u32,
}

impl EpochPlan {
    /// Nodes with a weight at most.
    pub const LIMIT: usize = 256;
}

/// Messages of global memory to a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Global {
    /// getpage (G23): send these pages of a segment, each of this version.
    Get {
        /// The segment.
        segment: SegmentId,
        /// At most [`Global::PAGES`].
        pages: Vec<(PageIndex, Version)>,
        /// The owner's disk has the contents, too: the donor drops them as it sends them.
        forget: bool,
    },
    /// These pages of a segment, of these versions or older ones, are not wanted any more.
    Drop {
        /// The segment.
        segment: SegmentId,
        /// At most [`Global::PAGES`].
        pages: Vec<(PageIndex, Version)>,
    },
    /// To the initiator: the epoch is to end, or the first one to begin (G8).
    EndEpoch {
        /// The epoch that the sender knows; zero if none.
        epoch: u64,
    },
    /// From the initiator: tell the ages of your pages.
    Summarize {
        /// The epoch to begin.
        epoch: u64,
    },
    /// The answer.
    Summary {
        /// The epoch to begin.
        epoch: u64,
        /// The ages. They are boxed, because most messages are small.
        ages: Box<AgeSummary>,
    },
    /// From the initiator: a new epoch begins.
    Begin(EpochPlan),
    /// To the node with this part of the global cache directory (GCD, G18): which nodes cache these
    /// pages? It has them answer the sender.
    Find {
        /// The sender's request.
        request: RequestId,
        /// An earlier request was not answered: ask other nodes, if there are any.
        again: bool,
        /// The pages.
        part: FilePart,
    },
    /// From the directory: send these pages to the asker.
    Fetch {
        /// The node that asks.
        asker: NodeId,
        /// Its request.
        request: RequestId,
        /// The pages.
        part: FilePart,
    },
    /// To the asker: these pages are not where they were looked for. It reads them from the file.
    NotCached {
        /// Its request.
        request: RequestId,
        /// The pages.
        part: FilePart,
    },
    /// To the directory: the sender caches these pages.
    Hold {
        /// The pages.
        part: FilePart,
        /// They came from another node's memory, which knows.
        copied: bool,
    },
    /// To the directory: the sender does not cache these pages any more.
    Gone {
        /// The pages.
        part: FilePart,
    },
    /// From the directory: the receiver is the only node that caches these pages, or is not.
    Copies {
        /// The pages.
        part: FilePart,
        /// It is the only one.
        alone: bool,
    },
    /// The sender leaves the cluster and has these pages of a segment, which are not on the owner's
    /// disk. The owner has others keep them, then it answers with [`Global::Drop`].
    TakeBack {
        /// The segment.
        segment: SegmentId,
        /// At most [`Global::PAGES`].
        pages: Vec<(PageIndex, Version)>,
    },
    /// The sender keeps these pages of a segment, which are not on the owner's disk: does the owner
    /// count on them? A message that said that it does not may have been lost.
    Wanted {
        /// The number of the sender's question.
        question: RequestId,
        /// The segment.
        segment: SegmentId,
        /// At most [`Global::PAGES`].
        pages: Vec<(PageIndex, Version)>,
    },
    /// The owner does not count on these pages of a [`Global::Wanted`]; there is no answer about the
    /// others.
    Unwanted {
        /// The question.
        question: RequestId,
        /// The segment.
        segment: SegmentId,
        /// At most [`Global::PAGES`].
        pages: Vec<PageIndex>,
    },
}

impl Global {
    /// Pages named in one message at most.
    pub const PAGES: usize = 64;
}

/// How the node for a page that is sent away is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Placement {
    /// By the weights of the epoch (GMS).
    #[default]
    Epoch,
    /// Any other member, each as likely as the others.
    Random,
    /// No node: pages go to the disk.
    None,
    /// As `Random`, and a donor without room sends the oldest page that it keeps on to another node,
    /// at most [`Placement::ROUNDS`] nodes in all (N-chance forwarding, G26).
    NChance,
}

impl Placement {
    /// Nodes that keep a page one after the other under [`Placement::NChance`]: N of the paper.
    pub const ROUNDS: u8 = 2;
}

/// The state of memory on a node, as people see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MemoryReport {
    /// Pages that private segments may have in memory here; the largest number: no bound.
    pub budget: u32,
    /// How a donor is chosen.
    pub placement: Placement,
    /// Pages of private segments in memory here.
    pub local: u64,
    /// Pages of private segments in the memory of donors.
    pub lent: u64,
    /// Pages of private segments that are on the disk alone.
    pub on_disk: u64,
    /// Pages of files in memory here.
    pub files: u64,
    /// Pages kept for others.
    pub borrowed: u64,
    /// Pages that may be kept for others.
    pub lend: u64,
    /// The number of the epoch.
    pub epoch: u64,
    /// Its MinAge, in milliseconds.
    pub min_age: u32,
    /// The weight of this node in it.
    pub weight: u32,
}
