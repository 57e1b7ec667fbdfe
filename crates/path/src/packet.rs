//! The packets about the path itself: probes, pieces, and requests for missing pieces.
//!
//! None of these packets is a message. The first four bytes are `PF`, version 1, kind; numbers are
//! little-endian.

use pagemesh_wire::header::MAX_DATAGRAM;

/// A packet from another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// Asks whether a datagram of this length arrives.
    Probe {
        /// A random number drawn by the sender.
        nonce: u64,
        /// Length of this packet in bytes.
        length: usize,
    },
    /// Confirms that a probe arrived.
    Confirm {
        /// The probe's nonce.
        nonce: u64,
        /// The probe's length.
        length: usize,
    },
    /// A part of a message.
    Piece(Piece<'a>),
    /// Requests pieces of a message that did not arrive.
    Missing {
        /// The sender's stream.
        stream: u32,
        /// The message's number.
        number: u32,
        /// One bit for each missing piece; at least one is set.
        pieces: u16,
    },
}

/// A part of a message. All pieces of a message have the same length; the last one is padded with
/// zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// A random number that the sender drew when it started.
    pub stream: u32,
    /// The message's number; a sender counts separately for each receiver.
    pub number: u32,
    /// How the message is divided into pieces.
    pub cut: Cut,
    /// The index of this piece, from 0.
    pub index: u8,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// How a message is divided into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Length of the message in bytes.
    total: u16,
    /// Number of pieces, at least 2.
    count: u8,
}

/// Bytes of the header in front of a piece.
pub const HEAD: usize = 16;

/// Maximum number of pieces of a message.
pub const PIECES: usize = 16;

/// Minimum length of a probe in bytes; its confirmation is not longer, so probes cannot be used to
/// amplify traffic.
pub const SHORTEST_PROBE: usize = 64;

const MARK: [u8; 2] = *b"PF";
const VERSION: u8 = 1;
const PROBE: u8 = 1;
const CONFIRM: u8 = 2;
const PIECE: u8 = 3;
const MISSING: u8 = 4;

/// True if these bytes have the mark of such a packet; they may still be malformed.
#[must_use]
pub fn is_packet(bytes: &[u8]) -> bool {
    bytes.starts_with(&MARK)
}

impl Cut {
    /// Divides a message of `total` bytes into the fewest pieces of at most `most` bytes; `None` if
    /// it needs no division, or too many pieces.
    #[must_use]
    pub fn new(total: usize, most: usize) -> Option<Self> {
        let count = total.div_ceil(most.max(1));
        Self::of(total, count)
    }

    /// `None` unless a message can be divided this way: every piece holds some of its bytes.
    fn of(total: usize, count: usize) -> Option<Self> {
        let some = (2..=PIECES).contains(&count) && (count..=MAX_DATAGRAM).contains(&total);
        let full = some && total.div_ceil(count) * (count - 1) < total;
        full.then_some(Self {
            total: total as u16,
            count: count as u8,
        })
    }

    /// Length of the message in bytes.
    #[must_use]
    pub fn total(self) -> usize {
        usize::from(self.total)
    }

    /// Number of pieces.
    #[must_use]
    pub fn count(self) -> usize {
        usize::from(self.count)
    }

    /// Length of each piece in bytes.
    #[must_use]
    pub fn each(self) -> usize {
        self.total().div_ceil(self.count())
    }

    /// A mask with one bit set for each piece.
    #[must_use]
    pub fn all(self) -> u16 {
        u16::MAX >> (PIECES - self.count())
    }
}

impl Piece<'_> {
    /// The header in front of the piece's bytes.
    #[must_use]
    pub fn head(&self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(&mark(PIECE));
        head[4..8].copy_from_slice(&self.stream.to_le_bytes());
        head[8..12].copy_from_slice(&self.number.to_le_bytes());
        head[12..14].copy_from_slice(&self.cut.total.to_le_bytes());
        head[14] = self.cut.count;
        head[15] = self.index;
        head
    }
}

fn mark(kind: u8) -> [u8; 4] {
    [MARK[0], MARK[1], VERSION, kind]
}

impl<'a> Packet<'a> {
    /// Encodes the packet.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Probe { nonce, length } => {
                let mut bytes = [&mark(PROBE)[..], &nonce.to_le_bytes()].concat();
                bytes.resize((*length).max(SHORTEST_PROBE), 0);
                bytes
            }
            Self::Confirm { nonce, length } => {
                let length = u16::try_from(*length).unwrap_or(u16::MAX).to_le_bytes();
                [&mark(CONFIRM)[..], &nonce.to_le_bytes(), &length].concat()
            }
            Self::Piece(piece) => {
                let mut bytes = [&piece.head()[..], piece.bytes].concat();
                bytes.resize(HEAD + piece.cut.each(), 0);
                bytes
            }
            Self::Missing {
                stream,
                number,
                pieces,
            } => {
                let (stream, number) = (stream.to_le_bytes(), number.to_le_bytes());
                [&mark(MISSING)[..], &stream, &number, &pieces.to_le_bytes()].concat()
            }
        }
    }

    /// Decodes a packet; `None` if the bytes are not a valid one.
    #[must_use]
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (head, body) = bytes.split_first_chunk::<4>()?;
        if head[..3] != [MARK[0], MARK[1], VERSION] {
            return None;
        }
        match head[3] {
            PROBE => {
                let (nonce, padding) = body.split_first_chunk()?;
                let whole = bytes.len() >= SHORTEST_PROBE && padding.iter().all(|byte| *byte == 0);
                whole.then_some(Self::Probe {
                    nonce: u64::from_le_bytes(*nonce),
                    length: bytes.len(),
                })
            }
            CONFIRM => {
                let (nonce, length) = body.split_first_chunk()?;
                Some(Self::Confirm {
                    nonce: u64::from_le_bytes(*nonce),
                    length: u16::from_le_bytes(length.try_into().ok()?).into(),
                })
            }
            PIECE => piece(body).map(Self::Piece),
            MISSING => {
                let (stream, body) = body.split_first_chunk()?;
                let (number, pieces) = body.split_first_chunk()?;
                let pieces = u16::from_le_bytes(pieces.try_into().ok()?);
                (pieces != 0).then_some(Self::Missing {
                    stream: u32::from_le_bytes(*stream),
                    number: u32::from_le_bytes(*number),
                    pieces,
                })
            }
            _ => None,
        }
    }
}

fn piece(body: &[u8]) -> Option<Piece<'_>> {
    let (head, bytes) = body.split_first_chunk::<{ HEAD - 4 }>()?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let total = u16::from_le_bytes([head[8], head[9]]);
    let (count, index) = (head[10], head[11]);
    let cut = Cut::of(total.into(), count.into())?;
    if index >= count || bytes.len() != cut.each() {
        return None;
    }
    let kept = cut.total().min((usize::from(index) + 1) * cut.each());
    let (bytes, padding) = bytes.split_at(kept - usize::from(index) * cut.each());
    padding.iter().all(|byte| *byte == 0).then_some(Piece {
        stream: word(0),
        number: word(4),
        cut,
        index,
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let confirm = Packet::Confirm {
            nonce: 0x0201,
            length: 1472,
        };
        assert_eq!(confirm.encode(), *b"PF\x01\x02\x01\x02\0\0\0\0\0\0\xc0\x05");
        let missing = Packet::Missing {
            stream: 7,
            number: 9,
            pieces: 5,
        };
        assert_eq!(missing.encode(), *b"PF\x01\x04\x07\0\0\0\x09\0\0\0\x05\0");
        let piece = Packet::Piece(Piece {
            stream: 7,
            number: 9,
            cut: Cut::new(5, 3).unwrap(),
            index: 1,
            bytes: b"lo",
        });
        assert_eq!(
            piece.encode(),
            *b"PF\x01\x03\x07\0\0\0\x09\0\0\0\x05\0\x02\x01lo\0"
        );
        let probe = Packet::Probe {
            nonce: 3,
            length: 1472,
        };
        assert_eq!(probe.encode().len(), 1472);
        for said in [confirm, missing, piece, probe] {
            assert_eq!(Packet::decode(&said.encode()), Some(said));
        }
    }

    #[test]
    fn nothing_else_is_understood() {
        let good = Packet::Piece(Piece {
            stream: 1,
            number: 2,
            cut: Cut::new(5, 3).unwrap(),
            index: 1,
            bytes: b"lo",
        })
        .encode();
        for cut in 0..good.len() {
            assert_eq!(Packet::decode(&good[..cut]), None, "{cut}");
        }
        // Mark, version, kind, total, count, index, padding.
        for (at, wrong) in [
            (0, b'X'),
            (2, 2),
            (3, 9),
            (12, 7),
            (13, 0xff),
            (14, 1),
            (14, 17),
            (15, 2),
            (18, 1),
        ] {
            let mut bad = good.clone();
            bad[at] = wrong;
            assert_eq!(Packet::decode(&bad), None, "{at}");
        }
        let none = Packet::Missing {
            stream: 1,
            number: 2,
            pieces: 0,
        };
        assert_eq!(Packet::decode(&none.encode()), None, "nothing is missing");
        let short = &Packet::Probe {
            nonce: 1,
            length: 64,
        }
        .encode()[..63];
        assert_eq!(Packet::decode(short), None, "its answer would be longer");
    }

    #[test]
    fn every_piece_has_something() {
        for total in 2..=MAX_DATAGRAM {
            let cut = Cut::new(total, 1408);
            assert_eq!(cut.is_some(), total > 1408, "{total}");
            if let Some(cut) = cut {
                assert!(cut.each() <= 1408 && cut.each() * cut.count() >= total);
                assert!(cut.each() * (cut.count() - 1) < total);
            }
        }
        assert_eq!(Cut::new(MAX_DATAGRAM, 100), None, "too many");
    }
}
