//! Version 4 of the protocol, where it differs from the present one: members do not say which
//! program they are.
//!
//! A message that changed has its former structure here. In postcard an enum is its variant's
//! number, then the variant; so the former message is written as a tuple that begins with that
//! number, and read by it.

use super::{Call, Health, Message, Reply};
use crate::{CallId, ClusterId, Incarnation, NodeId, Program, PublicKey, Term};
use core::net::SocketAddr;
use postcard::{Result, take_from_bytes, to_extend};
use serde::{Deserialize, Serialize};

/// Its number in headers.
pub const VERSION: u8 = 4;

/// Numbers of variants that differ.
const CALL: u8 = 7;
const REPLY: u8 = 8;
const JOIN: u8 = 10;
const WELCOME: u8 = 11;
const RESUMED: u8 = 38;

/// Of [`Call::Members`], and of [`Reply::Members`].
const CALL_MEMBERS: u8 = 6;
const REPLY_MEMBERS: u8 = 13;

/// See [`Member`](super::Member).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Member {
    /// Its number.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Where its daemon listens.
    pub address: SocketAddr,
    /// Which of its lives this is.
    pub incarnation: Incarnation,
    /// The key of its seal.
    pub key: PublicKey,
    /// Alive, or why not.
    pub health: Health,
}

impl From<&super::Member> for Member {
    fn from(member: &super::Member) -> Self {
        Self {
            id: member.id,
            name: member.name.clone(),
            address: member.address,
            incarnation: member.incarnation,
            key: member.key,
            health: member.health,
        }
    }
}

impl From<Member> for super::Member {
    fn from(member: Member) -> Self {
        Self {
            id: member.id,
            name: member.name,
            address: member.address,
            incarnation: member.incarnation,
            key: member.key,
            health: member.health,
            program: Program::SILENT,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct MemberView {
    epoch: u64,
    members: Vec<Member>,
    term: Term,
    standby: NodeId,
    generation: u64,
    deaths: u64,
}

impl From<&super::MemberView> for MemberView {
    fn from(view: &super::MemberView) -> Self {
        Self {
            epoch: view.epoch,
            members: view.members.iter().map(Member::from).collect(),
            term: view.term,
            standby: view.standby,
            generation: view.generation,
            deaths: view.deaths,
        }
    }
}

impl From<MemberView> for super::MemberView {
    fn from(view: MemberView) -> Self {
        Self {
            epoch: view.epoch,
            members: view.members.into_iter().map(Into::into).collect(),
            term: view.term,
            standby: view.standby,
            generation: view.generation,
            deaths: view.deaths,
        }
    }
}

/// A joining host's name, incarnation, page size and address.
type Join = (String, Incarnation, u32, Option<SocketAddr>);

/// Appends a message.
pub(crate) fn encode(message: &Message, to: Vec<u8>) -> Result<Vec<u8>> {
    match message {
        Message::Join(join) => {
            let addressed = (join.page_size, join.advertise);
            to_extend(&(JOIN, &join.name, join.incarnation, addressed), to)
        }
        Message::Welcome(welcome) => {
            let view = MemberView::from(&welcome.view);
            let fields = (welcome.incarnation, welcome.node, welcome.cluster, view);
            to_extend(&(WELCOME, fields), to)
        }
        Message::Resumed(resumed) => {
            let view = MemberView::from(&resumed.view);
            to_extend(&(RESUMED, resumed.incarnation, resumed.term, view), to)
        }
        Message::Call {
            call,
            floor,
            body: Call::Members(view),
        } => {
            let view = MemberView::from(view);
            to_extend(&(CALL, call, floor, CALL_MEMBERS, view), to)
        }
        Message::Reply {
            call,
            body: Reply::Members(view),
        } => to_extend(&(REPLY, call, REPLY_MEMBERS, MemberView::from(view)), to),
        other => to_extend(other, to),
    }
}

/// Reads a message, and returns what is behind it.
pub(crate) fn decode(body: &[u8]) -> Result<(Message, &[u8])> {
    let Some((&number, fields)) = body.split_first() else {
        return take_from_bytes(body);
    };
    match number {
        JOIN => {
            let ((name, incarnation, page_size, advertise), rest) =
                take_from_bytes::<Join>(fields)?;
            let join = super::Join {
                name,
                incarnation,
                page_size,
                advertise,
                program: Program::SILENT,
            };
            Ok((Message::Join(join), rest))
        }
        WELCOME => {
            let ((incarnation, node, cluster, view), rest) =
                take_from_bytes::<(Incarnation, NodeId, ClusterId, MemberView)>(fields)?;
            let welcome = super::Welcome {
                incarnation,
                node,
                cluster,
                view: view.into(),
            };
            Ok((Message::Welcome(welcome), rest))
        }
        RESUMED => {
            let ((incarnation, term, view), rest) =
                take_from_bytes::<(Incarnation, Term, MemberView)>(fields)?;
            let resumed = super::Resumed {
                incarnation,
                term,
                view: view.into(),
            };
            Ok((Message::Resumed(resumed), rest))
        }
        CALL => match take_from_bytes::<(CallId, CallId, u8)>(fields)? {
            ((call, floor, CALL_MEMBERS), view) => {
                let (view, rest) = take_from_bytes::<MemberView>(view)?;
                let body = Call::Members(view.into());
                Ok((Message::Call { call, floor, body }, rest))
            }
            _ => unchanged(body),
        },
        REPLY => match take_from_bytes::<(CallId, u8)>(fields)? {
            ((call, REPLY_MEMBERS), view) => {
                let (view, rest) = take_from_bytes::<MemberView>(view)?;
                let body = Reply::Members(view.into());
                Ok((Message::Reply { call, body }, rest))
            }
            _ => unchanged(body),
        },
        _ => unchanged(body),
    }
}

/// Reads a message that is as it was in this version. A number may be written with leading zeros,
/// so that others come here, too: they are refused.
fn unchanged(body: &[u8]) -> Result<(Message, &[u8])> {
    let (message, rest) = take_from_bytes(body)?;
    match message {
        Message::Join(_)
        | Message::Welcome(_)
        | Message::Resumed(_)
        | Message::Call {
            body: Call::Members(_),
            ..
        }
        | Message::Reply {
            body: Reply::Members(_),
            ..
        } => Err(postcard::Error::DeserializeBadEnum),
        message => Ok((message, rest)),
    }
}
