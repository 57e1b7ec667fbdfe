//! Messages between daemons: one struct a message.
//!
//! A datagram is a [`Header`](crate::header::Header), a [`Message`] in
//! [postcard](https://postcard.jamesmunns.com/wire-format) encoding, and, where
//! the message announces them, contents: exactly one page ([`Contents::Bytes`]) or
//! diffs ([`Diffs`]). Variants are only ever appended; anything else raises [`PROTOCOL_VERSION`](crate::header::PROTOCOL_VERSION),
//! and the encoding before is kept ([`version_4`]).

use crate::{CallId, Incarnation, NodeSet, PAGE_SIZE, Program};
use core::net::SocketAddr;
use serde::{Deserialize, Serialize};

mod addressee;
mod call;
mod codec;
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
mod reply;
mod segment;
mod shared;
mod token;
pub mod version_4;

pub use addressee::Addressee;
pub use call::Call;
pub use codec::DecodeError;
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
pub use reply::Reply;
pub use segment::{
    Backing, Credentials, Manager, Policy, REPLICAS_VERSION, SegmentInfo, SegmentSpec, Spread,
    Window,
};
pub use shared::{FileKey, FilePart, SharedPage, SharedPut};
pub use token::{Acquire, Grant};

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
    /// In a cluster with far numbers, instead of [`Message::Heartbeat`]: a member to its relay, and
    /// a relay to the coordinator with those whose signs of life it passes on (decision 59).
    Signs {
        /// The epoch that the sender knows.
        epoch: u64,
        /// When it left, by the sender's clock, in nanoseconds.
        sent: u64,
        /// Members whose signs have come to the sender since its last ones.
        of: NodeSet,
    },
    /// The answer, the same way back.
    SignsHeard {
        /// When the signs left that it answers.
        sent: u64,
        /// Those of them who live, as the coordinator knows.
        of: NodeSet,
    },
}

const _: () = assert!(
    size_of::<Message>() == 144,
    "every message that is under way is moved about"
);

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
}

#[cfg(test)]
mod tests;
