//! How long to ask again and again before falling asleep.
//!
//! Waking a sleeping processor takes longer than a whole exchange with another
//! node, so the driver stays awake while an answer is likely to come soon.

use crate::options::Waiting;
use pagemesh_os::cpu;

/// Stay awake at least so long after the last sign of life: the next request of
/// a neighbour that works through an array comes within this.
const AFTER_ACTIVITY: u64 = 50_000;

/// And at most so long, if what comes comes more slowly.
const AT_MOST: u64 = 250_000;

/// Stay awake this many times as long as it usually took until the next came.
const USUAL: u64 = 2;

/// Stay awake so long while a thread waits for a page. Longer waits are those
/// for a lost datagram or a busy node, where sleeping costs little.
const WHILE_WAITED_FOR: u64 = 200_000;

/// Who gave way for so long, to somebody who computes, would have been woken
/// sooner: a thread that gives way gets its next turn only when the other's time
/// slice is over.
const HELD_UP: u64 = 200_000;

/// A turn that long costs what this many short ones save: a time slice is
/// milliseconds, being woken some microseconds.
const WORTH: u32 = 100;

/// So much of that, lest one long turn of somebody says anything.
const ENOUGH: u32 = 2 * WORTH;

/// So long after that, sleep rather than give way.
const CROWDED: u64 = 1_000_000_000;

/// Decides whether to stay awake.
#[derive(Debug)]
pub(crate) struct Waiter {
    spins: bool,
    last_activity: u64,
    /// How long it lately took from one sign of life to the next.
    usual: u64,
    /// What giving way has cost lately, in turns that it saved something.
    held_up: u32,
    /// Until then others are believed to compute on this processor.
    crowded: u64,
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
            usual: 0,
            held_up: 0,
            crowded: 0,
        }
    }

    /// Something came, left or began.
    pub(crate) fn active(&mut self, now: u64) {
        let gap = now.saturating_sub(self.last_activity);
        // Bursts count for little, and so do pauses too long to wait for.
        let gap = if gap < AT_MOST { gap } else { 0 };
        self.usual = gap.max(self.usual - self.usual / 16);
        self.last_activity = now;
    }

    /// Giving way took `away`, and then something was waiting here.
    pub(crate) fn found_after(&mut self, away: u64, now: u64) {
        if away <= HELD_UP {
            self.held_up = self.held_up.saturating_sub(1);
            return;
        }
        self.held_up += WORTH;
        if self.held_up > ENOUGH {
            self.crowded = now + CROWDED;
            // The next time once is enough.
            self.held_up = ENOUGH;
        }
    }

    /// Whether to stay awake at `now`; `waited_for` if some thread waits.
    pub(crate) fn stays_awake(&self, now: u64, waited_for: bool) -> bool {
        let quiet = now.saturating_sub(self.last_activity);
        let patience = if waited_for {
            WHILE_WAITED_FOR
        } else {
            (self.usual * USUAL).clamp(AFTER_ACTIVITY, AT_MOST)
        };
        self.spins && quiet < patience && now >= self.crowded
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

    #[test]
    fn sleeps_where_others_compute() {
        let mut waiter = Waiter::new(Waiting::Spin);
        let mut now = 1_000_000;
        waiter.active(now);
        for _ in 0..10 {
            waiter.found_after(3_000_000, now);
            assert!(waiter.stays_awake(now, true), "a long turn now and then");
            (0..WORTH).for_each(|_| waiter.found_after(5_000, now));
        }
        // Somebody who looks at shared memory all the time stops when it is taken
        // away, and what comes next is found at once.
        for away in [3_000_000, 5_000, 5_000, 3_000_000, 5_000] {
            waiter.found_after(away, now);
            assert!(waiter.stays_awake(now, true), "lest it is chance");
        }
        waiter.found_after(3_000_000, now);
        assert!(!waiter.stays_awake(now, false) && !waiter.stays_awake(now, true));
        now += 2_000_000_000;
        waiter.active(now);
        assert!(waiter.stays_awake(now, false), "they may have ended");
        waiter.found_after(3_000_000, now);
        assert!(!waiter.stays_awake(now, false), "they have not");
    }

    #[test]
    fn waits_longer_for_who_is_slower_but_not_for_ever() {
        let mut waiter = Waiter::new(Waiting::Spin);
        let mut now = 1_000_000;
        let mut steps = |waiter: &mut Waiter, gap, count| {
            for _ in 0..count {
                now += gap;
                waiter.active(now);
            }
            now
        };
        let last = steps(&mut waiter, 100_000, 3);
        assert!(waiter.stays_awake(last + 190_000, false));
        assert!(!waiter.stays_awake(last + 210_000, false));
        let last = steps(&mut waiter, 10_000, 40);
        assert!(!waiter.stays_awake(last + 60_000, false), "fast again");
        let last = steps(&mut waiter, 1_000_000, 3);
        assert!(
            !waiter.stays_awake(last + 60_000, false),
            "too slow to wait for"
        );
    }
}
