//! Decides how long the daemon polls before it sleeps.
//!
//! Waking a sleeping processor takes longer than a whole exchange with another
//! node, so the driver stays awake while an answer is likely to come soon.

use crate::contention::CpuContention;
use crate::options::Waiting;
use pagemesh_os::cpu;

/// Nanoseconds to stay awake after the last activity, at least: the next request of a neighbour
/// that works through an array comes within this.
const AFTER_ACTIVITY: u64 = 50_000;

/// Nanoseconds to stay awake after the last activity, at most, if activity is less frequent.
const AT_MOST: u64 = 250_000;

/// Stay awake for this multiple of the usual gap between activities.
const USUAL: u64 = 2;

/// Nanoseconds to stay awake while a thread waits for a page. Longer waits mean a lost datagram or
/// a busy node; sleeping costs little then.
const WHILE_WAITED_FOR: u64 = 200_000;

/// Nanoseconds to stay awake while all programs of this host wait, for example at a barrier until
/// other nodes have computed. No program here wants the processor then, and a wakeup takes the
/// longer the longer the processor slept.
const WHILE_ALL_WAIT: u64 = 1_000_000;

/// A mean gap between changes of state, in nanoseconds, that is too long to wait for awake.
const SLOW: u64 = WHILE_ALL_WAIT / 2;

/// Nanoseconds of waiting after which the cause is computation on another node.
const QUIET: u64 = 40_000;

/// State of the threads of this host's programs, as far as it is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Programs {
    /// There are no programs.
    Absent,
    /// Programs compute.
    Run,
    /// A thread waits for a page; others of its process may compute.
    Fault,
    /// Every process waits for a reply.
    Wait,
    /// Every process waits for a state to change: at the pace of its writer, whatever that is.
    Watch,
}

/// Decides whether to stay awake.
#[derive(Debug)]
pub(crate) struct Waiter {
    spins: bool,
    last_activity: u64,
    /// Recent gap from one activity to the next, in nanoseconds.
    usual: u64,
    /// Of states that change, here or elsewhere.
    states: StatePace,
    /// Contention for this processor.
    contention: CpuContention,
}

impl Waiter {
    /// With the waiting that the options choose.
    pub(crate) fn new(waiting: Waiting) -> Self {
        Self {
            spins: match waiting {
                Waiting::Spin => true,
                Waiting::Block => false,
                Waiting::Auto => cpu::available() > 1,
            },
            last_activity: 0,
            usual: 0,
            states: StatePace::default(),
            contention: CpuContention::new(),
        }
    }

    /// Records activity at `now`.
    pub(crate) fn active(&mut self, now: u64) {
        let gap = now.saturating_sub(self.last_activity);
        // Short gaps in bursts change little; gaps too long to wait for do not count.
        let gap = if gap < AT_MOST { gap } else { 0 };
        self.usual = gap.max(self.usual - self.usual / 16);
        self.last_activity = now;
    }

    /// At `now` a process published a state, or was told that one has changed.
    pub(crate) fn state_changed(&mut self, now: u64) {
        self.states.changed(now);
    }

    /// The daemon yielded the processor for `away` nanoseconds.
    pub(crate) fn gave_way(&mut self, away: u64, now: u64) {
        self.contention.gave_way(away, now);
    }

    /// A program was woken at `woke`, and the daemon runs again only at `now`.
    pub(crate) fn woke(&mut self, woke: u64, now: u64) {
        self.contention.woke(woke, now);
    }

    /// True if the daemon ever stays awake.
    pub(crate) fn spins(&self) -> bool {
        self.spins
    }

    /// True if programs are expected to compute once they run.
    pub(crate) fn expects(&self, now: u64) -> bool {
        self.contention.expects(now)
    }

    /// True if the CPU time of the programs should be read now.
    pub(crate) fn wonders(&self, now: u64) -> bool {
        self.contention.wonders(now)
    }

    /// `computed` is the CPU time of the programs at `now`.
    pub(crate) fn computed(&mut self, computed: u64, now: u64) {
        self.contention.computed(computed, now);
    }

    /// True if the last activity is so long ago that the next is not due at this moment: at a
    /// barrier that the other nodes have reached already, the answer would be here by now.
    pub(crate) fn is_quiet(&self, now: u64) -> bool {
        now.saturating_sub(self.last_activity) > QUIET
    }

    /// True if the daemon stays awake at `now`, given the state of the programs.
    pub(crate) fn stays_awake(&mut self, now: u64, programs: Programs) -> bool {
        let runs = matches!(programs, Programs::Run | Programs::Fault);
        self.contention.look(runs, now);
        let quiet = now.saturating_sub(self.last_activity);
        let patience = match programs {
            Programs::Absent | Programs::Run => (self.usual * USUAL).clamp(AFTER_ACTIVITY, AT_MOST),
            Programs::Fault => WHILE_WAITED_FOR,
            Programs::Wait => WHILE_ALL_WAIT,
            Programs::Watch => (self.states.mean * USUAL).clamp(AFTER_ACTIVITY, WHILE_ALL_WAIT),
        };
        // The daemon does not stay awake for a writer that publishes a hundred times a second: other
        // daemons, and readers of the same state, want this processor now.
        let done = programs == Programs::Watch || self.last_activity <= self.states.last;
        if done && programs != Programs::Wait && self.states.is_slow() {
            return false;
        }
        self.spins && quiet < patience && !self.contention.computes(now)
    }
}

/// How often states change for which processes wait, or which they publish.
#[derive(Debug, Default)]
struct StatePace {
    /// The last change.
    last: u64,
    /// The mean gap from one change to the next, in nanoseconds. Long gaps count as four milliseconds.
    mean: u64,
}

impl StatePace {
    fn changed(&mut self, now: u64) {
        let gap = now.saturating_sub(self.last).min(4 * WHILE_ALL_WAIT);
        self.mean = self.mean - self.mean / 8 + gap / 8;
        self.last = now;
    }

    fn is_slow(&self) -> bool {
        self.mean > SLOW
    }
}

#[cfg(test)]
mod tests {
    use super::Programs::{Absent, Fault, Run, Wait, Watch};
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
    fn is_quiet_when_nothing_has_come_for_longer_than_an_answer_takes() {
        let mut waiter = Waiter::new(Waiting::Spin);
        waiter.active(1_000_000);
        assert!(!waiter.is_quiet(1_030_000) && waiter.is_quiet(1_050_000));
    }

    #[test]
    fn sleeps_where_others_compute_but_not_while_all_wait() {
        let mut waiter = Waiter::new(Waiting::Spin);
        let now = 100_000_000;
        waiter.active(now);
        assert!(waiter.stays_awake(now, Run));
        waiter.gave_way(3_000_000, now);
        for programs in [Run, Fault] {
            assert!(!waiter.stays_awake(now, programs), "{programs:?}");
        }
        assert!(waiter.stays_awake(now + 900_000, Wait), "nobody wants it");
        assert!(!waiter.stays_awake(now + 1_100_000, Wait), "not for ever");
        assert!(!waiter.stays_awake(now, Run), "as before");
        for programs in [Wait, Absent] {
            assert!(waiter.stays_awake(now, programs), "{programs:?}");
        }
        waiter.gave_way(3_000_000, now);
        waiter.gave_way(3_000_000, now);
        for programs in [Absent, Run, Fault, Wait] {
            assert!(
                !waiter.stays_awake(now, programs),
                "{programs:?}: a stranger"
            );
        }
    }

    #[test]
    fn waits_awake_for_states_that_change_often_only() {
        let mut waiter = Waiter::new(Waiting::Spin);
        let mut now = 1_000_000;
        let mut changes = |waiter: &mut Waiter, gap, count| {
            for _ in 0..count {
                now += gap;
                waiter.active(now);
                waiter.state_changed(now);
            }
            now
        };
        let last = changes(&mut waiter, 100_000, 30);
        assert!(waiter.stays_awake(last + 150_000, Watch));
        let last = changes(&mut waiter, 10_000_000, 5);
        for programs in [Watch, Run, Absent] {
            assert!(!waiter.stays_awake(last + 1_000, programs), "{programs:?}");
        }
        assert!(waiter.stays_awake(last + 1_000, Wait), "for something else");
        waiter.active(last + 2_000);
        assert!(waiter.stays_awake(last + 3_000, Run), "a program goes on");
        assert!(!waiter.stays_awake(last + 3_000, Watch));
        let last = changes(&mut waiter, 100_000, 30);
        assert!(waiter.stays_awake(last + 150_000, Watch), "fast again");
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
