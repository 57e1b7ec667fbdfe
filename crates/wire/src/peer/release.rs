//! What is said about segments of policy `release`: who wrote which pages
//! when, and what changed in them.

use super::{Ask, Contents, Pass};
use crate::{NodeId, PageIndex, RequestId, SegmentId, VectorTime};
use serde::{Deserialize, Serialize};

/// When modifications travel in a segment of policy `release`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Spread {
    /// When somebody touches the page who must see them (T6, T8).
    #[default]
    Lazy,
    /// At every release, to whoever holds the page (T20).
    Eager,
    /// Small ones together with the notice that there are any (TB4).
    Hybrid,
}

impl Spread {
    /// As people write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lazy => "lazy",
            Self::Eager => "eager",
            Self::Hybrid => "hybrid",
        }
    }
}

/// Neighbouring pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PageRun {
    /// The first.
    pub first: PageIndex,
    /// How many.
    pub count: u32,
}

/// One interval of one node, and the write notices in it (T5, T10).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct IntervalRecord {
    /// Whose.
    pub node: NodeId,
    /// Which of its intervals, from one.
    pub index: u64,
    /// What its node knew of others when the interval ended; nothing of itself.
    pub time: VectorTime,
    /// The pages that were written, in order; at most [`IntervalRecord::RUNS`] runs.
    pub pages: Vec<PageRun>,
}

impl IntervalRecord {
    /// Runs of one record, so that any record fits a datagram. A node that wrote
    /// more ends several intervals at once.
    pub const RUNS: usize = 256;

    /// Bytes it takes at most on the wire.
    #[must_use]
    pub fn weight(&self) -> usize {
        16 + 13 * self.time.len() + 10 * self.pages.len()
    }

    /// The pages, one by one.
    pub fn each_page(&self) -> impl Iterator<Item = PageIndex> + '_ {
        let run = |run: &PageRun| run.first.0..run.first.0.saturating_add(run.count);
        self.pages.iter().flat_map(run).map(PageIndex)
    }
}

/// What somebody knows that another lacks: the payload of every acquire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct News {
    /// Intervals that are collected everywhere: their records are gone, and
    /// their modifications are in every copy.
    pub floor: VectorTime,
    /// What the receiver must know before it goes on; it inquires after what
    /// is not among the records.
    pub goal: VectorTime,
    /// Records, none before one that happened before it; at most
    /// [`News::WEIGHT`] bytes of them.
    pub records: Vec<IntervalRecord>,
}

impl News {
    /// Bytes of records in one message, by [`IntervalRecord::weight`].
    pub const WEIGHT: usize = 6 * 1024;
}

/// A wish for the token of a lock whose segment has policy `release`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Acquire {
    /// The wish.
    pub ask: Ask,
    /// What its node knows already.
    pub time: VectorTime,
}

/// A token passes, with what its receiver must know (T5).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Grant {
    /// The token.
    pub pass: Pass,
    /// What happened before.
    pub news: News,
    /// What those know who wait next, as far as there was room for it.
    pub times: Vec<(NodeId, VectorTime)>,
}

impl Grant {
    /// How many times travel at most.
    pub const TIMES: usize = 4;
}

/// Whose time is this, and what happened since?
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Inquire {
    /// In which segment.
    pub segment: SegmentId,
    /// Echoed in [`Told`].
    pub request: RequestId,
    /// What the sender knows.
    pub time: VectorTime,
    /// The view the sender has. Who has an older one may still hear those who are
    /// gone, and does not answer.
    pub epoch: u64,
}

/// Answers an [`Inquire`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Told {
    /// In which segment.
    pub segment: SegmentId,
    /// As in the question.
    pub request: RequestId,
    /// The goal is all that the sender knows.
    pub news: News,
}

/// Somebody needs the contents of a page to start from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fetch {
    /// Of which segment.
    pub segment: SegmentId,
    /// Which page.
    pub page: PageIndex,
    /// Who needs it; not the sender if this was sent on.
    pub reader: NodeId,
    /// Which of its requests.
    pub request: RequestId,
    /// The copy must have all that is collected by then.
    pub floor: VectorTime,
    /// How often it was sent on.
    pub hops: u8,
}

/// The contents of a page, or the news that there are none here.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Base {
    /// Of which segment.
    pub segment: SegmentId,
    /// Which page.
    pub page: PageIndex,
    /// The request it answers.
    pub request: RequestId,
    /// [`Contents::None`]: the sender has no copy.
    pub contents: Contents,
    /// Which intervals' modifications of this page are in the copy, or are
    /// collected.
    pub applied: VectorTime,
}

/// Names what one node changed in one page in one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DiffName {
    /// Which page of the segment.
    pub page: PageIndex,
    /// Who changed it.
    pub node: NodeId,
    /// In which of its intervals.
    pub interval: u64,
}

/// A wish for diffs. Whoever has none of them says so with [`Absent`]. With request 0 it wishes
/// for none: these came before they were asked for, and have been used.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Want {
    /// Of which segment.
    pub segment: SegmentId,
    /// Echoed.
    pub request: RequestId,
    /// Which; at most [`Want::LIMIT`].
    pub diffs: Vec<DiffName>,
}

impl Want {
    /// Diffs in one wish: at their largest they fill nine datagrams.
    pub const LIMIT: usize = 24;
}

/// Some diffs. Behind the message stand their encodings, one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Diffs {
    /// Of which segment.
    pub segment: SegmentId,
    /// The wish; zero when nobody asked.
    pub request: RequestId,
    /// Which, and how many bytes each has.
    pub diffs: Vec<(DiffName, u16)>,
}

impl Diffs {
    /// Bytes of all encodings.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.diffs
            .iter()
            .map(|(_, bytes)| usize::from(*bytes))
            .sum()
    }
}

/// The sender does not have these diffs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Absent {
    /// Of which segment.
    pub segment: SegmentId,
    /// The wish.
    pub request: RequestId,
    /// Which.
    pub diffs: Vec<DiffName>,
    /// Up to here they are collected: whoever needs them takes the page instead.
    pub floor: VectorTime,
}

/// A step of the garbage collection of one segment (T16), as a call of its home.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Collect {
    /// How far are you?
    Know,
    /// Know all this; make whole the pages that you are to keep.
    Reach {
        /// What will be collected.
        time: VectorTime,
        /// Who may be a keeper of pages.
        keepers: crate::NodeSet,
    },
    /// Everybody has reached this: forget it.
    Drop {
        /// What is collected.
        time: VectorTime,
    },
}
