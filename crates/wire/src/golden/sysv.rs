//! System V calls of a process, between daemons and on its own socket alike.

use super::peer::{credentials, object};
use super::{lines, samples};
use crate::sysv::*;
use crate::{ClientId, NodeId};

pub(super) fn all() -> String {
    lines("sysv::Op", operations())
        + &lines("sysv::Outcome", outcomes())
        + &lines("sysv::News", news())
        + &lines("sysv::keys::Word", words())
}

pub(super) fn ask() -> Ask {
    Ask {
        who: Who {
            client: ClientId(3),
            pid: 300,
            credentials: credentials(),
        },
        wall: 1_700_000_000,
        limits: Limits::default(),
        op: get(),
    }
}

fn get() -> Op {
    Op::ShmGet {
        key: -300,
        size: 5000,
        flags: IPC_CREAT | 0o640,
    }
}

fn perm() -> Perm {
    Perm {
        key: -300,
        uid: 1000,
        gid: 100,
        cuid: 1001,
        cgid: 101,
        mode: 0o640 | SHM_DEST,
    }
}

fn usage() -> Usage {
    Usage {
        family: Family::Msg,
        highest: -1,
        objects: 2,
        parts: 300,
        bytes: 5000,
        limits: Limits::default(),
    }
}

samples! {
    pub(super) fn operations() -> Op {
        ShmGet: get();
        ShmAttach: Op::ShmAttach { id: object(), write: true, exec: false };
        ShmLock: Op::ShmLock { id: object(), lock: true };
        SemGet: Op::SemGet { key: IPC_PRIVATE, count: 3, flags: IPC_EXCL };
        SemOp: Op::SemOp { id: object(), ops: vec![SemBuf { number: 1, op: -2, flags: SEM_UNDO }] };
        SemGetOne: Op::SemGetOne { id: object(), number: 1, what: SemRead::Rising };
        SemGetAll: Op::SemGetAll { id: object() };
        SemSetOne: Op::SemSetOne { id: object(), number: 1, value: 300 };
        SemSetAll: Op::SemSetAll { id: object(), values: vec![1, 0, 2, 1] };
        MsgGet: Op::MsgGet { key: -300, flags: IPC_CREAT };
        MsgSend: Op::MsgSend { id: object(), kind: Kind(-7), text: b"text".into(), flags: IPC_NOWAIT };
        MsgReceive: Op::MsgReceive { id: object(), room: 300, kind: Kind(7), flags: MSG_NOERROR };
        Stat: Op::Stat { family: Family::Shm, pick: Pick::Id(object()) },
            Op::Stat { family: Family::Sem, pick: Pick::Index(300) },
            Op::Stat { family: Family::Msg, pick: Pick::IndexAny(300) };
        Set: Op::Set {
            family: Family::Msg,
            id: object(),
            change: Change { uid: 1000, gid: 100, mode: 0o600, qbytes: 16384 },
        };
        Remove: Op::Remove { family: Family::Sem, id: object() };
        Info: Op::Info { family: Family::Sem };
        InfoHere: Op::InfoHere { family: Family::Sem };
    }
}

samples! {
    pub(super) fn outcomes() -> Outcome {
        Number: Outcome::Number(-7);
        Failed: Outcome::Failed(Errno::EIDRM);
        Shm: Outcome::Shm(ShmStat {
            id: object(), perm: perm(), size: 5000, atime: 1, dtime: 2, ctime: 3, cpid: 300, lpid: 301, nattch: 2,
            site: NodeId(2),
        });
        Sem: Outcome::Sem(SemStat {
            id: object(), perm: perm(), otime: 1, ctime: 2, nsems: 3, site: NodeId(2),
        });
        Msg: Outcome::Msg(MsgStat {
            id: object(), perm: perm(), stime: 1, rtime: 2, ctime: 3, cbytes: 4, qnum: 5, qbytes: 6, lspid: 7,
            lrpid: 8, site: NodeId(2),
        });
        Values: Outcome::Values(vec![1, 0, 2, 1]);
        Message: Outcome::Message { kind: Kind(7), text: b"text".into() };
        Usage: Outcome::Usage(usage());
    }
}

samples! {
    fn news() -> News {
        Attached: News::Attached { id: object(), count: 2, pid: 300, detached: true };
        Exit: News::Exit { client: ClientId(3), pid: 300 };
    }
}

mod words {
    use super::super::peer::object;
    use super::samples;
    use crate::sysv::keys::Word;

    samples! {
        pub(super) fn words() -> Word {
            Nobodys: Word::Nobodys;
            Yours: Word::Yours;
            Theirs: Word::Theirs(object());
        }
    }
}
use words::words;
