//! Pieces of a message that several nodes get at once.

use super::NodeSet;

/// Bytes in front of a piece's own: the nodes, the message's number, its length, the number of pieces,
/// which one this is.
pub const SHARED_HEAD: usize = 24;

/// Pieces of one message at most.
pub const MOST_PIECES: usize = 16;

/// A piece of a message for several nodes. All pieces of a message have the same length; behind the
/// end of the message there are zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedPiece<'a> {
    /// The nodes that it is for.
    pub nodes: NodeSet,
    /// Counts the messages that the sender shares.
    pub number: u32,
    /// Bytes of the message.
    pub total: u16,
    /// Pieces of the message.
    pub count: u8,
    /// Which of them this is.
    pub index: u8,
    /// The bytes of the message that it has.
    pub bytes: &'a [u8],
}

impl<'a> SharedPiece<'a> {
    /// The pieces of a message, of which none has more than `longest` bytes with its head. Empty if
    /// that takes too many.
    pub fn cut(
        (nodes, number): (NodeSet, u32),
        message: &'a [u8],
        longest: usize,
    ) -> impl Iterator<Item = Self> {
        let room = longest.saturating_sub(SHARED_HEAD).max(1);
        let count = message.len().div_ceil(room);
        let fits = u16::try_from(message.len()).is_ok() && count <= MOST_PIECES;
        let each = message.len().div_ceil(count.max(1)).max(1);
        // Rounding up may leave nothing for the last ones.
        let count = message.len().div_ceil(each);
        let pieces = message.chunks(each).take(if fits { count } else { 0 });
        pieces.enumerate().map(move |(index, bytes)| Self {
            nodes: nodes.clone(),
            number,
            total: message.len() as u16,
            count: count as u8,
            index: index as u8,
            bytes,
        })
    }

    /// Bytes of each piece of its message.
    #[must_use]
    pub fn each(&self) -> usize {
        usize::from(self.total).div_ceil(usize::from(self.count).max(1))
    }

    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.nodes.near_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.total.to_le_bytes());
        out.extend_from_slice(&[self.count, self.index]);
        out.extend_from_slice(self.bytes);
        out.resize(start + SHARED_HEAD + self.each(), 0);
    }

    /// Decodes a piece; `None` if the bytes are none.
    #[must_use]
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<SHARED_HEAD>()?;
        let (nodes, words) = head.split_first_chunk::<16>()?;
        let piece = Self {
            nodes: NodeSet::from_near_bytes(nodes)?,
            number: u32::from_le_bytes([words[0], words[1], words[2], words[3]]),
            total: u16::from_le_bytes([words[4], words[5]]),
            count: words[6],
            index: words[7],
            bytes: rest,
        };
        let (total, each) = (usize::from(piece.total), piece.each());
        let (count, index) = (usize::from(piece.count), usize::from(piece.index));
        let possible = total > 0 && index < count && count <= MOST_PIECES;
        if !possible || each * (count - 1) >= total || rest.len() != each {
            return None;
        }
        let (bytes, padding) = rest.split_at(each.min(total - index * each));
        let clean = padding.iter().all(|byte| *byte == 0);
        clean.then_some(Self { bytes, ..piece })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    #[test]
    fn a_message_is_whole_again_behind_its_pieces() {
        let nodes = NodeSet::only(NodeId(5));
        for (length, longest) in [
            (1, 1472),
            (1448, 1472),
            (1449, 1472),
            (4300, 1472),
            (17, 26),
        ] {
            let message: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            let mut whole = Vec::new();
            let mut lengths = Vec::new();
            for piece in SharedPiece::cut((nodes.clone(), 7), &message, longest) {
                let mut bytes = Vec::new();
                piece.encode(&mut bytes);
                assert!(bytes.len() <= longest, "{length} {longest}");
                lengths.push(bytes.len());
                let decoded = SharedPiece::decode(&bytes);
                assert_eq!(decoded, Some(piece.clone()));
                whole.extend_from_slice(piece.bytes);
            }
            lengths.dedup();
            assert_eq!((whole, lengths.len()), (message, 1), "{length} {longest}");
        }
        let too_long = vec![0; 20 * 1448];
        assert_eq!(
            SharedPiece::cut((nodes.clone(), 7), &too_long, 1472).count(),
            0
        );
    }

    #[test]
    fn nothing_else_is_a_piece() {
        let piece = SharedPiece {
            nodes: NodeSet::only(NodeId(5)),
            number: 7,
            total: 5,
            count: 2,
            index: 1,
            bytes: b"lo",
        };
        let mut good = Vec::new();
        piece.encode(&mut good);
        for cut in 0..good.len() {
            assert_eq!(SharedPiece::decode(&good[..cut]), None, "{cut}");
        }
        // No node, the length, the count, the index, the padding.
        for (at, wrong) in [
            (0, 0x21),
            (20, 0),
            (20, 2),
            (21, 1),
            (22, 0),
            (22, 17),
            (23, 2),
            (26, 1),
        ] {
            let mut bad = good.clone();
            bad[at] = wrong;
            assert_eq!(SharedPiece::decode(&bad), None, "{at}");
        }
        assert_eq!(SharedPiece::decode(&[&good[..], &[0]].concat()), None);
    }
}
