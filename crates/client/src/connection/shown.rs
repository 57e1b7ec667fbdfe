//! The user and group with which a process made its last System V call through the socket. On the
//! socket the kernel tells the daemon the caller's credentials. Shared memory proves nothing, so
//! requests in the slot are executed in the name of that user and group, and the slot is used only
//! while the process still has them.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{getegid, geteuid};

/// The user and group, as one number; see the module.
#[derive(Debug)]
pub struct Shown(AtomicU64);

/// No call yet: no process has this user number, which system calls use for "leave it as it is".
const NOT_YET: u64 = u64::MAX;

impl Default for Shown {
    fn default() -> Self {
        Self(AtomicU64::new(NOT_YET))
    }
}

impl Shown {
    /// Notes that a call was made with the process's present user and group.
    pub fn now(&self) {
        self.0.store(me(), Ordering::Relaxed);
    }

    /// Notes that the daemon has seen no call yet.
    pub fn forget(&self) {
        self.0.store(NOT_YET, Ordering::Relaxed);
    }

    /// True if the process still has the same user and group.
    pub fn is_still_so(&self) -> bool {
        self.0.load(Ordering::Relaxed) == me()
    }
}

fn me() -> u64 {
    u64::from(geteuid().as_raw()) << 32 | u64::from(getegid().as_raw())
}
