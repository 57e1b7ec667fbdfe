//! Whether packing pays on one link.
//!
//! A page packed from `PAGE` to `len` bytes saves `(PAGE - len) / rate` on the wire and costs the
//! time of packing and unpacking. The judge keeps averages of both for each codec, and the link's
//! measured rate, and names the codec that gains most. If none gains, it pauses, longer each time,
//! before it tries a page again; if the link is so fast that not even a page of zero length would
//! pay, it never tries. Zero pages need no judge: finding them costs next to nothing, and sending
//! them saves everything.

use crate::{Codec, PAGE};

/// The longest pause between two tries, in pages.
const LONGEST_PAUSE: u32 = 128;
/// Weight of a new page in the averages.
const WEIGHT: f64 = 1.0 / 8.0;
/// Upper bound of the time of unpacking, as a share of the time of packing (docs/design/kernel.md,
/// "What a page costs").
const UNPACKING: f64 = 0.6;
/// The fastest packing ever measured, in nanoseconds per page: the expected cost of a codec before
/// it was measured.
const FASTEST: f64 = 250.0;

/// Upper limit of a measured time, in nanoseconds per page: a longer try was interrupted, and
/// without the limit the averages would remember it for thousands of pages.
const SLOWEST: u64 = 40_000;

/// Averages of one codec over the pages of one link.
#[derive(Clone, Copy, Debug)]
struct Record {
    /// Bytes saved per page.
    saved: f64,
    /// Nanoseconds per page, packing and unpacking.
    nanos: f64,
}

/// Chooses the codec for each page of one link.
#[derive(Clone, Debug)]
pub struct Judge {
    /// Nanoseconds per byte on the link.
    nanos_per_byte: f64,
    records: [Option<Record>; Codec::ALL.len()],
    /// Pages until the next try.
    pause: u32,
    /// Length of the next pause, in pages.
    next_pause: u32,
    /// Number of tries so far; at regular intervals the codec that seems worse is tried.
    tries: u32,
}

/// One out of this many tries uses another codec than the best.
const OTHER: u32 = 16;

impl Judge {
    /// For a link of unknown rate, which counts as fast, so that no time is spent on packing before
    /// there is a reason.
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

    /// Sets the link's measured rate.
    pub fn measured(&mut self, bytes_per_second: f64) {
        let before = self.nanos_per_byte;
        self.nanos_per_byte = 1e9 / bytes_per_second.max(1.0);
        if self.nanos_per_byte > before * 2.0 {
            // Packing that did not pay before may pay now.
            self.pause = 0;
            self.next_pause = 1;
        }
    }

    /// The codec to try with the next page.
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

    /// Notes the result of a try: the page's length afterwards (`PAGE` if it was not packed), and
    /// the time it took.
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

    /// Expected gain per page, in nanoseconds.
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
