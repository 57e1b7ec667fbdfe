//! The speed of a link: the time that a page needs there beyond the time of a few bytes.
//!
//! After some number of pages a short and a long probe go out, one after the other, and each is
//! answered by a few bytes at once. The difference of their times is the time of 4 KiB on this
//! link. Processors are busy and the wire is sometimes empty, so several pairs are taken, and of
//! each kind the least but one. A link found slow again and again counts as slow, and stays so for
//! a while: a token bucket that compression has filled looks fast until it is needed.

use super::throughput::Throughput;
use pagemesh_compress::PAGE;
use pagemesh_os::clock;
use pagemesh_wire::NodeId;
use pagemesh_wire::header::{self, HEADER_SIZE};

/// The forms of probes and of their answers, in a header.
const PROBE: u8 = 0x20;
const ANSWER: u8 = 0x21;

/// Bytes behind the header of a probe: its number; a long one has a page more.
const NUMBER: usize = 8;

/// Pairs of a measurement: while pages come in bursts, half of all probes wait for a daemon that is
/// busy with them.
const PAIRS: usize = 8;

/// Pages between two pairs until the link is known, so that this is soon.
const FIRST_GAP: u32 = 2;

/// And afterwards.
const GAP: u32 = 64;

/// Time between two pairs once the link is known, at first and at most; it doubles with
/// each. A pair costs both ends some 10 µs, breaks a burst in two, and is a
/// page more on the line. 2 ms, 128 ms.
const FIRST_REST: u64 = 2_000_000;
const LONGEST_REST: u64 = 128_000_000;

/// An answer that took longer is lost: a second.
const LOST: u64 = 1_000_000_000;

/// So much longer a long probe may take on fast links, for hosts copy pages, and in a walk
/// half of all probes wait behind bursts of others: some 60 µs were seen. 4 KiB in 120 µs
/// are 34 MB/s: on faster links a packed page may save less than is lost when those
/// around it leave by several calls (10 µs a page), on slower ones it never does.
const COPYING: u64 = 120_000;

/// Time for which a link that has just carried pages in half that time counts as fast, whatever
/// probes say: two seconds.
const PROVEN: u64 = 2_000_000_000;

/// Measurements that must agree.
const AGREE: u32 = 3;

/// After so many that did not agree a link counts as known: it has no one speed.
const ENOUGH: u32 = 10;

/// For so long a link that was slow is not believed to be fast: half a minute.
const GRUDGE: u64 = 30_000_000_000;

/// The state of one link.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    /// Pages since the last pair.
    pages: u32,
    /// Nanoseconds to wait after a pair, once the link is known.
    rest: u64,
    pending: Option<Pending>,
    /// When the last pair began.
    began: u64,
    number: u64,
    /// Round trips of this measurement, in nanoseconds.
    short: Vec<u64>,
    long: Vec<u64>,
    /// Nanoseconds a page takes, if that matters; the result of the last measurement, how many gave
    /// the same in a row, and when one last found the link slow.
    nanos: u64,
    last: u64,
    agreed: u32,
    /// Measurements so far.
    taken: u32,
    slow_at: u64,
    carried: Throughput,
    /// When it was proven to be fast.
    fast_at: u64,
}

/// A probe under way.
#[derive(Clone, Copy, Debug)]
struct Pending {
    number: u64,
    sent: u64,
    long: bool,
}

/// The kind of a received datagram about links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Probe,
    Answer,
}

impl Heard {
    pub(super) fn of(form: u8) -> Option<Self> {
        match form {
            PROBE => Some(Self::Probe),
            ANSWER => Some(Self::Answer),
            _ => None,
        }
    }
}

impl Gauge {
    /// Of a link where a page takes so long, or no time worth a thought.
    #[cfg(test)]
    pub(super) fn measured(nanos: u64) -> Self {
        Self {
            nanos,
            last: nanos,
            agreed: AGREE,
            ..Self::default()
        }
    }

    /// A page goes out in this datagram; the probe that should follow, if it is time.
    pub(super) fn due(&mut self, datagram: &[u8]) -> Option<Vec<u8>> {
        self.pages += 1;
        let gap = if self.is_known() { GAP } else { FIRST_GAP };
        if self.pages < gap {
            return None;
        }
        let now = clock::monotonic();
        self.pages = 0;
        if self.is_known() && now.saturating_sub(self.began) < self.rest {
            return None;
        }
        if self
            .pending
            .is_some_and(|probe| now.saturating_sub(probe.sent) < LOST)
        {
            return None;
        }
        self.began = now;
        if self.is_known() {
            self.rest = (self.rest * 2).clamp(FIRST_REST, LONGEST_REST);
        }
        Some(self.probe(now, datagram, false))
    }

    /// A probe with the header of this datagram, which goes the same way.
    fn probe(&mut self, now: u64, like: &[u8], long: bool) -> Vec<u8> {
        self.number += 1;
        self.pending = Some(Pending {
            number: self.number,
            sent: now,
            long,
        });
        let mut probe = like[..HEADER_SIZE].to_vec();
        header::set_form(&mut probe, PROBE);
        header::set_body(&mut probe, 0);
        probe.extend_from_slice(&self.number.to_le_bytes());
        if long {
            probe.resize(HEADER_SIZE + NUMBER + PAGE, 0);
        }
        probe
    }

    /// An answer came at `now`; the long probe if it was to the short one.
    pub(super) fn answered(&mut self, now: u64, datagram: &[u8]) -> Option<Vec<u8>> {
        let pending = self
            .pending
            .take_if(|probe| number(datagram) == Some(probe.number))?;
        let took = now.saturating_sub(pending.sent);
        if !pending.long {
            self.short.push(took);
            let mut back = [0; HEADER_SIZE];
            turned(datagram, &mut back);
            // The wire is as empty now as it was for the short one.
            return Some(self.probe(clock::monotonic(), &back, true));
        }
        self.long.push(took);
        if self.long.len() >= PAIRS {
            self.conclude(now);
        }
        None
    }

    /// A measurement is complete.
    fn conclude(&mut self, now: u64) {
        let longer = typical(&mut self.long).saturating_sub(typical(&mut self.short));
        self.short.clear();
        self.long.clear();
        let proven = self.fast_at > 0 && now.saturating_sub(self.fast_at) < PROVEN;
        let nanos = if longer > COPYING && !proven {
            longer
        } else {
            0
        };
        let same = (nanos > 0) == (self.last > 0);
        self.agreed = if same { self.agreed + 1 } else { 1 };
        self.last = nanos;
        if nanos > 0 && self.agreed >= AGREE {
            self.slow_at = now;
            self.nanos = nanos;
        } else if nanos == 0 && self.agreed >= AGREE && now.saturating_sub(self.slow_at) > GRUDGE {
            self.nanos = 0;
        }
        self.taken = self.taken.saturating_add(1);
        if self.agreed >= AGREE || self.taken >= ENOUGH {
            self.rest = self.rest.max(FIRST_REST);
        }
    }

    /// True if the speed was measured, or cannot be; the estimate may change later.
    fn is_known(&self) -> bool {
        self.agreed >= AGREE || self.rest > 0
    }

    /// Bytes of a page leave, packed or not. True if these showed that a link taken for slow is
    /// fast.
    pub(super) fn sent(&mut self, bytes: usize) -> bool {
        let Some(now) = self.carried.sent(bytes, COPYING / 2, clock::monotonic) else {
            return false;
        };
        self.fast_at = now;
        let mistaken = self.nanos > 0;
        if mistaken {
            (self.nanos, self.last, self.slow_at) = (0, 0, 0);
            self.agreed = AGREE;
        }
        mistaken
    }

    /// Bytes a second, as far as that is known.
    pub(super) fn rate(&self) -> Option<f64> {
        (self.agreed >= AGREE).then(|| match self.nanos {
            0 => f64::INFINITY,
            nanos => PAGE as f64 * 1e9 / nanos as f64,
        })
    }

    /// Whether it was measured, and bytes matter.
    pub(super) fn is_slow(&self) -> bool {
        self.nanos > 0
    }
}

/// The least but one: the least may have met luck.
fn typical(samples: &mut [u64]) -> u64 {
    samples.sort_unstable();
    samples.get(1).or(samples.first()).copied().unwrap_or(0)
}

/// The answer to a probe: never longer than the probe.
pub(super) fn answer(probe: &[u8]) -> Vec<u8> {
    let mut back = [0; HEADER_SIZE];
    turned(probe, &mut back);
    header::set_form(&mut back, ANSWER);
    let number = probe[HEADER_SIZE..].first_chunk::<NUMBER>();
    [
        back.as_slice(),
        number.map_or(&[], |number| number.as_slice()),
    ]
    .concat()
}

/// The sender of a datagram.
pub(super) fn sender(datagram: &[u8]) -> NodeId {
    NodeId(u16::from_le_bytes([datagram[4], datagram[5]]))
}

fn number(datagram: &[u8]) -> Option<u64> {
    let bytes = datagram.get(HEADER_SIZE..)?.first_chunk::<NUMBER>()?;
    Some(u64::from_le_bytes(*bytes))
}

/// The header of an answer to this datagram.
fn turned(datagram: &[u8], back: &mut [u8; HEADER_SIZE]) {
    back.copy_from_slice(&datagram[..HEADER_SIZE]);
    back[4..6].copy_from_slice(&datagram[6..8]);
    back[6..8].copy_from_slice(&datagram[4..6]);
    header::set_body(back, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: [u8; HEADER_SIZE] = [7; HEADER_SIZE];
    const RTT: u64 = 20_000;

    /// Pages go out until a measurement is complete, on a link where a page takes so
    /// long; how many it took.
    fn measure(gauge: &mut Gauge, now: &mut u64, nanos: u64) -> usize {
        let mut pages = 0;
        // It has been a while.
        gauge.began = 0;
        loop {
            pages += 1;
            let Some(short) = gauge.due(&HEAD) else {
                gauge.began = 0;
                continue;
            };
            // The gauge reads the clock; the measured times are made up.
            let sent = gauge.pending.unwrap().sent;
            let long = gauge.answered(sent + RTT, &answer(&short)).unwrap();
            assert_eq!(long.len(), HEADER_SIZE + NUMBER + PAGE);
            let sent = gauge.pending.unwrap().sent;
            assert_eq!(gauge.answered(sent + RTT + nanos, &answer(&long)), None);
            if gauge.long.is_empty() {
                *now = sent;
                return pages;
            }
        }
    }

    #[test]
    fn a_slow_link_is_believed_when_it_was_slow_again_and_again() {
        let (mut gauge, mut now) = (Gauge::default(), 0);
        measure(&mut gauge, &mut now, 330_000);
        measure(&mut gauge, &mut now, 330_000);
        assert_eq!(gauge.rate(), None);
        let first = measure(&mut gauge, &mut now, 330_000);
        let rate = gauge.rate().unwrap();
        assert!((12e6..13e6).contains(&rate), "{rate}");
        // And is asked less and less.
        let later = measure(&mut gauge, &mut now, 330_000);
        assert!(later > first);
        // A bucket that is full for once changes nothing.
        for _ in 0..AGREE {
            measure(&mut gauge, &mut now, 0);
        }
        assert_eq!(gauge.rate(), Some(rate));
    }

    #[test]
    fn a_link_is_known_after_some_dozens_of_pages() {
        for nanos in [0, 330_000] {
            let (mut gauge, mut now) = (Gauge::default(), 0);
            let pages: usize = (0..AGREE)
                .map(|_| measure(&mut gauge, &mut now, nanos))
                .sum();
            assert!(pages <= 64, "{pages}");
            assert_eq!(gauge.is_slow(), nanos > 0);
            assert!(gauge.rate().is_some());
        }
    }

    #[test]
    fn a_link_that_carries_a_walk_is_not_slow() {
        let mut gauge = Gauge::measured(330_000);
        assert!(gauge.is_slow());
        // As fast as this loop: nothing else is sent here.
        let mistaken = (0..5000).filter(|_| gauge.sent(PAGE));
        assert_eq!(mistaken.count(), 1);
        assert_eq!(gauge.rate(), Some(f64::INFINITY));
        // Probes that waited behind its pages do not make it slow again either.
        let mut now = 0;
        for _ in 0..2 * AGREE {
            measure(&mut gauge, &mut now, 330_000);
        }
        assert!(!gauge.is_slow());
        gauge.fast_at -= PROVEN;
        for _ in 0..AGREE {
            measure(&mut gauge, &mut now, 330_000);
        }
        assert!(gauge.is_slow(), "what was proven is long ago");
    }

    #[test]
    fn a_link_of_no_one_speed_is_asked_seldom_too() {
        let (mut gauge, mut now) = (Gauge::default(), 0);
        let pages: Vec<usize> = (0..ENOUGH + 2)
            .map(|turn| measure(&mut gauge, &mut now, u64::from(turn % 2) * 300_000))
            .collect();
        assert!(!gauge.is_slow() && gauge.rate().is_none());
        assert!(pages[0] < 20 && pages[pages.len() - 1] > 100, "{pages:?}");
    }

    #[test]
    fn what_hosts_need_for_copying_is_no_slow_link() {
        let (mut gauge, mut now) = (Gauge::default(), 0);
        for _ in 0..AGREE {
            measure(&mut gauge, &mut now, 100_000);
        }
        assert_eq!(gauge.rate(), Some(f64::INFINITY));
    }

    #[test]
    fn who_knows_a_link_asks_seldom() {
        let (mut gauge, mut now) = (Gauge::default(), 0);
        for _ in 0..4 {
            measure(&mut gauge, &mut now, 0);
        }
        assert!(!gauge.is_slow() && gauge.rate().is_some());
        gauge.began = clock::monotonic() + LOST;
        assert!((0..10_000).all(|_| gauge.due(&HEAD).is_none()), "too soon");
        gauge.began = 0;
        assert!((0..=GAP).any(|_| gauge.due(&HEAD).is_some()));
        // And less and less.
        measure(&mut gauge, &mut now, 0);
        assert_eq!(gauge.rest, LONGEST_REST);
    }

    #[test]
    fn answers_that_nobody_waits_for_are_nothing() {
        let mut gauge = Gauge::default();
        assert_eq!(
            gauge.answered(1, &answer(&[HEAD.as_slice(), &[1; 8]].concat())),
            None
        );
        assert_eq!(gauge.answered(1, &HEAD), None);
        assert_eq!(
            answer(&HEAD).len(),
            HEADER_SIZE,
            "never longer than the probe"
        );
    }
}
