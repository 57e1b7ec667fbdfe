//! One message of which some pieces have arrived.

use crate::packet::{Cut, Piece};

/// A partly received message.
#[derive(Debug)]
pub(crate) struct Assembly {
    pub(crate) number: u32,
    cut: Cut,
    have: u16,
    bytes: Vec<u8>,
    /// How often missing pieces were requested.
    pub(crate) asked: u32,
    /// The pieces of the last request.
    pub(crate) wanted: u16,
    /// When the next request is due.
    pub(crate) due: u64,
    /// When the last piece arrived.
    pub(crate) last: u64,
}

/// The result of adding a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// It was the last missing piece.
    Last,
    /// It was one of several missing pieces.
    New,
    /// It is a duplicate.
    Again,
    /// It contradicts the pieces that arrived before.
    Contradicts,
}

impl Assembly {
    /// A message without pieces; `bytes` is a buffer for reuse.
    pub(crate) fn new(number: u32, cut: Cut, mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        bytes.resize(cut.total(), 0);
        Self {
            number,
            cut,
            have: 0,
            bytes,
            asked: 0,
            wanted: 0,
            due: u64::MAX,
            last: 0,
        }
    }

    /// Adds a piece of this message.
    pub(crate) fn add(&mut self, piece: &Piece<'_>) -> Fit {
        if piece.cut != self.cut {
            return Fit::Contradicts;
        }
        let at = usize::from(piece.index) * self.cut.each();
        let place = &mut self.bytes[at..at + piece.bytes.len()];
        let bit = 1 << piece.index;
        if self.have & bit != 0 {
            return if place == piece.bytes {
                Fit::Again
            } else {
                Fit::Contradicts
            };
        }
        place.copy_from_slice(piece.bytes);
        self.have |= bit;
        if self.missing() == 0 {
            Fit::Last
        } else {
            Fit::New
        }
    }

    /// A mask with one bit set for each missing piece.
    pub(crate) fn missing(&self) -> u16 {
        self.cut.all() & !self.have
    }

    /// Bytes of memory that it takes.
    pub(crate) fn size(&self) -> usize {
        self.cut.total()
    }

    /// The message, or the part of it that has arrived.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(index: u8, bytes: &[u8]) -> Piece<'_> {
        Piece {
            stream: 1,
            number: 1,
            cut: Cut::new(8, 3).unwrap(),
            index,
            bytes,
        }
    }

    #[test]
    fn pieces_make_a_message_in_any_order() {
        let mut assembly = Assembly::new(1, piece(0, b"").cut, vec![9; 100]);
        assert_eq!(assembly.add(&piece(2, b"ly")), Fit::New);
        assert_eq!(assembly.add(&piece(0, b"ass")), Fit::New);
        assert_eq!(assembly.missing(), 0b010);
        assert_eq!(assembly.add(&piece(0, b"ass")), Fit::Again);
        assert_eq!(assembly.add(&piece(0, b"asp")), Fit::Contradicts);
        let otherwise = Piece {
            cut: Cut::new(9, 3).unwrap(),
            ..piece(1, b"emb")
        };
        assert_eq!(assembly.add(&otherwise), Fit::Contradicts);
        assert_eq!(assembly.add(&piece(1, b"emb")), Fit::Last);
        assert_eq!(assembly.into_bytes(), b"assembly");
    }
}
