//! The outputs of postcard: the state of a node goes straight into the memory of a journal, records
//! into a buffer that is used again and again. No function here is generic over its caller, so that
//! the code that writes a state is compiled once, in this crate.

use crate::layout::{WORD, store};
use core::sync::atomic::AtomicU64;
use crc32fast::Hasher;
use pagemesh_core::Node;
use postcard::ser_flavors::Flavor;
use serde::Serialize;

/// Bytes gathered before they are passed on.
const NIB: usize = 4096;

/// Passes what is written on in portions of [`NIB`] bytes; the last one may be shorter.
struct Pen<'a> {
    nib: Vec<u8>,
    paper: &'a mut dyn FnMut(&[u8]) -> postcard::Result<()>,
}

impl Flavor for Pen<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        if self.nib.len() == NIB {
            (self.paper)(&self.nib)?;
            self.nib.clear();
        }
        self.nib.push(byte);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        (self.paper)(&self.nib)
    }
}

fn write<T: Serialize>(
    state: &T,
    paper: &mut dyn FnMut(&[u8]) -> postcard::Result<()>,
) -> postcard::Result<()> {
    let nib = Vec::with_capacity(NIB);
    postcard::serialize_with_flavor(state, Pen { nib, paper })
}

/// The result of writing.
pub(crate) struct Written {
    pub(crate) bytes: u64,
    pub(crate) checksum: u32,
}

/// Writes a snapshot into the memory of a journal, if it fits.
pub(crate) fn snapshot(node: &Node, registry: &[u8], words: &[AtomicU64]) -> Option<Written> {
    let mut room = Room::new(words);
    write(&(node, registry), &mut |portion| room.take(portion)).ok()?;
    Some(room.finish())
}

/// Writes a document into the memory of a journal, if it fits.
pub(crate) fn document(bytes: &[u8], words: &[AtomicU64]) -> Option<Written> {
    let mut room = Room::new(words);
    room.take(bytes).ok()?;
    Some(room.finish())
}

/// The length of a node's snapshot, and its checksum.
pub(crate) fn measure(node: &Node) -> Written {
    let (mut bytes, mut checksum) = (0, Hasher::new());
    write(node, &mut |portion| {
        bytes += portion.len() as u64;
        checksum.update(portion);
        Ok(())
    })
    .expect("a node has no unencodable part");
    Written {
        bytes,
        checksum: checksum.finalize(),
    }
}

/// The memory of a journal, as it is filled.
struct Room<'a> {
    words: &'a [AtomicU64],
    written: usize,
    checksum: Hasher,
}

impl<'a> Room<'a> {
    fn new(words: &'a [AtomicU64]) -> Self {
        Self {
            words,
            written: 0,
            checksum: Hasher::new(),
        }
    }

    /// Stores a portion, which begins with a word, behind the former ones.
    fn take(&mut self, portion: &[u8]) -> postcard::Result<()> {
        let room = self.words.get(self.written / WORD..).unwrap_or_default();
        if room.len() < portion.len().div_ceil(WORD) {
            return Err(postcard::Error::SerializeBufferFull);
        }
        store(room, portion);
        self.checksum.update(portion);
        self.written += portion.len();
        Ok(())
    }

    fn finish(self) -> Written {
        Written {
            bytes: self.written as u64,
            checksum: self.checksum.finalize(),
        }
    }
}

/// The bytes of a part that is kept by itself.
pub(crate) fn to_bytes<T: Serialize>(part: &T) -> Vec<u8> {
    postcard::serialize_with_flavor(part, Pencil(Vec::new())).expect("no part is unencodable")
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
