//! Datagrams on their way out: at once, or together with others of their kind.

use super::LONGEST;
use crate::counters::{Count, Counters};
use pagemesh_os::clock;
use pagemesh_os::impair::Impairer;
use pagemesh_os::udp::Udp;
use std::io;
use std::net::SocketAddr;

/// Datagrams of so many bytes carry a page, and seldom leave alone.
const LARGE: usize = 2048;

/// Pieces of such are at least so long, and seldom leave alone, either.
const PIECE: usize = 1024;

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
}

/// Gives a datagram to the network, or to the impairer. A large one, or one of many, waits for more
/// of its kind.
pub(super) fn give(
    udp: &Udp,
    impairer: &mut Option<Impairer>,
    (outbox, together): (&mut SendQueue, bool),
    to: SocketAddr,
    datagram: &[u8],
    counters: &mut Counters,
) {
    match impairer {
        None if datagram.len() >= LARGE || together => join(udp, outbox, to, &[datagram], counters),
        None => put(udp, to, datagram, counters),
        Some(impairer) => {
            impairer.offer(clock::monotonic(), to, datagram);
            while let Some((to, bytes)) = impairer.release(clock::monotonic()) {
                put(udp, to, &bytes, counters);
            }
        }
    }
}

/// Waits with others of its kind for [`Network::depart`]. Given in parts.
pub(super) fn join(
    udp: &Udp,
    outbox: &mut SendQueue,
    to: SocketAddr,
    parts: &[&[u8]],
    counters: &mut Counters,
) {
    let length = parts.iter().map(|part| part.len()).sum();
    if !outbox.takes(to, length) {
        depart(udp, outbox, counters);
    }
    if !outbox.takes(to, length) {
        return match parts {
            [datagram] => put(udp, to, datagram, counters),
            _ => put(udp, to, &parts.concat(), counters),
        };
    }
    if outbox.to.is_none() {
        (outbox.to, outbox.each) = (Some(to), length);
    }
    outbox.complete = length < outbox.each;
    for part in parts {
        outbox.bytes.extend_from_slice(part);
    }
}

pub(super) fn depart(udp: &Udp, outbox: &mut SendQueue, counters: &mut Counters) {
    let Some(to) = outbox.to.take() else { return };
    let (bytes, each) = (std::mem::take(&mut outbox.bytes), outbox.each);
    let count = bytes.len().div_ceil(each);
    let sent = if count > 1 {
        udp.send_burst(to, &bytes, each)
    } else {
        Err(io::ErrorKind::InvalidInput.into())
    };
    match sent {
        Ok(()) => {
            counters.add(Count::DatagramsOut, count as u64);
            counters.add(Count::BytesOut, bytes.len() as u64);
        }
        Err(error) => {
            if count > 1 && !is_busy(&error) {
                outbox.too_long = each;
            }
            for datagram in bytes.chunks(each) {
                put(udp, to, datagram, counters);
            }
        }
    }
    outbox.bytes = bytes;
    outbox.bytes.clear();
    outbox.complete = false;
}

/// Whether the kernel had no room just now: the next burst may leave all the same.
fn is_busy(error: &io::Error) -> bool {
    let full = error.raw_os_error() == Some(libc::ENOBUFS);
    full || error.kind() == io::ErrorKind::WouldBlock
}

pub(super) fn put(udp: &Udp, to: SocketAddr, datagram: &[u8], counters: &mut Counters) {
    match udp.send(to, datagram) {
        Ok(()) => {
            counters.add(Count::DatagramsOut, 1);
            counters.add(Count::BytesOut, datagram.len() as u64);
        }
        // As good as lost: the core resends messages that need an answer.
        Err(error) => {
            counters.add(Count::DatagramsFailed, 1);
            tracing::debug!(%to, %error, "a datagram could not be sent");
        }
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

    #[test]
    fn what_left_together_comes_as_it_was() {
        let sender = Udp::bind(at(0)).unwrap();
        let receiver = std::net::UdpSocket::bind(at(0)).unwrap();
        let patience = std::time::Duration::from_secs(5);
        receiver.set_read_timeout(Some(patience)).unwrap();
        let to = receiver.local_addr().unwrap();
        let (mut outbox, mut counters) = (SendQueue::default(), Counters::default());
        let lengths = [900, 900, 60, 900, 70, 70, 80];
        for (index, length) in lengths.into_iter().enumerate() {
            let bytes = vec![index as u8; length];
            join(&sender, &mut outbox, to, &[&bytes], &mut counters);
        }
        depart(&sender, &mut outbox, &mut counters);
        for (index, length) in lengths.into_iter().enumerate() {
            let mut room = [0; 2000];
            let came = receiver.recv(&mut room).unwrap();
            assert_eq!(room[..came], vec![index as u8; length]);
        }
    }
}
