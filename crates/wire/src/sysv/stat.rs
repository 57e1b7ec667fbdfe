//! The results of `IPC_STAT`.

use super::Id;
use crate::NodeId;
use serde::{Deserialize, Serialize};

/// The segment goes with its last attachment.
pub const SHM_DEST: u16 = 0o1000;
/// `SHM_LOCK` was asked for; PageMesh only remembers that.
pub const SHM_LOCKED: u16 = 0o2000;

/// The owner of an object, and its mode.
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
