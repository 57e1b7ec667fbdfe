//! The outputs of postcard: snapshots go straight into the memory of a journal, records into a
//! buffer that is used again and again.

use crate::layout::{WORD, store};
use core::sync::atomic::AtomicU64;
use crc32fast::Hasher;
use postcard::ser_flavors::Flavor;

/// Bytes gathered before they are stored.
const NIB: usize = 4096;

/// Writes a snapshot.
pub(crate) struct Pen<'a> {
    words: &'a [AtomicU64],
    written: usize,
    nib: Vec<u8>,
    checksum: Hasher,
}

/// Appends a record to a buffer.
pub(crate) struct Pencil(pub(crate) Vec<u8>);

impl Flavor for Pencil {
    type Output = Vec<u8>;

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Vec<u8>> {
        Ok(self.0)
    }
}

/// The result of writing.
pub(crate) struct Written {
    pub(crate) bytes: u64,
    pub(crate) checksum: u32,
}

impl<'a> Pen<'a> {
    pub(crate) fn new(words: &'a [AtomicU64]) -> Self {
        Self {
            words,
            written: 0,
            nib: Vec::with_capacity(NIB),
            checksum: Hasher::new(),
        }
    }

    fn flush(&mut self) -> postcard::Result<()> {
        let room = self.words.get(self.written / WORD..).unwrap_or_default();
        if room.len() < self.nib.len().div_ceil(WORD) {
            return Err(postcard::Error::SerializeBufferFull);
        }
        store(room, &self.nib);
        self.checksum.update(&self.nib);
        self.written += self.nib.len();
        self.nib.clear();
        Ok(())
    }
}

impl Flavor for Pen<'_> {
    type Output = Written;

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        if self.nib.len() == NIB {
            self.flush()?;
        }
        self.nib.push(byte);
        Ok(())
    }

    fn finalize(mut self) -> postcard::Result<Written> {
        self.flush()?;
        Ok(Written {
            bytes: self.written as u64,
            checksum: self.checksum.finalize(),
        })
    }
}
