//! System V shared memory, semaphores and message queues: calls of processes, and their results.
//! The words are those of the manual pages.
//!
//! Numbers of errors, commands and flags are Linux's own, which are the same on
//! all architectures PageMesh runs on.

mod errno;
mod id;
pub mod keys;
mod limits;
mod stat;

pub use errno::Errno;
pub use id::{Id, SEGMENT_NAME, keeper, segment, segment_name};
pub use limits::{Limits, MESSAGE, OBJECTS, OPERATIONS, SEMAPHORES};
pub use stat::{MsgStat, Perm, SHM_DEST, SHM_LOCKED, SemStat, ShmStat};

use crate::ClientId;
use crate::peer::Credentials;
use core::hash::{Hash, Hasher};
use serde::{Deserialize, Serialize};

/// Keys like this name nothing: every get makes a new object.
pub const IPC_PRIVATE: i32 = 0;
/// Make the object if there is none.
pub const IPC_CREAT: i32 = 0o1000;
/// Fail if there is one.
pub const IPC_EXCL: i32 = 0o2000;
/// Do not wait.
pub const IPC_NOWAIT: i32 = 0o4000;
/// Undo the operation when the process ends.
pub const SEM_UNDO: i16 = 0x1000;
/// Cut messages that are too long.
pub const MSG_NOERROR: i32 = 0o10000;
/// The first message that is *not* of this type.
pub const MSG_EXCEPT: i32 = 0o20000;
/// A copy of the message of this number.
pub const MSG_COPY: i32 = 0o40000;

/// Largest value of a semaphore.
pub const SEMVMX: i32 = 32767;

/// The type of a message: `mtype`, `msgtyp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Kind(pub i64);

/// Nothing but times hash as signed numbers; see `pagemesh_core::Time`.
impl Hash for Kind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0 as u64);
    }
}

/// The three kinds of objects, each with numbers and keys of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Family {
    /// Shared memory.
    Shm,
    /// Sets of semaphores.
    Sem,
    /// Message queues.
    Msg,
}

/// Which object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Pick {
    /// The one of this number.
    Id(Id),
    /// The one in this place of the tables; its mode must permit reading.
    Index(i32),
    /// The object in this place of the tables, whatever its mode.
    IndexAny(i32),
}

/// One operation on one semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SemBuf {
    /// Which of the set.
    pub number: u16,
    /// The number to add, or zero to wait for zero.
    pub op: i16,
    /// `IPC_NOWAIT`, `SEM_UNDO`.
    pub flags: i16,
}

/// The values of one semaphore that `semctl` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SemRead {
    /// `GETVAL`
    Value,
    /// `GETPID`
    Pid,
    /// `GETNCNT`
    Rising,
    /// `GETZCNT`
    Zero,
    /// The number of semaphores, for processes that may write: `SETALL` needs it.
    Count,
}

/// The fields that `IPC_SET` changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Change {
    /// New owner.
    pub uid: u32,
    /// New group.
    pub gid: u32,
    /// New mode; only its lowest nine bits count.
    pub mode: u16,
    /// New `msg_qbytes`, for queues.
    pub qbytes: u64,
}

/// System V calls of a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Op {
    /// `shmget` → [`Outcome::Number`]
    ShmGet {
        /// The key.
        key: i32,
        /// Bytes.
        size: u64,
        /// Mode and `IPC_CREAT`, `IPC_EXCL`.
        flags: i32,
    },
    /// `shmat` → the segment
    ShmAttach {
        /// Which.
        id: Id,
        /// To write, too.
        write: bool,
        /// To execute, too.
        exec: bool,
    },
    /// `SHM_LOCK`, `SHM_UNLOCK` → [`Outcome::Number`]
    ShmLock {
        /// Which.
        id: Id,
        /// Or unlock.
        lock: bool,
    },
    /// `semget` → [`Outcome::Number`]
    SemGet {
        /// The key.
        key: i32,
        /// How many.
        count: i32,
        /// As for `shmget`.
        flags: i32,
    },
    /// `semop` → [`Outcome::Number`], perhaps much later
    SemOp {
        /// Which.
        id: Id,
        /// All of them or none.
        ops: Vec<SemBuf>,
    },
    /// `GETVAL` and its kin → [`Outcome::Number`]
    SemGetOne {
        /// Which.
        id: Id,
        /// Which of the set.
        number: i32,
        /// The value to read.
        what: SemRead,
    },
    /// `GETALL` → [`Outcome::Values`]
    SemGetAll {
        /// Which.
        id: Id,
    },
    /// `SETVAL` → [`Outcome::Number`]
    SemSetOne {
        /// Which.
        id: Id,
        /// Which of the set.
        number: i32,
        /// The new value.
        value: i32,
    },
    /// `SETALL` → [`Outcome::Number`]
    SemSetAll {
        /// Which.
        id: Id,
        /// As [`Outcome::Values`].
        values: Vec<u8>,
    },
    /// `msgget` → [`Outcome::Number`]
    MsgGet {
        /// The key.
        key: i32,
        /// As for `shmget`.
        flags: i32,
    },
    /// `msgsnd` → [`Outcome::Number`], perhaps much later
    MsgSend {
        /// Which.
        id: Id,
        /// Its type.
        kind: Kind,
        /// Its text.
        text: Vec<u8>,
        /// `IPC_NOWAIT`.
        flags: i32,
    },
    /// `msgrcv` → [`Outcome::Message`], perhaps much later
    MsgReceive {
        /// Which.
        id: Id,
        /// Room for so many bytes.
        room: u64,
        /// Which types.
        kind: Kind,
        /// `IPC_NOWAIT`, `MSG_NOERROR`, `MSG_EXCEPT`, `MSG_COPY`.
        flags: i32,
    },
    /// `IPC_STAT` and its kin → [`Outcome::Shm`], [`Outcome::Sem`], [`Outcome::Msg`]
    Stat {
        /// Of which family.
        family: Family,
        /// Which.
        pick: Pick,
    },
    /// `IPC_SET` → [`Outcome::Number`]
    Set {
        /// Of which family.
        family: Family,
        /// Which.
        id: Id,
        /// The new values.
        change: Change,
    },
    /// `IPC_RMID` → [`Outcome::Number`]
    Remove {
        /// Of which family.
        family: Family,
        /// Which.
        id: Id,
    },
    /// `IPC_INFO`, `SHM_INFO` and its kin → [`Outcome::Usage`]
    Info {
        /// Of which family.
        family: Family,
    },
    /// The part of that at home on the asked node → [`Outcome::Usage`]
    InfoHere {
        /// Of which family.
        family: Family,
    },
}

/// The process that asks, at this moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Who {
    /// Its number on its node, which names it together with the node.
    pub client: ClientId,
    /// Its process number there.
    pub pid: i32,
    /// Credentials of the caller.
    pub credentials: Credentials,
}

/// A process asks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ask {
    /// Which process.
    pub who: Who,
    /// Seconds since 1970 where it runs.
    pub wall: u64,
    /// The limits where it runs.
    pub limits: Limits,
    /// The call.
    pub op: Op,
}

/// A node's report about its processes to the home of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum News {
    /// Attachments of a segment that exist now or are on their way.
    Attached {
        /// Of which object.
        id: Id,
        /// How many.
        count: u32,
        /// Why it tells: a process that attached or detached; zero if it is not known.
        pid: i32,
        /// It detached, did not attach.
        detached: bool,
    },
    /// A process is gone: its operations are to be undone.
    Exit {
        /// Which.
        client: ClientId,
        /// Its process number.
        pid: i32,
    },
}

/// The objects of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Usage {
    /// Which.
    pub family: Family,
    /// The largest place in the tables that is taken; -1 if none is.
    pub highest: i32,
    /// Objects.
    pub objects: u32,
    /// Pages, semaphores or messages in all of them.
    pub parts: u64,
    /// Bytes of messages.
    pub bytes: u64,
    /// The limits that hold for the caller.
    pub limits: Limits,
}

/// Results of System V calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// The number that the call returns.
    Number(i32),
    /// No, and why.
    Failed(Errno),
    /// A segment.
    Shm(ShmStat),
    /// A set.
    Sem(SemStat),
    /// A queue.
    Msg(MsgStat),
    /// The values of a set, two bytes each, the lower one first.
    Values(Vec<u8>),
    /// A message.
    Message {
        /// Its type.
        kind: Kind,
        /// Its text, cut if that was permitted.
        text: Vec<u8>,
    },
    /// The objects of a family.
    Usage(Usage),
}
