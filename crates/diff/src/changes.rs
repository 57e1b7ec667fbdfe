//! The changes of a diff, word by word.

use crate::{LINE, WORD};

/// One changed word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// Its offset in the page, in bytes; a multiple of eight.
    pub offset: usize,
    /// The mask of its changed bytes, the first byte in the lowest bit.
    pub mask: u8,
    /// The changed bytes.
    pub bytes: &'a [u8],
}

/// An iterator over the changed words of a checked diff.
#[derive(Clone, Debug)]
pub struct Changes<'a> {
    lines: u64,
    /// The words of the first line that are not yet returned.
    word_mask: u8,
    words: &'a [u8],
    masks: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> Changes<'a> {
    pub(crate) fn new(lines: u64, words: &'a [u8], masks: &'a [u8], bytes: &'a [u8]) -> Self {
        let mut changes = Self {
            lines,
            word_mask: 0,
            words,
            masks,
            bytes,
        };
        changes.begin_line();
        changes
    }

    fn begin_line(&mut self) {
        if let Some((mask, rest)) = self.words.split_first() {
            self.word_mask = *mask;
            self.words = rest;
        }
    }
}

impl<'a> Iterator for Changes<'a> {
    type Item = Change<'a>;

    fn next(&mut self) -> Option<Change<'a>> {
        if self.word_mask == 0 {
            return None;
        }
        let line = self.lines.trailing_zeros() as usize;
        let word = self.word_mask.trailing_zeros() as usize;
        let (mask, masks) = self.masks.split_first()?;
        let (bytes, rest) = self.bytes.split_at_checked(mask.count_ones() as usize)?;
        (self.masks, self.bytes) = (masks, rest);
        self.word_mask &= self.word_mask - 1;
        if self.word_mask == 0 {
            self.lines &= self.lines - 1;
            self.begin_line();
        }
        Some(Change {
            offset: (line * LINE + word) * WORD,
            mask: *mask,
            bytes,
        })
    }
}
