//! The layout of a board's segment: what its first page says, and the slots with their heads.

use crate::{Error, Policy, Result, Segment};
use pagemesh_wire::PAGE_SIZE;

/// How the first page of a board begins.
pub(super) const MAGIC: u64 = 0x3164_7261_6f42_4d50; // "PMBoard1"

/// Bytes before the state in a slot: number, time, length and node, checksum.
pub(super) const HEAD: usize = 40;

/// Bytes of the largest state.
pub(super) const LARGEST: u64 = 16 << 20;

/// States that stay readable at most, the newest included.
pub(super) const HISTORY: u32 = 1024;

/// Slots besides those of the history: a reader has time to copy a state while others are written.
pub(super) const SPARE: u64 = 3;

/// Where the slots are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Bytes of the largest state.
    pub(super) size: usize,
    pub(super) slots: u64,
    pub(super) history: u64,
}

/// The head of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) number: u64,
    pub(super) nanos: u64,
    pub(super) length: u32,
    pub(super) writer: u16,
    pub(super) sum: u32,
    pub(super) presence: u32,
}

impl Head {
    pub(super) fn encode(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.nanos.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.length.to_le_bytes());
        bytes[20..22].copy_from_slice(&self.writer.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.sum.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.presence.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; HEAD]) -> Self {
        let long = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("inside"));
        let short = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("inside"));
        Self {
            number: long(0),
            nanos: long(8),
            length: short(16),
            writer: short(20) as u16,
            sum: short(24),
            presence: short(28),
        }
    }

    /// The checksum of a state with this head.
    pub(super) fn sum_of(self, state: &[u8]) -> u32 {
        let mut sum = crc32fast::Hasher::new();
        let head = Self { sum: 0, ..self };
        sum.update(&head.encode());
        sum.update(state);
        sum.finalize()
    }
}

impl Layout {
    /// The pages of a slot.
    pub(super) fn pages(self) -> u64 {
        ((HEAD + self.size) as u64).div_ceil(PAGE_SIZE as u64)
    }

    /// Whether slots are short pages: only what a state needs travels.
    pub(super) fn short(self) -> bool {
        self.pages() == 1
    }

    /// Bytes of a short page.
    pub(super) fn prefix(self) -> u16 {
        match self.short() {
            true => (HEAD + self.size).next_multiple_of(8) as u16,
            false => Policy::SHORT,
        }
    }

    /// Where the slot of a state begins.
    pub(super) fn at(self, number: u64) -> usize {
        let page = 1 + number % self.slots * self.pages();
        page as usize * PAGE_SIZE
    }

    /// The number of a state after `last` whose slot a writer does not write to that was stopped
    /// when `since` was the newest: it was about to publish the next one, or just that one.
    pub(super) fn beside(self, last: u64, since: u64) -> u64 {
        let slot = |number: u64| number % self.slots;
        let taken = [slot(since), slot(since + 1)];
        let mut numbers = last.max(since + 1) + 1..;
        let free = numbers.find(|number| !taken.contains(&slot(*number)));
        free.expect("a board has more than two slots")
    }

    pub(super) fn bytes(self) -> u64 {
        (1 + self.slots * self.pages()) * PAGE_SIZE as u64
    }

    pub(super) fn encode(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        let words = [MAGIC, self.size as u64, self.slots, self.history];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Checks what somebody else wrote.
    pub(super) fn decode(bytes: &[u8; 32], segment: &Segment) -> Result<Self> {
        let mut words = bytes
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
        let mut next = || words.next().unwrap_or(0);
        let (magic, size, slots, history) = (next(), next(), next(), next());
        if magic != MAGIC || size > LARGEST || slots < 3 || history >= slots {
            return Err(Error::Invalid("this segment is no board"));
        }
        let size = size as usize;
        let layout = Self {
            size,
            slots,
            history,
        };
        let fits = slots <= u64::from(HISTORY) + SPARE && layout.bytes() <= segment.size();
        fits.then_some(layout)
            .ok_or(Error::Invalid("this segment is no board"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_changes_the_sum() {
        let head = Head {
            number: 7,
            nanos: 9,
            length: 3,
            writer: 2,
            sum: 0,
            presence: 1,
        };
        let sum = head.sum_of(b"abc");
        assert_ne!(sum, head.sum_of(b"abd"));
        assert_ne!(sum, Head { number: 8, ..head }.sum_of(b"abc"));
        let whole = Head { sum, ..head };
        assert_eq!(Head::decode(&whole.encode()), whole);
        assert_eq!(whole.sum_of(b"abc"), sum, "the sum itself does not count");
    }

    #[test]
    fn a_stopped_writers_slots_are_left_alone() {
        let layout = Layout {
            size: 32,
            slots: 4,
            history: 1,
        };
        let mut last = 7;
        for expected in [9, 10, 13, 14, 17, 18] {
            last = layout.beside(last, 7);
            assert_eq!(last, expected);
        }
    }

    #[test]
    fn eb2_small_states_are_short_pages_of_their_own_length() {
        let layout = |size| Layout {
            size,
            slots: 4,
            history: 1,
        };
        assert_eq!((layout(32).prefix(), layout(32).pages()), (72, 1));
        assert_eq!((layout(4096).short(), layout(4096).pages()), (false, 2));
        assert_eq!(layout(1 << 20).pages(), 257);
        assert_eq!(layout(4056).prefix(), 4096);
        assert_eq!(layout(32).at(5), 2 * PAGE_SIZE);
    }
}
