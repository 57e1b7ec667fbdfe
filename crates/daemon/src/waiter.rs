//! How long to ask again and again before falling asleep.
//!
//! Waking a sleeping processor takes longer than a whole exchange with another
//! node, so the driver stays awake while an answer is likely to come soon.

use crate::options::Waiting;
use pagemesh_os::cpu;

/// Stay awake so long after the last sign of life: the next request of a
/// neighbour that works through an array comes within this.
const AFTER_ACTIVITY: u64 = 50_000;

/// Stay awake so long while a thread waits for a page. Longer waits are those
/// for a lost datagram or a busy node, where sleeping costs little.
const WHILE_WAITED_FOR: u64 = 200_000;

/// Decides whether to stay awake.
#[derive(Debug)]
pub(crate) struct Waiter {
    spins: bool,
    last_activity: u64,
}

impl Waiter {
    /// As the options say.
    pub(crate) fn new(waiting: Waiting) -> Self {
        Self {
            spins: match waiting {
                Waiting::Spin => true,
                Waiting::Block => false,
                Waiting::Auto => cpu::available() > 1,
            },
            last_activity: 0,
        }
    }

    /// Something came, left or began.
    pub(crate) fn active(&mut self, now: u64) {
        self.last_activity = now;
    }

    /// Whether to stay awake at `now`; `waited_for` if some thread waits.
    pub(crate) fn stays_awake(&self, now: u64, waited_for: bool) -> bool {
        let quiet = now.saturating_sub(self.last_activity);
        let patience = if waited_for {
            WHILE_WAITED_FOR
        } else {
            AFTER_ACTIVITY
        };
        self.spins && quiet < patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn falls_asleep_in_the_end() {
        let mut waiter = Waiter::new(Waiting::Spin);
        waiter.active(1_000_000);
        assert!(waiter.stays_awake(1_040_000, false));
        assert!(!waiter.stays_awake(1_060_000, false));
        assert!(waiter.stays_awake(1_060_000, true));
        assert!(!waiter.stays_awake(1_300_000, true));
        assert!(!Waiter::new(Waiting::Block).stays_awake(1, true));
    }
}
