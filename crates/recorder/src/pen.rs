//! How the state of a node goes straight into the memory of a journal.

use crate::layout::{WORD, store};
use crate::schema::write_snapshot;
use crate::schema::writer::NoRoom;
use core::sync::atomic::AtomicU64;
use crc32fast::Hasher;
use pagemesh_core::Node;

/// The result of writing.
pub(crate) struct Written {
    pub(crate) bytes: u64,
    pub(crate) checksum: u32,
}

/// Writes a snapshot into the memory of a journal, if it fits.
pub(crate) fn snapshot(node: &Node, registry: &[u8], words: &[AtomicU64]) -> Option<Written> {
    let mut room = Room::new(words);
    write_snapshot(node, registry, &mut |portion| room.take(portion)).ok()?;
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
    let written = write_snapshot(node, &[], &mut |portion| {
        bytes += portion.len() as u64;
        checksum.update(portion);
        Ok(())
    });
    written.expect("there is room for what is only measured");
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
    fn take(&mut self, portion: &[u8]) -> Result<(), NoRoom> {
        let room = self.words.get(self.written / WORD..).unwrap_or_default();
        if room.len() < portion.len().div_ceil(WORD) {
            return Err(NoRoom);
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
