//! Finds the largest datagram that the path to one node carries, by probes that IP must not
//! fragment, as in RFC 8899.
//!
//! First the node has to answer at all. Then the largest size that leaves this host is tried, and
//! smaller ones until one arrives. The size in use is tried again from time to time: if that fails,
//! the path has changed, and the search starts again. Larger sizes than the one found are tried
//! every minute.

use crate::{BASE, MS};

/// The state of one path.
#[derive(Clone, Debug)]
pub struct Prober {
    size: usize,
    stage: Stage,
    /// The open probe.
    probe: Option<Probe>,
    /// When the next step is due.
    due: u64,
    /// True if a datagram of more than [`BASE`] bytes was sent since the last answer.
    used: bool,
    /// When the size in use was last confirmed.
    confirmed: u64,
    /// When larger sizes are tried again.
    raise: u64,
    /// Round-trip time, smoothed.
    round: u64,
    /// Times that the path was found to carry less than before.
    shrunk: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The node has not answered yet; the number of probes without an answer.
    Silent(u32),
    /// Sizes are tried from the largest on; the argument is the link's size on this host.
    Search(usize),
    /// A size was found.
    Found,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    nonce: u64,
    length: usize,
    sent: u64,
    tries: u32,
}

/// Number of consecutive lost probes after which a size counts as too large.
const TRIES: u32 = 4;

/// Minimum time to wait for an answer, in nanoseconds; four round trips if they take longer.
const PATIENCE: u64 = 60 * MS;

/// Maximum time to wait for an answer, in nanoseconds.
const LONGEST_PATIENCE: u64 = 1000 * MS;

/// First and longest interval between probes of a node that does not answer, in nanoseconds.
const ASK_FIRST: u64 = 50 * MS;
const ASK_LAST: u64 = 2000 * MS;

/// Time after which a size in use is tried again, in nanoseconds.
const CONFIRM: u64 = 2000 * MS;

/// Time after which larger sizes are tried again, in nanoseconds.
const RAISE: u64 = 60_000 * MS;

/// Frequent MTUs of links, in bytes; tunnels reduce them.
const USUAL: [usize; 6] = [9000, 4464, 1500, 1450, 1400, 1280];

/// Bytes of the headers of IPv6 and UDP; IPv4 needs fewer.
const HEADERS: usize = 48;

/// The next step of a prober.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing to do yet.
    Wait,
    /// Send a probe of this length, without IP fragmentation.
    Send {
        /// The random number that only the receiver of the probe can return.
        nonce: u64,
        /// Bytes of UDP payload.
        length: usize,
    },
}

impl Prober {
    /// A path of which nothing is known; the first probe is due at `now`.
    #[must_use]
    pub fn new(now: u64) -> Self {
        Self {
            size: BASE,
            stage: Stage::Silent(0),
            probe: None,
            due: now,
            used: false,
            confirmed: now,
            raise: 0,
            round: 0,
            shrunk: 0,
        }
    }

    /// Bytes of UDP payload that certainly arrive in one packet; [`BASE`] if not known.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// True if a size was found.
    #[must_use]
    pub fn is_found(&self) -> bool {
        self.stage == Stage::Found
    }

    /// The round-trip time in nanoseconds; zero if not known.
    #[must_use]
    pub fn round(&self) -> u64 {
        self.round
    }

    /// Times that the path was found to carry less than before.
    #[must_use]
    pub fn shrunk(&self) -> u64 {
        self.shrunk
    }

    /// When [`Prober::act`] must be called next.
    #[must_use]
    pub fn due(&self) -> u64 {
        self.due
    }

    /// Notes that a datagram longer than [`BASE`] is sent now. True if the next step may be due
    /// earlier because of that.
    pub fn uses(&mut self, now: impl FnOnce() -> u64) -> bool {
        if self.used {
            return false;
        }
        self.used = true;
        let idle = self.stage == Stage::Found && self.probe.is_none() && self.size > BASE;
        if idle {
            self.due = self.due.min(now().max(self.confirmed + CONFIRM));
        }
        idle
    }

    /// Does the step that is due at `now`. `link` tells the largest size that leaves this host
    /// towards the node, and `nonce` draws a random number.
    pub fn act(
        &mut self,
        now: u64,
        link: impl FnOnce() -> usize,
        nonce: impl FnOnce() -> u64,
    ) -> Step {
        if now < self.due {
            return Step::Wait;
        }
        match self.probe {
            Some(probe) if self.gives_up(probe) => self.lost(now, probe, link),
            Some(probe) => return self.send(now, nonce(), probe.length, probe.tries + 1),
            None => self.begin(now, link),
        }
        match self.probe {
            Some(probe) => self.send(now, nonce(), probe.length, 1),
            None => Step::Wait,
        }
    }

    /// Notes that a probe of this length exceeds this host's link.
    pub fn too_long(&mut self, now: u64, length: usize) {
        if let Some(probe) = &mut self.probe
            && probe.length == length
        {
            probe.tries = TRIES;
            self.due = now;
        }
    }

    /// Handles the confirmation of a probe. False if no open probe has this number and length.
    pub fn confirmed(&mut self, now: u64, nonce: u64, length: usize) -> bool {
        let ours = self
            .probe
            .filter(|probe| probe.nonce == nonce && probe.length == length);
        let Some(probe) = ours else {
            return false;
        };
        let took = now.saturating_sub(probe.sent);
        self.round = match self.round {
            0 => took,
            round => (7 * round + took) / 8,
        };
        self.probe = None;
        self.used = false;
        self.confirmed = now;
        match self.stage {
            Stage::Silent(_) => {
                // The largest size is determined when it is tried.
                self.stage = Stage::Search(usize::MAX);
                self.due = now;
            }
            Stage::Search(_) => {
                self.size = self.size.max(length);
                self.found(now);
            }
            Stage::Found => self.due = self.raise,
        }
        true
    }

    fn gives_up(&self, probe: Probe) -> bool {
        probe.tries >= TRIES && !matches!(self.stage, Stage::Silent(_))
    }

    fn found(&mut self, now: u64) {
        self.stage = Stage::Found;
        self.raise = now + RAISE;
        self.due = self.raise;
        if self.used {
            self.due = self.due.min(self.confirmed + CONFIRM);
        }
    }

    /// Chooses the next probe, if there is one to send.
    fn begin(&mut self, now: u64, link: impl FnOnce() -> usize) {
        match self.stage {
            Stage::Silent(_) => self.try_length(BASE),
            Stage::Search(_) => self.search(now, usize::MAX, link),
            Stage::Found if now >= self.raise => self.search(now, usize::MAX, link),
            Stage::Found if self.used && self.size > BASE => self.try_length(self.size),
            Stage::Found => self.found_nothing_to_do(),
        }
    }

    fn found_nothing_to_do(&mut self) {
        self.used = false;
        self.due = self.raise;
    }

    fn try_length(&mut self, length: usize) {
        self.probe = Some(Probe {
            nonce: 0,
            length,
            sent: 0,
            tries: 0,
        });
    }

    /// Tries the largest size below `than` that exceeds the confirmed size.
    fn search(&mut self, now: u64, than: usize, link: impl FnOnce() -> usize) {
        let link = match self.stage {
            Stage::Search(link) if link != usize::MAX => link,
            _ => link(),
        };
        self.stage = Stage::Search(link);
        self.probe = None;
        let usual = USUAL.map(|packet| packet - HEADERS);
        let sizes = std::iter::once(link).chain(usual.into_iter().filter(|size| *size < link));
        let next = sizes.filter(|size| *size < than && *size > self.size).max();
        match next {
            Some(length) => self.try_length(length),
            None => self.found(now),
        }
    }

    /// Handles a probe that was not answered in any of its tries.
    fn lost(&mut self, now: u64, probe: Probe, link: impl FnOnce() -> usize) {
        match self.stage {
            Stage::Silent(_) => {}
            Stage::Search(_) => self.search(now, probe.length, link),
            Stage::Found => {
                // The path has changed, or the node is gone.
                self.shrunk += 1;
                self.size = BASE;
                self.stage = Stage::Silent(0);
                self.try_length(BASE);
            }
        }
    }

    fn send(&mut self, now: u64, nonce: u64, length: usize, tries: u32) -> Step {
        self.probe = Some(Probe {
            nonce,
            length,
            sent: now,
            tries,
        });
        let wait = match &mut self.stage {
            Stage::Silent(times) => {
                *times = times.saturating_add(1);
                (ASK_FIRST << (*times - 1).min(16)).min(ASK_LAST)
            }
            _ => (4 * self.round).clamp(PATIENCE, LONGEST_PATIENCE),
        };
        self.due = now + wait;
        Step::Send { nonce, length }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A simulated path: the size that it carries, and the size of this host's link.
    struct Way {
        prober: Prober,
        now: u64,
        carries: usize,
        link: usize,
        nonce: u64,
        sent: Vec<usize>,
    }

    const ROUND: u64 = 40_000;

    impl Way {
        fn new(carries: usize, link: usize) -> Self {
            Self {
                prober: Prober::new(0),
                now: 0,
                carries,
                link,
                nonce: 0,
                sent: Vec::new(),
            }
        }

        fn run(&mut self, nanos: u64) {
            let end = self.now + nanos;
            while self.prober.due() <= end {
                self.now = self.now.max(self.prober.due());
                self.nonce += 1;
                let (link, number) = (self.link, self.nonce);
                let step = self.prober.act(self.now, || link, || number);
                let Step::Send { nonce, length } = step else {
                    continue;
                };
                self.sent.push(length);
                if length > self.link {
                    self.prober.too_long(self.now, length);
                } else if length <= self.carries {
                    self.now += ROUND;
                    assert!(self.prober.confirmed(self.now, nonce, length));
                }
            }
            self.now = end;
        }
    }

    #[test]
    fn the_largest_size_that_leaves_is_tried_first() {
        let mut way = Way::new(8972, 8972);
        way.run(MS);
        assert_eq!((way.prober.size(), way.prober.is_found()), (8972, true));
        assert_eq!(way.sent, [BASE, 8972]);
        assert_eq!(way.prober.round(), ROUND);
    }

    #[test]
    fn smaller_ones_until_one_arrives() {
        let mut way = Way::new(1472, 8972);
        way.run(2000 * MS);
        assert_eq!(way.prober.size(), 1452);
        let mut way = Way::new(1210, 1472);
        way.run(2000 * MS);
        assert_eq!((way.prober.size(), way.prober.is_found()), (BASE, true));
    }

    #[test]
    fn who_does_not_answer_is_asked_now_and_then() {
        let mut way = Way::new(0, 8972);
        way.run(60_000 * MS);
        assert!(way.sent.iter().all(|length| *length == BASE));
        assert!((28..45).contains(&way.sent.len()), "{}", way.sent.len());
        way.carries = 8972;
        way.run(3000 * MS);
        assert_eq!(way.prober.size(), 8972);
    }

    #[test]
    fn a_way_that_is_not_used_costs_a_probe_a_minute() {
        let mut way = Way::new(1472, 1472);
        way.run(MS);
        let before = way.sent.len();
        way.run(600_000 * MS);
        assert_eq!(way.sent.len(), before, "nothing larger could leave");
        let mut way = Way::new(1472, 8972);
        way.run(10_000 * MS);
        let before = way.sent.len();
        way.run(600_000 * MS);
        // Two sizes above the one found, each tried `TRIES` times.
        assert!(way.sent.len() - before <= 10 * 3 * TRIES as usize);
    }

    #[test]
    fn a_black_hole_is_found_when_it_is_used() {
        let mut way = Way::new(8972, 8972);
        way.run(MS);
        way.carries = 1472;
        way.run(10_000 * MS);
        assert_eq!(way.prober.size(), 8972, "nobody has used it");
        way.prober.uses(|| way.now);
        way.run(5000 * MS);
        assert_eq!((way.prober.size(), way.prober.shrunk()), (1452, 1));
        way.carries = 8972;
        way.run(RAISE + 5000 * MS);
        assert_eq!(way.prober.size(), 8972, "and that it is gone");
    }

    #[test]
    fn nobody_confirms_what_was_not_asked() {
        let mut prober = Prober::new(0);
        assert!(!prober.confirmed(0, 0, 0));
        let Step::Send { nonce, length } = prober.act(0, || 1472, || 77) else {
            panic!("the first probe is due");
        };
        assert!(!prober.confirmed(1, nonce + 1, length));
        assert!(!prober.confirmed(1, nonce, length + 1));
        assert!(prober.confirmed(1, nonce, length));
        assert!(!prober.confirmed(1, nonce, length), "once");
    }

    #[test]
    fn what_does_not_leave_is_not_tried_again() {
        let mut way = Way::new(1472, 1472);
        way.run(MS);
        // The link's MTU became smaller after it was determined.
        way.link = 1372;
        way.carries = 1372;
        way.prober.uses(|| way.now);
        way.run(3000 * MS);
        assert_eq!(way.prober.size(), 1372);
        let useless = way.sent.iter().filter(|length| **length == 1472).count();
        assert_eq!(useless, 2);
    }
}
