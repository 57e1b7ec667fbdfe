//! What is said about the way itself: probes, pieces, and what is missing.
//!
//! None of this is a message. The first four bytes are `PF`, version 1, kind; numbers
//! are little-endian.

use pagemesh_wire::header::MAX_DATAGRAM;

/// What came from another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// Does a datagram of this length arrive?
    Probe {
        /// Drawn at random by the sender.
        nonce: u64,
        /// Bytes of this packet.
        length: usize,
    },
    /// It does.
    Confirm {
        /// That of the probe.
        nonce: u64,
        /// And its length.
        length: usize,
    },
    /// A part of a message.
    Piece(Piece<'a>),
    /// These pieces of a message did not come.
    Missing {
        /// The sender's stream.
        stream: u32,
        /// The message's number.
        number: u32,
        /// A bit for each piece that is missing; never none.
        pieces: u16,
    },
}

/// A part of a message. All pieces of a message are of one length; the last is filled
/// up with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Drawn at random when its sender started.
    pub stream: u32,
    /// The message's number, counted by the sender for this receiver.
    pub number: u32,
    /// How the message is cut.
    pub cut: Cut,
    /// Which piece this is, from 0.
    pub index: u8,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// How a message is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Bytes of the message.
    total: u16,
    /// Pieces, at least 2.
    count: u8,
}

/// Bytes in front of a piece.
pub const HEAD: usize = 16;

/// Pieces of a message at most.
pub const PIECES: usize = 16;

/// A probe is at least this long, so that nobody gets more sent by having it answered.
pub const SHORTEST_PROBE: usize = 64;

const MARK: [u8; 2] = *b"PF";
const VERSION: u8 = 1;
const PROBE: u8 = 1;
const CONFIRM: u8 = 2;
const PIECE: u8 = 3;
const MISSING: u8 = 4;

/// Whether these bytes are, or pretend to be, of this kind.
#[must_use]
pub fn is_packet(bytes: &[u8]) -> bool {
    bytes.starts_with(&MARK)
}

impl Cut {
    /// The fewest pieces of at most `most` bytes that a message of `total` becomes; none
    /// if it needs no cutting, or too many.
    #[must_use]
    pub fn new(total: usize, most: usize) -> Option<Self> {
        let count = total.div_ceil(most.max(1));
        Self::of(total, count)
    }

    /// None unless such a message is ever cut so: every piece has some of it.
    fn of(total: usize, count: usize) -> Option<Self> {
        let some = (2..=PIECES).contains(&count) && (count..=MAX_DATAGRAM).contains(&total);
        let full = some && total.div_ceil(count) * (count - 1) < total;
        full.then_some(Self {
            total: total as u16,
            count: count as u8,
        })
    }

    /// Bytes of the message.
    #[must_use]
    pub fn total(self) -> usize {
        usize::from(self.total)
    }

    /// How many pieces there are.
    #[must_use]
    pub fn count(self) -> usize {
        usize::from(self.count)
    }

    /// Bytes of each piece.
    #[must_use]
    pub fn each(self) -> usize {
        self.total().div_ceil(self.count())
    }

    /// A bit for each piece.
    #[must_use]
    pub fn all(self) -> u16 {
        u16::MAX >> (PIECES - self.count())
    }
}

impl Piece<'_> {
    /// What stands in front of its bytes.
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
    /// The packet's bytes.
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

    /// What these bytes say; `None` if they are nothing that is ever said.
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
