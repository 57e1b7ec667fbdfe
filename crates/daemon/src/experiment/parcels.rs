//! Datagrams that carry pages cut into packets of a chosen size, as MIRAGE+ had to
//! (M15), acknowledged one by one before the next leaves (M16) or all at once at the
//! end (M17). An experiment: IP cuts well enough, and the protocol above repairs losses. Only a
//! daemon that was told to cut understands packets of others that cut.

use pagemesh_sorted::SortedMap;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Cuts, sends, acknowledges and puts together.
#[derive(Debug)]
pub(crate) struct Parcels {
    /// Bytes of a page in a packet.
    size: usize,
    /// Each packet waits for the acknowledgement of the one before.
    handshake: bool,
    number: u64,
    /// Packets that wait to go to each address, if packets are acknowledged one by one.
    lanes: SortedMap<SocketAddr, Lane>,
    /// Datagrams that came in part.
    assemblies: VecDeque<Assembly>,
}

/// Datagrams for one address, of which one packet is under way.
#[derive(Debug, Default)]
struct Lane {
    parcels: VecDeque<(u64, VecDeque<Vec<u8>>)>,
    sent: u64,
}

/// A datagram of which some packets came.
#[derive(Debug)]
struct Assembly {
    from: SocketAddr,
    number: u64,
    parts: Vec<Option<Vec<u8>>>,
}

/// A packet's header: the mark, its kind, its index, the number of packets, three bytes of nothing,
/// the number of the datagram.
const HEAD: usize = 16;
const MARK: [u8; 2] = *b"PX";
const PART: u8 = 0;
const DONE: u8 = 1;

/// Bytes of a datagram beside its page.
const BESIDE: usize = 128;

/// Packets of a datagram at most, datagrams put together at a time, and datagrams
/// that wait for one address.
const PARTS: usize = 64;
const ASSEMBLIES: usize = 64;
const WAITING: usize = 1024;

/// Without an acknowledgement for so long, a datagram is lost: 20 ms.
const PATIENCE: u64 = 20_000_000;

/// Packets to be sent, and where.
pub(crate) type Mail = Vec<(SocketAddr, Vec<u8>)>;

impl Parcels {
    /// Packets with so many bytes of a page.
    pub(crate) fn new(size: usize, handshake: bool) -> Self {
        Self {
            size: size.max(64),
            handshake,
            number: 0,
            lanes: SortedMap::new(),
            assemblies: VecDeque::new(),
        }
    }

    /// How many packets a datagram becomes.
    fn count(&self, length: usize) -> usize {
        let page = length.saturating_sub(BESIDE);
        page.div_ceil(self.size).clamp(1, PARTS)
    }

    /// Cuts a datagram; false if it goes whole.
    pub(crate) fn send(
        &mut self,
        to: SocketAddr,
        datagram: &[u8],
        now: u64,
        mail: &mut Mail,
    ) -> bool {
        let count = self.count(datagram.len());
        if count < 2 {
            return false;
        }
        self.number += 1;
        let each = datagram.len().div_ceil(count);
        let parts = datagram.chunks(each).enumerate().map(|(index, bytes)| {
            let mut packet = head(PART, index, count, self.number);
            packet.extend_from_slice(bytes);
            packet
        });
        if !self.handshake {
            mail.extend(parts.map(|part| (to, part)));
            return true;
        }
        let parcel = (self.number, parts.collect());
        let lane = self.lanes.entry(to).or_default();
        if lane.parcels.len() < WAITING {
            lane.parcels.push_back(parcel);
        }
        if lane.parcels.len() == 1 {
            lane.next(to, now, mail);
        }
        true
    }

    /// True if these bytes are a packet of a daemon that cuts.
    pub(crate) fn is_packet(bytes: &[u8]) -> bool {
        bytes.len() >= HEAD && bytes[..2] == MARK
    }

    /// A packet came; the datagram, if it is the last of one.
    pub(crate) fn receive(
        &mut self,
        from: SocketAddr,
        bytes: &[u8],
        now: u64,
        mail: &mut Mail,
    ) -> Option<Vec<u8>> {
        let (kind, index, count) = (bytes[2], usize::from(bytes[3]), usize::from(bytes[4]));
        let number = u64::from_le_bytes(*bytes[8..].first_chunk()?);
        match kind {
            PART if index < count && count <= PARTS => {
                let whole = self.part(from, number, (index, count), &bytes[HEAD..]);
                if self.handshake || whole.is_some() {
                    mail.push((from, head(DONE, index, count, number)));
                }
                whole
            }
            DONE => {
                if let Some(lane) = self.lanes.get_mut(&from) {
                    lane.acknowledged(number, index, (from, now), mail);
                }
                None
            }
            _ => None,
        }
    }

    fn part(
        &mut self,
        from: SocketAddr,
        number: u64,
        (index, count): (usize, usize),
        bytes: &[u8],
    ) -> Option<Vec<u8>> {
        let known = |one: &Assembly| (one.from, one.number) == (from, number);
        let at = self.assemblies.iter().position(known).unwrap_or_else(|| {
            if self.assemblies.len() == ASSEMBLIES {
                self.assemblies.pop_front();
            }
            self.assemblies.push_back(Assembly {
                from,
                number,
                parts: vec![None; count],
            });
            self.assemblies.len() - 1
        });
        let parts = &mut self.assemblies[at].parts;
        *parts.get_mut(index)? = Some(bytes.to_vec());
        if parts.iter().any(Option::is_none) {
            return None;
        }
        let whole = self.assemblies.remove(at)?;
        Some(whole.parts.into_iter().flatten().flatten().collect())
    }

    /// When something is lost if nothing comes.
    pub(crate) fn due(&self) -> Option<u64> {
        let busy = self.lanes.values().filter(|lane| !lane.parcels.is_empty());
        busy.map(|lane| lane.sent + PATIENCE).min()
    }

    /// Gives up packets that waited too long for their acknowledgement; the next has its turn.
    pub(crate) fn expire(&mut self, now: u64, mail: &mut Mail) {
        for (to, lane) in &mut self.lanes {
            if !lane.parcels.is_empty() && lane.sent + PATIENCE <= now {
                lane.parcels.pop_front();
                lane.next(*to, now, mail);
            }
        }
    }
}

impl Lane {
    /// The next packet leaves, if there is one.
    fn next(&mut self, to: SocketAddr, now: u64, mail: &mut Mail) {
        if let Some(packet) = self.parcels.front().and_then(|(_, parts)| parts.front()) {
            self.sent = now;
            mail.push((to, packet.clone()));
        }
    }

    fn acknowledged(
        &mut self,
        number: u64,
        index: usize,
        (to, now): (SocketAddr, u64),
        mail: &mut Mail,
    ) {
        let Some((first, parts)) = self.parcels.front_mut() else {
            return;
        };
        let awaited = parts.front().map(|packet| usize::from(packet[3]));
        if *first != number || awaited != Some(index) {
            return;
        }
        parts.pop_front();
        if parts.is_empty() {
            self.parcels.pop_front();
        }
        self.next(to, now, mail);
    }
}

fn head(kind: u8, index: usize, count: usize, number: u64) -> Vec<u8> {
    let mut bytes = vec![MARK[0], MARK[1], kind, index as u8, count as u8, 0, 0, 0];
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn datagram(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at * 7 + at / 256) as u8).collect()
    }

    /// Exchanges packets until none is left, without those that `lose` picks by number. Returns the
    /// datagrams that arrived whole, and the number of packets.
    fn travel(
        ends: &mut [Parcels; 2],
        mut mail: Mail,
        lose: impl Fn(usize) -> bool,
    ) -> (Vec<Vec<u8>>, usize) {
        let (mut whole, mut packets) = (Vec::new(), 0);
        while !mail.is_empty() {
            let mut next = Mail::new();
            for (to, packet) in mail {
                packets += 1;
                if lose(packets) {
                    continue;
                }
                let end = usize::from(to.port());
                assert!(Parcels::is_packet(&packet));
                let from = at(1 - to.port());
                whole.extend(ends[end].receive(from, &packet, 0, &mut next));
            }
            mail = next;
        }
        (whole, packets)
    }

    fn ends(handshake: bool) -> [Parcels; 2] {
        [(); 2].map(|()| Parcels::new(1024, handshake))
    }

    #[test]
    fn a_page_is_four_packets_and_one_acknowledgement_or_four() {
        for (handshake, expected) in [(false, 5), (true, 8)] {
            let mut ends = ends(handshake);
            let mut mail = Mail::new();
            let page = datagram(4096 + 60);
            assert!(ends[0].send(at(1), &page, 0, &mut mail));
            assert_eq!(mail.len(), if handshake { 1 } else { 4 });
            assert_eq!(travel(&mut ends, mail, |_| false), (vec![page], expected));
            assert_eq!(ends[0].due(), None);
        }
    }

    #[test]
    fn what_is_short_goes_whole() {
        let mut mail = Mail::new();
        assert!(!ends(true)[0].send(at(1), &datagram(1100), 0, &mut mail));
        assert!(mail.is_empty());
    }

    #[test]
    fn a_lost_packet_loses_its_datagram_and_no_other() {
        let mut ends = ends(true);
        let mut mail = Mail::new();
        let (one, other) = (datagram(4000), datagram(3000));
        ends[0].send(at(1), &one, 0, &mut mail);
        ends[0].send(at(1), &other, 0, &mut mail);
        assert_eq!(
            travel(&mut ends, mail, |number| number == 3).0,
            Vec::<Vec<u8>>::new()
        );
        let mut mail = Mail::new();
        ends[0].expire(PATIENCE - 1, &mut mail);
        assert!(mail.is_empty());
        assert_eq!(ends[0].due(), Some(PATIENCE));
        ends[0].expire(PATIENCE, &mut mail);
        assert_eq!(travel(&mut ends, mail, |_| false).0, [other]);
    }

    #[test]
    fn nonsense_is_nothing() {
        let mut ends = ends(true);
        let mut mail = Mail::new();
        for kind in [PART, DONE, 7] {
            for (index, count) in [(0, 0), (3, 2), (255, 255), (0, 255)] {
                let packet = head(kind, index, count, 9);
                assert_eq!(ends[0].receive(at(1), &packet, 0, &mut mail), None);
            }
        }
        for number in 0..1000 {
            ends[0].receive(at(1), &head(PART, 0, 2, number), 0, &mut mail);
        }
        assert_eq!(ends[0].assemblies.len(), ASSEMBLIES);
        // The second says another count than the first.
        let mut packet = head(PART, 5, 60, 999);
        packet.push(1);
        assert_eq!(ends[0].receive(at(1), &packet, 0, &mut mail), None);
        assert!(!Parcels::is_packet(b"PX"));
    }
}
