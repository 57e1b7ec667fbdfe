//! The messages of the policy: bodies of [`Message::Policy`](pagemesh_wire::peer::Message::Policy),
//! of [`Call::Policy`](pagemesh_wire::peer::Call::Policy) and of the payloads of locks and
//! barriers.
//!
//! The payload of a request for a lock is a [`VectorTime`]. That of grants, arrivals and departures
//! is [`News`].

use pagemesh_wire::peer::{Contents, DiffName, Diffs, Payload};
use pagemesh_wire::{NodeId, NodeSet, PageIndex, RequestId, VectorTime};
use serde::{Deserialize, Serialize};

/// A message of the policy.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Body {
    /// See [`IntervalRequest`].
    IntervalRequest(IntervalRequest),
    /// See [`IntervalReply`].
    IntervalReply(IntervalReply),
    /// See [`CopyRequest`].
    CopyRequest(CopyRequest),
    /// See [`CopyReply`].
    CopyReply(CopyReply),
    /// See [`DiffRequest`].
    DiffRequest(DiffRequest),
    /// See [`DiffMissing`].
    DiffMissing(DiffMissing),
    /// See [`Full`].
    Full(Full),
    /// See [`CopyRequests`].
    CopyRequests(CopyRequests),
    /// See [`Keep`].
    Keep(Keep),
    /// See [`Kept`].
    Kept(Kept),
    /// To a node that has asked to keep its intervals: the sender leaves, and keeps nothing more.
    Leaving,
}

impl Body {
    /// The name of the message, for people and for scenarios.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::IntervalRequest(_) => "IntervalRequest",
            Self::IntervalReply(_) => "IntervalReply",
            Self::CopyRequest(_) => "CopyRequest",
            Self::CopyReply(_) => "CopyReply",
            Self::DiffRequest(_) => "DiffRequest",
            Self::DiffMissing(_) => "DiffMissing",
            Self::Full(_) => "Full",
            Self::CopyRequests(_) => "CopyRequests",
            Self::Keep(_) => "Keep",
            Self::Kept(_) => "Kept",
            Self::Leaving => "Leaving",
        }
    }

    /// Reads what a peer sent; `None` if it is no message of this policy.
    #[must_use]
    pub fn read(payload: &Payload) -> Option<Self> {
        payload.read()
    }
}

/// Neighbouring pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PageRun {
    /// The first page.
    pub first: PageIndex,
    /// Number of pages.
    pub count: u32,
}

/// One interval of one node, and the write notices in it (T5, T10).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct IntervalRecord {
    /// The node.
    pub node: NodeId,
    /// The number of its interval, from one.
    pub index: u64,
    /// What the node knew of other nodes when the interval ended; nothing of itself.
    pub time: VectorTime,
    /// The pages that were written, in order; at most [`IntervalRecord::RUNS`] runs.
    pub pages: Vec<PageRun>,
}

impl IntervalRecord {
    /// Runs of one record at most, so that every record fits a datagram. A node that wrote more
    /// ends several intervals at once.
    pub const RUNS: usize = 256;

    /// Upper bound of its size on the wire, in bytes.
    #[must_use]
    pub fn weight(&self) -> usize {
        16 + 13 * self.time.len() + 10 * self.pages.len()
    }

    /// The pages, one by one.
    pub fn each_page(&self) -> impl Iterator<Item = PageIndex> + '_ {
        let run = |run: &PageRun| run.first.0..run.first.0.saturating_add(run.count);
        self.pages.iter().flat_map(run).map(PageIndex)
    }

    /// The diffs of those pages, by their names.
    pub(super) fn diffs(&self) -> impl Iterator<Item = DiffName> + '_ {
        let (node, interval) = (self.node, self.index);
        self.each_page().map(move |page| DiffName {
            page,
            node,
            interval,
        })
    }
}

/// What one node knows that another lacks: the payload of every acquire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct News {
    /// Intervals that are collected everywhere: their records are gone, and their modifications are
    /// in every copy.
    pub floor: VectorTime,
    /// What the receiver must know before it goes on; it inquires after what is not among the
    /// records.
    pub goal: VectorTime,
    /// Records, none before one that happened before it; at most [`News::WEIGHT`] bytes of them.
    pub records: Vec<IntervalRecord>,
}

impl News {
    /// Bytes of records in one message, by [`IntervalRecord::weight`].
    pub const WEIGHT: usize = 6 * 1024;
}

/// An inquiry: asks for the intervals that the sender does not know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct IntervalRequest {
    /// Echoed in [`IntervalReply`].
    pub request: RequestId,
    /// What the sender knows.
    pub time: VectorTime,
    /// The epoch of the sender's member view. A node with an older view may still take messages of
    /// nodes that are gone, and does not answer.
    pub epoch: u64,
}

/// Answers an [`IntervalRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct IntervalReply {
    /// As in the inquiry.
    pub request: RequestId,
    /// The news that the asking node lacks; its goal is all that the sender knows.
    pub news: News,
}

/// A request for a base copy of a page.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CopyRequest {
    /// The page.
    pub page: PageIndex,
    /// The node that needs the copy; not the sender if the request was forwarded.
    pub reader: NodeId,
    /// The request's number at that node.
    pub request: RequestId,
    /// The copy must have everything in this time.
    pub floor: VectorTime,
    /// How often the request was forwarded.
    pub hops: u8,
}

/// Requests of the sender for base copies of several pages. Each is answered by itself, as a
/// [`CopyRequest`] is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CopyRequests {
    /// The copies must have everything in this time.
    pub floor: VectorTime,
    /// The pages, each with the number of its request; at most [`CopyRequests::LIMIT`].
    pub copies: Vec<(PageIndex, RequestId)>,
}

impl CopyRequests {
    /// Copies in one message.
    pub const LIMIT: usize = 64;
}

/// The contents of a page, or the answer that the sender has none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CopyReply {
    /// The page.
    pub page: PageIndex,
    /// The request that this answers.
    pub request: RequestId,
    /// [`Contents::None`]: the sender has no copy.
    pub contents: Contents,
    /// The intervals whose modifications of this page are in the copy, or are collected.
    pub applied: VectorTime,
}

/// A request for diffs. A node that lacks some of them answers with [`DiffMissing`]. Request 0 requests
/// nothing: it says that these diffs were pushed, and have been used.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DiffRequest {
    /// Echoed in the answer.
    pub request: RequestId,
    /// The diffs; at most [`DiffRequest::LIMIT`].
    pub diffs: Vec<DiffName>,
}

impl DiffRequest {
    /// Diffs in one request.
    pub const LIMIT: usize = Diffs::LIMIT;
}

/// The sender does not have these diffs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DiffMissing {
    /// The number of the request.
    pub request: RequestId,
    /// The diffs.
    pub diffs: Vec<DiffName>,
    /// Up to here they are collected at the sender: a node that needs them requests the whole page
    /// instead.
    pub floor: VectorTime,
}

/// To the home: the sender holds more than it should, it is time to collect.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Full {
    /// The floor that the sender knows.
    pub floor: VectorTime,
    /// The sender is about to leave, and must not keep pages.
    pub leaving: bool,
}

/// To the sender's backup: the sender has ended intervals of which nobody has heard. The receiver is to
/// get their diffs, to learn the records then, and to answer with [`Kept`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Keep {
    /// The last of them.
    pub upto: u64,
    /// Their records, one after the other; at most [`Keep::WEIGHT`] bytes, or one.
    pub records: Vec<IntervalRecord>,
    /// What the receiver lacks of what others may hear.
    pub news: News,
}

impl Keep {
    /// Bytes of the sender's own records in one message, by [`IntervalRecord::weight`]. With them the
    /// news fits a datagram, too.
    pub const WEIGHT: usize = 4 * 1024;
}

/// The sender has all diffs of the receiver's intervals, and has learnt their records.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Kept {
    /// Up to here, as [`Keep`] asked.
    pub upto: u64,
    /// What the sender knows.
    pub time: VectorTime,
}

/// A step of the garbage collection of one segment (T16), as a call of its home. The answer to
/// [`Collect::Know`] is a [`VectorTime`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Collect {
    /// Asks what the node knows.
    Know,
    /// The node is to learn all of `time`, and to make the pages whole that it is to keep.
    Reach {
        /// What will be collected.
        time: VectorTime,
        /// The nodes that may be keepers of pages.
        keepers: NodeSet,
    },
    /// All nodes have reached `time`: drop what it covers.
    Drop {
        /// What is collected.
        time: VectorTime,
    },
}

#[cfg(test)]
mod tests;
