//! Who else computes on this processor.
//!
//! A thread that gives way to one that computes gets its next turn when the other stops
//! or its time slice is over: milliseconds in which nobody is served. Who sleeps instead
//! is woken within microseconds. But where nobody computes the processor falls asleep
//! too, and waking it takes longer than a whole exchange with another node. So the
//! daemon sleeps while others compute and stays awake while they wait. It cannot ask
//! who runs; it sees how long giving way took.

/// Who gave way for so long gave way to somebody who computes.
const HELD_UP: u64 = 200_000;

/// Giving way takes longer than this if somebody took it.
pub(crate) const GIVEN_WAY: u64 = 700;

/// Having seen that programs compute once they run, expects it for so long.
const EXPECTED: u64 = 100_000_000;

/// That they compute is believed for so long, unless they stop; then it is looked into,
/// at the price of a turn.
const OURS: u64 = 16_000_000;

/// That others do, whom nobody here sees stop, for so long at first.
const THEIRS: u64 = 2_000_000;

/// And at most so long.
const AT_MOST: u64 = 64_000_000;

/// Whoever computes here has had a turn after so long: a time slice of the kernel is
/// not longer, and short turns prove nothing before.
const ALONE: u64 = 16_000_000;

/// That somebody computes, until it is looked into, ever more seldom.
#[derive(Debug)]
struct Belief {
    until: u64,
    next: u64,
}

impl Belief {
    const fn none(first: u64) -> Self {
        Self {
            until: 0,
            next: first,
        }
    }

    fn confirm(&mut self, now: u64) {
        self.until = now + self.next;
        self.next = (2 * self.next).min(AT_MOST);
    }
}

/// Whoever wants this processor.
#[derive(Debug)]
pub(crate) struct Crowd {
    /// A program runs, and for all that is known on this processor.
    out: bool,
    /// Programs ran when last looked.
    running: bool,
    /// Until then programs are expected to compute once they run.
    expected: u64,
    /// That the programs compute.
    ours: Belief,
    /// That others compute, whom nobody here has woken.
    theirs: Belief,
    /// When one of these was done with a long turn.
    long_turn: u64,
}

impl Crowd {
    /// Nobody.
    pub(crate) const fn new() -> Self {
        Self {
            out: false,
            running: false,
            expected: 0,
            ours: Belief::none(OURS),
            theirs: Belief::none(THEIRS),
            long_turn: 0,
        }
    }

    /// Programs run, or all of them wait.
    pub(crate) fn look(&mut self, running: bool, now: u64) {
        if running == self.running {
            return;
        }
        self.running = running;
        self.out = running;
        self.ours = Belief::none(OURS);
        if running && now < self.expected {
            self.ours.confirm(now);
        }
    }

    /// Giving way took `away`.
    pub(crate) fn gave_way(&mut self, away: u64, now: u64) {
        let long = away > HELD_UP;
        match (self.out, long) {
            (true, true) => {
                self.expected = now + EXPECTED;
                self.ours.confirm(now);
            }
            (true, false) => {
                self.expected = 0;
                self.ours = Belief::none(OURS);
                // If nobody took it they run elsewhere.
                self.out = away > GIVEN_WAY;
            }
            (false, true) => self.long_turn(now.saturating_sub(away), now),
            (false, false) => {}
        }
    }

    fn long_turn(&mut self, began: u64, now: u64) {
        let last = self.long_turn.max(self.theirs.until);
        if began > last + ALONE {
            // Once is chance.
            self.theirs = Belief::none(THEIRS);
        } else {
            self.theirs.confirm(now);
        }
        self.long_turn = now;
    }

    /// Whether somebody is believed to compute now.
    pub(crate) fn computes(&self, now: u64) -> bool {
        now < self.ours.until.max(self.theirs.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 100_000_000;
    const SLICE: u64 = 3_000_000;

    /// A turn of `away` begins at `now`; when it is over.
    fn turn(crowd: &mut Crowd, now: u64, away: u64) -> u64 {
        crowd.gave_way(away, now + away);
        now + away
    }

    #[test]
    fn strangers_are_looked_for_ever_more_seldom() {
        let mut crowd = Crowd::new();
        let mut now = turn(&mut crowd, START, SLICE);
        assert!(!crowd.computes(now), "once may be chance");
        for _ in 0..100 {
            now = turn(&mut crowd, now, HELD_UP);
        }
        now = turn(&mut crowd, now, SLICE);
        assert!(!crowd.computes(now), "nobody was there in between");
        let mut belief = THEIRS;
        for _ in 0..12 {
            for _ in 0..10 {
                now = turn(&mut crowd, now, 500);
            }
            assert!(!crowd.computes(now), "they may have ended");
            now = turn(&mut crowd, now, SLICE);
            assert!(crowd.computes(now + belief - 1), "they have not");
            now += belief;
            belief = (2 * belief).min(AT_MOST);
        }
        now = turn(&mut crowd, now + ALONE, 500);
        now = turn(&mut crowd, now, SLICE);
        assert!(!crowd.computes(now), "once may be chance, again");
        now = turn(&mut crowd, now, SLICE);
        assert!(crowd.computes(now) && !crowd.computes(now + THEIRS));
    }

    #[test]
    fn who_computes_once_woken_is_expected_to_but_not_while_he_waits() {
        let mut crowd = Crowd::new();
        let mut now = START;
        let mut known = START;
        for phase in 0..1000 {
            crowd.look(true, now);
            let unknown = now >= known;
            assert_eq!(crowd.computes(now), !unknown, "phase {phase}");
            if unknown {
                now = turn(&mut crowd, now, 500_000);
                known = now + EXPECTED;
            } else {
                now += 500_000;
            }
            assert!(crowd.computes(now), "phase {phase}");
            crowd.look(false, now);
            for _ in 0..10 {
                assert!(!crowd.computes(now), "phase {phase}");
                now = turn(&mut crowd, now, 500);
            }
        }
    }

    #[test]
    fn who_computes_for_long_is_looked_for_ever_more_seldom_and_no_stranger() {
        let mut crowd = Crowd::new();
        crowd.look(true, START);
        let mut now = START;
        let mut belief = OURS;
        for _ in 0..12 {
            assert!(!crowd.computes(now));
            now = turn(&mut crowd, now, SLICE);
            assert!(crowd.computes(now + belief - 1));
            now += belief;
            belief = (2 * belief).min(AT_MOST);
        }
        crowd.look(false, now);
        assert!(!crowd.computes(now));
    }

    #[test]
    fn who_stops_at_once_or_runs_elsewhere_is_not_in_the_way() {
        let mut crowd = Crowd::new();
        crowd.look(true, START);
        let mut now = turn(&mut crowd, START, 500_000);
        crowd.look(false, now);
        crowd.look(true, now);
        assert!(crowd.computes(now));
        now = turn(&mut crowd, now + OURS, 5_000);
        crowd.look(false, now);
        crowd.look(true, now);
        assert!(!crowd.computes(now), "he stopped at once");
        now = turn(&mut crowd, now, 500_000);
        assert!(crowd.computes(now));
        now = turn(&mut crowd, now + 2 * OURS, 500);
        assert!(!crowd.computes(now), "he runs elsewhere");
        now = turn(&mut crowd, now, SLICE);
        assert!(!crowd.computes(now), "and this may be chance");
    }
}
