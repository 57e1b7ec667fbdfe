//! MIRAGE+'s encoding: runs of equal double words (of four bytes).
//!
//! The page is a series of pieces, each a head of two bytes, little endian, and its data. The two
//! low bits of the head give the kind of the piece, the others the number of double words it stands
//! for:
//!
//! | bits | piece | followed by |
//! |---|---|---|
//! | 0 | double words as they are | those |
//! | 1 | zeros | nothing |
//! | 2 | one double word, again and again | that one |
//!
//! Only at least two equal neighbours save anything. With these sizes a page of zeros with every
//! Nth byte scrambled stays whole up to N = 10 and packs from N = 11, the last page of `UptoN` that
//! packs has 3 KiB and that of `RandN` some 650 scrambled bytes, as in the paper's figure 4 (MR11).

use crate::{LONGEST, Malformed, Page};

const WORD: usize = 4;
type Word = [u8; WORD];

const LITERAL: u16 = 0;
const ZEROS: u16 = 1;
const REPEAT: u16 = 2;

/// Appends the encoded page; `false` as soon as it cannot become short enough. Then the bytes
/// appended to `out` are undefined.
pub fn encode(page: &Page, out: &mut Vec<u8>) -> bool {
    let words = page.as_chunks::<WORD>().0;
    let end = out.len() + LONGEST;
    let mut literal = 0;
    let mut at = 0;
    while at < words.len() {
        let run = run_at(&words[at..]);
        if run == 1 {
            at += 1;
            // Count the literal words not yet written, too; otherwise a page of noise would be read
            // to its end.
            if out.len() + (at - literal) * WORD > end {
                return false;
            }
            continue;
        }
        put_literal(&words[literal..at], out);
        put_run(words[at], run, out);
        at += run;
        literal = at;
    }
    put_literal(&words[literal..], out);
    out.len() <= end
}

/// How many double words at the start are equal.
fn run_at(words: &[Word]) -> usize {
    let first = words[0];
    words.iter().take_while(|word| **word == first).count()
}

fn put_literal(words: &[Word], out: &mut Vec<u8>) {
    if !words.is_empty() {
        put_head(LITERAL, words.len(), out);
        out.extend_from_slice(words.as_flattened());
    }
}

fn put_run(word: Word, times: usize, out: &mut Vec<u8>) {
    if word == [0; WORD] {
        put_head(ZEROS, times, out);
    } else {
        put_head(REPEAT, times, out);
        out.extend_from_slice(&word);
    }
}

fn put_head(kind: u16, words: usize, out: &mut Vec<u8>) {
    let head = kind | (words as u16) << 2;
    out.extend_from_slice(&head.to_le_bytes());
}

/// Decodes a page.
pub fn decode(mut bytes: &[u8], page: &mut Page) -> Result<(), Malformed> {
    let mut rest = page.as_chunks_mut::<WORD>().0;
    while !rest.is_empty() {
        let head = u16::from_le_bytes(take(&mut bytes)?);
        let words = usize::from(head >> 2);
        if words == 0 || words > rest.len() {
            return Err(Malformed);
        }
        let (piece, behind) = rest.split_at_mut(words);
        match head & 3 {
            LITERAL => {
                let literal = bytes.split_off(..words * WORD).ok_or(Malformed)?;
                piece.as_flattened_mut().copy_from_slice(literal);
            }
            ZEROS => piece.fill([0; WORD]),
            REPEAT => piece.fill(take(&mut bytes)?),
            _ => return Err(Malformed),
        }
        rest = behind;
    }
    if bytes.is_empty() {
        Ok(())
    } else {
        Err(Malformed)
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Malformed> {
    let (first, behind) = bytes.split_first_chunk().ok_or(Malformed)?;
    *bytes = behind;
    Ok(*first)
}
