//! Datagrams that came together with the one received last.

use std::net::SocketAddr;
use std::ops::Range;

/// Datagrams of the inbox that wait for their turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rest {
    pub(super) from: Option<SocketAddr>,
    /// How many there are; an empty datagram is one, too.
    pub(super) count: usize,
    pub(super) next: usize,
    pub(super) end: usize,
    pub(super) each: usize,
}

impl Rest {
    /// The datagrams in the first `end` bytes, of which each has `each` bytes, and the last perhaps
    /// fewer.
    pub(super) fn of(end: usize, each: usize, from: SocketAddr) -> Self {
        Self {
            from: Some(from),
            count: end.div_ceil(each).max(1),
            next: 0,
            end,
            each,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.count == 0
    }

    /// Whether it came in answer to this sender, with others.
    pub(super) fn is_of(&self, sender: SocketAddr) -> bool {
        self.from == Some(sender)
    }

    /// The next datagram.
    pub(super) fn take(&mut self) -> Option<(Range<usize>, SocketAddr)> {
        let from = self.from.filter(|_| self.count > 0)?;
        self.count -= 1;
        let start = self.next;
        self.next = self.end.min(start + self.each);
        Some((start..self.next, from))
    }
}
