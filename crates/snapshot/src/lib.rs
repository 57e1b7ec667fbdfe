//! The file of a saved segment.
//!
//! ```text
//! magic       8 bytes   "PAGEMESH"
//! version     4 bytes   1; numbers are little endian
//! length      4 bytes   of the header
//! header      postcard  name, size, mode, policy, time, consistency
//! checksum    4 bytes   of everything before
//! piece ...
//! end
//!
//! piece:      kind 1 byte, first page 4 bytes, pages 4 bytes, length 4 bytes, contents, checksum 4 bytes
//! ```
//!
//! A piece has the contents of 1 to [`PIECE_PAGES`] neighbouring pages, as they are or as an LZ4
//! block. Pages that no piece names are zero; if several pieces name a page, the last one counts.
//! The end is a piece without contents, whose numbers are those of the pieces. Each checksum
//! (CRC-32) covers its piece and the checksum before it, so that a piece which is missing, comes
//! twice or stands elsewhere is noticed, too. Nothing follows the end.

#![forbid(unsafe_code)]

mod error;
mod header;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use error::{Error, Flaw};
pub use header::{Consistency, Header};
pub use read::{Piece, Reader};
pub use write::{Form, Summary, Writer};

/// Bytes of a page.
pub const PAGE: usize = pagemesh_wire::PAGE_SIZE;

/// The first bytes of every snapshot.
pub const MAGIC: [u8; 8] = *b"PAGEMESH";

/// The version that this release writes. It reads version 1, too, whose segments had no replicas.
pub const VERSION: u32 = 2;

/// The most pages of one piece: 256 KiB.
pub const PIECE_PAGES: u32 = 64;

/// Bytes of the longest header: a name of 255 bytes and a policy fit several times.
const HEADER: u32 = 4096;

/// Bytes before a header: magic, version, length.
const PRELUDE: usize = 16;

/// Bytes before the contents of a piece.
const PIECE_HEAD: usize = 13;

/// What a piece has, as its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    /// Pages as they are.
    Plain = 1,
    /// Pages as one LZ4 block.
    Lz4 = 2,
    /// Nothing: the end.
    End = 3,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        let all = [Self::Plain, Self::Lz4, Self::End];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// The head of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    kind: Kind,
    first: u32,
    pages: u32,
    length: u32,
}

impl Head {
    fn encode(self) -> [u8; PIECE_HEAD] {
        let mut bytes = [self.kind as u8; PIECE_HEAD];
        bytes[1..5].copy_from_slice(&self.first.to_le_bytes());
        bytes[5..9].copy_from_slice(&self.pages.to_le_bytes());
        bytes[9..13].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    /// None if there is no such kind.
    fn decode(bytes: &[u8; PIECE_HEAD]) -> Option<Self> {
        Some(Self {
            kind: Kind::of(bytes[0])?,
            first: number(bytes, 1),
            pages: number(bytes, 5),
            length: number(bytes, 9),
        })
    }
}

/// The number of four bytes at a place.
fn number(bytes: &[u8], at: usize) -> u32 {
    let four = bytes[at..].first_chunk().expect("four bytes are there");
    u32::from_le_bytes(*four)
}

/// The checksum of bytes behind those with the checksum `before`.
fn sum(before: u32, parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&before.to_le_bytes());
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}
