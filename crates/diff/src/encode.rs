//! Finding changes and writing them down.

use crate::wide::{self, Ones};
use crate::{Diff, HEAD, LINE, LINES, PAGE, Page, WORD};

/// Bytes of a line.
pub(crate) const SPAN: usize = LINE * WORD;

/// Which bytes of a page changed: a word for each line, a bit for each byte.
pub(crate) type Masks = [u64; LINES];

/// Lines of a page that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines(u64);

impl Lines {
    pub(crate) fn new(lines: u64) -> Self {
        Self(lines)
    }

    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Copies these lines from one page to another: a twin follows its page.
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

/// Appends to `out` what changed from `twin` to `now`. Tells where that was.
pub fn encode(twin: &Page, now: &Page, out: &mut Vec<u8>) -> Lines {
    wide::encode(twin, now, out)
}

/// Appends to `out` the diff that does what `older` and then `newer` do.
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

/// What a diff is going to have.
pub(crate) struct Plan {
    pub(crate) lines: u64,
    /// How many lines.
    pub(crate) count: usize,
    /// Of each changed line its changed words.
    pub(crate) words: [u8; LINES],
    masks: usize,
    bytes: usize,
}

impl Plan {
    /// To be called where the processor may count bits by itself.
    #[inline(always)]
    pub(crate) fn new(masks: &Masks) -> Self {
        let mut lines = 0;
        for (line, mask) in masks.iter().enumerate() {
            lines |= u64::from(*mask != 0) << line;
        }
        // In registers, not in the plan: each line would wait for the one before. Only
        // the lines that changed, without a branch that asks: nobody could guess them.
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

    /// Of these lines, which have these words, next to each other: so many, and so many bytes.
    pub(crate) fn of(lines: u64, words: [u8; LINES], [parts, bytes]: [u32; 2]) -> Self {
        Self {
            lines,
            count: lines.count_ones() as usize,
            words,
            masks: parts as usize,
            bytes: bytes as usize,
        }
    }

    /// Bytes of the whole diff.
    pub(crate) fn length(&self) -> usize {
        HEAD + self.count + self.masks + self.bytes
    }
}

/// One bit for each byte that is not zero.
#[inline(always)]
pub(crate) fn words_of(mask: u64) -> u8 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    // The highest bit of each byte that has any bit.
    let high = (((mask & LOW) + LOW) | mask) & !LOW;
    // Brought together: bit 8i+7 to bit 56+i.
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
