//! Messages about pages and tokens of locks.

use crate::{NodeId, NodeSet, PageIndex, RequestId, SegmentId, SyncKey, Version};
use serde::{Deserialize, Serialize};

/// The kind of a faulting access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
}

/// An item with an owner: a page of a segment, or the token of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Subject {
    /// One page.
    Page {
        /// The segment it belongs to.
        segment: SegmentId,
        /// Which of its pages.
        page: PageIndex,
    },
    /// The token of one lock.
    Lock(SyncKey),
}

impl Subject {
    /// The segment that scopes the subject.
    #[must_use]
    pub fn segment(self) -> SegmentId {
        match self {
            Self::Page { segment, .. } => segment,
            Self::Lock(key) => key.segment,
        }
    }
}

/// One node that waits for a subject, as it stands in the owner's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Waiter {
    /// The node that waits.
    pub node: NodeId,
    /// Which of its requests; echoed in the answer.
    pub request: RequestId,
    /// The access that it asks for.
    pub access: Access,
    /// The version it holds a copy of; spares the bytes if it is current.
    pub have: Option<Version>,
}

/// Where the bytes of a page are when a page travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Contents {
    /// The page was never written: it is zeros and moves no bytes (M13).
    Zero,
    /// The receiver holds a current copy: an upgrade moves no bytes (M11).
    Same,
    /// One page follows the message.
    Bytes,
    /// The subject has no bytes: a lock.
    None,
}

/// A request a page or a token, to the probable owner (F19) or the library site (M7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ask {
    /// The requested subject.
    pub subject: Subject,
    /// The requester, and the access.
    pub waiter: Waiter,
    /// The receiver is believed to own the subject since this version. A
    /// receiver that knows less has the grant still in flight towards it.
    pub since: Version,
    /// How often the request was forwarded along owner hints.
    pub hops: u8,
    /// The library site has queued it and now hands it to the clock site.
    pub by_library: bool,
}

/// Requests of the sender for many pages of one segment, as if each had come in an
/// [`Ask`] of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AskMany {
    /// Of which segment.
    pub segment: SegmentId,
    /// How all of them are wanted.
    pub access: Access,
    /// At most [`AskMany::LIMIT`].
    pub requests: Vec<PageRequest>,
}

/// One of the requests of an [`AskMany`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PageRequest {
    /// Which page.
    pub page: PageIndex,
    /// Which of the sender's requests.
    pub request: RequestId,
    /// As in [`Waiter::have`].
    pub have: Option<Version>,
    /// As in [`Ask::since`].
    pub since: Version,
}

impl AskMany {
    /// Requests in one message: with their answers they keep an owner busy for a tenth of a
    /// millisecond, for which the next request has to wait.
    pub const LIMIT: usize = 64;

    /// The request, ready for others to join; none if it is not for a page.
    #[must_use]
    pub fn of(ask: &Ask) -> Option<Self> {
        let Subject::Page { segment, page } = ask.subject else {
            return None;
        };
        let request = PageRequest {
            page,
            request: ask.waiter.request,
            have: ask.waiter.have,
            since: ask.since,
        };
        let mut requests = Vec::with_capacity(Self::LIMIT);
        requests.push(request);
        Some(Self {
            segment,
            access: ask.waiter.access,
            requests,
        })
    }

    /// Adds a request. False if it is of another kind, or there is no room.
    pub fn join(&mut self, segment: SegmentId, access: Access, request: PageRequest) -> bool {
        let joins = (self.segment, self.access) == (segment, access);
        let joins = joins && self.requests.len() < Self::LIMIT;
        if joins {
            self.requests.push(request);
        }
        joins
    }

    /// Each of the requests of `node` by itself.
    pub fn each(&self, node: NodeId) -> impl Iterator<Item = Ask> + '_ {
        self.requests.iter().map(move |request| Ask {
            subject: Subject::Page {
                segment: self.segment,
                page: request.page,
            },
            waiter: Waiter {
                node,
                request: request.request,
                access: self.access,
                have: request.have,
            },
            since: request.since,
            hops: 0,
            by_library: false,
        })
    }
}

/// Requests of `reader` that the sender, who owns the pages, leaves to a node with copies of them. Many
/// who read the same pages at the same time are so served along a chain.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SendCopies {
    /// Of which segment.
    pub segment: SegmentId,
    /// For which node.
    pub reader: NodeId,
    /// At most [`AskMany::LIMIT`].
    pub copies: Vec<CopyToSend>,
}

/// One of the pages of a [`SendCopies`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CopyToSend {
    /// Which page.
    pub page: PageIndex,
    /// Which of the reader's requests.
    pub request: RequestId,
    /// The only version that may be sent: the owner counts the reader among the nodes that hold it.
    pub version: Version,
}

/// A read copy of a page, from its owner straight to the reader (F19, M8), or from another node with a
/// copy, as its owner said by [`SendCopies`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Data {
    /// Which segment.
    pub segment: SegmentId,
    /// Which page.
    pub page: PageIndex,
    /// The request this answers.
    pub request: RequestId,
    /// The version of the copy.
    pub version: Version,
    /// The node that owns this version.
    pub owner: NodeId,
    /// Where the bytes are.
    pub contents: Contents,
}

/// Ownership passes to the receiver (F21); acknowledged with [`PassAck`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pass {
    /// The subject of the grant.
    pub subject: Subject,
    /// The request that this answers; zero without a request (a node that leaves).
    pub request: RequestId,
    /// The receiver owns the subject from this version on.
    pub version: Version,
    /// Where the bytes are.
    pub contents: Contents,
    /// The page was not written before this grant.
    pub pristine: bool,
    /// The lock's last holder died with it; the next one is told.
    pub recovered: bool,
    /// Readers that were told to drop their copies and answer to the receiver.
    pub awaiting: NodeSet,
    /// The next waiters, first come first served: the queue travels with ownership.
    pub queue: Vec<Waiter>,
}

/// The receiver of a [`Pass`] owns the subject; its predecessor may forget it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PassAck {
    /// The subject of the grant.
    pub subject: Subject,
    /// With which version.
    pub version: Version,
}

/// Receipts for many pages of one segment, as if each had come in a [`PassAck`] of its
/// own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PassAckMany {
    /// Of which segment.
    pub segment: SegmentId,
    /// At most [`PassAckMany::LIMIT`].
    pub taken: Vec<Taken>,
}

/// One of the pages of a [`PassAckMany`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Taken {
    /// Which page.
    pub page: PageIndex,
    /// As in [`PassAck::version`].
    pub version: Version,
}

impl PassAckMany {
    /// Receipts in one message: as many as requests in an [`AskMany`].
    pub const LIMIT: usize = AskMany::LIMIT;

    /// The receipt, ready for others to join; none if it is not for a page.
    #[must_use]
    pub fn of(ack: &PassAck) -> Option<Self> {
        let (segment, taken) = Taken::of(ack)?;
        let mut all = Vec::with_capacity(Self::LIMIT);
        all.push(taken);
        Some(Self {
            segment,
            taken: all,
        })
    }

    /// Adds a receipt. False if it is of another kind, or there is no room.
    pub fn join(&mut self, ack: &PassAck) -> bool {
        let room = self.taken.len() < Self::LIMIT;
        let taken = Taken::of(ack).filter(|(segment, _)| room && *segment == self.segment);
        self.taken.extend(taken.map(|(_, taken)| taken));
        taken.is_some()
    }

    /// Each of the receipts by itself.
    pub fn each(&self) -> impl Iterator<Item = PassAck> + '_ {
        self.taken.iter().map(|taken| PassAck {
            subject: Subject::Page {
                segment: self.segment,
                page: taken.page,
            },
            version: taken.version,
        })
    }
}

impl Taken {
    fn of(ack: &PassAck) -> Option<(SegmentId, Self)> {
        let Subject::Page { segment, page } = ack.subject else {
            return None;
        };
        let version = ack.version;
        Some((segment, Self { page, version }))
    }
}

/// Drop your copy: another node is about to write (M18, F21).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Invalidate {
    /// Which segment.
    pub segment: SegmentId,
    /// Which page.
    pub page: PageIndex,
    /// The version that replaces every copy older than it.
    pub version: Version,
    /// The node that will hold that version, and awaits the acknowledgement.
    pub writer: NodeId,
}

/// The sender holds no copy older than `version` any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct InvalidateAck {
    /// Which segment.
    pub segment: SegmentId,
    /// Which page.
    pub page: PageIndex,
    /// As in the [`Invalidate`].
    pub version: Version,
}

/// To the library site: the request it was serving is fulfilled (M7, "checked in").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Served {
    /// Which segment.
    pub segment: SegmentId,
    /// Which page.
    pub page: PageIndex,
    /// The request that was fulfilled.
    pub request: RequestId,
    /// Whether the sender became the clock site, and since which version.
    pub clock: Option<Version>,
}

/// The home lost the trail of a subject, since the probable owner is gone, and asks which node owns
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Locate {
    /// The sought subject.
    pub subject: Subject,
    /// Which search; echoed.
    pub request: RequestId,
    /// The member view of the searching node. A node that knows an older one stays silent: it might
    /// yet accept a grant from a node that counts as gone here.
    pub epoch: u64,
}

/// The sender's knowledge of a subject that its home seeks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Located {
    /// The sought subject.
    pub subject: Subject,
    /// Which search.
    pub request: RequestId,
    /// The newest version the sender knows.
    pub version: Version,
    /// The owner of that version, as far as the sender knows.
    pub owner: NodeId,
    /// Contents of the sender from which the page could be restored.
    pub spare: Spare,
    /// The sender still repeats its grant to `owner`.
    pub passing: bool,
}

/// Contents that a node holds of a page whose owner is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Spare {
    /// Nothing.
    None,
    /// The stash of a grant to a node that left in order without having taken it.
    Stash,
    /// A copy that was not invalidated, so that no node has written since.
    Copy,
    /// In a segment with replicas, no copy, and perhaps a replica: contents of the last version that
    /// its owner's backup was told, or that its giver has kept.
    Replica {
        /// The version of the replica, if there is one.
        version: Option<Version>,
        /// The newest version that was in the node's memory: a replica of an older one is outdated.
        seen: Version,
        /// False if a node died before the answering one, its backup, had all that others had seen.
        sure: bool,
    },
}

/// From the home: the subject has no owner any more; the receiver, which can restore it from its
/// spare, owns it from this version on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Regain {
    /// The subject.
    pub subject: Subject,
    /// Newer than any version anybody knows.
    pub version: Version,
    /// Nodes that hold copies.
    pub copies: NodeSet,
}

/// The page existed only on a node that died; the request can never be fulfilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lost {
    /// The lost subject.
    pub subject: Subject,
    /// The request.
    pub request: RequestId,
    /// The node it was lost with.
    pub with: NodeId,
}
