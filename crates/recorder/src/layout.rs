//! The layout of the memory of a journal.
//!
//! ```text
//! header | slot 0: header, snapshot, log | slot 1: header, snapshot, log
//! ```
//!
//! All of it is words: each store is atomic, and stores of data come before the store that
//! publishes them. So a reader that finds the memory after its writer was killed finds whole
//! records. A record is one word with its checksum and its length in bytes, then the bytes.

use core::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a word.
pub(crate) const WORD: usize = 8;

const MAGIC: u64 = u64::from_le_bytes(*b"PMJOURN1");
const HEADER_WORDS: usize = 8;
const SLOT_HEADER_WORDS: usize = 8;

/// The words of the header.
#[derive(Clone, Copy)]
enum Place {
    Magic,
    /// The slot that counts, or [`STOPPED`].
    Active,
}

/// In place of the active slot: the writer could not go on.
const STOPPED: u64 = u64::MAX;

/// The words of a slot's header.
#[derive(Clone, Copy)]
pub(crate) enum Field {
    /// Counts snapshots; zero while one is being written.
    Serial,
    /// See [`State`].
    State,
    /// Format of the snapshot.
    Format,
    /// Code that wrote the log.
    Fingerprint,
    /// Bytes of the snapshot.
    Snapshot,
    /// Checksum of the snapshot.
    Checksum,
}

/// How far a log has come, in the one word that publishes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Words of the log that count.
    pub(crate) words: u32,
    /// Effects of the last input that were carried out.
    pub(crate) done: u32,
}

impl State {
    pub(crate) fn pack(self) -> u64 {
        u64::from(self.words) << 32 | u64::from(self.done)
    }

    #[expect(clippy::cast_possible_truncation, reason = "two halves of a word")]
    pub(crate) fn unpack(word: u64) -> Self {
        Self {
            words: (word >> 32) as u32,
            done: word as u32,
        }
    }
}

/// The memory of a journal.
#[derive(Clone, Copy)]
pub(crate) struct Layout<'a>(&'a [AtomicU64]);

impl<'a> Layout<'a> {
    pub(crate) fn new(words: &'a [AtomicU64]) -> Self {
        Self(words)
    }

    /// Writes the magic of the memory. No slot counts yet.
    pub(crate) fn format(self) {
        self.stop();
        self.set(Place::Magic, MAGIC);
    }

    /// Whether this is the memory of a journal.
    pub(crate) fn is_journal(self) -> bool {
        let magic = self.0.get(Place::Magic as usize);
        magic.is_some_and(|word| word.load(Ordering::Acquire) == MAGIC)
    }

    /// The slot that counts.
    pub(crate) fn active(self) -> Option<usize> {
        let word = self.0.get(Place::Active as usize)?;
        usize::try_from(word.load(Ordering::Acquire))
            .ok()
            .filter(|slot| *slot < 2)
    }

    /// From now on this slot counts.
    pub(crate) fn activate(self, slot: usize) {
        self.set(Place::Active, slot as u64);
    }

    /// From now on nothing counts.
    pub(crate) fn stop(self) {
        self.set(Place::Active, STOPPED);
    }

    fn set(self, place: Place, value: u64) {
        if let Some(word) = self.0.get(place as usize) {
            word.store(value, Ordering::Release);
        }
    }

    /// Publishes how far the log of a slot has come: no more than one store.
    #[inline]
    pub(crate) fn publish(self, slot: usize, state: State) {
        let half = self.0.len().saturating_sub(HEADER_WORDS) / 2;
        let word = HEADER_WORDS + slot * half + Field::State as usize;
        if let Some(word) = self.0.get(word) {
            word.store(state.pack(), Ordering::Release);
        }
    }

    /// One of the two slots; without any room if the memory is too small.
    pub(crate) fn slot(self, slot: usize) -> Slot<'a> {
        let rest = self.0.get(HEADER_WORDS..).unwrap_or_default();
        let half = rest.len() / 2;
        let (first, second) = rest.split_at(half);
        let words = if slot == 0 { first } else { second };
        match words.split_at_checked(SLOT_HEADER_WORDS) {
            Some((header, data)) => Slot { header, data },
            None => Slot {
                header: &[],
                data: &[],
            },
        }
    }
}

/// A snapshot and the log that goes on from it.
#[derive(Clone, Copy)]
pub(crate) struct Slot<'a> {
    header: &'a [AtomicU64],
    data: &'a [AtomicU64],
}

impl<'a> Slot<'a> {
    pub(crate) fn get(self, field: Field) -> u64 {
        let word = self.header.get(field as usize);
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    pub(crate) fn set(self, field: Field, value: u64) {
        if let Some(word) = self.header.get(field as usize) {
            word.store(value, Ordering::Release);
        }
    }

    pub(crate) fn state(self) -> State {
        State::unpack(self.get(Field::State))
    }

    /// The words for snapshot and log.
    pub(crate) fn data(self) -> &'a [AtomicU64] {
        self.data
    }

    /// The words for the log, behind a snapshot of so many bytes.
    pub(crate) fn log(self, snapshot: u64) -> Option<&'a [AtomicU64]> {
        let words = usize::try_from(snapshot.div_ceil(WORD as u64)).ok()?;
        self.data.get(words..)
    }
}

/// Stores bytes, padded with zeros to whole words; there must be room.
pub(crate) fn store(words: &[AtomicU64], bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks::<WORD>();
    for (word, chunk) in words.iter().zip(whole) {
        word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
    }
    if !rest.is_empty() {
        let mut last = [0; WORD];
        last[..rest.len()].copy_from_slice(rest);
        words[whole.len()].store(u64::from_le_bytes(last), Ordering::Relaxed);
    }
}

/// The first bytes of some words.
pub(crate) fn load(words: &[AtomicU64], bytes: u64) -> Option<Vec<u8>> {
    let length = usize::try_from(bytes).ok()?;
    let words = words.get(..length.div_ceil(WORD))?;
    let mut loaded = Vec::with_capacity(words.len() * WORD);
    for word in words {
        loaded.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    loaded.truncate(length);
    Some(loaded)
}
