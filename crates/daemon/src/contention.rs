//! Contention: whether other threads compute on this processor.
//!
//! If the daemon yields to a thread that computes, it runs again only when that thread stops or its
//! time slice is over: for milliseconds it serves no request. If it sleeps instead, it is woken
//! within microseconds. But if no thread computes, the processor falls asleep too, and waking it
//! takes longer than a whole exchange with another node. So the daemon sleeps while other threads
//! compute and stays awake while they wait. It cannot ask which thread runs on this processor; it
//! measures how long a yield took, and can read how much CPU time its programs have used since they
//! run.

/// A `sched_yield` longer than this (nanoseconds) means that a CPU-bound thread ran here.
const HELD_UP: u64 = 200_000;

/// The rest of the work after a program was woken takes less than this (nanoseconds): if it took
/// longer, the program has taken the processor.
const PUSHED_ASIDE: u64 = 400_000;

/// A yield longer than this (nanoseconds) means that another thread used it.
pub(crate) const GIVEN_WAY: u64 = 700;

/// First duration of the expectation that programs compute once they run (nanoseconds).
const EXPECTED: u64 = 100_000_000;

/// Longest duration of that expectation (nanoseconds), after repeated confirmation: checking it
/// costs a turn of the other thread.
const LONG_EXPECTED: u64 = 1_600_000_000;

/// A program that stops sooner than this (nanoseconds) did not compute.
const BRIEF: u64 = 100_000;

/// Brief runs in a row after which programs are not expected to compute any more: they walk from
/// page to page.
const AT_ONCE: u32 = 64;

/// Shortest interval (nanoseconds) over which CPU times are compared.
const WATCHED: u64 = 200_000;

/// Nanoseconds from one reading of CPU times to the next.
const LOOKED: u64 = 1_000_000;

/// How long programs are believed to compute unless they stop (nanoseconds); then this is checked,
/// at the cost of a turn.
const OURS: u64 = 16_000_000;

/// First duration of the belief that other threads compute, whose stop is not seen here
/// (nanoseconds).
const THEIRS: u64 = 2_000_000;

/// Longest duration of that belief (nanoseconds).
const AT_MOST: u64 = 64_000_000;

/// A thread that computes here has had a long turn within this time (nanoseconds): a time slice of
/// the kernel is not longer. Short turns before that prove nothing.
const ALONE: u64 = 16_000_000;

/// The belief that threads compute, valid until a time; each confirmation makes it last longer.
#[derive(Debug)]
struct Belief {
    until: u64,
    next: u64,
    at_most: u64,
}

impl Belief {
    const fn none(first: u64) -> Self {
        Self {
            until: 0,
            next: first,
            at_most: AT_MOST,
        }
    }

    /// No expectation that programs compute once they run.
    const fn unexpected() -> Self {
        Self {
            until: 0,
            next: EXPECTED,
            at_most: LONG_EXPECTED,
        }
    }

    fn confirm(&mut self, now: u64) {
        self.until = now + self.next;
        self.next = (2 * self.next).min(self.at_most);
    }
}

/// The state of the contention for this processor.
#[derive(Debug)]
pub(crate) struct CpuContention {
    /// A program runs, as far as is known on this processor.
    out: bool,
    /// Programs ran at the last look.
    running: bool,
    /// When `running` changed last.
    since: u64,
    /// Number of brief runs in a row.
    at_once: u32,
    /// Expectation that programs compute once they run.
    expected: Belief,
    /// CPU times are not read again before this time.
    looked: u64,
    /// When the CPU time of the running programs was first read, and its value then.
    watched: Option<(u64, u64)>,
    /// Belief that the programs compute.
    ours: Belief,
    /// Belief that other threads compute, which this daemon has not woken.
    theirs: Belief,
    /// When the last long turn of such a thread ended.
    long_turn: u64,
}

impl CpuContention {
    /// No contention known.
    pub(crate) const fn new() -> Self {
        Self {
            out: false,
            running: false,
            since: 0,
            at_once: 0,
            expected: Belief::unexpected(),
            looked: 0,
            watched: None,
            ours: Belief::none(OURS),
            theirs: Belief::none(THEIRS),
            long_turn: 0,
        }
    }

    /// Tells whether programs run, or all of them wait.
    pub(crate) fn look(&mut self, running: bool, now: u64) {
        if running == self.running {
            return;
        }
        if !running {
            self.stopped(now.saturating_sub(self.since));
        }
        self.running = running;
        self.since = now;
        self.watched = None;
        self.out = running;
        self.ours = Belief::none(OURS);
        if running && self.expects(now) {
            self.ours.confirm(now);
        }
    }

    /// Whether programs are expected to compute once they run.
    pub(crate) const fn expects(&self, now: u64) -> bool {
        now < self.expected.until
    }

    /// The programs stopped after `ran` nanoseconds.
    fn stopped(&mut self, ran: u64) {
        self.at_once = if ran < BRIEF { self.at_once + 1 } else { 0 };
        if self.at_once >= AT_ONCE {
            self.expected = Belief::unexpected();
        }
    }

    /// True if the CPU time of the programs should be read now.
    pub(crate) fn wonders(&self, now: u64) -> bool {
        let due = self
            .watched
            .map_or(self.looked, |(since, _)| since + WATCHED);
        self.running && now >= due && self.computes(now)
    }

    /// `computed` is the CPU time of the programs at `now`. If they used little of it, they do not
    /// contend for the processor.
    pub(crate) fn computed(&mut self, computed: u64, now: u64) {
        let Some((since, before)) = self.watched.take() else {
            self.watched = Some((now, computed));
            return;
        };
        self.looked = now + LOOKED;
        if computed.saturating_sub(before) < now.saturating_sub(since) / 4 {
            self.expected = Belief::unexpected();
            self.ours = Belief::none(OURS);
        }
    }

    /// A program was woken at `woke`, and the daemon, which has not yielded, runs again only at
    /// `now`.
    pub(crate) fn woke(&mut self, woke: u64, now: u64) {
        let away = now.saturating_sub(woke);
        if away > PUSHED_ASIDE {
            self.look(true, woke);
            self.gave_way(away, now);
        }
    }

    /// The daemon yielded the processor for `away` nanoseconds.
    pub(crate) fn gave_way(&mut self, away: u64, now: u64) {
        let long = away > HELD_UP;
        match (self.out, long) {
            (true, true) => {
                if !self.expects(now) {
                    self.expected.confirm(now);
                }
                self.ours.confirm(now);
            }
            (true, false) => {
                self.ours = Belief::none(OURS);
                // If the yield was not used, the programs run elsewhere; else one may have stopped
                // at a page.
                self.out = away > GIVEN_WAY;
                if !self.out {
                    self.expected = Belief::unexpected();
                }
            }
            (false, true) => self.long_turn(now.saturating_sub(away), now),
            (false, false) => {}
        }
    }

    fn long_turn(&mut self, began: u64, now: u64) {
        let last = self.long_turn.max(self.theirs.until);
        if began > last + ALONE {
            // A single long turn may be chance.
            self.theirs = Belief::none(THEIRS);
        } else {
            self.theirs.confirm(now);
        }
        self.long_turn = now;
    }

    /// True if threads are believed to compute now.
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
    fn turn(contention: &mut CpuContention, now: u64, away: u64) -> u64 {
        contention.gave_way(away, now + away);
        now + away
    }

    #[test]
    fn strangers_are_looked_for_ever_more_seldom() {
        let mut contention = CpuContention::new();
        let mut now = turn(&mut contention, START, SLICE);
        assert!(!contention.computes(now), "once may be chance");
        for _ in 0..100 {
            now = turn(&mut contention, now, HELD_UP);
        }
        now = turn(&mut contention, now, SLICE);
        assert!(!contention.computes(now), "nobody was there in between");
        let mut belief = THEIRS;
        for _ in 0..12 {
            for _ in 0..10 {
                now = turn(&mut contention, now, 500);
            }
            assert!(!contention.computes(now), "they may have ended");
            now = turn(&mut contention, now, SLICE);
            assert!(contention.computes(now + belief - 1), "they have not");
            now += belief;
            belief = (2 * belief).min(AT_MOST);
        }
        now = turn(&mut contention, now + ALONE, 500);
        now = turn(&mut contention, now, SLICE);
        assert!(!contention.computes(now), "once may be chance, again");
        now = turn(&mut contention, now, SLICE);
        assert!(contention.computes(now) && !contention.computes(now + THEIRS));
    }

    #[test]
    fn who_computes_once_woken_is_expected_to_but_not_while_he_waits() {
        let mut contention = CpuContention::new();
        let mut now = START;
        let (mut known, mut expected) = (START, EXPECTED);
        for phase in 0..20_000 {
            contention.look(true, now);
            let unknown = now >= known;
            assert_eq!(contention.computes(now), !unknown, "phase {phase}");
            if unknown {
                now = turn(&mut contention, now, 500_000);
                known = now + expected;
                expected = (2 * expected).min(LONG_EXPECTED);
            } else {
                now += 500_000;
            }
            assert!(contention.computes(now), "phase {phase}");
            contention.look(false, now);
            for _ in 0..10 {
                assert!(!contention.computes(now), "phase {phase}");
                now = turn(&mut contention, now, 500);
            }
        }
    }

    #[test]
    fn who_computes_for_long_is_looked_for_ever_more_seldom_and_no_stranger() {
        let mut contention = CpuContention::new();
        contention.look(true, START);
        let mut now = START;
        let mut belief = OURS;
        for _ in 0..12 {
            assert!(!contention.computes(now));
            now = turn(&mut contention, now, SLICE);
            assert!(contention.computes(now + belief - 1));
            now += belief;
            belief = (2 * belief).min(AT_MOST);
        }
        contention.look(false, now);
        assert!(!contention.computes(now));
    }

    #[test]
    fn who_takes_the_processor_when_woken_and_keeps_it_computes() {
        let mut contention = CpuContention::new();
        contention.woke(START, START + PUSHED_ASIDE);
        assert!(
            !contention.computes(START + PUSHED_ASIDE),
            "others were served"
        );
        let now = START + SLICE;
        contention.woke(now, now + 600_000);
        contention.look(false, now + 600_000);
        assert!(contention.expects(now + 700_000));
        contention.look(true, now + 700_000);
        assert!(contention.computes(now + 700_000));
    }

    /// Programs are known to compute, and waited until now.
    fn known() -> (CpuContention, u64) {
        let mut contention = CpuContention::new();
        contention.look(true, START);
        let now = turn(&mut contention, START, 500_000);
        contention.look(false, now);
        (contention, now)
    }

    #[test]
    fn who_stops_at_once_again_and_again_walks() {
        let (mut contention, mut now) = known();
        for times in 0..AT_ONCE {
            contention.look(true, now);
            assert!(contention.computes(now), "{times}");
            now += 5_000;
            contention.look(false, now);
        }
        contention.look(true, now);
        assert!(!contention.computes(now));
        now = turn(&mut contention, now, SLICE);
        assert!(contention.computes(now), "he has ceased");
    }

    #[test]
    fn who_stops_at_pages_in_between_computes_all_the_same() {
        let (mut contention, mut now) = known();
        for phase in 0..100 {
            for brief in 0..AT_ONCE {
                contention.look(true, now);
                let known = now < START + 500_000 + EXPECTED;
                assert_eq!(contention.computes(now), known, "{phase}, {brief}");
                now += if brief == 0 { 300_000 } else { 20_000 };
                contention.look(false, now);
            }
        }
    }

    #[test]
    fn who_does_nothing_is_not_believed_to_compute() {
        let (mut contention, now) = known();
        assert!(!contention.wonders(now), "he waits");
        contention.look(true, now);
        assert!(contention.wonders(now));
        contention.computed(7_000_000, now);
        assert!(!contention.wonders(now + WATCHED - 1), "too early");
        assert!(contention.wonders(now + WATCHED));
        contention.computed(7_000_000 + WATCHED / 2, now + WATCHED);
        assert!(contention.computes(now + WATCHED), "he does");
        let later = now + WATCHED + LOOKED;
        assert!(!contention.wonders(later - 1) && contention.wonders(later));
        contention.computed(9_000_000, later);
        contention.computed(9_000_000 + WATCHED / 5, later + WATCHED);
        assert!(!contention.computes(later + WATCHED) && !contention.wonders(later + WATCHED));
        contention.look(false, later);
        contention.look(true, later);
        assert!(!contention.computes(later), "nor is he expected to");
    }

    #[test]
    fn what_he_did_before_he_waited_is_not_counted() {
        let (mut contention, mut now) = known();
        contention.look(true, now);
        contention.computed(7_000_000, now);
        contention.look(false, now);
        now += WATCHED;
        contention.look(true, now);
        contention.computed(7_000_000, now);
        assert!(contention.computes(now), "he has only begun to be watched");
    }

    #[test]
    fn who_runs_elsewhere_is_not_in_the_way() {
        let (mut contention, mut now) = known();
        contention.look(true, now);
        assert!(contention.computes(now));
        now = turn(&mut contention, now + OURS, 500);
        assert!(!contention.computes(now), "he runs elsewhere");
        contention.look(false, now);
        contention.look(true, now);
        assert!(!contention.computes(now), "he will again");
        now = turn(&mut contention, now, SLICE);
        assert!(contention.computes(now));
    }
}
