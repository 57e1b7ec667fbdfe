//! Receipts, for which nobody waits: they leave when nothing else is to be done, many
//! together. Sending one takes half as long as the question of a thread that has just
//! got what it waited for and comes for more at once.

use crate::hands::Hands;
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::Message;
use std::net::SocketAddr;

/// So many wait at most: what they are about is kept elsewhere meanwhile.
const MOST: usize = 64;

/// Turns after which they leave though there is always something else to do.
const TURNS: u32 = 16;

/// Receipts that wait.
#[derive(Debug, Default)]
pub(crate) struct Receipts {
    waiting: Vec<(SocketAddr, Header, Box<Message>)>,
    turns: u32,
}

impl Receipts {
    /// One more.
    pub(crate) fn push(&mut self, to: SocketAddr, header: Header, message: Box<Message>) {
        self.waiting.push((to, header, message));
    }

    /// Whether they have waited long enough.
    fn are_due(&mut self) -> bool {
        self.turns += u32::from(!self.waiting.is_empty());
        self.turns >= TURNS || self.waiting.len() >= MOST
    }
}

impl Hands {
    /// Something else is to be done: receipts wait, if they have not for too long.
    pub(crate) fn acknowledge_if_due(&mut self) {
        if self.receipts.are_due() {
            self.acknowledge();
        }
    }

    /// Sends all receipts.
    pub(crate) fn acknowledge(&mut self) {
        self.receipts.turns = 0;
        if self.receipts.waiting.is_empty() {
            return;
        }
        let mut waiting = std::mem::take(&mut self.receipts.waiting);
        let (network, tally) = (&mut self.network, &mut self.tally);
        for at in 0..waiting.len() {
            let (to, header, message) = &waiting[at];
            let next = waiting.get(at + 1);
            network.expect_more(next.is_some_and(|(next, ..)| next == to));
            network.send(*to, *header, message, |_| true, tally);
        }
        network.depart(tally);
        waiting.clear();
        self.receipts.waiting = waiting;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::{CallId, ClusterId, Incarnation, NodeId};

    fn push(receipts: &mut Receipts) {
        let header = Header {
            cluster: ClusterId(1),
            from: NodeId(1),
            to: NodeId(2),
            incarnation: Incarnation(1),
            body: 0,
        };
        let message = Box::new(Message::HaveReply { call: CallId(1) });
        receipts.push(([127, 0, 0, 1], 1).into(), header, message);
    }

    #[test]
    fn they_wait_for_some_turns_and_never_many() {
        let mut receipts = Receipts::default();
        assert!((0..100).all(|_| !receipts.are_due()), "there are none");
        push(&mut receipts);
        assert_eq!((1..).find(|_| receipts.are_due()), Some(TURNS));
        receipts.turns = 0;
        (1..MOST).for_each(|_| push(&mut receipts));
        assert!(receipts.are_due());
    }
}
