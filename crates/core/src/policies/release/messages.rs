//! What the policy says to itself on other nodes: bodies of
//! [`Message::Policy`](pagemesh_wire::peer::Message::Policy), of
//! [`Call::Policy`](pagemesh_wire::peer::Call::Policy) and of what rides on locks and barriers.
//!
//! A request for a lock says a [`VectorTime`]. Grants, arrivals and departures say [`News`].

use pagemesh_wire::peer::{Contents, DiffName, Diffs, Payload};
use pagemesh_wire::{NodeId, NodeSet, PageIndex, RequestId, VectorTime};
use serde::{Deserialize, Serialize};

/// One message of the policy.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Body {
    /// See [`Inquire`].
    Inquire(Inquire),
    /// See [`Told`].
    Told(Told),
    /// See [`Fetch`].
    Fetch(Fetch),
    /// See [`Base`].
    Base(Base),
    /// See [`Want`].
    Want(Want),
    /// See [`Absent`].
    Absent(Absent),
    /// See [`Full`].
    Full(Full),
}

impl Body {
    /// Its name, for people and for scenarios.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Inquire(_) => "Inquire",
            Self::Told(_) => "Told",
            Self::Fetch(_) => "Fetch",
            Self::Base(_) => "Base",
            Self::Want(_) => "Want",
            Self::Absent(_) => "Absent",
            Self::Full(_) => "Full",
        }
    }

    /// Reads what a peer sent; none if it is no message of this policy.
    #[must_use]
    pub fn read(payload: &Payload) -> Option<Self> {
        payload.read()
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

/// Whose time is this, and what happened since?
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Inquire {
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
    /// As in the question.
    pub request: RequestId,
    /// The goal is all that the sender knows.
    pub news: News,
}

/// Somebody needs the contents of a page to start from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fetch {
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

/// A wish for diffs. Whoever has none of them says so with [`Absent`]. With request 0 it wishes
/// for none: these came before they were asked for, and have been used.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Want {
    /// Echoed.
    pub request: RequestId,
    /// Which; at most [`Want::LIMIT`].
    pub diffs: Vec<DiffName>,
}

impl Want {
    /// Diffs in one request.
    pub const LIMIT: usize = Diffs::LIMIT;
}

/// The sender does not have these diffs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Absent {
    /// The wish.
    pub request: RequestId,
    /// Which.
    pub diffs: Vec<DiffName>,
    /// Up to here they are collected: whoever needs them takes the page instead.
    pub floor: VectorTime,
}

/// To the home: the sender holds more than it should, it is time to collect.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Full {
    /// The floor the sender knows.
    pub floor: VectorTime,
    /// It is about to leave, and is to keep nothing.
    pub leaving: bool,
}

/// A step of the garbage collection of one segment (T16), as a call of its home. The answer to the
/// first is a [`VectorTime`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Collect {
    /// How far are you?
    Know,
    /// Know all this; make whole the pages that you are to keep.
    Reach {
        /// What will be collected.
        time: VectorTime,
        /// Who may be a keeper of pages.
        keepers: NodeSet,
    },
    /// Everybody has reached this: forget it.
    Drop {
        /// What is collected.
        time: VectorTime,
    },
}

#[cfg(test)]
mod tests;
