//! Finding changes and writing them down.

use crate::{Diff, HEAD, LINE, LINES, PAGE, Page, WORD};

/// Lines that are compared at once: most of a page is mostly as it was.
const BLOCK: usize = 8;

/// Appends to `out` what changed from `twin` to `now`.
pub fn encode(twin: &Page, now: &Page, out: &mut Vec<u8>) {
    let mut sections = Sections::new();
    let line = LINE * WORD;
    let blocks = twin
        .chunks_exact(BLOCK * line)
        .zip(now.chunks_exact(BLOCK * line));
    for (block, (twin, now)) in blocks.enumerate() {
        // The C library knows the widest registers of this processor.
        if twin == now {
            continue;
        }
        let lines = twin.chunks_exact(line).zip(now.chunks_exact(line));
        for (index, (old, new)) in lines.enumerate() {
            let (old, new) = (words(old), words(new));
            let mut changed = [0; LINE];
            let mut bits = 0;
            for word in 0..LINE {
                changed[word] = old[word] ^ new[word];
                bits |= u8::from(changed[word] != 0) << word;
            }
            if bits != 0 {
                let mask = |word: usize| mask_of(changed[word]);
                sections.line(block * BLOCK + index, bits, mask, &new);
            }
        }
    }
    sections.append_to(out);
}

/// Appends to `out` the diff that does what `older` and then `newer` do.
pub fn merge(older: &Diff<'_>, newer: &Diff<'_>, out: &mut Vec<u8>) {
    let mut page = [0; PAGE];
    let mut masks = [0; LINES * LINE];
    for diff in [older, newer] {
        diff.apply(&mut page);
        for change in diff.changes() {
            masks[change.offset / WORD] |= change.mask;
        }
    }
    let mut sections = Sections::new();
    let line = LINE * WORD;
    for (index, (masks, bytes)) in masks
        .as_chunks::<LINE>()
        .0
        .iter()
        .zip(page.chunks_exact(line))
        .enumerate()
    {
        let bit = |(word, mask): (usize, &u8)| u8::from(*mask != 0) << word;
        let bits = masks.iter().enumerate().map(bit).sum();
        if bits != 0 {
            sections.line(index, bits, |word| masks[word], &words(bytes));
        }
    }
    sections.append_to(out);
}

/// A line as numbers whose lowest byte is the first.
fn words(line: &[u8]) -> [u64; LINE] {
    let mut words = [0; LINE];
    for (word, bytes) in words.iter_mut().zip(line.as_chunks::<WORD>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

/// One bit for each byte that is not zero.
fn mask_of(changed: u64) -> u8 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    // The highest bit of each byte that has any bit.
    let high = (((changed & LOW) + LOW) | changed) & !LOW;
    // Brought together: bit 8i+7 to bit 56+i.
    ((high >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// The sections of a diff as they grow.
struct Sections {
    lines: u64,
    words: ([u8; LINES], usize),
    masks: ([u8; LINES * LINE], usize),
    /// With room for a whole word behind the last byte.
    bytes: ([u8; PAGE + WORD], usize),
}

impl Sections {
    fn new() -> Self {
        Self {
            lines: 0,
            words: ([0; LINES], 0),
            masks: ([0; LINES * LINE], 0),
            bytes: ([0; PAGE + WORD], 0),
        }
    }

    /// A line with changes, in the words that `bits` names.
    fn line(&mut self, index: usize, bits: u8, mask: impl Fn(usize) -> u8, new: &[u64; LINE]) {
        self.lines |= 1 << index;
        let mut rest = bits;
        while rest != 0 {
            let word = rest.trailing_zeros() as usize;
            self.word(mask(word), new[word]);
            rest &= rest - 1;
        }
        let (room, used) = &mut self.words;
        room[*used] = bits;
        *used += 1;
    }

    fn word(&mut self, mask: u8, new: u64) {
        let (room, used) = &mut self.masks;
        room[*used] = mask;
        *used += 1;
        let (room, used) = &mut self.bytes;
        let packed = if mask == u8::MAX {
            new
        } else {
            pack(mask, new)
        };
        room[*used..*used + WORD].copy_from_slice(&packed.to_le_bytes());
        *used += mask.count_ones() as usize;
    }

    fn append_to(&self, out: &mut Vec<u8>) {
        let sections = [
            &self.words.0[..self.words.1],
            &self.masks.0[..self.masks.1],
            &self.bytes.0[..self.bytes.1],
        ];
        out.reserve(HEAD + sections.iter().map(|section| section.len()).sum::<usize>());
        out.extend_from_slice(&self.lines.to_le_bytes());
        for section in sections {
            out.extend_from_slice(section);
        }
    }
}

/// The bytes of a word that a mask names, moved to the front.
fn pack(mut mask: u8, word: u64) -> u64 {
    let (mut packed, mut shift) = (0, 0);
    while mask != 0 {
        let byte = (word >> (mask.trailing_zeros() * 8)) & 0xff;
        packed |= byte << shift;
        shift += 8;
        mask &= mask - 1;
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_has_a_bit_for_each_byte_that_is_not_zero() {
        for mask in 0..=u8::MAX {
            for fill in [1u8, 0x7f, 0x80, 0xff] {
                let bytes: [u8; 8] =
                    std::array::from_fn(|at| if (mask >> at) & 1 == 1 { fill } else { 0 });
                assert_eq!(mask_of(u64::from_le_bytes(bytes)), mask, "{bytes:x?}");
            }
        }
    }
}
