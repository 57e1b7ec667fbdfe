//! Datagrams to a multicast group: several small datagrams for several nodes as one.
//!
//! A multicast batch is no message. Its parts are the datagrams that would have gone to each node
//! by itself, sealed or not, and each receiver takes the parts that are for it. Trials show the
//! reach: a node that receives a trial answers its sender.
//!
//! A *shared* datagram is one message for several nodes: its bytes are there once, behind the set of
//! those nodes, and cut to pieces if they are longer than the link carries. In a cluster that seals
//! it is sealed by a key of its sender, of which the sender tells each receiver by itself.

use crate::{NodeId, NodeSet};
use core::ops::Range;

mod shared;

pub use shared::{MOST_PIECES, SHARED_HEAD, SharedPiece};

/// A datagram that came from the group, or the answer to one that was sent there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MulticastBatch<'a> {
    /// Does anybody hear this? As long as the longest multicast batch of its sender.
    Trial {
        /// Drawn at random by the sender.
        number: u64,
        /// Bytes of the datagram.
        length: usize,
    },
    /// This node does.
    Heard {
        /// That of the trial.
        number: u64,
    },
    /// Datagrams, each with its receiver.
    Parts(Parts<'a>),
    /// A piece of a message for several nodes.
    Shared(SharedPiece<'a>),
    /// To one node: the key that opens what the sender shares.
    Key {
        /// The number of the key, which is in front of all that it seals.
        number: u32,
        /// The counter from which on the receiver opens what the key seals.
        next: u64,
        /// The key.
        key: &'a [u8; 32],
    },
    /// To one node: it shares what a key of this number seals, and the sender has no such key.
    KeyWanted {
        /// The number of the key.
        number: u32,
    },
}

/// Datagrams of a multicast batch; at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts<'a>(&'a [u8]);

/// A trial has at least as many bytes, so that the answers to trials do not amplify traffic.
pub const SHORTEST_TRIAL: usize = 256;

/// Bytes in front of the parts.
pub const HEAD: usize = 4;

/// Bytes in front of each part: the node it is for, and how long it is.
pub const LABEL: usize = 4;

const MARK: [u8; 2] = *b"PC";
const VERSION: u8 = 1;
const TRIAL: u8 = 1;
const HEARD: u8 = 2;
const PARTS: u8 = 3;
const SHARED: u8 = 4;
const KEY: u8 = 5;
const KEY_WANTED: u8 = 6;

/// Whether these bytes are, or pretend to be, of this kind.
#[must_use]
pub fn is_multicast_batch(bytes: &[u8]) -> bool {
    bytes.starts_with(&MARK)
}

/// Whether these bytes are, or pretend to be, a piece of a message for several nodes.
#[must_use]
pub fn is_shared(bytes: &[u8]) -> bool {
    bytes.starts_with(&head(SHARED))
}

/// Begins a multicast batch without any part.
pub fn begin(multicast_batch: &mut Vec<u8>) {
    multicast_batch.clear();
    multicast_batch.extend_from_slice(&head(PARTS));
}

/// Adds a part.
///
/// # Panics
/// If the part is empty, or longer than 65,535 bytes.
pub fn add(multicast_batch: &mut Vec<u8>, to: NodeId, datagram: &[u8]) {
    let length = u16::try_from(datagram.len()).expect("a part is shorter than a datagram");
    assert!(length > 0, "a part has something in it");
    multicast_batch.extend_from_slice(&to.0.to_le_bytes());
    multicast_batch.extend_from_slice(&length.to_le_bytes());
    multicast_batch.extend_from_slice(datagram);
}

const fn head(kind: u8) -> [u8; HEAD] {
    [MARK[0], MARK[1], VERSION, kind]
}

impl MulticastBatch<'_> {
    /// The datagram's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let with = |kind, number: u64| [&head(kind)[..], &number.to_le_bytes()].concat();
        match self {
            Self::Trial { number, length } => {
                let mut bytes = with(TRIAL, *number);
                bytes.resize((*length).max(SHORTEST_TRIAL), 0);
                bytes
            }
            Self::Heard { number } => with(HEARD, *number),
            Self::Parts(parts) => parts.0.to_vec(),
            Self::Shared(piece) => {
                let mut bytes = head(SHARED).to_vec();
                piece.encode(&mut bytes);
                bytes
            }
            Self::Key { number, next, key } => {
                let (number, next) = (number.to_le_bytes(), next.to_le_bytes());
                [&head(KEY)[..], &number, &next, &key[..]].concat()
            }
            Self::KeyWanted { number } => [head(KEY_WANTED), number.to_le_bytes()].concat(),
        }
    }
}

impl<'a> MulticastBatch<'a> {
    /// Decodes the bytes; `None` if they are none of these.
    #[must_use]
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (head, body) = bytes.split_first_chunk::<HEAD>()?;
        if head[..3] != [MARK[0], MARK[1], VERSION] {
            return None;
        }
        match head[3] {
            TRIAL => {
                let (number, padding) = body.split_first_chunk()?;
                let whole = bytes.len() >= SHORTEST_TRIAL && padding.iter().all(|byte| *byte == 0);
                whole.then_some(Self::Trial {
                    number: u64::from_le_bytes(*number),
                    length: bytes.len(),
                })
            }
            HEARD => {
                let number = u64::from_le_bytes(body.try_into().ok()?);
                Some(Self::Heard { number })
            }
            PARTS => {
                let mut at = HEAD;
                while at < bytes.len() {
                    at = part(bytes, at)?.1.end;
                }
                (at > HEAD).then_some(Self::Parts(Parts(bytes)))
            }
            SHARED => SharedPiece::decode(body).map(Self::Shared),
            KEY => {
                let (number, rest) = body.split_first_chunk()?;
                let (next, key) = rest.split_first_chunk()?;
                Some(Self::Key {
                    number: u32::from_le_bytes(*number),
                    next: u64::from_le_bytes(*next),
                    key: key.try_into().ok()?,
                })
            }
            KEY_WANTED => {
                let number = u32::from_le_bytes(body.try_into().ok()?);
                Some(Self::KeyWanted { number })
            }
            _ => None,
        }
    }
}

/// The part whose label stands at `at`, if it is whole.
fn part(bytes: &[u8], at: usize) -> Option<(NodeId, Range<usize>)> {
    let label: [u8; LABEL] = *bytes.get(at..)?.first_chunk()?;
    let to = NodeId(u16::from_le_bytes([label[0], label[1]]));
    let length = usize::from(u16::from_le_bytes([label[2], label[3]]));
    let range = at + LABEL..at + LABEL + length;
    let fits = length > 0 && range.end <= bytes.len() && to.is_near();
    fits.then_some((to, range))
}

impl<'a> Parts<'a> {
    /// Yields the receiver and the byte range of each part.
    pub fn iter(self) -> impl Iterator<Item = (NodeId, Range<usize>)> + 'a {
        let mut at = HEAD;
        core::iter::from_fn(move || {
            let found = part(self.0, at)?;
            at = found.1.end;
            Some(found)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> Vec<u8> {
        let mut bytes = Vec::new();
        begin(&mut bytes);
        add(&mut bytes, NodeId(3), b"one");
        add(&mut bytes, NodeId(5), b"other");
        bytes
    }

    #[test]
    fn golden_bytes() {
        assert_eq!(parts(), *b"PC\x01\x03\x03\0\x03\0one\x05\0\x05\0other");
        let heard = MulticastBatch::Heard { number: 0x0201 };
        assert_eq!(heard.encode(), *b"PC\x01\x02\x01\x02\0\0\0\0\0\0");
        let trial = MulticastBatch::Trial {
            number: 9,
            length: 1400,
        };
        let bytes = trial.encode();
        assert_eq!(bytes[..13], *b"PC\x01\x01\x09\0\0\0\0\0\0\0\0");
        assert_eq!(bytes.len(), 1400);
        let wanted = MulticastBatch::KeyWanted { number: 0x0201 };
        assert_eq!(wanted.encode(), *b"PC\x01\x06\x01\x02\0\0");
        let key = MulticastBatch::Key {
            number: 3,
            next: 4,
            key: &[7; 32],
        };
        let golden = *b"PC\x01\x05\x03\0\0\0\x04\0\0\0\0\0\0\0\x07";
        assert_eq!(key.encode()[..17], golden);
        assert_eq!(key.encode().len(), 48);
        let mut nodes = NodeSet::only(NodeId(1));
        nodes.insert(NodeId(64));
        let shared = MulticastBatch::Shared(SharedPiece {
            nodes,
            number: 9,
            total: 5,
            count: 2,
            index: 1,
            bytes: b"lo",
        });
        let golden = b"PC\x01\x04\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\
                       \x09\0\0\0\x05\0\x02\x01lo\0";
        assert_eq!(shared.encode(), *golden);
        for said in [heard, trial, wanted, key, shared] {
            assert_eq!(MulticastBatch::decode(&said.encode()), Some(said));
        }
    }

    #[test]
    fn everybody_finds_what_is_for_him() {
        let bytes = parts();
        let Some(MulticastBatch::Parts(parts)) = MulticastBatch::decode(&bytes) else {
            panic!("{bytes:?}");
        };
        let found: Vec<_> = parts.iter().map(|(to, at)| (to.0, &bytes[at])).collect();
        assert_eq!(found, [(3, &b"one"[..]), (5, &b"other"[..])]);
    }

    #[test]
    fn nothing_else_is_understood() {
        let good = parts();
        for cut in (0..good.len()).filter(|cut| *cut != 11) {
            assert_eq!(MulticastBatch::decode(&good[..cut]), None, "{cut}");
        }
        assert!(
            MulticastBatch::decode(&good[..11]).is_some(),
            "the first alone"
        );
        for (at, wrong) in [(0, b'X'), (2, 2), (3, 7), (4, 0), (5, 1), (6, 0), (6, 200)] {
            let mut bad = good.clone();
            bad[at] = wrong;
            assert_eq!(MulticastBatch::decode(&bad), None, "{at}");
        }
        let trial = |length| {
            let mut bytes = MulticastBatch::Trial { number: 1, length }.encode();
            bytes.truncate(length);
            bytes
        };
        assert_eq!(MulticastBatch::decode(&trial(SHORTEST_TRIAL - 1)), None);
        let mut dirty = trial(SHORTEST_TRIAL);
        dirty[SHORTEST_TRIAL - 1] = 1;
        assert_eq!(MulticastBatch::decode(&dirty), None);
    }
}
