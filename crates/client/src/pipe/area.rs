//! Where the words and the data of a pipe lie: one area for each end, which that end alone stores
//! to (Fig. 3 of the Mether paper).

use pagemesh_wire::PAGE_SIZE;

use crate::{Error, Policy, Result, Segment};

/// Bytes before the data in an area.
pub const HEAD: usize = 64;

/// Bytes of the longest message.
pub const LONGEST: usize = 16 << 20;

/// Messages of so many bytes travel as short pages: a datagram that fits into a multicast batch.
const SHORT: usize = 192;

/// How an area begins that an end has stored to.
pub const MAGIC: u64 = 0x3165_7069_504d_5045; // "EPMPipe1"

/// Words of an area, by their offsets.
pub const WRITE_GENERATION: usize = 0;
pub const READ_GENERATION: usize = 8;
/// `WriteDataSize`, and the checksum of the message.
pub const WRITE_SIZE: usize = 16;
/// `ReadDataSize`.
pub const READ_SIZE: usize = 24;
/// When the end was opened: another number for each opening. 0 if it never was.
pub const SESSION: usize = 32;
/// The kind of the message.
pub const KIND: usize = 40;
pub const MARK: usize = 48;
/// The session that was closed last.
pub const CLOSED: usize = 56;

/// Where the areas are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Pages of an area.
    pub pages: usize,
    /// Bytes of a short page.
    pub prefix: usize,
}

impl Layout {
    /// For messages of so many bytes.
    pub fn of(size: usize) -> Result<Self> {
        if size > LONGEST {
            return Err(Error::Invalid("a message of a pipe has at most 16 MiB"));
        }
        Ok(Self {
            pages: (HEAD + size).div_ceil(PAGE_SIZE),
            prefix: (HEAD + size.min(SHORT)).next_multiple_of(8),
        })
    }

    /// Of an existing segment.
    pub fn find(segment: &Segment) -> Result<Self> {
        let Policy::Views { prefix } = segment.info().spec.policy else {
            return Err(NO_PIPE);
        };
        let layout = Self {
            pages: segment.size() as usize / PAGE_SIZE / 2,
            prefix: prefix.into(),
        };
        let fits = layout.bytes() == segment.size() && layout.size() <= LONGEST + PAGE_SIZE;
        let fits = fits && layout.pages > 0 && layout.prefix >= HEAD;
        fits.then_some(layout).ok_or(NO_PIPE)
    }

    /// Bytes of both areas.
    pub fn bytes(self) -> u64 {
        (2 * self.pages * PAGE_SIZE) as u64
    }

    /// Bytes of the longest message.
    pub fn size(self) -> usize {
        self.pages * PAGE_SIZE - HEAD
    }

    /// Where the area of an end begins.
    pub fn area(self, end: usize) -> usize {
        end * self.pages * PAGE_SIZE
    }

    /// Whether a message lies in the short page.
    pub fn is_short(self, length: usize) -> bool {
        HEAD + length <= self.prefix
    }
}

pub const NO_PIPE: Error = Error::Invalid("this segment is no pipe");

/// The head of a message, as its reader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub generation: u64,
    pub kind: i64,
    pub length: usize,
    pub sum: u32,
}

impl Head {
    /// The word with length and checksum.
    pub fn size_word(self) -> u64 {
        self.length as u64 | u64::from(self.sum) << 32
    }

    /// From the words that an end stored, which may be any.
    pub fn from_words(generation: u64, kind: u64, size: u64) -> Self {
        Self {
            generation,
            kind: kind as i64,
            length: size as u32 as usize,
            sum: (size >> 32) as u32,
        }
    }

    /// The checksum of a message with this head.
    pub fn sum_of(self, message: &[u8]) -> u32 {
        let mut sum = crc32fast::Hasher::new();
        sum.update(&self.generation.to_le_bytes());
        sum.update(&self.kind.to_le_bytes());
        sum.update(&(self.length as u64).to_le_bytes());
        sum.update(message);
        sum.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e15_a_pipe_for_small_messages_has_two_pages() {
        let layout = Layout::of(PAGE_SIZE - HEAD).unwrap();
        assert_eq!(layout.bytes(), 2 * PAGE_SIZE as u64);
        assert_eq!(layout.size(), PAGE_SIZE - HEAD);
        assert!(layout.is_short(SHORT) && !layout.is_short(SHORT + 1));
        assert_eq!(layout.area(1), PAGE_SIZE);
        assert_eq!(Layout::of(PAGE_SIZE).unwrap().pages, 2);
        assert!(Layout::of(LONGEST).is_ok() && Layout::of(LONGEST + 1).is_err());
        assert_eq!(Layout::of(0).unwrap().prefix, HEAD);
    }

    #[test]
    fn a_changed_byte_or_word_changes_the_sum() {
        let head = Head {
            generation: 4,
            kind: -2,
            length: 3,
            sum: 0,
        };
        let sum = head.sum_of(b"abc");
        assert_ne!(sum, head.sum_of(b"abd"));
        for other in [
            Head { kind: 2, ..head },
            Head {
                generation: 5,
                ..head
            },
        ] {
            assert_ne!(sum, other.sum_of(b"abc"));
        }
        let whole = Head { sum, ..head };
        let again = Head::from_words(4, -2_i64 as u64, whole.size_word());
        assert_eq!(again, whole);
    }
}
