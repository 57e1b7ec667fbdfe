//! Limits of System V objects: those of PageMesh, and those of a node's kernel.

use serde::{Deserialize, Serialize};

/// Semaphores in one set, whatever `kernel.sem` allows: their values travel in
/// one datagram.
pub const SEMAPHORES: u32 = 5000;
/// Operations in one `semop`, whatever `kernel.sem` allows.
pub const OPERATIONS: u32 = 1000;
/// Bytes of one message, whatever `kernel.msgmax` allows.
pub const MESSAGE: u32 = 10_000;
/// Objects of one family at one home, whatever the kernel's limits allow.
pub const OBJECTS: u32 = 1 << 14;

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
