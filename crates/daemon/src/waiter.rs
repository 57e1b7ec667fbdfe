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

/// Stay awake so long while nothing of this host's programs can go on: for who waits at
/// a barrier until others have computed, too. Nobody here wants the processor
/// meanwhile, and being woken takes the longer the longer it slept.
const WHILE_ALL_WAIT: u64 = 1_000_000;

/// What the threads of this host's programs are doing, as far as is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Programs {
    /// They compute, or there are none.
    Run,
    /// One waits for a page; others of its process may compute.
    Fault,
    /// Each process waits for something.
    Wait,
}

/// Decides whether to stay awake.
#[derive(Debug)]
pub(crate) struct Waiter {
    spins: bool,
    last_activity: u64,
    /// How long it lately took from one sign of life to the next.
    usual: u64,
    /// Whether somebody computes here while programs run, ...
    running: Crowd,
    /// ... and while all of them wait: then it would be a stranger.
    waiting: Crowd,
}

/// Whether others are believed to compute on this processor.
#[derive(Debug, Default)]
struct Crowd {
    /// What giving way has cost lately, in turns that it saved something.
    held_up: u32,
    /// They are, until then.
    until: u64,
}

impl Crowd {
    fn found_after(&mut self, away: u64, now: u64) {
        if away <= HELD_UP {
            self.held_up = self.held_up.saturating_sub(1);
            return;
        }
        self.held_up += WORTH;
        if self.held_up > ENOUGH {
            self.until = now + CROWDED;
            // The next time once is enough.
            self.held_up = ENOUGH;
        }
    }
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
            running: Crowd::default(),
            waiting: Crowd::default(),
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
    pub(crate) fn found_after(&mut self, programs: Programs, away: u64, now: u64) {
        let crowd = if programs == Programs::Wait {
            &mut self.waiting
        } else {
            &mut self.running
        };
        crowd.found_after(away, now);
    }

    /// Nobody took the processor that was given away while all programs wait. So what took
    /// it before was no computation: those do not stop by themselves.
    pub(crate) fn alone(&mut self) {
        self.waiting.held_up = self.waiting.held_up.saturating_sub(1);
    }

    /// Whether to stay awake at `now`, while programs do this.
    pub(crate) fn stays_awake(&self, now: u64, programs: Programs) -> bool {
        let quiet = now.saturating_sub(self.last_activity);
        let (patience, crowd) = match programs {
            Programs::Run => {
                let patience = (self.usual * USUAL).clamp(AFTER_ACTIVITY, AT_MOST);
                (patience, &self.running)
            }
            Programs::Fault => (WHILE_WAITED_FOR, &self.running),
            Programs::Wait => (WHILE_ALL_WAIT, &self.waiting),
        };
        self.spins && quiet < patience && now >= crowd.until
    }
}

#[cfg(test)]
mod tests {
    use super::Programs::{Fault, Run, Wait};
    use super::*;

    #[test]
    fn falls_asleep_in_the_end() {
        let mut waiter = Waiter::new(Waiting::Spin);
        waiter.active(1_000_000);
        assert!(waiter.stays_awake(1_040_000, Run));
        assert!(!waiter.stays_awake(1_060_000, Run));
        assert!(waiter.stays_awake(1_060_000, Fault));
        assert!(!waiter.stays_awake(1_300_000, Fault));
        assert!(!Waiter::new(Waiting::Block).stays_awake(1, Fault));
    }

    #[test]
    fn sleeps_where_others_compute() {
        let mut waiter = Waiter::new(Waiting::Spin);
        let mut now = 1_000_000;
        waiter.active(now);
        for _ in 0..10 {
            waiter.found_after(Run, 3_000_000, now);
            assert!(waiter.stays_awake(now, Fault), "a long turn now and then");
            (0..WORTH).for_each(|_| waiter.found_after(Run, 5_000, now));
        }
        // Somebody who looks at shared memory all the time stops when it is taken
        // away, and what comes next is found at once.
        for away in [3_000_000, 5_000, 5_000, 3_000_000, 5_000] {
            waiter.found_after(Run, away, now);
            assert!(waiter.stays_awake(now, Fault), "lest it is chance");
        }
        waiter.found_after(Run, 3_000_000, now);
        assert!(!waiter.stays_awake(now, Run) && !waiter.stays_awake(now, Fault));
        now += 2_000_000_000;
        waiter.active(now);
        assert!(waiter.stays_awake(now, Run), "they may have ended");
        waiter.found_after(Run, 3_000_000, now);
        assert!(!waiter.stays_awake(now, Run), "they have not");
    }

    #[test]
    fn who_computes_between_barriers_does_not_wait_at_them() {
        let mut waiter = Waiter::new(Waiting::Spin);
        waiter.active(1_000_000);
        for _ in 0..3 {
            waiter.found_after(Run, 3_000_000, 1_000_000);
        }
        assert!(!waiter.stays_awake(1_010_000, Run));
        assert!(waiter.stays_awake(1_900_000, Wait), "nobody wants it");
        assert!(!waiter.stays_awake(2_100_000, Wait), "not for ever");
        for _ in 0..10 {
            waiter.found_after(Wait, 3_000_000, 1_000_000);
            assert!(waiter.stays_awake(1_010_000, Wait), "a passer-by");
            (0..WORTH).for_each(|_| waiter.alone());
        }
        for _ in 0..3 {
            waiter.found_after(Wait, 3_000_000, 1_000_000);
        }
        assert!(!waiter.stays_awake(1_010_000, Wait), "a stranger wants it");
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
        assert!(waiter.stays_awake(last + 190_000, Run));
        assert!(!waiter.stays_awake(last + 210_000, Run));
        let last = steps(&mut waiter, 10_000, 40);
        assert!(!waiter.stays_awake(last + 60_000, Run), "fast again");
        let last = steps(&mut waiter, 1_000_000, 3);
        assert!(
            !waiter.stays_awake(last + 60_000, Run),
            "too slow to wait for"
        );
    }
}
