//! Messages between daemons: one struct a message.
//!
//! A datagram is a [`Header`], a [`Message`] in
//! [postcard](https://postcard.jamesmunns.com/wire-format) encoding, and, where
//! the message announces them, contents: exactly one page ([`Contents::Bytes`]) or
//! diffs ([`Diffs`]). Variants are only ever appended; anything else raises [`PROTOCOL_VERSION`](crate::header::PROTOCOL_VERSION),
//! and the encoding before is kept ([`version_4`]).

use crate::header::{HEADER_SIZE, Header, HeaderError, MAX_DATAGRAM};
use crate::sysv::{self, keys};
use crate::{CallId, Incarnation, NodeId, PAGE_SIZE, Program, SegmentId, SyncKey, Term};
use core::net::SocketAddr;
use serde::{Deserialize, Serialize};

mod addressee;
mod decision;
mod diffs;
mod global;
mod inheritance;
mod manner;
mod member;
mod page;
mod payload;
mod reduction;
mod refusal;
mod segment;
mod shared;
mod token;
pub mod version_4;

pub use addressee::Addressee;
pub use decision::{Decision, Decisions};
pub use diffs::{DiffName, Diffs};
pub use global::{
    AGE_CLASSES, AgeSummary, DonorReply, EpochPlan, Forward, Global, Got, LentPage, MemoryReport,
    PageSeal, Placement, Put,
};
pub use inheritance::{Arrival, Inheritance, Owner, Service};
pub use manner::Manner;
pub use member::{
    Health, Join, Member, MemberView, Numbered, Resume, Resumed, ViewChange, Welcome,
};
pub use page::{
    Access, Ask, AskMany, Contents, CopyToSend, Data, Invalidate, InvalidateAck, Locate, Located,
    Lost, PageRequest, Pass, PassAck, PassAckMany, Regain, SendCopies, Served, Spare, Subject,
    Taken, Waiter,
};
pub use payload::{Payload, PolicyMessage};
pub use reduction::{Kind, Merge, Reduction, Rule};
pub use refusal::Refusal;
pub use segment::{
    Backing, Credentials, Manager, Policy, REPLICAS_VERSION, SegmentInfo, SegmentSpec, Spread,
    Window,
};
pub use shared::{FileKey, FilePart, SharedPage, SharedPut};
pub use token::{Acquire, Grant};

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
    /// From the coordinator: no process uses this segment any more.
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
        /// The payload of the segment's policy on the calling node.
        payload: Payload,
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
    /// A home that leaves hands its knowledge over to the coordinator.
    Inherit(Inheritance),
    /// A policy calls itself on another node; the answer is [`Reply::Policy`].
    Policy(PolicyMessage),
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
        request: keys::KeyRequest,
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
    /// To the coordinator: a dead node is to be marked as forgotten.
    ForgetMember {
        /// Which.
        node: NodeId,
    },
    /// To the coordinator: a segment whose name was removed gets a name again.
    Name {
        /// Which.
        segment: SegmentId,
        /// Its name.
        name: String,
        /// If another segment has the name, remove it from that one.
        replace: bool,
        /// The user who asks.
        credentials: Credentials,
    },
    /// From the coordinator to its standby: what it has decided.
    Log(Decisions),
    /// From the standby: it takes over as coordinator in this term. The receiver believes no
    /// coordinator of an older term from now on, and answers with the members it knows.
    TakeOver {
        /// The term of the new coordinator.
        term: Term,
    },
    /// From a new coordinator: do not decide upon any System V key any more, and say which of your
    /// objects have keys.
    SysvGather {
        /// Those in order after this one.
        after: Option<keys::Name>,
    },
    /// The memory of the node that is asked, as people see it.
    Memory,
    /// Take part in this segment, which has replicas; no process of the receiver opens it.
    TakePart(Box<SegmentInfo>),
    /// From the coordinator of a cluster with far numbers: the members changed. No version 5 of this
    /// program sends it to a cluster of real daemons, and version 4 does not know it.
    MembersChange(Box<ViewChange>),
}

impl Call {
    /// Whether the coordinator answers the call, whichever node that is.
    #[must_use]
    pub fn is_for_coordinator(&self) -> bool {
        let others = matches!(
            self,
            Self::SysvKey { .. } | Self::Revoke { .. } | Self::ForgetMember { .. }
        );
        others || self.is_about_names()
    }

    /// Whether the directory of names answers the call.
    #[must_use]
    pub fn is_about_names(&self) -> bool {
        matches!(
            self,
            Self::Open { .. }
                | Self::Close { .. }
                | Self::Remove { .. }
                | Self::Stat { .. }
                | Self::List { .. }
                | Self::Declare { .. }
                | Self::Name { .. }
        )
    }

    /// A process reaches a barrier. Its node adds the payload of the segment's policy.
    #[must_use]
    pub fn barrier(key: SyncKey, parties: u32) -> Self {
        Self::Barrier {
            key,
            parties,
            payload: Payload::EMPTY,
        }
    }

    /// The barrier or condition variable it is about.
    #[must_use]
    pub fn key(&self) -> Option<SyncKey> {
        match self {
            Self::Barrier { key, .. } | Self::CondWait { key } | Self::CondSignal { key, .. } => {
                Some(*key)
            }
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
    /// The barrier is open, and the policy of the segment has something to say with it.
    Depart(PolicyMessage),
    /// The answer of a policy to [`Call::Policy`].
    Policy(Payload),
    /// The result of a System V call.
    Sysv(sysv::Outcome),
    /// The segment in question, and its declared ranges.
    Reducing(SegmentInfo, Vec<Reduction>),
    /// The answer of the register about a key.
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
    /// The members that the node knows; it has promised to believe no older coordinator.
    Members(MemberView),
    /// The answer to [`Call::Memory`].
    Memory(MemoryReport),
    /// The answer to [`Call::Members`] with a new generation: the lives that are over and that the
    /// member still names.
    Names {
        /// The generation.
        generation: u64,
        /// Their numbers, as [`NodeSet::near_bytes`](crate::NodeSet::near_bytes) says. This is no set of
        /// nodes, because an answer that is remembered names nobody.
        names: [u8; 16],
    },
    /// The same, if one of the numbers is a far one.
    FarNames {
        /// The generation.
        generation: u64,
        /// Their numbers, as [`NodeSet::words`](crate::NodeSet::words) says.
        names: Vec<u64>,
    },
}

/// All messages between daemons.
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
        /// The call.
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
    /// See [`Diffs`].
    Diffs(Diffs),
    /// A message for the policy of a segment.
    Policy(PolicyMessage),
    /// The same, with a page behind it.
    PolicyPage(PolicyMessage),
    /// A [`Message::Policy`] comes back to its sender: the segment is not known here, so no policy
    /// could read it.
    PolicyUndelivered(PolicyMessage),
    /// See [`PassAckMany`].
    PassAckMany(PassAckMany),
    /// See [`Put`].
    Put(Put),
    /// See [`Got`].
    Got(Got),
    /// See [`DonorReply`].
    DonorReply(DonorReply),
    /// See [`Global`].
    Global(Global),
    /// See [`SharedPage`].
    SharedPage(SharedPage),
    /// See [`SharedPut`].
    SharedPut(SharedPut),
    /// See [`Forward`].
    Forward(Forward),
    /// See [`Resume`].
    Resume(Resume),
    /// See [`Resumed`].
    Resumed(Resumed),
    /// See [`SendCopies`].
    SendCopies(SendCopies),
    /// To the coordinator, with heartbeats, as long as its view says otherwise: the sender's
    /// program. Version 4 does not know it.
    Runs {
        /// The epoch of the sender's view: in a later one this is no news.
        epoch: u64,
        /// The program.
        program: Program,
    },
}

const _: () = assert!(
    size_of::<Message>() == 144,
    "every message that is under way is moved about"
);

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
    pub const DIFFS: u8 = 25;

    /// How the encoding of [`Message::Got`] begins.
    pub const GOT: u8 = 31;

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
            }) | Self::PolicyPage(_)
                | Self::Put(_)
                | Self::Got(_)
                | Self::SharedPage(_)
                | Self::SharedPut(_)
                | Self::Forward(_)
        )
    }

    /// True if it only acknowledges: no thread waits for it, and its receiver repeats the
    /// acknowledged message until it comes.
    #[must_use]
    pub fn is_receipt(&self) -> bool {
        matches!(
            self,
            Self::PassAck(_) | Self::PassAckMany(_) | Self::HaveReply { .. }
        )
    }

    /// Takes one more receipt, if both are for pages of one segment and there is room;
    /// otherwise it is as before, and the answer false.
    pub fn takes(&mut self, other: &Self) -> bool {
        let Self::PassAck(ack) = other else {
            return false;
        };
        if let Self::PassAck(first) = self {
            let Some(mut many) = PassAckMany::of(first) else {
                return false;
            };
            let joins = many.join(ack);
            if joins {
                *self = Self::PassAckMany(many);
            }
            return joins;
        }
        match self {
            Self::PassAckMany(many) => many.join(ack),
            _ => false,
        }
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

    /// Appends header and message to `datagram`, encoded in the header's version; contents, if any,
    /// are to be appended after them.
    ///
    /// # Panics
    /// If the message is larger than a datagram: every list in it is bounded.
    pub fn encode(&self, mut header: Header, datagram: &mut Vec<u8>) {
        let start = datagram.len();
        datagram.extend_from_slice(&[0; HEADER_SIZE]);
        let datagram_so_far = core::mem::take(datagram);
        let whole = match header.version {
            version_4::VERSION => version_4::encode(self, datagram_so_far),
            _ => postcard::to_extend(self, datagram_so_far),
        };
        let whole = whole.expect("messages have no unencodable part");
        let body = whole.len() - start - HEADER_SIZE;
        assert!(
            body + self.tail() <= MAX_DATAGRAM - HEADER_SIZE,
            "lists in messages are bounded"
        );
        header.body = body as u16;
        *datagram = whole;
        datagram[start..start + HEADER_SIZE].copy_from_slice(&header.encode());
    }

    /// Takes a datagram apart: header, message and contents ([`Message::tail`]).
    ///
    /// # Errors
    /// If any part of it is not as the version of the protocol says that its header names.
    pub fn decode(datagram: &[u8]) -> Result<(Header, Self, &[u8]), DecodeError> {
        let (header, body, page) = Header::split(datagram)?;
        let decoded = match header.version {
            version_4::VERSION => version_4::decode(body),
            _ => postcard::take_from_bytes(body),
        };
        let (message, rest): (Self, _) = decoded.map_err(|_| DecodeError::Malformed)?;
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
