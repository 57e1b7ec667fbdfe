//! The way out of this host: the socket, and what waits before it.

use super::backlog::{Backlog, Batch, MessageHash, Sent, send, send_one};
use super::send_queue::{LARGE, PIECE, SendQueue};
use crate::counters::Counters;
use pagemesh_os::clock;
use pagemesh_os::impair::{Impairer, Impairment};
use pagemesh_os::udp::Udp;
use std::net::SocketAddr;

/// Sends datagrams: at once, or together with others of their kind, or as a bad network would.
#[derive(Debug)]
pub(super) struct Egress {
    pub(super) udp: Udp,
    impairer: Option<Impairer>,
    /// Pages on their way out together.
    pub(super) queue: SendQueue,
    /// What left before, as far as the daemon goes, and waits for room on this host.
    backlog: Backlog,
}

impl Egress {
    pub(super) fn new(udp: Udp, impairment: Option<Impairment>) -> Self {
        Self {
            udp,
            impairer: impairment.map(Impairer::new),
            queue: SendQueue::default(),
            backlog: Backlog::default(),
        }
    }

    /// True if an experiment loses, doubles or delays datagrams.
    pub(super) fn is_impaired(&self) -> bool {
        self.impairer.is_some()
    }

    /// Whether datagrams wait until the socket is writable.
    pub(super) fn awaits_room(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Gives a datagram to the network, or to the impairer. A large one, or one of many, waits for
    /// more of its kind.
    pub(super) fn give(
        &mut self,
        to: SocketAddr,
        datagram: &[u8],
        together: bool,
        counters: &mut Counters,
    ) {
        match &mut self.impairer {
            None if datagram.len() >= LARGE || together => self.join(to, &[datagram], counters),
            None => self.put(to, datagram, counters),
            Some(impairer) => {
                impairer.offer(clock::monotonic(), to, datagram);
                self.release(clock::monotonic(), counters);
            }
        }
    }

    /// Waits with others of its kind for [`Egress::depart`]. Given in parts.
    pub(super) fn join(&mut self, to: SocketAddr, parts: &[&[u8]], counters: &mut Counters) {
        if self.queue.add(to, parts) {
            return;
        }
        self.depart(counters);
        if self.queue.add(to, parts) {
            return;
        }
        match parts {
            [datagram] => self.put(to, datagram, counters),
            _ => self.put(to, &parts.concat(), counters),
        }
    }

    /// Sends those that wait for others. Pages wait behind those that wait for room.
    pub(super) fn depart(&mut self, counters: &mut Counters) {
        let Some((to, batch)) = self.queue.take() else {
            return;
        };
        let each = batch.each;
        if each >= PIECE && !self.backlog.lets_pass(&self.udp, &batch) {
            return self.hold(to, batch, counters);
        }
        match send(&self.udp, to, batch, counters) {
            Sent::All(bytes) => self.queue.reuse(bytes),
            Sent::Alone(bytes) => {
                self.queue.reuse(bytes);
                self.queue.avoid(each);
            }
            Sent::Rest(batch) => self.hold(to, batch, counters),
        }
    }

    /// Sends a datagram at once, unless the kernel has no room.
    pub(super) fn put(&mut self, to: SocketAddr, datagram: &[u8], counters: &mut Counters) {
        if !send_one(&self.udp, to, datagram, counters) {
            self.hold(to, Batch::of(datagram), counters);
        }
    }

    fn hold(&mut self, to: SocketAddr, batch: Batch, counters: &mut Counters) {
        let now = clock::monotonic();
        self.backlog.add(now, (to, batch), counters);
    }

    /// Whether this message waits for room.
    pub(super) fn holds(&self, to: SocketAddr, hash: MessageHash) -> bool {
        self.backlog.holds(to, hash)
    }

    /// Sends what had no room before.
    pub(super) fn send_held(&mut self, counters: &mut Counters) {
        if !self.backlog.is_empty() {
            self.backlog.flush(clock::monotonic(), &self.udp, counters);
        }
    }

    /// Sends what the impairer held back until now.
    pub(super) fn release(&mut self, now: u64, counters: &mut Counters) {
        while let Some((to, bytes)) = self.impairer.as_mut().and_then(|held| held.release(now)) {
            self.put(to, &bytes, counters);
        }
    }

    /// When [`Egress::send_held`] or [`Egress::release`] has something to do next.
    pub(super) fn due(&self) -> Option<u64> {
        let impairer = self.impairer.as_ref().and_then(Impairer::due);
        [impairer, self.backlog.due()].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn what_left_together_comes_as_it_was() {
        let sender = Udp::bind(at(0)).unwrap();
        let receiver = std::net::UdpSocket::bind(at(0)).unwrap();
        let patience = std::time::Duration::from_secs(5);
        receiver.set_read_timeout(Some(patience)).unwrap();
        let to = receiver.local_addr().unwrap();
        let (mut egress, mut counters) = (Egress::new(sender, None), Counters::default());
        let lengths = [900, 900, 60, 900, 70, 70, 80];
        for (index, length) in lengths.into_iter().enumerate() {
            let bytes = vec![index as u8; length];
            egress.join(to, &[&bytes], &mut counters);
        }
        egress.depart(&mut counters);
        for (index, length) in lengths.into_iter().enumerate() {
            let mut room = [0; 2000];
            let came = receiver.recv(&mut room).unwrap();
            assert_eq!(room[..came], vec![index as u8; length]);
        }
    }
}
