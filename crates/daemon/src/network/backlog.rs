//! Datagrams for which the queues of this host had no room: they wait here, since the queue of a link
//! drops what it cannot hold without a word. What waits is mostly pages. Small datagrams leave
//! past it while the kernel takes them, and nodes take turns, so that each of them sees that answers
//! come. A message is not sent again while it waits.

use crate::counters::{Count, Counters};
use pagemesh_os::udp::Udp;
use std::collections::{HashSet, VecDeque};
use std::io;
use std::net::SocketAddr;

/// Bytes that wait at most; what comes after is lost, as it would be on the way.
const MOST: usize = 16 << 20;

/// Nanoseconds after which it is tried again, if the kernel does not say before that there is room.
const AGAIN: u64 = 500_000;

/// Stands for a message: equal ones have the same.
pub(super) type MessageHash = u64;

/// Datagrams of one length for one node, one behind the other; the last may be shorter.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    pub(super) each: usize,
    /// The messages that end in it.
    pub(super) messages: Vec<MessageHash>,
}

impl Batch {
    pub(super) fn of(datagram: &[u8]) -> Self {
        Self {
            bytes: datagram.to_vec(),
            each: datagram.len(),
            messages: Vec::new(),
        }
    }

    fn count(&self) -> u64 {
        self.bytes.len().div_ceil(self.each) as u64
    }
}

/// What waits for one node, in the order in which it came.
#[derive(Debug)]
struct NodeQueue {
    to: SocketAddr,
    batches: VecDeque<Batch>,
    messages: HashSet<MessageHash>,
}

/// What waits for room.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// The node whose turn it is comes first; none of them is empty.
    queues: VecDeque<NodeQueue>,
    bytes: usize,
    /// When it is tried again.
    due: u64,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Whether a batch with pages may leave now: nothing waits, and there is room. One datagram alone
    /// is not worth the question.
    pub(super) fn lets_pass(&self, udp: &Udp, batch: &Batch) -> bool {
        self.is_empty() && (batch.count() == 1 || udp.has_room())
    }

    /// Whether this message waits for this node.
    pub(super) fn holds(&self, to: SocketAddr, hash: MessageHash) -> bool {
        let queue = self.queues.iter().find(|queue| queue.to == to);
        queue.is_some_and(|queue| queue.messages.contains(&hash))
    }

    /// When to try again what waits.
    pub(super) fn due(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.due)
    }

    /// Takes what has to wait.
    pub(super) fn add(
        &mut self,
        now: u64,
        (to, batch): (SocketAddr, Batch),
        counters: &mut Counters,
    ) {
        if self.bytes + batch.bytes.len() > MOST {
            return counters.add(Count::DatagramsFailed, batch.count());
        }
        counters.add(Count::DatagramsHeld, batch.count());
        if self.is_empty() {
            self.due = now + AGAIN;
        }
        self.bytes += batch.bytes.len();
        let at = self.queues.iter().position(|queue| queue.to == to);
        let at = at.unwrap_or_else(|| {
            self.queues.push_back(NodeQueue {
                to,
                batches: VecDeque::new(),
                messages: HashSet::new(),
            });
            self.queues.len() - 1
        });
        let queue = &mut self.queues[at];
        queue.messages.extend(&batch.messages);
        queue.batches.push_back(batch);
    }

    /// Sends what there is room for now.
    pub(super) fn flush(&mut self, now: u64, udp: &Udp, counters: &mut Counters) {
        self.due = now + AGAIN;
        while udp.has_room()
            && let Some(mut queue) = self.queues.pop_front()
        {
            let Some(mut batch) = queue.batches.pop_front() else {
                continue;
            };
            self.bytes -= batch.bytes.len();
            let messages = std::mem::take(&mut batch.messages);
            if let Sent::Rest(rest) = send(udp, queue.to, batch, counters) {
                self.bytes += rest.bytes.len();
                queue.batches.push_front(Batch { messages, ..rest });
                self.queues.push_front(queue);
                return;
            }
            for message in messages {
                queue.messages.remove(&message);
            }
            if !queue.batches.is_empty() {
                self.queues.push_back(queue);
            }
        }
    }
}

/// What became of a batch.
pub(super) enum Sent {
    /// It has left; its memory for reuse.
    All(Vec<u8>),
    /// It has left, each datagram alone: a link does not carry that length in one piece, and IP cuts
    /// only datagrams that go alone.
    Alone(Vec<u8>),
    /// There was no room for this rest.
    Rest(Batch),
}

/// Sends a batch.
pub(super) fn send(udp: &Udp, to: SocketAddr, mut batch: Batch, counters: &mut Counters) -> Sent {
    let mut too_long = false;
    if batch.count() > 1 {
        match udp.send_burst(to, &batch.bytes, batch.each) {
            Ok(()) => {
                count_sent(batch.count(), batch.bytes.len(), counters);
                return Sent::All(batch.bytes);
            }
            Err(error) if is_full(&error) => return Sent::Rest(batch),
            Err(error) => too_long = error.raw_os_error() != Some(libc::ENOBUFS),
        }
    }
    let mut datagrams = batch.bytes.chunks(batch.each);
    let full = datagrams.position(|datagram| !send_one(udp, to, datagram, counters));
    if let Some(left) = full {
        batch.bytes.drain(..left * batch.each);
        return Sent::Rest(batch);
    }
    match too_long {
        true => Sent::Alone(batch.bytes),
        false => Sent::All(batch.bytes),
    }
}

/// Sends a datagram; false if there was no room for it.
pub(super) fn send_one(
    udp: &Udp,
    to: SocketAddr,
    datagram: &[u8],
    counters: &mut Counters,
) -> bool {
    match udp.send(to, datagram) {
        Ok(()) => count_sent(1, datagram.len(), counters),
        Err(error) if is_full(&error) => return false,
        // As good as lost: the core resends messages that need an answer.
        Err(error) => {
            counters.add(Count::DatagramsFailed, 1);
            tracing::debug!(%to, %error, "a datagram could not be sent");
        }
    }
    true
}

fn count_sent(count: u64, bytes: usize, counters: &mut Counters) {
    counters.add(Count::DatagramsOut, count);
    counters.add(Count::BytesOut, bytes as u64);
}

/// Whether the socket's buffer is full.
fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::time::Duration;

    fn batch(number: u8, length: usize) -> Batch {
        Batch {
            bytes: vec![number; length],
            each: 1000,
            messages: vec![number.into()],
        }
    }

    fn count(counters: &Counters, name: &str) -> u64 {
        let report = counters.report();
        report.iter().find(|(of, _)| of == name).unwrap().1
    }

    /// A receiver, and where it is.
    fn receiver() -> (UdpSocket, SocketAddr) {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let patience = Some(Duration::from_secs(5));
        receiver.set_read_timeout(patience).unwrap();
        let to = receiver.local_addr().unwrap();
        (receiver, to)
    }

    #[test]
    fn what_waits_leaves_in_order_when_there_is_room() {
        let sender = Udp::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let (one, other) = (receiver(), receiver());
        let (mut backlog, mut counters) = (Backlog::default(), Counters::default());
        assert!(backlog.lets_pass(&sender, &batch(0, 3000)));
        assert_eq!(backlog.due(), None);
        for (to, number) in [(one.1, 1), (one.1, 2), (other.1, 3), (one.1, 4)] {
            backlog.add(7, (to, batch(number, 2500)), &mut counters);
        }
        assert_eq!(backlog.due(), Some(7 + AGAIN));
        assert!(!backlog.lets_pass(&sender, &batch(0, 1000)));
        assert!(backlog.holds(one.1, 4) && backlog.holds(other.1, 3));
        assert!(!backlog.holds(other.1, 4) && !backlog.holds(one.1, 3));
        backlog.flush(9, &sender, &mut counters);
        assert!(backlog.is_empty() && backlog.bytes == 0 && !backlog.holds(one.1, 4));
        let mut room = [0; 2000];
        for ((receiver, _), number) in [(&one, 1), (&one, 2), (&other, 3), (&one, 4)] {
            for length in [1000, 1000, 500] {
                assert_eq!(receiver.recv(&mut room).unwrap(), length);
                assert_eq!(room[..length], vec![number; length]);
            }
        }
        let held_and_sent = ["datagrams_held", "datagrams_out"].map(|name| count(&counters, name));
        assert_eq!(held_and_sent, [12, 12]);
    }

    #[test]
    fn what_cannot_wait_is_lost_and_counted() {
        let to = "127.0.0.1:9".parse().unwrap();
        let (mut backlog, mut counters) = (Backlog::default(), Counters::default());
        backlog.add(7, (to, batch(1, MOST - 1000)), &mut counters);
        backlog.add(8, (to, batch(2, 1500)), &mut counters);
        backlog.add(9, (to, batch(3, 1000)), &mut counters);
        assert_eq!(backlog.bytes, MOST);
        assert_eq!(count(&counters, "datagrams_failed"), 2);
        assert!(!backlog.holds(to, 2));
    }
}
