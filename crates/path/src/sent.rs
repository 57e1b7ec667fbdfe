//! Messages sent in pieces a short while ago, for receivers that request pieces again.

use crate::MS;
use crate::packet::{Cut, Packet, Piece};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Messages that were sent in pieces, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    kept: VecDeque<Kept>,
    /// Buffers of messages that are kept no longer.
    spare: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct Kept {
    to: SocketAddr,
    stream: u32,
    number: u32,
    cut: Cut,
    bytes: Vec<u8>,
    sent: u64,
    /// How many more pieces of this message may be sent again.
    repairs: usize,
}

/// Messages that are kept in any case: few enough for a processor's cache.
const KEPT: usize = 64;

/// More than these are kept only while their receivers may still request pieces, in nanoseconds.
const ASKED_WITHIN: u64 = 8 * MS;

/// Maximum number of messages kept; a page is 4 KiB.
const MOST: usize = 1024;

/// Limit of resends, on average per piece of a message.
const REPAIRS: usize = 3;

impl Sent {
    /// Keeps a message that is sent at `now`.
    pub(crate) fn keep(
        &mut self,
        now: u64,
        (to, stream, number): (SocketAddr, u32, u32),
        cut: Cut,
        message: &[u8],
    ) {
        while self.kept.len() >= KEPT {
            let first = &self.kept[0];
            let asked = now.saturating_sub(first.sent) < ASKED_WITHIN;
            if asked && self.kept.len() < MOST {
                break;
            }
            let gone = self.kept.pop_front().map(|gone| gone.bytes);
            self.spare.extend(gone.filter(|_| self.spare.len() < KEPT));
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(message);
        self.kept.push_back(Kept {
            to,
            stream,
            number,
            cut,
            bytes,
            sent: now,
            repairs: REPAIRS * cut.count(),
        });
    }

    /// Handles a request for missing pieces: returns those that are sent to the receiver again.
    pub(crate) fn again(
        &mut self,
        from: SocketAddr,
        (stream, number): (u32, u32),
        pieces: u16,
    ) -> Vec<Vec<u8>> {
        let wanted =
            |kept: &&mut Kept| (kept.to, kept.stream, kept.number) == (from, stream, number);
        let Some(kept) = self.kept.iter_mut().rev().find(wanted) else {
            return Vec::new();
        };
        let mut again = Vec::new();
        for (index, bytes) in kept.bytes.chunks(kept.cut.each()).enumerate() {
            if pieces & (1 << index) != 0 && kept.repairs > 0 {
                kept.repairs -= 1;
                let piece = Piece {
                    stream,
                    number,
                    cut: kept.cut,
                    index: index as u8,
                    bytes,
                };
                again.push(Packet::Piece(piece).encode());
            }
        }
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    #[test]
    fn only_who_was_sent_a_message_gets_it_again_and_not_for_ever() {
        let mut sent = Sent::default();
        let cut = Cut::new(4000, 1400).unwrap();
        sent.keep(0, (at(1), 7, 1), cut, &[5; 4000]);
        assert_eq!(sent.again(at(2), (7, 1), 1).len(), 0);
        assert_eq!(sent.again(at(1), (8, 1), 1).len(), 0);
        assert_eq!(sent.again(at(1), (7, 2), 1).len(), 0);
        assert_eq!(sent.again(at(1), (7, 1), 0b101).len(), 2);
        let asked = (0..100).map(|_| sent.again(at(1), (7, 1), u16::MAX).len());
        assert_eq!(asked.sum::<usize>(), REPAIRS * 3 - 2);
    }

    #[test]
    fn memory_is_bounded_by_number_and_time() {
        let mut sent = Sent::default();
        let cut = Cut::new(4000, 1400).unwrap();
        for number in 0..2000 {
            sent.keep(0, (at(1), 7, number), cut, &[5; 4000]);
        }
        assert_eq!(sent.kept.len(), MOST);
        sent.keep(ASKED_WITHIN, (at(1), 7, 2000), cut, &[5; 4000]);
        assert_eq!((sent.kept.len(), sent.spare.len()), (KEPT, KEPT - 1));
    }
}
