//! System V shared memory, semaphores and message queues: what a process asks
//! for, and what it gets. The words are those of the manual pages.
//!
//! Numbers of errors, commands and flags are Linux's own, which are the same on
//! all architectures PageMesh runs on.

pub mod keys;

use crate::{ClientId, NodeId, SegmentId};
use core::hash::{Hash, Hasher};
use serde::{Deserialize, Serialize};

use crate::peer::Credentials;

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
/// The segment goes with its last attachment.
pub const SHM_DEST: u16 = 0o1000;
/// `SHM_LOCK` was asked for; PageMesh only remembers that.
pub const SHM_LOCKED: u16 = 0o2000;

/// Largest value of a semaphore.
pub const SEMVMX: i32 = 32767;

/// Semaphores in one set, whatever `kernel.sem` allows: their values travel in
/// one datagram.
pub const SEMAPHORES: u32 = 5000;
/// Operations in one `semop`, whatever `kernel.sem` allows.
pub const OPERATIONS: u32 = 1000;
/// Bytes of one message, whatever `kernel.msgmax` allows.
pub const MESSAGE: u32 = 10_000;
/// Objects of one family at one home, whatever the kernel's limits allow.
pub const OBJECTS: u32 = 1 << 14;

/// Why a call failed, as in errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Errno(pub u16);

#[expect(missing_docs, reason = "the names are those of errno(3)")]
impl Errno {
    pub const EPERM: Self = Self(1);
    pub const ENOENT: Self = Self(2);
    pub const E2BIG: Self = Self(7);
    pub const EAGAIN: Self = Self(11);
    pub const ENOMEM: Self = Self(12);
    pub const EACCES: Self = Self(13);
    pub const EEXIST: Self = Self(17);
    pub const EINVAL: Self = Self(22);
    pub const EFBIG: Self = Self(27);
    pub const ENOSPC: Self = Self(28);
    pub const ERANGE: Self = Self(34);
    pub const ENOSYS: Self = Self(38);
    pub const ENOMSG: Self = Self(42);
    pub const EIDRM: Self = Self(43);
}

/// The number of an object: 15 bits say where in the table of its home, 16 bits
/// which one after another. The lowest bit says that its home is another than the
/// first node, and in the upper bits then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Id(pub i32);

impl Id {
    /// An object at `home`.
    #[must_use]
    pub fn new(home: NodeId, slot: u16, count: u16) -> Self {
        let (index, above) = if home == NodeId::COORDINATOR {
            (slot << 1, count)
        } else {
            (slot << 1 | 1, home.0 << 9 | count & 0x1ff)
        };
        Self(i32::from(above) << 15 & i32::MAX | i32::from(index & 0x7fff))
    }

    /// Who answers for it; none if no object can have this number.
    #[must_use]
    pub fn home(self) -> Option<NodeId> {
        if self.0 < 0 {
            return None;
        }
        if self.0 & 1 == 0 {
            return Some(NodeId::COORDINATOR);
        }
        let home = NodeId((self.0 >> 24) as u16);
        (home.is_valid() && home != NodeId::COORDINATOR).then_some(home)
    }

    /// Where in the table of its home.
    #[must_use]
    pub fn slot(self) -> u16 {
        ((self.0 & 0x7fff) >> 1) as u16
    }

    /// What `SHM_STAT` and its kin call it: no other object of the cluster is there
    /// as long as this one is. -1 if no object can have this number.
    #[must_use]
    pub fn index(self) -> i32 {
        let slot = i32::from(self.slot());
        let at = |home: NodeId| slot * i32::from(NodeId::LIMIT) + i32::from(home.0);
        self.home().map_or(-1, at)
    }

    /// The home of whatever is at an index.
    #[must_use]
    pub fn home_at(index: i32) -> Option<NodeId> {
        let home = u16::try_from(index.rem_euclid(i32::from(NodeId::LIMIT))).ok()?;
        Some(NodeId(home)).filter(|home| index >= 0 && home.is_valid())
    }

    /// Where in the table of that home.
    #[must_use]
    pub fn slot_at(index: i32) -> Option<u16> {
        u16::try_from(index / i32::from(NodeId::LIMIT)).ok()
    }

    /// What the kernel calls the sequence number.
    #[must_use]
    pub fn sequence(self) -> u16 {
        (self.0 >> 15) as u16
    }
}

/// Numbers of System V segments have this bit, so that they differ from those
/// with names.
const SERIAL: u64 = 1 << 47;

/// A segment behind an object at `home`.
#[must_use]
pub fn segment(home: NodeId, serial: u64) -> SegmentId {
    SegmentId::new(home, SERIAL | serial & (SERIAL - 1))
}

/// The home of the System V object that a segment belongs to; none if it belongs to
/// none.
#[must_use]
pub fn keeper(segment: SegmentId) -> Option<NodeId> {
    (segment.0 & SERIAL != 0).then(|| segment.home())
}

/// With the number of an object: the name that its segment goes by, where
/// segments have names. No user can name one so, for the slash.
pub const SEGMENT_NAME: &str = "sysv/";

/// See [`SEGMENT_NAME`].
#[must_use]
pub fn segment_name(id: Id) -> String {
    format!("{SEGMENT_NAME}{}", id.0)
}

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
    /// The one in this place of the tables, whatever its mode.
    IndexAny(i32),
}

/// One operation on one semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SemBuf {
    /// Which of the set.
    pub number: u16,
    /// What to add, or zero to wait for zero.
    pub op: i16,
    /// `IPC_NOWAIT`, `SEM_UNDO`.
    pub flags: i16,
}

/// What `semctl` reads of one semaphore.
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
    /// How many there are, for who may write: `SETALL` needs to know.
    Count,
}

/// What `IPC_SET` changes.
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

/// What a process wants.
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
        /// What of it.
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
        /// To what.
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
        /// What.
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
    /// What of that is at home on the node that is asked → [`Outcome::Usage`]
    InfoHere {
        /// Of which family.
        family: Family,
    },
}

/// The limits in `/proc/sys/kernel` of the node of the process that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of one segment.
    pub shmmax: u64,
    /// Pages of all segments.
    pub shmall: u64,
    /// Segments.
    pub shmmni: u32,
    /// Semaphores in one set.
    pub semmsl: u32,
    /// Semaphores in all sets.
    pub semmns: u32,
    /// Operations in one `semop`.
    pub semopm: u32,
    /// Sets.
    pub semmni: u32,
    /// Bytes of one message.
    pub msgmax: u32,
    /// Bytes in one queue, at first.
    pub msgmnb: u32,
    /// Queues.
    pub msgmni: u32,
}

impl Default for Limits {
    /// Linux's own.
    fn default() -> Self {
        Self {
            shmmax: u64::MAX - (1 << 24),
            shmall: u64::MAX - (1 << 24),
            shmmni: 4096,
            semmsl: 32000,
            semmns: 1_024_000_000,
            semopm: 500,
            semmni: 32000,
            msgmax: 8192,
            msgmnb: 16384,
            msgmni: 32000,
        }
    }
}

/// The process that asks, at this moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Who {
    /// Its number on its node, which names it together with the node.
    pub client: ClientId,
    /// Its process number there.
    pub pid: i32,
    /// Whose it is.
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
    /// What it wants.
    pub op: Op,
}

/// What a node tells the home of an object about its processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum News {
    /// So many attachments of a segment are there now, or on their way.
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
    /// A process is gone: what it wanted undone is to be undone.
    Exit {
        /// Which.
        client: ClientId,
        /// Its process number.
        pid: i32,
    },
}

/// Who owns an object, and who may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Perm {
    /// Its key, zero for private and removed ones.
    pub key: i32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Creator.
    pub cuid: u32,
    /// Creator's group.
    pub cgid: u32,
    /// Permission bits, with [`SHM_DEST`] and [`SHM_LOCKED`].
    pub mode: u16,
}

/// A segment, as `IPC_STAT` tells. Times are in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of shmctl(2)")]
pub struct ShmStat {
    pub id: Id,
    pub perm: Perm,
    pub size: u64,
    pub atime: u64,
    pub dtime: u64,
    pub ctime: u64,
    pub cpid: i32,
    pub lpid: i32,
    pub nattch: u64,
    /// The library site: where it was created, and is at home.
    pub site: NodeId,
}

/// A set of semaphores, as `IPC_STAT` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of semctl(2)")]
pub struct SemStat {
    pub id: Id,
    pub perm: Perm,
    pub otime: u64,
    pub ctime: u64,
    pub nsems: u32,
    /// Where it was created, and is at home.
    pub site: NodeId,
}

/// A message queue, as `IPC_STAT` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of msgctl(2)")]
pub struct MsgStat {
    pub id: Id,
    pub perm: Perm,
    pub stime: u64,
    pub rtime: u64,
    pub ctime: u64,
    pub cbytes: u64,
    pub qnum: u64,
    pub qbytes: u64,
    pub lspid: i32,
    pub lrpid: i32,
    /// Where it was created, and is at home.
    pub site: NodeId,
}

/// What there is of one family.
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
    /// The limits that hold for who asked.
    pub limits: Limits,
}

/// What a process gets.
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
    /// What there is.
    Usage(Usage),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_tell_where_their_objects_are() {
        for home in [NodeId(1), NodeId(2), NodeId(127)] {
            for slot in [0, 1, 4095, 16383] {
                for count in [0, 1, 511, 512, u16::MAX] {
                    let id = Id::new(home, slot, count);
                    assert!(id.0 >= 0, "{id:?}");
                    assert_eq!((id.home(), id.slot()), (Some(home), slot), "{id:?}");
                }
            }
        }
        assert_eq!(Id(-1).home(), None);
        assert_eq!(Id(1).home(), None, "nobody is node zero");
        assert_eq!(
            Id(1 << 24 | 1).home(),
            None,
            "the first node is not in the upper bits"
        );
    }

    #[test]
    fn indices_tell_where_their_objects_are() {
        let mut seen = std::collections::BTreeSet::new();
        for home in [NodeId(1), NodeId(2), NodeId(127)] {
            for slot in [0, 1, 4095, 16383] {
                let index = Id::new(home, slot, 77).index();
                assert!(seen.insert(index), "{home:?} {slot}");
                assert_eq!(Id::home_at(index), Some(home));
                assert_eq!(Id::slot_at(index), Some(slot));
            }
        }
        for nobody in [-1, i32::MIN, 0, 128] {
            assert_eq!(Id::home_at(nobody), None, "{nobody}");
        }
        assert_eq!(Id::slot_at(i32::MAX), None);
    }

    #[test]
    fn segments_tell_who_keeps_them() {
        assert_eq!(keeper(SegmentId::new(NodeId(3), 7)), None);
        assert_eq!(keeper(segment(NodeId(3), 7)), Some(NodeId(3)));
        assert_ne!(segment(NodeId(3), 7), segment(NodeId(3), 8));
    }
}
