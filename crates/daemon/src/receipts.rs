//! Receipts, for which no thread waits: they leave when the daemon has nothing else to do, many
//! together, and those for pages of one segment in one message. Sending one takes half as long as
//! the request of a thread that has just got its page and asks for the next one at once.

use crate::counters::Counters;
use crate::network::Network;
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::Message;
use std::net::SocketAddr;

/// Receipts that wait at most: the other nodes keep what they acknowledge meanwhile.
const MOST: usize = 64;

/// Turns after which they leave though there is always something else to do.
const TURNS: u32 = 16;

/// Receipts that wait.
#[derive(Debug, Default)]
pub(crate) struct Receipts {
    waiting: Vec<(SocketAddr, Header, Box<Message>)>,
    /// How many they are, those of one message counted one by one.
    count: usize,
    turns: u32,
}

impl Receipts {
    /// One more.
    pub(crate) fn push(&mut self, to: SocketAddr, header: Header, message: Box<Message>) {
        self.count += 1;
        let last = self.waiting.last_mut();
        let joins = last.is_some_and(|(whom, head, last)| {
            (*whom, *head) == (to, header) && last.takes(&message)
        });
        if !joins {
            self.waiting.push((to, header, message));
        }
    }

    /// All of them leave.
    pub(crate) fn leave(&mut self, network: &mut Network, counters: &mut Counters) {
        (self.turns, self.count) = (0, 0);
        if self.waiting.is_empty() {
            return;
        }
        for at in 0..self.waiting.len() {
            let (to, header, message) = &self.waiting[at];
            let next = self.waiting.get(at + 1);
            network.expect_more(next.is_some_and(|(next, ..)| next == to));
            network.send(*to, *header, message, |_| true, counters);
        }
        network.depart(counters);
        self.waiting.clear();
    }

    /// Whether they have waited long enough.
    pub(crate) fn are_due(&mut self) -> bool {
        self.turns += u32::from(!self.waiting.is_empty());
        self.turns >= TURNS || self.count >= MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::peer::{PassAck, Subject};
    use pagemesh_wire::{
        CallId, ClusterId, Incarnation, NodeId, PageIndex, SegmentId, SyncKey, Version,
    };

    fn push(receipts: &mut Receipts) {
        say(receipts, 1, Message::HaveReply { call: CallId(1) });
    }

    fn say(receipts: &mut Receipts, port: u16, message: Message) {
        let header = Header {
            version: pagemesh_wire::header::PROTOCOL_VERSION,
            cluster: ClusterId(1),
            from: NodeId(1),
            to: NodeId(2),
            incarnation: Incarnation(1),
            body: 0,
            term: pagemesh_wire::Term::NONE,
            generation: 0,
        };
        let to = ([127, 0, 0, 1], port).into();
        receipts.push(to, header, Box::new(message));
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
    #[test]
    fn those_for_pages_of_one_segment_and_node_are_one_message() {
        let mut receipts = Receipts::default();
        let ack = |segment, page| {
            let (segment, version) = (SegmentId(segment), Version(7));
            let page = PageIndex(page);
            let subject = Subject::Page { segment, page };
            Message::PassAck(PassAck { subject, version })
        };
        for page in 0..5 {
            say(&mut receipts, 1, ack(1, page));
        }
        say(&mut receipts, 2, ack(1, 5));
        say(&mut receipts, 2, ack(2, 5));
        let key = SyncKey {
            segment: SegmentId(2),
            number: 5,
        };
        let subject = Subject::Lock(key);
        let version = Version(1);
        say(
            &mut receipts,
            2,
            Message::PassAck(PassAck { subject, version }),
        );
        push(&mut receipts);
        let each: Vec<usize> = receipts
            .waiting
            .iter()
            .map(|(_, _, message)| match &**message {
                Message::PassAckMany(many) => many.each().count(),
                _ => 1,
            })
            .collect();
        assert_eq!((each, receipts.count), (vec![5, 1, 1, 1, 1], 9));
    }
}
