//! The bytes of the device.

use pagemesh::{Mapping, PAGE_SIZE};
use pagemesh_nbd::Store;
use std::io;
use std::iter::from_fn;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory of the cluster.
pub(super) struct Memory {
    mapping: Mapping,
    /// None for a segment that others may store to.
    stored: Option<Stored>,
}

impl Memory {
    /// New memory, all zeros, which only this device stores to.
    pub(super) fn new(mapping: Mapping) -> Self {
        let stored = Some(Stored::nothing_of(mapping.len()));
        Self { mapping, stored }
    }

    /// Memory that others may have stored to.
    pub(super) fn shared(mapping: Mapping) -> Self {
        let stored = None;
        Self { mapping, stored }
    }
}

impl Store for Memory {
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let start = place(offset)?;
        let Some(stored) = &self.stored else {
            return self.mapping.read(start, bytes).map_err(io::Error::other);
        };
        for (part, is_stored) in stored.parts(start..start + bytes.len()) {
            let room = &mut bytes[part.start - start..part.end - start];
            if is_stored {
                let read = self.mapping.read(part.start, room);
                read.map_err(io::Error::other)?;
            } else {
                room.fill(0);
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let start = place(offset)?;
        let Some(stored) = &self.stored else {
            return self.mapping.write(start, bytes).map_err(io::Error::other);
        };
        for (part, is_stored) in stored.parts(start..start + bytes.len()) {
            let piece = &bytes[part.start - start..part.end - start];
            if !is_stored {
                if piece.iter().all(|byte| *byte == 0) {
                    continue;
                }
                stored.add(part.clone());
            }
            let written = self.mapping.write(part.start, piece);
            written.map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn trim(&self, _: u64, _: u64) -> io::Result<()> {
        // What bytes are afterwards does not matter: they may stay.
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        // A store is in memory when its reply is sent, and gets no safer.
        Ok(())
    }
}

fn place(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(io::Error::other)
}

/// The pages that were stored to. All others are zeros: to touch them would take frames, and push out
/// pages that have contents.
struct Stored(Vec<AtomicU64>);

impl Stored {
    fn nothing_of(bytes: usize) -> Self {
        let words = bytes.div_ceil(PAGE_SIZE).div_ceil(u64::BITS as usize);
        Self(
            std::iter::repeat_with(AtomicU64::default)
                .take(words)
                .collect(),
        )
    }

    /// The word and the bit of the page of this byte.
    fn bit(&self, at: usize) -> (&AtomicU64, u64) {
        let page = at / PAGE_SIZE;
        let bits = u64::BITS as usize;
        (&self.0[page / bits], 1 << (page % bits))
    }

    fn has(&self, at: usize) -> bool {
        let (word, bit) = self.bit(at);
        word.load(Ordering::Relaxed) & bit != 0
    }

    /// Adds the pages of these bytes.
    fn add(&self, bytes: Range<usize>) {
        let first = bytes.start / PAGE_SIZE * PAGE_SIZE;
        for at in (first..bytes.end).step_by(PAGE_SIZE) {
            let (word, bit) = self.bit(at);
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// These bytes in parts, of each whether its pages were all stored to, or none of them.
    fn parts(&self, bytes: Range<usize>) -> impl Iterator<Item = (Range<usize>, bool)> {
        let mut at = bytes.start;
        from_fn(move || {
            let start = at;
            let is_stored = (start < bytes.end).then(|| self.has(start))?;
            while at < bytes.end && self.has(at) == is_stored {
                at = (at / PAGE_SIZE + 1) * PAGE_SIZE;
            }
            at = at.min(bytes.end);
            Some((start..at, is_stored))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_in_parts_that_were_stored_to_or_not() {
        let stored = Stored::nothing_of(200 * PAGE_SIZE + 1);
        stored.add(5 * PAGE_SIZE + 7..7 * PAGE_SIZE);
        stored.add(200 * PAGE_SIZE..200 * PAGE_SIZE + 1);
        let parts = |bytes| stored.parts(bytes).collect::<Vec<_>>();
        let all = [
            (0..5 * PAGE_SIZE, false),
            (5 * PAGE_SIZE..7 * PAGE_SIZE, true),
            (7 * PAGE_SIZE..200 * PAGE_SIZE, false),
            (200 * PAGE_SIZE..200 * PAGE_SIZE + 1, true),
        ];
        assert_eq!(parts(0..200 * PAGE_SIZE + 1), all);
        let inside = 5 * PAGE_SIZE + 1..5 * PAGE_SIZE + 3;
        assert_eq!(parts(inside.clone()), [(inside, true)]);
        assert_eq!(parts(9..9), []);
    }
}
