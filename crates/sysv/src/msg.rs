//! Message queues.

use crate::node::{ask, ask_number, ask_place, ask_usage, strange};
use crate::shm::{IPC_64, change};
use crate::{Result, layout, system_call, user};
use libc::{c_int, c_long, c_void, size_t, ssize_t};
use pagemesh_wire::sysv::{Family, Id, Kind, MESSAGE, Op, Outcome, Pick};

/// See msgget(2).
#[unsafe(no_mangle)]
pub extern "C" fn msgget(key: c_int, flags: c_int) -> c_int {
    system_call(|| get(key, flags)) as c_int
}

/// See msgsnd(2).
#[unsafe(no_mangle)]
pub extern "C" fn msgsnd(id: c_int, message: *const c_void, size: size_t, flags: c_int) -> c_int {
    system_call(|| send(id, message as usize, size, flags)) as c_int
}

/// See msgrcv(2).
#[unsafe(no_mangle)]
pub extern "C" fn msgrcv(
    id: c_int,
    message: *mut c_void,
    size: size_t,
    kind: c_long,
    flags: c_int,
) -> ssize_t {
    system_call(|| receive(id, message as usize, size, kind, flags)) as ssize_t
}

/// See msgctl(2).
#[unsafe(no_mangle)]
pub extern "C" fn msgctl(id: c_int, command: c_int, buffer: *mut libc::msqid_ds) -> c_int {
    system_call(|| control(id, command, buffer as usize)) as c_int
}

/// Offset of the text, behind the type.
const TEXT: usize = size_of::<c_long>();

pub fn get(key: c_int, flags: c_int) -> Result<c_long> {
    ask_number(Op::MsgGet { key, flags }).map(c_long::from)
}

pub fn send(id: c_int, message: usize, size: usize, flags: c_int) -> Result<c_long> {
    let (kind, text) = read(message, size)?;
    if size > MESSAGE as usize || id < 0 || kind.0 < 1 {
        return Err(libc::EINVAL);
    }
    let text = text.ok_or(libc::EFAULT)?;
    let send = Op::MsgSend {
        id: Id(id),
        kind,
        text,
        flags,
    };
    match ask(send, None)? {
        Outcome::Number(_) => Ok(0),
        other => Err(strange(&other)),
    }
}

/// The type of a message and its text, which is missing if it cannot be read: as in the kernel, that
/// is an error only after the others.
fn read(message: usize, size: usize) -> Result<(Kind, Option<Vec<u8>>)> {
    let all = TEXT + size.min(MESSAGE as usize);
    if let Ok(mut bytes) = user::read_bytes(message, all)
        && let Some((kind, _)) = bytes.split_first_chunk()
    {
        let kind = Kind(i64::from_ne_bytes(*kind));
        bytes.drain(..TEXT);
        return Ok((kind, Some(bytes)));
    }
    user::read(message).map(|kind| (Kind(kind), None))
}

pub fn receive(
    id: c_int,
    message: usize,
    size: usize,
    kind: c_long,
    flags: c_int,
) -> Result<c_long> {
    if id < 0 || isize::try_from(size).is_err() {
        return Err(libc::EINVAL);
    }
    let receive = Op::MsgReceive {
        id: Id(id),
        room: size as u64,
        kind: Kind(kind),
        flags,
    };
    match ask(receive, None)? {
        Outcome::Message { kind, text } if text.len() <= size => {
            let bytes = [&kind.0.to_ne_bytes()[..], &text].concat();
            user::write_bytes(message, &bytes)?;
            Ok(text.len() as c_long)
        }
        other => Err(strange(&other)),
    }
}

pub fn control(id: c_int, command: c_int, buffer: usize) -> Result<c_long> {
    let family = Family::Msg;
    let stat = |outcome| match outcome {
        Outcome::Msg(stat) => {
            user::write(buffer, &layout::msg(&stat))?;
            Ok(stat.id)
        }
        other => Err(strange(&other)),
    };
    if id < 0 {
        return Err(libc::EINVAL);
    }
    let command = command & !IPC_64;
    match command {
        libc::IPC_INFO | libc::MSG_INFO => {
            let usage = ask_usage(Op::Info { family })?;
            user::write(buffer, &layout::msg_info(&usage, command == libc::MSG_INFO))?;
            Ok(usage.highest.max(0).into())
        }
        libc::IPC_STAT => {
            let pick = Pick::Id(Id(id));
            stat(ask(Op::Stat { family, pick }, None)?).map(|_| 0)
        }
        libc::MSG_STAT | MSG_STAT_ANY => {
            let any = command == MSG_STAT_ANY;
            stat(ask_place(family, id, any)?).map(|id| id.0.into())
        }
        libc::IPC_SET => {
            let wanted: libc::msqid_ds = user::read(buffer)?;
            let change = change(&wanted.msg_perm, wanted.msg_qbytes as u64);
            let id = Id(id);
            ask_number(Op::Set { family, id, change }).map(c_long::from)
        }
        libc::IPC_RMID => ask_number(Op::Remove { family, id: Id(id) }).map(c_long::from),
        _ => Err(libc::EINVAL),
    }
}

const MSG_STAT_ANY: c_int = 13;
