//! Datagrams that wait for others of their kind, to leave by one call.

use super::LONGEST;
use super::backlog::{Batch, MessageHash};
use std::net::SocketAddr;

/// Datagrams of so many bytes carry a page, and seldom leave alone.
pub(super) const LARGE: usize = 2048;

/// Pieces of such are at least so long, and seldom leave alone, either.
pub(super) const PIECE: usize = 1024;

/// Datagrams of a burst at most; older kernels cut no more.
const COUNT: usize = 60;

/// Bytes of a burst at most: IP counts its own header.
const TOGETHER: usize = LONGEST - 256;

/// Datagrams of one length for one node, one behind the other; the last may be shorter, as
/// the kernel lets it be: an arrival behind the changes that it tells of.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    pub(super) to: Option<SocketAddr>,
    each: usize,
    bytes: Vec<u8>,
    /// The messages that end in them.
    messages: Vec<MessageHash>,
    /// The last one is shorter.
    complete: bool,
    /// Some link does not carry datagrams of this length in one piece: IP has to cut
    /// them, which it does only with those that go alone.
    too_long: usize,
}

impl SendQueue {
    /// Whether a datagram can go out together with those that wait.
    fn takes(&self, to: SocketAddr, length: usize) -> bool {
        let follows = self.to == Some(to) && length <= self.each && !self.complete;
        let alike = self.to.is_none() || follows;
        let few = self.bytes.len() < self.each * COUNT || self.to.is_none();
        let room = few && self.bytes.len() + length <= TOGETHER;
        alike && room && (self.too_long == 0 || length < self.too_long)
    }

    /// Whether datagrams with whole pages, or pieces of such, wait for more of their kind.
    pub(super) fn is_large_for(&self, to: SocketAddr) -> bool {
        self.to == Some(to) && self.each >= PIECE
    }

    /// A datagram that carries a page becomes the first of those that leave together
    /// without being copied, and leaves other memory in its place; false if it cannot.
    pub(super) fn begins(&mut self, to: SocketAddr, datagram: &mut Vec<u8>) -> bool {
        let first = self.to.is_none() && datagram.len() >= LARGE;
        if !first || !self.takes(to, datagram.len()) {
            return false;
        }
        (self.to, self.each) = (Some(to), datagram.len());
        std::mem::swap(&mut self.bytes, datagram);
        true
    }

    /// Adds a datagram, which is given in parts, if it can go out together with those that wait.
    pub(super) fn add(&mut self, to: SocketAddr, parts: &[&[u8]]) -> bool {
        let length = parts.iter().map(|part| part.len()).sum();
        if !self.takes(to, length) {
            return false;
        }
        if self.to.is_none() {
            (self.to, self.each) = (Some(to), length);
        }
        self.complete = length < self.each;
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        true
    }

    /// The message ends in the last datagram that was added, if that waits for this node.
    pub(super) fn ends_message(&mut self, to: SocketAddr, hash: MessageHash) {
        if self.to == Some(to) {
            self.messages.push(hash);
        }
    }

    /// Takes out all that wait, and for which node.
    pub(super) fn take(&mut self) -> Option<(SocketAddr, Batch)> {
        let to = self.to.take()?;
        self.complete = false;
        let batch = Batch {
            bytes: std::mem::take(&mut self.bytes),
            each: self.each,
            messages: std::mem::take(&mut self.messages),
        };
        Some((to, batch))
    }

    /// Memory for those to come.
    pub(super) fn reuse(&mut self, mut bytes: Vec<u8>) {
        bytes.clear();
        self.bytes = bytes;
    }

    /// A link does not carry datagrams of this length in one piece.
    pub(super) fn avoid(&mut self, length: usize) {
        self.too_long = length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn with(to: SocketAddr, each: usize) -> SendQueue {
        SendQueue {
            to: Some(to),
            each,
            bytes: vec![0; each],
            ..SendQueue::default()
        }
    }

    #[test]
    fn datagrams_of_one_length_leave_together_and_a_shorter_one_behind_them() {
        let outbox = with(at(1), 5000);
        assert!(outbox.takes(at(1), 5000) && outbox.takes(at(1), 60));
        assert!(!outbox.takes(at(1), 5001), "longer");
        assert!(!outbox.takes(at(2), 5000), "for somebody else");
        let outbox = SendQueue {
            complete: true,
            ..outbox
        };
        assert!(!outbox.takes(at(1), 60), "only the last is shorter");
    }
}
