//! Diffs of pages, exact to the byte: made, encoded, applied, merged.
//!
//! Two nodes may write neighbouring bytes of one word between two
//! synchronizations, so a diff never carries a byte that did not change (T7).
//!
//! # The encoding
//! A page has 64 lines of 8 words of 8 bytes. A diff is four sections:
//!
//! | section | what | bytes |
//! |---|---|---|
//! | lines | one bit a line: it changed | 8, little endian |
//! | words | for each changed line one bit a word | one a changed line |
//! | masks | for each changed word one bit a byte | one a changed word |
//! | bytes | the changed bytes, in order | one a changed byte |
//!
//! Every length follows from the section before, so there is no offset or count that could be
//! wrong; a mask without bits does not occur. Every set of changes has exactly one encoding. The
//! longest has [`LONGEST`] bytes.

#![forbid(unsafe_code)]

mod changes;
mod encode;
mod wide;

use core::ops::Range;

pub use changes::{Change, Changes};
pub use encode::{Lines, encode, merge};

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// A page's contents.
pub type Page = [u8; PAGE];

/// Bytes of a word.
const WORD: usize = 8;
/// Words of a line.
const LINE: usize = 8;
/// Lines of a page.
const LINES: usize = PAGE / (LINE * WORD);
/// Bytes of the first section.
const HEAD: usize = LINES / 8;

/// The longest diff: every byte of the page changed.
pub const LONGEST: usize = HEAD + LINES + LINES * LINE + PAGE;

/// The bytes are not a diff.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a diff of a page")]
pub struct Malformed;

/// A diff with a valid encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Diff<'a> {
    lines: u64,
    words: &'a [u8],
    masks: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> Diff<'a> {
    /// Checks the encoding of a diff, which may come from an untrusted source.
    ///
    /// # Errors
    /// If it is not valid: too short, too long, or with a mask that has no bits.
    pub fn check(encoded: &'a [u8]) -> Result<Self, Malformed> {
        let (head, rest) = encoded.split_first_chunk::<HEAD>().ok_or(Malformed)?;
        let lines = u64::from_le_bytes(*head);
        let (words, rest) = section(rest, lines.count_ones() as usize)?;
        let (masks, rest) = section(rest, ones(words)?)?;
        let (bytes, rest) = section(rest, ones(masks)?)?;
        if !rest.is_empty() {
            return Err(Malformed);
        }
        Ok(Self {
            lines,
            words,
            masks,
            bytes,
        })
    }

    /// True if nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines == 0
    }

    /// Number of changed bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The changed words in order: the offset of each in the page, its mask of changed bytes, and
    /// these bytes.
    #[must_use]
    pub fn changes(&self) -> Changes<'a> {
        Changes::new(self.lines, self.words, self.masks, self.bytes)
    }

    /// The ranges of the page that both diffs change, in order; adjacent bytes form one range.
    #[must_use]
    pub fn overlap(&self, other: &Self) -> Vec<Range<usize>> {
        let mut masks = [0_u8; PAGE / WORD];
        for change in self.changes() {
            masks[change.offset / WORD] = change.mask;
        }
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for change in other.changes() {
            let both = change.mask & masks[change.offset / WORD];
            for bit in (0..WORD).filter(|bit| (both >> bit) & 1 == 1) {
                let at = change.offset + bit;
                match ranges.last_mut() {
                    Some(last) if last.end == at => last.end += 1,
                    _ => ranges.push(at..at + 1),
                }
            }
        }
        ranges
    }

    /// Applies the changes to a page; its other bytes keep their values.
    pub fn apply(&self, page: &mut Page) {
        wide::apply(self, page);
    }
}

/// Splits `length` bytes off the front.
fn section(bytes: &[u8], length: usize) -> Result<(&[u8], &[u8]), Malformed> {
    bytes.split_at_checked(length).ok_or(Malformed)
}

/// Number of bits that are set; every byte must have at least one.
fn ones(masks: &[u8]) -> Result<usize, Malformed> {
    if masks.contains(&0) {
        return Err(Malformed);
    }
    // Eight bytes at a time, because not every processor has a bit-count instruction.
    let (eights, rest) = masks.as_chunks();
    let eights = eights.iter().map(|eight| u64::from_le_bytes(*eight));
    let all = eights.chain(rest.iter().map(|mask| (*mask).into()));
    Ok(all.map(|masks| masks.count_ones() as usize).sum())
}
