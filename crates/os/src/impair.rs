//! Simulates a bad network: loses, duplicates, delays and reorders outgoing datagrams, identically
//! for the same seed. For tests and the sandbox.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

/// Degree of the impairments, as in `loss=10%,dup=1%,reorder=5%,delay=1ms,seed=7`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Impairment {
    /// Share of datagrams that are lost, 0 to 1.
    pub loss: f64,
    /// Share of datagrams that are sent twice, 0 to 1.
    pub dup: f64,
    /// Share of datagrams that are held back behind later ones, 0 to 1.
    pub reorder: f64,
    /// Delay of every datagram.
    pub delay: Duration,
    /// Seed for loss, duplication and reordering.
    pub seed: u64,
}

/// The text does not describe an impairment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}`: an impairment is like `loss=10%,dup=1%,reorder=5%,delay=1ms,seed=7`")]
pub struct ImpairmentError(String);

impl FromStr for Impairment {
    type Err = ImpairmentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut impairment = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let set = part.split_once('=').and_then(|(key, value)| {
                match key.trim() {
                    "loss" => impairment.loss = share(value)?,
                    "dup" => impairment.dup = share(value)?,
                    "reorder" => impairment.reorder = share(value)?,
                    "delay" => impairment.delay = duration(value)?,
                    "seed" => impairment.seed = value.trim().parse().ok()?,
                    _ => return None,
                }
                Some(())
            });
            set.ok_or_else(|| ImpairmentError(part.into()))?;
        }
        Ok(impairment)
    }
}

fn share(text: &str) -> Option<f64> {
    let text = text.trim();
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
        None => text.parse().ok()?,
    };
    (0.0..=1.0).contains(&share).then_some(share)
}

fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let unit = text.find(|c: char| c.is_ascii_alphabetic())?;
    let scale = match &text[unit..] {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    let seconds = text[..unit].trim().parse::<f64>().ok()? * scale;
    (0.0..=60.0)
        .contains(&seconds)
        .then(|| Duration::from_secs_f64(seconds))
}

/// The datagrams on their way through the simulated network.
#[derive(Debug)]
pub struct Impairer {
    impairment: Impairment,
    dice: Dice,
    serial: u64,
    held: BinaryHeap<Reverse<Held>>,
}

/// A datagram in transit; ordered by due time, then by arrival.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    due: u64,
    serial: u64,
    to: SocketAddr,
    bytes: Vec<u8>,
}

/// Additional delay of a datagram that is held back for reordering.
const HELD_BACK: Duration = Duration::from_micros(300);

impl Impairer {
    /// A network with these impairments.
    #[must_use]
    pub fn new(impairment: Impairment) -> Self {
        Self {
            impairment,
            dice: Dice(impairment.seed),
            serial: 0,
            held: BinaryHeap::new(),
        }
    }

    /// Accepts a datagram at time `now` (nanoseconds).
    pub fn offer(&mut self, now: u64, to: SocketAddr, bytes: &[u8]) {
        if self.dice.falls(self.impairment.loss) {
            return;
        }
        let copies = 1 + u64::from(self.dice.falls(self.impairment.dup));
        for _ in 0..copies {
            let mut wait = self.impairment.delay;
            if self.dice.falls(self.impairment.reorder) {
                wait += HELD_BACK;
            }
            self.serial += 1;
            self.held.push(Reverse(Held {
                due: now + u64::try_from(wait.as_nanos()).unwrap_or(0),
                serial: self.serial,
                to,
                bytes: bytes.to_vec(),
            }));
        }
    }

    /// When the next datagram is released.
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        self.held.peek().map(|held| held.0.due)
    }

    /// A datagram that is due at `now`, if there is one.
    pub fn release(&mut self, now: u64) -> Option<(SocketAddr, Vec<u8>)> {
        if self.due()? > now {
            return None;
        }
        self.held.pop().map(|held| (held.0.to, held.0.bytes))
    }
}

/// SplitMix64: a small seeded generator, good enough for simulated impairments.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn falls(&mut self, share: f64) -> bool {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        ((mixed >> 11) as f64) / ((1u64 << 53) as f64) < share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        let text = "loss=10%,dup=0.01, reorder=5%,delay=1.5ms,seed=7";
        let read: Impairment = text.parse().unwrap();
        assert_eq!((read.loss, read.dup, read.seed), (0.1, 0.01, 7));
        assert_eq!(read.delay, Duration::from_micros(1500));
        for bad in ["loss", "loss=2", "loss=-1%", "delay=5", "delay=1h", "x=1"] {
            assert!(bad.parse::<Impairment>().is_err(), "{bad}");
        }
    }

    fn run(text: &str) -> Vec<u32> {
        let mut network = Impairer::new(text.parse().unwrap());
        let to = "127.0.0.1:9".parse().unwrap();
        let mut out = Vec::new();
        for number in 0..10_000u32 {
            let now = u64::from(number) * 10_000;
            network.offer(now, to, &number.to_ne_bytes());
            while let Some((_, bytes)) = network.release(now) {
                out.push(u32::from_ne_bytes(bytes.try_into().unwrap()));
            }
        }
        out
    }

    #[test]
    fn is_as_bad_as_it_says_and_repeatable() {
        let bad = run("loss=10%,dup=5%,reorder=5%,seed=3");
        assert_eq!(bad, run("loss=10%,dup=5%,reorder=5%,seed=3"));
        assert_ne!(bad, run("loss=10%,dup=5%,reorder=5%,seed=4"));
        assert!((9_200..9_700).contains(&bad.len()), "{}", bad.len());
        assert!(!bad.is_sorted());
        assert_eq!(run("seed=1"), (0..10_000).collect::<Vec<_>>());
        assert_eq!(run("delay=1s").len(), 0);
    }
}
