//! What daemons say to each other: one struct a message.
//!
//! A datagram is a [`Header`], a [`Message`] in
//! [postcard](https://postcard.jamesmunns.com/wire-format) encoding, and, where
//! the message announces them, contents: exactly one page ([`Contents::Bytes`]) or
//! diffs ([`Diffs`]). Variants are only ever appended; anything else raises [`PROTOCOL_VERSION`](crate::header::PROTOCOL_VERSION).

use crate::header::{HEADER_SIZE, Header, HeaderError, MAX_DATAGRAM, PROTOCOL_VERSION};
use crate::sysv::{self, keys};
use crate::{
    ByteLen, CallId, ClusterId, Incarnation, NodeId, NodeSet, PAGE_SIZE, PageIndex, PublicKey,
    RequestId, SegmentId, SyncKey, VectorTime, Version,
};
use core::net::SocketAddr;
use serde::{Deserialize, Serialize};

mod inheritance;
mod reduction;
mod release;

pub use inheritance::{Arrival, Inheritance, Owner, Service};
pub use reduction::{Kind, Merge, Reduction, Rule};
pub use release::{
    Absent, Acquire, Base, Collect, DiffName, Diffs, Fetch, Grant, Inquire, IntervalRecord, News,
    PageRun, Spread, Told, Want,
};

/// What a faulting access wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
}

/// What changes hands between nodes: a page of a segment, or the token of a lock.
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
    /// Who waits.
    pub node: NodeId,
    /// Which of its wishes; echoed in the answer.
    pub request: RequestId,
    /// What it wants.
    pub access: Access,
    /// The version it holds a copy of; spares the bytes if it is current.
    pub have: Option<Version>,
}

/// Where the bytes of a page are when a page travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Contents {
    /// Nobody ever wrote the page: it is zeros and moves no bytes (M13).
    Zero,
    /// The receiver holds a current copy: an upgrade moves no bytes (M11).
    Same,
    /// One page follows the message.
    Bytes,
    /// The subject has no bytes: a lock.
    None,
}

/// A wish for a page or a token, to the probable owner (F19) or the library site (M7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ask {
    /// What is wanted.
    pub subject: Subject,
    /// By whom, and how.
    pub waiter: Waiter,
    /// The receiver is believed to own the subject since this version. A
    /// receiver that knows less has the grant still in flight towards it.
    pub since: Version,
    /// How often the wish was forwarded along owner hints.
    pub hops: u8,
    /// The library site has queued it and now hands it to the clock site.
    pub by_library: bool,
}

/// Wishes of the sender for many pages of one segment, as if each had come in an
/// [`Ask`] of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AskMany {
    /// Of which segment.
    pub segment: SegmentId,
    /// How all of them are wanted.
    pub access: Access,
    /// At most [`AskMany::LIMIT`].
    pub wishes: Vec<Wish>,
}

/// One of the wishes of an [`AskMany`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Wish {
    /// Which page.
    pub page: PageIndex,
    /// Which of the sender's wishes.
    pub request: RequestId,
    /// As in [`Waiter::have`].
    pub have: Option<Version>,
    /// As in [`Ask::since`].
    pub since: Version,
}

impl AskMany {
    /// Wishes in one message: with their answers they keep an owner busy for a tenth
    /// of a millisecond, which whoever comes next has to wait.
    pub const LIMIT: usize = 64;

    /// The wish, ready for others to join; none if it is not for a page.
    #[must_use]
    pub fn of(ask: &Ask) -> Option<Self> {
        let Subject::Page { segment, page } = ask.subject else {
            return None;
        };
        let wish = Wish {
            page,
            request: ask.waiter.request,
            have: ask.waiter.have,
            since: ask.since,
        };
        let mut wishes = Vec::with_capacity(Self::LIMIT);
        wishes.push(wish);
        Some(Self {
            segment,
            access: ask.waiter.access,
            wishes,
        })
    }

    /// Adds a wish. False if it is of another kind, or there is no room.
    pub fn join(&mut self, segment: SegmentId, access: Access, wish: Wish) -> bool {
        let joins = (self.segment, self.access) == (segment, access);
        let joins = joins && self.wishes.len() < Self::LIMIT;
        if joins {
            self.wishes.push(wish);
        }
        joins
    }

    /// Each of the wishes of `node` by itself.
    pub fn each(&self, node: NodeId) -> impl Iterator<Item = Ask> + '_ {
        self.wishes.iter().map(move |wish| Ask {
            subject: Subject::Page {
                segment: self.segment,
                page: wish.page,
            },
            waiter: Waiter {
                node,
                request: wish.request,
                access: self.access,
                have: wish.have,
            },
            since: wish.since,
            hops: 0,
            by_library: false,
        })
    }
}

/// A read copy of a page, from its owner straight to the reader (F19, M8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Data {
    /// Which segment.
    pub segment: SegmentId,
    /// Which page.
    pub page: PageIndex,
    /// The wish this answers.
    pub request: RequestId,
    /// The version of the copy.
    pub version: Version,
    /// Where the bytes are.
    pub contents: Contents,
}

/// Ownership passes to the receiver (F21); acknowledged with [`PassAck`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pass {
    /// What passes.
    pub subject: Subject,
    /// The wish this answers; zero when nobody asked (a node that leaves).
    pub request: RequestId,
    /// The receiver owns the subject from this version on.
    pub version: Version,
    /// Where the bytes are.
    pub contents: Contents,
    /// Nobody wrote the page before this grant.
    pub pristine: bool,
    /// The lock's last holder died with it; the next one is told.
    pub recovered: bool,
    /// Readers that were told to drop their copies and answer to the receiver.
    pub awaiting: NodeSet,
    /// Who waits next, first come first served: the queue travels with ownership.
    pub queue: Vec<Waiter>,
}

/// The receiver of a [`Pass`] owns the subject; its predecessor may forget it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PassAck {
    /// What was passed.
    pub subject: Subject,
    /// With which version.
    pub version: Version,
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
    /// Who will hold that version, and awaits the acknowledgement.
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

/// To the library site: the wish it was serving is fulfilled (M7, "checked in").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Served {
    /// Which segment.
    pub segment: SegmentId,
    /// Which page.
    pub page: PageIndex,
    /// The wish that was fulfilled.
    pub request: RequestId,
    /// Whether the sender became the clock site, and since which version.
    pub clock: Option<Version>,
}

/// The home lost the trail of a subject, since the probable owner is gone: who has it?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Locate {
    /// What is sought.
    pub subject: Subject,
    /// Which search; echoed.
    pub request: RequestId,
    /// The seeker's member view. Whoever knows an older one stays silent: it
    /// might yet accept a grant from a node that counts as gone here.
    pub epoch: u64,
}

/// What the sender knows of a subject that its home seeks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Located {
    /// What is sought.
    pub subject: Subject,
    /// Which search.
    pub request: RequestId,
    /// The newest version the sender knows.
    pub version: Version,
    /// Who owned that version, as far as the sender knows.
    pub owner: NodeId,
    /// What the sender could start from again.
    pub spare: Spare,
    /// The sender still repeats its grant to `owner`.
    pub passing: bool,
}

/// What a node holds of a page whose owner is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Spare {
    /// Nothing.
    None,
    /// What it passed to a node that left in order without having taken it.
    Stash,
    /// A copy that nobody invalidated, so nobody has written since.
    Copy,
}

/// From the home: nobody owns the subject any more; the receiver, which can
/// start from its spare, does from this version on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Regain {
    /// What.
    pub subject: Subject,
    /// Newer than any version anybody knows.
    pub version: Version,
    /// Nodes that hold copies.
    pub copies: NodeSet,
}

/// The page existed only on a node that died; the wish can never be fulfilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lost {
    /// What is lost.
    pub subject: Subject,
    /// The wish.
    pub request: RequestId,
    /// The node it was lost with.
    pub with: NodeId,
}

/// Who calls: the process's credentials as its node's kernel gave them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Credentials {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

/// Who keeps the order of requests for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Manager {
    /// Owner hints lead to the owner, who keeps the queue (FreeBSD DSM, F18).
    #[default]
    Dynamic,
    /// The library site, where the segment was created, keeps the queue (MIRAGE+, M7).
    Fixed,
}

/// The time window Δ: how long a node keeps a page it was granted (M10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Window {
    /// As long as it took to get the page, within bounds.
    #[default]
    Auto,
    /// This long, in nanoseconds. Zero still lets every page be used once (M12).
    Nanos(u64),
}

/// What a segment promises, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Policy {
    /// Every load sees the latest store made anywhere; write-invalidate.
    Sequential {
        /// Who keeps the order.
        manager: Manager,
        /// How long a page stays.
        window: Window,
    },
    /// Every load sees what happened before it by the segment's own locks and
    /// barriers; many writers, whose changes are merged.
    Release {
        /// When changes travel.
        spread: Spread,
    },
}

impl Policy {
    /// Manager and window of a sequential segment.
    #[must_use]
    pub fn sequential(self) -> Option<(Manager, Window)> {
        match self {
            Self::Sequential { manager, window } => Some((manager, window)),
            Self::Release { .. } => None,
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::Sequential {
            manager: Manager::default(),
            window: Window::default(),
        }
    }
}

/// What the creator of a segment chooses.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SegmentSpec {
    /// Size in bytes; rounded up to pages in memory, reported as given.
    pub size: ByteLen,
    /// Permission bits, as of a file: 0o600 and so on.
    pub mode: u16,
    /// What it promises.
    pub policy: Policy,
}

/// What everybody knows of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SegmentInfo {
    /// Its identity; the upper bits are its home.
    pub id: SegmentId,
    /// Its name, 1 to 255 bytes, unique in the cluster until removed.
    pub name: String,
    /// As chosen at creation.
    pub spec: SegmentSpec,
    /// Owner and group, from the creator's credentials.
    pub owner: (u32, u32),
    /// Removed by name; gone when the last node detaches.
    pub removed: bool,
    /// Nodes on which some process has it open.
    pub attached: NodeSet,
}

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Member {
    /// Its number.
    pub id: NodeId,
    /// Its name, by default the host name.
    pub name: String,
    /// Where its daemon listens.
    pub address: SocketAddr,
    /// Which of its lives this is.
    pub incarnation: Incarnation,
    /// Proves that a datagram is its own, where datagrams are sealed.
    pub key: PublicKey,
    /// Alive, or why not.
    pub health: Health,
}

/// Whether a member still counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Health {
    /// Takes part.
    Alive,
    /// Left in order, its pages handed over.
    Left,
    /// Did not answer for too long; what only it held is lost.
    Dead,
    /// Put out for good: its key opens nothing any more.
    Revoked,
}

/// All members, as the coordinator knows them; a larger epoch wins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MemberView {
    /// Rises with every change.
    pub epoch: u64,
    /// Everyone who ever joined, by number.
    pub members: Vec<Member>,
}

/// A host asks to be admitted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Join {
    /// Its name.
    pub name: String,
    /// Its life.
    pub incarnation: Incarnation,
    /// Bytes of its pages; must be [`PAGE_SIZE`].
    pub page_size: u32,
    /// Where it may be reached, if not where the datagram came from.
    pub advertise: Option<SocketAddr>,
}

/// The coordinator admits a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Welcome {
    /// The life it answers.
    pub incarnation: Incarnation,
    /// The number of the new node.
    pub node: NodeId,
    /// The cluster it is in now.
    pub cluster: ClusterId,
    /// Everyone.
    pub view: MemberView,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// No segment of that name.
    #[error("no segment of that name; `pagemesh segment ls` shows what there is")]
    NotFound,
    /// A segment of that name exists, and the caller wanted a new one.
    #[error("a segment of that name exists already; open it, or remove it first")]
    Exists,
    /// Owner, group and mode do not allow it.
    #[error("permission denied by the segment's owner, group and mode")]
    Permission,
    /// A name must have 1 to 255 bytes, none of them NUL or '/'.
    #[error("a segment name has 1 to 255 bytes and neither '/' nor NUL")]
    BadName,
    /// Zero, or more than 16 TiB.
    #[error("a segment has between 1 byte and 16 TiB")]
    BadSize,
    /// The node that must answer is dead or has left.
    #[error("{0}, which answers for this, is gone")]
    NodeGone(NodeId),
    /// This daemon belongs to no cluster (any more).
    #[error("this node is not a member of the cluster (any more): restart its daemon")]
    NotMember,
    /// The hosts' pages differ in size.
    #[error(
        "page size {theirs} differs from the cluster's {PAGE_SIZE}; such hosts cannot share memory"
    )]
    PageSize {
        /// Bytes of the refused host's pages.
        theirs: u32,
    },
    /// No number left for another node.
    #[error("the cluster is full: it has had {} nodes", NodeId::LIMIT - 1)]
    ClusterFull,
    /// The node cannot leave in order.
    #[error("{0}")]
    CannotLeave(String),
    /// The call makes no sense in this state.
    #[error("{0}")]
    Invalid(String),
    /// The caller withdrew the request, or its process died.
    #[error("withdrawn")]
    Cancelled,
    /// A limit of `limits.rs` was reached.
    #[error("limit reached: {0}")]
    Limit(String),
    /// The cluster speaks another version of the protocol.
    #[error(
        "the cluster speaks protocol version {theirs}, this daemon version {PROTOCOL_VERSION}: \
         install the same release on all nodes (`pagemesh version` shows what each has)"
    )]
    Version {
        /// What the node speaks that was asked.
        theirs: u8,
    },
    /// This daemon has not been admitted yet.
    #[error(
        "this node is not admitted to a cluster yet: the daemon it is to join does not answer \
         (`pagemesh status` says whom it asks)"
    )]
    NotYetMember,
}

/// A call that some node answers once, however often it arrives.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Call {
    /// Round trip through every layer (M24).
    Probe,
    /// Create or open a segment and count the calling node as attached (F4).
    Open {
        /// Its name.
        name: String,
        /// Create it if it does not exist.
        create: Option<SegmentSpec>,
        /// Fail if it exists.
        exclusive: bool,
        /// The process wants to write.
        write: bool,
        /// The process.
        credentials: Credentials,
    },
    /// No process of the calling node has the segment open any more (F5).
    Close {
        /// Which.
        segment: SegmentId,
    },
    /// Remove a segment's name; it vanishes when the last node closes it.
    Remove {
        /// Its name.
        name: String,
        /// The process.
        credentials: Credentials,
    },
    /// One segment.
    Stat {
        /// Its name.
        name: String,
    },
    /// Some segments, in order of their names.
    List {
        /// Names after this one.
        after: String,
    },
    /// From the coordinator: the members changed.
    Members(MemberView),
    /// From the coordinator: nobody uses this segment any more.
    Forget {
        /// Which.
        segment: SegmentId,
    },
    /// To the coordinator: the caller has handed over its pages and goes.
    Leave,
    /// Wait until `parties` callers have come (T14); the reply is the departure.
    Barrier {
        /// Which barrier.
        key: SyncKey,
        /// How many make it open.
        parties: u32,
    },
    /// Wait for a signal; the reply is the wake-up.
    CondWait {
        /// Which condition variable.
        key: SyncKey,
    },
    /// Wake waiters.
    CondSignal {
        /// Which condition variable.
        key: SyncKey,
        /// All of them, not one.
        all: bool,
    },
    /// To the coordinator: put a node out for good.
    Revoke {
        /// Which.
        node: NodeId,
    },
    /// A home that leaves tells the coordinator what it knows.
    Inherit(Inheritance),
    /// As [`Call::Barrier`], in a segment of policy `release`.
    Arrive {
        /// Which barrier.
        key: SyncKey,
        /// How many make it open.
        parties: u32,
        /// What the caller and those before it did.
        news: News,
    },
    /// From the home: a step of garbage collection.
    Collect {
        /// Of which segment.
        segment: SegmentId,
        /// Which step.
        step: Collect,
    },
    /// A process wants something of a System V object.
    Sysv(Box<sysv::Ask>),
    /// To the home of System V objects: something happened to a process.
    SysvNews(sysv::News),
    /// To the coordinator: nodes are going to accumulate in a range.
    Declare {
        /// Of which segment.
        segment: SegmentId,
        /// Which range, and how.
        reduction: Reduction,
    },
    /// From the coordinator: these ranges are declared, all that there are.
    Reduce {
        /// Of which segment.
        segment: SegmentId,
        /// At most [`Reduction::LIMIT`].
        reductions: Vec<Reduction>,
    },
    /// To the coordinator: which System V object has this key?
    SysvKey {
        /// In which family.
        family: sysv::Family,
        /// Which.
        key: i32,
        /// And then.
        wish: keys::Wish,
    },
    /// From the coordinator: decide alone upon these keys from now on.
    SysvLend {
        /// Which.
        buckets: keys::Buckets,
    },
    /// From the coordinator: do not decide upon these keys any more, and say which of
    /// your objects have them.
    SysvRecall {
        /// Which.
        bucket: keys::Bucket,
        /// Those in order after this one.
        after: Option<keys::Name>,
    },
}

impl Call {
    /// The barrier or condition variable it is about.
    #[must_use]
    pub fn key(&self) -> Option<SyncKey> {
        match self {
            Self::Barrier { key, .. }
            | Self::Arrive { key, .. }
            | Self::CondWait { key }
            | Self::CondSignal { key, .. } => Some(*key),
            _ => None,
        }
    }
}

/// The answer to a [`Call`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reply {
    /// Done; nothing to tell.
    Done,
    /// The call waits at the server (sent once for calls that may wait long).
    Waiting,
    /// The segment in question.
    Segment(SegmentInfo),
    /// Segments in order of their names; a short list means there are no more.
    Segments(Vec<SegmentInfo>),
    /// How many were woken.
    Woken(u32),
    /// No, and why.
    Refused(Refusal),
    /// The barrier is open, and this happened before it.
    Depart {
        /// Of this segment.
        segment: SegmentId,
        /// What.
        news: News,
    },
    /// So far the caller's server has come.
    Reached(VectorTime),
    /// What became of a System V call.
    Sysv(sysv::Outcome),
    /// The segment in question, and its declared ranges.
    Reducing(SegmentInfo, Vec<Reduction>),
    /// Who has a key.
    SysvKey(keys::Word),
    /// The keys upon which the node decides now, of those it was lent.
    SysvLent(keys::Buckets),
    /// Which objects have the keys that were asked back.
    SysvEntries {
        /// In order, at most [`keys::ENTRIES`].
        entries: Vec<keys::Entry>,
        /// There are more.
        more: bool,
    },
}

/// Everything one daemon can say to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// See [`Ask`].
    Ask(Ask),
    /// See [`Data`].
    Data(Data),
    /// See [`Pass`].
    Pass(Pass),
    /// See [`PassAck`].
    PassAck(PassAck),
    /// See [`Invalidate`].
    Invalidate(Invalidate),
    /// See [`InvalidateAck`].
    InvalidateAck(InvalidateAck),
    /// See [`Served`].
    Served(Served),
    /// See [`Call`].
    Call {
        /// Which call of the sender.
        call: CallId,
        /// The sender still waits for no call below this one.
        floor: CallId,
        /// What it wants.
        body: Call,
    },
    /// See [`Reply`].
    Reply {
        /// Which call of the receiver.
        call: CallId,
        /// The answer.
        body: Reply,
    },
    /// The sender no longer waits for this call of its.
    CancelCall {
        /// Which.
        call: CallId,
    },
    /// See [`Join`].
    Join(Join),
    /// See [`Welcome`].
    Welcome(Welcome),
    /// The host may not join.
    Unwelcome {
        /// The life it answers.
        incarnation: Incarnation,
        /// Why not.
        why: Refusal,
    },
    /// Member to coordinator: I live, and know the view of this epoch.
    Heartbeat {
        /// The epoch known.
        epoch: u64,
    },
    /// Coordinator to member: so do I.
    HeartbeatAck {
        /// The current epoch.
        epoch: u64,
    },
    /// To a sender that is no member (any more): stop.
    Expelled,
    /// See [`Locate`].
    Locate(Locate),
    /// See [`Located`].
    Located(Located),
    /// See [`Lost`].
    Lost(Lost),
    /// See [`Regain`].
    Regain(Regain),
    /// To a host that asked the wrong node for admission: ask here.
    Redirect {
        /// The life it answers.
        incarnation: Incarnation,
        /// Where the coordinator listens.
        to: SocketAddr,
    },
    /// See [`AskMany`].
    AskMany(AskMany),
    /// The sender has the reply to this call of its, which waited or was
    /// withdrawn: it may be forgotten.
    HaveReply {
        /// Which.
        call: CallId,
    },
    /// See [`Acquire`].
    Acquire(Acquire),
    /// See [`Grant`].
    Grant(Grant),
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
    /// See [`Diffs`].
    Diffs(Diffs),
    /// See [`Absent`].
    Absent(Absent),
    /// To the home: the sender holds more than it should, it is time to collect.
    Full {
        /// Of which segment.
        segment: SegmentId,
        /// The floor the sender knows.
        floor: VectorTime,
        /// It is about to leave, and is to keep nothing.
        leaving: bool,
    },
}

/// Why a datagram's body was not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum DecodeError {
    /// The header is no good.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The body is no message, or has bytes left over.
    #[error("malformed message")]
    Malformed,
    /// The page or the diffs announced are missing, short or long, or unannounced.
    #[error("page contents do not fit the message")]
    Page,
}

impl Message {
    /// How the encoding of [`Message::Diffs`] begins.
    pub const DIFFS: u8 = 30;

    /// Whether exactly one page follows the message.
    #[must_use]
    pub fn carries_page(&self) -> bool {
        matches!(
            self,
            Self::Data(Data {
                contents: Contents::Bytes,
                ..
            }) | Self::Pass(Pass {
                contents: Contents::Bytes,
                ..
            }) | Self::Base(Base {
                contents: Contents::Bytes,
                ..
            })
        )
    }

    /// Whether it only says that something arrived: nobody waits for it, and what it is
    /// about is repeated meanwhile.
    #[must_use]
    pub fn is_receipt(&self) -> bool {
        matches!(self, Self::PassAck(_) | Self::HaveReply { .. })
    }

    /// Bytes that follow the message: a page, diffs, or none.
    #[must_use]
    pub fn tail(&self) -> usize {
        match self {
            Self::Diffs(diffs) => diffs.bytes(),
            message if message.carries_page() => PAGE_SIZE,
            _ => 0,
        }
    }

    /// Appends header and message to `datagram`; what follows it, if anything, goes after.
    ///
    /// # Panics
    /// If the message is larger than a datagram: every list in it is bounded.
    pub fn encode(&self, mut header: Header, datagram: &mut Vec<u8>) {
        let start = datagram.len();
        datagram.extend_from_slice(&[0; HEADER_SIZE]);
        let whole = postcard::to_extend(self, core::mem::take(datagram))
            .expect("messages have no unencodable part");
        let body = whole.len() - start - HEADER_SIZE;
        assert!(
            body <= MAX_DATAGRAM - HEADER_SIZE - PAGE_SIZE,
            "lists in messages are bounded"
        );
        header.body = body as u16;
        *datagram = whole;
        datagram[start..start + HEADER_SIZE].copy_from_slice(&header.encode());
    }

    /// Takes a datagram apart: header, message and what follows ([`Message::tail`]).
    ///
    /// # Errors
    /// If any part of it is not as this version of the protocol says.
    pub fn decode(datagram: &[u8]) -> Result<(Header, Self, &[u8]), DecodeError> {
        let (header, body, page) = Header::split(datagram)?;
        let (message, rest) =
            postcard::take_from_bytes::<Self>(body).map_err(|_| DecodeError::Malformed)?;
        if !rest.is_empty() {
            return Err(DecodeError::Malformed);
        }
        if page.len() != message.tail() {
            return Err(DecodeError::Page);
        }
        Ok((header, message, page))
    }
}

#[cfg(test)]
mod tests;
