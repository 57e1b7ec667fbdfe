//! As whom a process has made its last System V call through the socket. There the kernel tells the
//! daemon who asks. Memory proves nothing, so what goes through the hatch is done in the name of that
//! user and group, and goes there only while the process is still the same.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{getegid, geteuid};

/// See the module.
#[derive(Debug)]
pub struct Shown(AtomicU64);

/// Not yet: no process has this user, which stands for "leave it as it is".
const NOT_YET: u64 = u64::MAX;

impl Default for Shown {
    fn default() -> Self {
        Self(AtomicU64::new(NOT_YET))
    }
}

impl Shown {
    /// Just now it did, as what it is now.
    pub fn now(&self) {
        self.0.store(me(), Ordering::Relaxed);
    }

    /// It has not yet, as far as the daemon knows.
    pub fn forget(&self) {
        self.0.store(NOT_YET, Ordering::Relaxed);
    }

    /// Whether it would do so as the same.
    pub fn is_still_so(&self) -> bool {
        self.0.load(Ordering::Relaxed) == me()
    }
}

fn me() -> u64 {
    u64::from(geteuid().as_raw()) << 32 | u64::from(getegid().as_raw())
}
