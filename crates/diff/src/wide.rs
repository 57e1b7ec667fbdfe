//! The loops over a page, in the widest registers of the processor, which are determined once at
//! run time.

use crate::encode::{Masks, Plan, SPAN, words_of};
use crate::{Diff, HEAD, LINE, LINES, Lines, Page, WORD};
use fearless_simd::{Level, Simd, dispatch, prelude::*, u8x16, u8x64, u64x2, u64x8};
use std::sync::OnceLock;

/// How far the last store may go beyond the end of a diff, in bytes.
const SLACK: usize = 2 * SPAN;

/// The SIMD level of this processor.
fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(Level::new)
}

/// Appends the diff from `twin` to `now`.
pub(crate) fn encode(twin: &Page, now: &Page, out: &mut Vec<u8>) -> Lines {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx512) = level().as_avx512() {
        let (masks, plan) = compare_in_512(avx512, twin, now);
        let write = |room: &mut [u8]| sections_in_512(avx512, &plan, &masks, now, room);
        return write_planned(&plan, write, out);
    }
    let masks = dispatch!(level(), simd => compare(simd, twin, now));
    write(&masks, now, out)
}

/// Appends the diff that sets the bytes named by `masks` to those of `page`.
pub(crate) fn write(masks: &Masks, page: &Page, out: &mut Vec<u8>) -> Lines {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx512) = level().as_avx512() {
        let plan = plan_in_512(avx512, masks);
        let write = |room: &mut [u8]| sections_in_512(avx512, &plan, masks, page, room);
        return write_planned(&plan, write, out);
    }
    let plan = dispatch!(level(), _ => Plan::new(masks));
    let write =
        |room: &mut [u8]| dispatch!(level(), simd => sections(simd, &plan, masks, page, room));
    write_planned(&plan, write, out)
}

/// Appends a diff; `write` adds the masks and bytes.
#[inline(always)]
fn write_planned(plan: &Plan, write: impl FnOnce(&mut [u8]), out: &mut Vec<u8>) -> Lines {
    let start = out.len();
    let end = start + plan.length();
    out.resize(end + SLACK, 0);
    let room = &mut out[start..];
    room[..HEAD].copy_from_slice(&plan.lines.to_le_bytes());
    let words_at = HEAD + plan.count;
    room[HEAD..words_at].copy_from_slice(&plan.words[..plan.count]);
    write(&mut room[words_at..]);
    out.truncate(end);
    Lines::new(plan.lines)
}

#[inline(always)]
fn compare<S: Simd>(simd: S, twin: &Page, now: &Page) -> Masks {
    let mut masks = [0; LINES];
    let (old, _) = twin.as_chunks::<SPAN>();
    let (new, _) = now.as_chunks::<SPAN>();
    for (mask, (old, new)) in masks.iter_mut().zip(old.iter().zip(new)) {
        let (old, new) = (u8x64::from_slice(simd, old), u8x64::from_slice(simd, new));
        *mask = !old.simd_eq(new).to_bitmask();
    }
    masks
}

/// Writes masks and bytes. The bytes stored beyond the end of one section are overwritten by the
/// next. No closures, because they would not be compiled for these registers.
#[inline(always)]
fn sections<S: Simd>(simd: S, plan: &Plan, masks: &Masks, page: &Page, room: &mut [u8]) {
    let (lines, _) = page.as_chunks::<SPAN>();
    let mut at = 0;
    for (line, words) in Ones(plan.lines).zip(plan.words) {
        store(room, at, pack(simd, masks[line], words));
        at += words.count_ones() as usize;
    }
    for (line, words) in Ones(plan.lines).zip(plan.words) {
        bytes(simd, &lines[line], masks[line], words, &mut room[at..]);
        at += masks[line].count_ones() as usize;
    }
}

/// Writes the changed bytes of a line.
#[inline(always)]
fn bytes<S: Simd>(simd: S, line: &[u8; SPAN], mask: u64, words: u8, room: &mut [u8]) {
    if mask == u64::MAX {
        room[..SPAN].copy_from_slice(line);
        return;
    }
    let (from, _) = line.as_chunks::<WORD>();
    if words & (words - 1) == 0 {
        let word = words.trailing_zeros() as usize;
        let mask = (mask >> (8 * word)) as u8;
        return store(room, 0, pack(simd, u64::from_le_bytes(from[word]), mask));
    }
    let before = before(mask);
    // The last word may begin where the line would end.
    let room = &mut room[..SPAN + WORD];
    for (word, from) in from.iter().enumerate() {
        let mask = (mask >> (8 * word)) as u8;
        let at = (before >> (8 * word)) & 0x3f;
        store(
            room,
            at as usize,
            pack(simd, u64::from_le_bytes(*from), mask),
        );
    }
}

#[inline(always)]
fn store(room: &mut [u8], at: usize, word: u64) {
    room[at..at + WORD].copy_from_slice(&word.to_le_bytes());
}

/// For each byte of the mask, the number of bits set in the bytes before it.
#[inline(always)]
fn before(mask: u64) -> u64 {
    let pairs = mask - ((mask >> 1) & 0x5555_5555_5555_5555);
    let fours = (pairs & 0x3333_3333_3333_3333) + ((pairs >> 2) & 0x3333_3333_3333_3333);
    let each = (fours + (fours >> 4)) & 0x0f0f_0f0f_0f0f_0f0f;
    each.wrapping_mul(0x0101_0101_0101_0101) << 8
}

/// Moves the bytes of a word that a mask names to the front.
#[inline(always)]
fn pack<S: Simd>(simd: S, word: u64, mask: u8) -> u64 {
    let word = u64x2::splat(simd, word).to_bytes();
    let order = u8x16::from_slice(simd, &FRONT[mask as usize]);
    let packed: u64x2<S> = word.swizzle_dyn_within_blocks(order).bitcast();
    <[u64; 2]>::from(packed)[0]
}

fearless_simd::kernel!(
    /// The changed bytes and words, and the plan of the diff. Words are compared directly, because
    /// masks that were just stored byte by byte cannot be loaded eight at a time without a stall.
    fn compare_in_512(avx512: Avx512, twin: &Page, now: &Page) -> (Masks, Plan) {
        use std::arch::x86_64::{_mm512_cmpneq_epi8_mask, _mm512_cmpneq_epi64_mask};
        let (mut masks, mut words, mut bytes) = ([0; LINES], [0; LINES], 0);
        let (old, _) = twin.as_chunks::<SPAN>();
        let (new, _) = now.as_chunks::<SPAN>();
        for line in 0..LINES {
            let old = u8x64::from_slice(avx512, &old[line]).into();
            let new = u8x64::from_slice(avx512, &new[line]).into();
            masks[line] = _mm512_cmpneq_epi8_mask(old, new);
            words[line] = _mm512_cmpneq_epi64_mask(old, new);
            bytes += masks[line].count_ones();
        }
        let plan = gathered_in_512(avx512, &words, bytes);
        (masks, plan)
    }
);

fearless_simd::kernel!(
    /// The plan of a diff. A byte of the masks that is not zero is a changed word.
    fn plan_in_512(avx512: Avx512, masks: &Masks) -> Plan {
        let words = masks.map(words_of);
        let bytes = masks.iter().map(|mask| mask.count_ones()).sum();
        gathered_in_512(avx512, &words, bytes)
    }
);

fearless_simd::kernel!(
    /// A plan, from the changed words of each line.
    fn gathered_in_512(avx512: Avx512, words: &[u8; LINES], bytes: u32) -> Plan {
        use std::arch::x86_64::{_mm512_maskz_compress_epi8, _mm512_test_epi8_mask};
        let (eights, _) = words.as_chunks();
        let ones = |eight: &[u8; 8]| u64::from_le_bytes(*eight).count_ones();
        let parts: u32 = eights.iter().map(ones).sum();
        let words = u8x64::from_slice(avx512, words);
        let lines = _mm512_test_epi8_mask(words.into(), words.into());
        let packed: u8x64<_> = _mm512_maskz_compress_epi8(lines, words.into()).simd_into(avx512);
        let mut every = [0; LINES];
        packed.store_slice(&mut every);
        Plan::of(lines, every, [parts, bytes])
    }
);

fearless_simd::kernel!(
    /// Writes masks and bytes, by instructions that move the named bytes of a whole line to the
    /// front.
    fn sections_in_512(avx512: Avx512, plan: &Plan, masks: &Masks, page: &Page, room: &mut [u8]) {
        use std::arch::x86_64::{_mm512_maskz_compress_epi8, _mm512_test_epi8_mask};
        let mut at = 0;
        let (eights, _) = masks.as_chunks::<LINE>();
        for eight in eights {
            let eight = u64x8::from_slice(avx512, eight).to_bytes();
            let words = _mm512_test_epi8_mask(eight.into(), eight.into());
            let packed: u8x64<_> =
                _mm512_maskz_compress_epi8(words, eight.into()).simd_into(avx512);
            packed.store_slice(&mut room[at..at + SPAN]);
            at += words.count_ones() as usize;
        }
        let (lines, _) = page.as_chunks::<SPAN>();
        for line in Ones(plan.lines) {
            let bytes = u8x64::from_slice(avx512, &lines[line]);
            let packed = _mm512_maskz_compress_epi8(masks[line], bytes.into());
            let packed: u8x64<_> = packed.simd_into(avx512);
            packed.store_slice(&mut room[at..at + SPAN]);
            at += masks[line].count_ones() as usize;
        }
    }
);

/// Applies a diff to a page.
pub(crate) fn apply(diff: &Diff<'_>, page: &mut Page) {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx512) = level().as_avx512() {
        return apply_in_512(avx512, diff, page);
    }
    apply_words(diff, page);
}

/// Applies a diff word by word, on processors of any kind.
fn apply_words(diff: &Diff<'_>, page: &mut Page) {
    for change in diff.changes() {
        let word = &mut page[change.offset..change.offset + WORD];
        if change.mask == u8::MAX {
            word.copy_from_slice(change.bytes);
            continue;
        }
        let mut mask = change.mask;
        for byte in change.bytes {
            word[mask.trailing_zeros() as usize] = *byte;
            mask &= mask - 1;
        }
    }
}

fearless_simd::kernel!(
    /// Applies a diff line by line, by an instruction that moves bytes to the places that a mask
    /// names.
    fn apply_in_512(avx512: Avx512, diff: &Diff<'_>, page: &mut Page) {
        use std::arch::x86_64::{_mm512_mask_expand_epi8, _pdep_u64};
        let (lines, _) = page.as_chunks_mut::<SPAN>();
        let (mut masks, mut bytes) = (diff.masks, diff.bytes);
        for (line, words) in Ones(diff.lines).zip(diff.words) {
            let mask = _pdep_u64(u64::from_le_bytes(front(masks)), spread(*words));
            let before = u8x64::from_slice(avx512, &lines[line]);
            let packed = match bytes.first_chunk::<SPAN>() {
                Some(whole) => u8x64::from_slice(avx512, whole),
                None => u8x64::from_slice(avx512, &front::<SPAN>(bytes)),
            };
            let after = _mm512_mask_expand_epi8(before.into(), mask, packed.into());
            let after: u8x64<_> = after.simd_into(avx512);
            after.store_slice(&mut lines[line]);
            masks = &masks[words.count_ones() as usize..];
            bytes = &bytes[mask.count_ones() as usize..];
        }
    }
);

/// The first bytes, padded with zeros.
#[inline(always)]
fn front<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or_else(|| {
        let mut all = [0; N];
        all[..bytes.len()].copy_from_slice(bytes);
        all
    })
}

/// A mask with a byte 0xff for each bit that is set.
#[inline(always)]
fn spread(bits: u8) -> u64 {
    let each = u64::from(bits).wrapping_mul(0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
    let high = ((each & 0x7f7f_7f7f_7f7f_7f7f) + 0x7f7f_7f7f_7f7f_7f7f) | each;
    ((high & 0x8080_8080_8080_8080) >> 7).wrapping_mul(0xff)
}

/// Iterates over the positions of the bits that are set.
#[derive(Clone)]
pub(crate) struct Ones(pub(crate) u64);

impl Iterator for Ones {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let first = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(first)
    }
}

/// For each mask the positions of its bits.
static FRONT: [[u8; 16]; 256] = orders();

const fn orders() -> [[u8; 16]; 256] {
    let mut table = [[0; 16]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut bit, mut at) = (0, 0);
        while bit < 8 {
            if mask & (1 << bit) != 0 {
                table[mask][at] = bit;
                at += 1;
            }
            bit += 1;
        }
        mask += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE;
    use proptest::prelude::*;

    /// The encoding of a diff, made byte by byte without optimization.
    fn plainly(twin: &Page, now: &Page) -> Vec<u8> {
        let (mut lines, mut words, mut masks, mut bytes) = (0u64, vec![], vec![], vec![]);
        for line in 0..LINES {
            let mut word_bits = 0;
            for word in 0..SPAN / WORD {
                let start = line * SPAN + word * WORD;
                let changed = |bit: &usize| twin[start + bit] != now[start + bit];
                let bits: Vec<_> = (0..WORD).filter(changed).collect();
                if !bits.is_empty() {
                    word_bits |= 1u8 << word;
                    masks.push(bits.iter().map(|bit| 1u8 << bit).sum::<u8>());
                    bytes.extend(bits.iter().map(|bit| now[start + bit]));
                }
            }
            if word_bits != 0 {
                lines |= 1 << line;
                words.push(word_bits);
            }
        }
        [lines.to_le_bytes().to_vec(), words, masks, bytes].concat()
    }

    /// The diffs made by all methods that this processor supports.
    fn every_way(twin: &Page, now: &Page) -> Vec<Vec<u8>> {
        let mut best = vec![9, 9];
        encode(twin, now, &mut best);
        let masks = dispatch!(level(), simd => compare(simd, twin, now));
        let plan = Plan::new(&masks);
        let mut out = vec![9, 9];
        out.extend(plan.lines.to_le_bytes());
        out.extend(&plan.words[..plan.count]);
        let mut room = vec![0; PAGE + LINES * 8 + SLACK];
        dispatch!(level(), simd => sections(simd, &plan, &masks, now, &mut room));
        out.extend(&room[..plan.length() - HEAD - plan.count]);
        vec![best, out]
    }

    proptest! {
        #[test]
        fn every_way_gives_what_is_found_without_skill(
            places in prop::collection::vec((0..PAGE, any::<u8>(), 1..80usize), 0..300),
        ) {
            let twin: Page = std::array::from_fn(|at| (at * 7) as u8);
            let mut now = twin;
            for (at, value, length) in places {
                let end = (at + length % 80).min(PAGE);
                now[at..end].fill(value);
            }
            let expected = [vec![9, 9], plainly(&twin, &now)].concat();
            for way in every_way(&twin, &now) {
                prop_assert_eq!(&way, &expected);
            }
            // Unchanged bytes are not stored to, whatever else is in the page.
            let diff = Diff::check(&expected[2..]).unwrap();
            let other: Page = std::array::from_fn(|at| (at * 13) as u8);
            let (mut best, mut plain) = (other, other);
            apply(&diff, &mut best);
            apply_words(&diff, &mut plain);
            prop_assert_eq!(best, plain);
            for at in 0..PAGE {
                prop_assert_eq!(best[at], if twin[at] == now[at] { other[at] } else { now[at] });
            }
        }
    }

    #[test]
    fn whole_pages_and_their_ends_are_no_exception() {
        let twin = [0; PAGE];
        for changed in [0..0, 0..PAGE, 0..1, PAGE - 1..PAGE, 63..65, 1..PAGE] {
            let mut now = twin;
            now[changed].fill(1);
            let expected = [vec![9, 9], plainly(&twin, &now)].concat();
            for way in every_way(&twin, &now) {
                assert_eq!(way, expected);
            }
        }
    }
}
