//! Whether packing pays on one link.
//!
//! A page packed from `PAGE` to `len` bytes saves `(PAGE - len) / rate` on the
//! wire and costs what packing and unpacking take. The judge keeps averages of
//! both for each codec and the link's rate as it was measured, and names the
//! codec that gains most. Where none does it pauses, longer each time, before it
//! tries a page again; where the link is so fast that not even a page that
//! vanished would pay, it never tries. Zero pages need no judge: to find them
//! costs next to nothing and to send them saves everything.

use crate::{Codec, PAGE};

/// The longest pause, in pages.
const LONGEST_PAUSE: u32 = 128;
/// An average forgets a 1/8 with every page.
const WEIGHT: f64 = 1.0 / 8.0;
/// What unpacking takes, of the time of packing, at most (docs/design/kernel.md, "What a page costs").
const UNPACKING: f64 = 0.6;
/// The fastest a codec was ever seen, nanoseconds a page: what it is expected to
/// cost before it was measured.
const FASTEST: f64 = 250.0;

/// The slowest that counts, nanoseconds a page: what took longer was interrupted, which
/// is not the codec's fault and would be remembered for thousands of pages.
const SLOWEST: u64 = 40_000;

/// What is known of one codec on one link's pages.
#[derive(Clone, Copy, Debug)]
struct Record {
    /// Bytes saved a page.
    saved: f64,
    /// Nanoseconds a page, packing and unpacking.
    nanos: f64,
}

/// Says for each page of one link what to try.
#[derive(Clone, Debug)]
pub struct Judge {
    /// Nanoseconds a byte takes on the link.
    nanos_per_byte: f64,
    records: [Option<Record>; Codec::ALL.len()],
    /// Pages to go before the next try.
    pause: u32,
    /// How long the next pause will be.
    next_pause: u32,
    /// Tries so far; every so often the codec that looks worse is tried.
    tries: u32,
}

/// One try of so many is with another codec than the best.
const OTHER: u32 = 16;

impl Judge {
    /// For a link of which nothing is known: taken for fast, so that nobody pays
    /// before there is a reason.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            nanos_per_byte: 0.0,
            records: [None; Codec::ALL.len()],
            pause: 0,
            next_pause: 1,
            tries: 0,
        }
    }

    /// The link was measured: it carries so many bytes a second.
    pub fn measured(&mut self, bytes_per_second: f64) {
        let before = self.nanos_per_byte;
        self.nanos_per_byte = 1e9 / bytes_per_second.max(1.0);
        if self.nanos_per_byte > before * 2.0 {
            // What did not pay then may pay now.
            self.pause = 0;
            self.next_pause = 1;
        }
    }

    /// What to try with the next page.
    pub fn choose(&mut self) -> Option<Codec> {
        if !self.may_ever_pay() {
            return None;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        self.tries = self.tries.wrapping_add(1);
        let [one, other] = Codec::ALL;
        let best = if self.gain(one) >= self.gain(other) {
            one
        } else {
            other
        };
        let strays = self.tries.is_multiple_of(OTHER);
        Some(match best {
            Codec::Runs if strays => Codec::Lz4,
            Codec::Lz4 if strays => Codec::Runs,
            best => best,
        })
    }

    /// A page was tried: it became so many bytes (`PAGE` if it stayed whole), and
    /// trying took so long.
    pub fn tried(&mut self, codec: Codec, len: usize, nanos: u64) {
        let seen = Record {
            saved: PAGE.saturating_sub(len) as f64,
            nanos: nanos.min(SLOWEST) as f64 * if len < PAGE { 1.0 + UNPACKING } else { 1.0 },
        };
        let record = &mut self.records[codec as usize];
        *record = Some(record.map_or(seen, |before| Record {
            saved: before.saved + (seen.saved - before.saved) * WEIGHT,
            nanos: before.nanos + (seen.nanos - before.nanos) * WEIGHT,
        }));
        if Codec::ALL.into_iter().any(|codec| self.gain(codec) > 0.0) {
            self.next_pause = 1;
        } else {
            self.pause = self.next_pause;
            self.next_pause = (self.next_pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Nanoseconds a page is expected to gain.
    fn gain(&self, codec: Codec) -> f64 {
        let unknown = Record {
            saved: PAGE as f64,
            nanos: FASTEST,
        };
        let record = self.records[codec as usize].unwrap_or(unknown);
        record.saved * self.nanos_per_byte - record.nanos
    }

    fn may_ever_pay(&self) -> bool {
        let fastest = self.records.iter().flatten().map(|record| record.nanos);
        let fastest = fastest.fold(FASTEST, f64::min);
        PAGE as f64 * self.nanos_per_byte > fastest.max(FASTEST)
    }
}

impl Default for Judge {
    fn default() -> Self {
        Self::new()
    }
}
