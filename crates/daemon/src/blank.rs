//! A frame that has its memory before its contents.
//!
//! While a page is on its way to a thread that waits, its frame is written once: the kernel
//! allocates the memory, and both are in the caches of this processor when the contents come, so
//! that placing the page takes less time than allocating then. No mapping shows a frame that the
//! core has not filled (a page in the memfd need not be valid), but the next daemon looks into
//! frames to see how far this one came: it must not take this pattern for contents.

use pagemesh_os::memfd::{PAGE, PageBytes};

/// The contents of a frame whose page is on its way. No program has such a page, except by copying
/// this one.
pub(crate) const BLANK: &PageBytes = &noise();

/// Marsaglia's xorshift, 64 bits.
const fn noise() -> PageBytes {
    let mut bytes = [0; PAGE];
    let mut state = 0x7061_6765_6d65_7368_u64;
    let mut at = 0;
    while at < PAGE {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let word = state.to_le_bytes();
        let mut byte = 0;
        while byte < word.len() {
            bytes[at + byte] = word[byte];
            byte += 1;
        }
        at += word.len();
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_words_are_alike() {
        let mut words: Vec<_> = BLANK.chunks(8).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), PAGE / 8);
    }
}
