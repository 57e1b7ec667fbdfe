//! Finding changes and encoding them.

use crate::wide::{self, Ones};
use crate::{Diff, HEAD, LINE, LINES, PAGE, Page, WORD};

/// Bytes per line.
pub(crate) const SPAN: usize = LINE * WORD;

/// The changed bytes of a page: a word for each line, a bit for each byte.
pub(crate) type Masks = [u64; LINES];

/// The changed lines of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines(u64);

impl Lines {
    pub(crate) fn new(lines: u64) -> Self {
        Self(lines)
    }

    /// True if no line changed.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Copies these lines from one page to another, to update a twin from its page.
    pub fn copy(self, from: &Page, to: &mut Page) {
        let (from, _) = from.as_chunks::<SPAN>();
        let (to, _) = to.as_chunks_mut::<SPAN>();
        let mut rest = self.0;
        while rest != 0 {
            let line = rest.trailing_zeros() as usize;
            to[line] = from[line];
            rest &= rest - 1;
        }
    }
}

/// Appends to `out` the diff from `twin` to `now`. Returns the changed lines.
pub fn encode(twin: &Page, now: &Page, out: &mut Vec<u8>) -> Lines {
    wide::encode(twin, now, out)
}

/// Appends to `out` the diff that has the effect of `older` followed by `newer`.
pub fn merge(older: &Diff<'_>, newer: &Diff<'_>, out: &mut Vec<u8>) {
    let mut page = [0; PAGE];
    let mut masks = [0; LINES];
    for diff in [older, newer] {
        diff.apply(&mut page);
        for change in diff.changes() {
            let bits = u64::from(change.mask) << (change.offset % SPAN);
            masks[change.offset / SPAN] |= bits;
        }
    }
    wide::write(&masks, &page, out);
}

/// The contents of a diff before it is written.
pub(crate) struct Plan {
    pub(crate) lines: u64,
    /// Number of changed lines.
    pub(crate) count: usize,
    /// For each changed line the mask of its changed words.
    pub(crate) words: [u8; LINES],
    masks: usize,
    bytes: usize,
}

impl Plan {
    /// The plan for these masks. Call it in functions compiled with bit-count instructions, where
    /// available.
    #[inline(always)]
    pub(crate) fn new(masks: &Masks) -> Self {
        let mut lines = 0;
        for (line, mask) in masks.iter().enumerate() {
            lines |= u64::from(*mask != 0) << line;
        }
        // Keep the counts in registers, not in the plan, because otherwise each line would wait for
        // the one before. Visit only the lines that changed, without a branch for each line, which
        // the processor could not predict.
        let (mut count, mut parts, mut bytes) = (0, 0, 0);
        let mut every = [0; LINES];
        for (line, place) in Ones(lines).zip(&mut every) {
            let mask = masks[line];
            let words = words_of(mask);
            *place = words;
            count += 1;
            parts += words.count_ones();
            bytes += mask.count_ones();
        }
        Self {
            lines,
            count,
            words: every,
            masks: parts as usize,
            bytes: bytes as usize,
        }
    }

    /// The plan for these lines with these adjacent word masks; the counts are those of masks and
    /// bytes.
    pub(crate) fn of(lines: u64, words: [u8; LINES], [parts, bytes]: [u32; 2]) -> Self {
        Self {
            lines,
            count: lines.count_ones() as usize,
            words,
            masks: parts as usize,
            bytes: bytes as usize,
        }
    }

    /// Length of the whole diff in bytes.
    pub(crate) fn length(&self) -> usize {
        HEAD + self.count + self.masks + self.bytes
    }
}

/// One bit for each byte that is not zero.
#[inline(always)]
pub(crate) fn words_of(mask: u64) -> u8 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    // Sets the highest bit of each byte that is not zero.
    let high = (((mask & LOW) + LOW) | mask) & !LOW;
    // Gathers these bits: bit 8i+7 becomes bit 56+i.
    ((high >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_a_bit_for_each_byte_that_is_not_zero() {
        for mask in 0..=u8::MAX {
            for fill in [1u8, 0x7f, 0x80, 0xff] {
                let bytes: [u8; 8] =
                    std::array::from_fn(|at| if (mask >> at) & 1 == 1 { fill } else { 0 });
                assert_eq!(words_of(u64::from_le_bytes(bytes)), mask, "{bytes:x?}");
            }
        }
    }

    #[test]
    fn a_twin_follows_where_its_page_changed() {
        let (mut twin, mut now) = ([1; PAGE], [1; PAGE]);
        for at in [0, 63, 64, 1000, 4095] {
            now[at] = 2;
        }
        let lines = encode(&twin, &now, &mut Vec::new());
        assert!(!lines.is_empty());
        lines.copy(&now, &mut twin);
        assert_eq!(twin, now);
        assert!(encode(&twin, &now, &mut Vec::new()).is_empty());
    }
}
