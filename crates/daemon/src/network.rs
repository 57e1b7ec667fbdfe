//! Datagrams in and out, through a bad network if one was asked for.

use crate::counters::{Count, Counters};
use crate::experiment::Edge;
use crate::multicast_batches::MulticastBatches;
use crate::options::Compress;
use crate::packing::Packing;
use crate::sealing::Sealing;
use crate::shared_messages::SharedMessages;
use pagemesh_core::Node;
use pagemesh_os::impair::Impairment;
use pagemesh_os::udp::Udp;
use pagemesh_wire::NodeId;
use pagemesh_wire::header::{Header, MAX_DATAGRAM};
use pagemesh_wire::peer::Message;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

mod backlog;
mod egress;
mod incoming;
mod pieces;
mod rest;
mod send_queue;
mod several;
mod shared;

use backlog::MessageHash;
use egress::Egress;
pub(crate) use incoming::{Got, LONGEST};
pub(crate) use pieces::Ways;
use rest::Rest;
use send_queue::SendQueue;

/// The way to other daemons.
#[derive(Debug)]
pub(crate) struct Network {
    egress: Egress,
    /// Seals and opens, if this daemon has a key.
    pub(crate) sealing: Option<Sealing>,
    /// Makes pages smaller, and whole again.
    packing: Packing,
    /// The switches of an experiment, if there is one.
    edge: Option<Edge>,
    /// The paths to other nodes; none in an experiment, where IP cuts datagrams.
    ways: Option<Ways>,
    /// Datagrams for several nodes at once, if there is a multicast group.
    multicast_batches: Option<MulticastBatches>,
    /// What several nodes are told at once through that group.
    shared: Option<SharedMessages>,
    /// Reused for everything sent.
    datagram: Vec<u8>,
    /// Sealed datagrams as received; unsealed ones are received where they will be read.
    inbox: Box<[u8]>,
    /// Datagrams that came together and were not handled yet.
    rest: Rest,
    /// Datagrams that came together from the group and were not handled yet.
    overheard: Rest,
    /// Other daemons seal datagrams, and this daemon has no key: it was logged.
    keyless: bool,
    /// See [`Network::answers_together`].
    together: bool,
    /// See [`Network::expect_more`].
    more: bool,
}

impl Network {
    /// A network as bad as asked for.
    pub(crate) fn new(
        udp: Udp,
        impairment: Option<Impairment>,
        sealing: Option<Sealing>,
        compress: Compress,
        edge: Option<Edge>,
        me: SocketAddr,
    ) -> Self {
        // Without it, everything comes alone.
        let _ = udp.coalesce();
        Self {
            egress: Egress::new(udp, impairment),
            datagram: Vec::with_capacity(MAX_DATAGRAM),
            inbox: vec![0; LONGEST].into(),
            rest: Rest::default(),
            overheard: Rest::default(),
            ways: edge.is_none().then(|| Ways::new(sealing.is_some(), me)),
            sealing,
            packing: Packing::new(compress),
            edge,
            multicast_batches: None,
            shared: None,
            keyless: false,
            together: false,
            more: false,
        }
    }

    /// Another descriptor that becomes readable when a datagram came.
    pub(crate) fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.edge.as_ref().and_then(Edge::bell)
    }

    /// Learns who the members are, before anything is sent to them.
    pub(crate) fn meet(&mut self, node: &Node) {
        let view = node.view();
        if let Some(sealing) = &mut self.sealing {
            sealing.meet(view, node.awaited());
        }
        self.packing.meet(view);
        if let Some(ways) = &mut self.ways {
            ways.meet(view);
        }
        if let Some(multicast_batches) = &mut self.multicast_batches {
            multicast_batches.meet(view);
        }
        if let Some(shared) = &mut self.shared {
            shared.meet(view);
        }
    }

    /// True if outgoing datagrams leave unchanged.
    fn is_direct(&self) -> bool {
        !self.egress.is_impaired() && self.edge.is_none()
    }

    /// Sends the packets of an experiment.
    fn post(&mut self, counters: &mut Counters) {
        if let Some(edge) = &mut self.edge {
            for (to, packet) in edge.packets() {
                self.egress.put(to, &packet, counters);
            }
        }
    }

    /// Sends the datagrams of the guard itself.
    fn flush(&mut self, counters: &mut Counters) {
        let Some(sealing) = &mut self.sealing else {
            return;
        };
        if sealing.outbox.is_empty() {
            return;
        }
        for outgoing in std::mem::take(&mut sealing.outbox) {
            let (to, length) = (outgoing.to, outgoing.bytes.len());
            if self
                .ways
                .as_ref()
                .is_none_or(|ways| ways.lets_out(to, length))
            {
                self.put(to, &outgoing.bytes, counters);
            }
        }
    }

    /// Sends a message; `finish` puts the page behind it that it announces, and
    /// says whether it could.
    pub(crate) fn send(
        &mut self,
        to: SocketAddr,
        header: Header,
        message: &Message,
        finish: impl FnOnce(&mut Vec<u8>) -> bool,
        counters: &mut Counters,
    ) -> bool {
        let mut datagram = std::mem::take(&mut self.datagram);
        datagram.clear();
        message.encode(header, &mut datagram);
        let may_be_short = matches!(message, Message::PolicyPage(_));
        let message = datagram.len();
        if self.egress.awaits_room() && self.egress.holds(to, hash(&datagram)) {
            // It was requested again, because it waits.
            self.datagram = datagram;
            counters.add(Count::MessagesHeld, 1);
            return true;
        }
        let whole = finish(&mut datagram);
        if whole {
            let has_page = datagram.len() > message;
            let hash = has_page.then(|| hash(&datagram[..message]));
            let link = (header.to, self.has_company(to));
            let packing = &mut self.packing;
            // Amid whole pages that leave by one call a small one would end the call.
            let may_be_short = may_be_short && !link.1;
            let is_packed = may_be_short && packing.pack_short(&mut datagram, message, counters);
            let probe = match is_packed {
                true => None,
                false => packing.pack(link, &mut datagram, message, counters),
            };
            let plain = self.sealing.is_none() && self.is_direct();
            let whole = plain && self.goes_whole(to, datagram.len());
            if !whole || !self.egress.queue.begins(to, &mut datagram) {
                self.seal((to, header.to), &datagram, counters);
            }
            if let Some(hash) = hash {
                self.egress.queue.ends_message(to, hash);
            }
            if let Some(probe) = probe {
                self.seal((to, header.to), &probe, counters);
            }
        }
        self.datagram = datagram;
        whole
    }

    /// Sends bytes that are no message of ours to a host that is no member.
    pub(crate) fn send_bytes(&mut self, to: SocketAddr, bytes: &[u8], counters: &mut Counters) {
        self.seal((to, NodeId::NONE), bytes, counters);
    }

    /// Sends a datagram, sealed if this daemon has a key.
    fn seal(&mut self, (to, node): (SocketAddr, NodeId), datagram: &[u8], counters: &mut Counters) {
        if !self.goes_whole(to, datagram.len()) {
            return self.send_pieces((to, node), datagram, counters);
        }
        let direct = self.is_direct();
        let several = !self.keeps_to(to);
        let multicast_batches = self.multicast_batches.as_mut().filter(|_| several);
        let circulate =
            |datagram: &[u8]| multicast_batches.is_some_and(|c| c.takes(to, node, datagram));
        if let Some(sealing) = &mut self.sealing {
            let sealed = sealing.seal(to, node, &[datagram]);
            let egress = &mut self.egress;
            if let Some(sealed) = sealed
                && !(direct && egress.queue.begins(to, sealed))
                && !circulate(sealed)
            {
                let waits = waits(self.together || self.more, &self.rest, &egress.queue, to);
                let edge = self.edge.as_mut();
                if !edge.is_some_and(|edge| edge.send(to, sealed)) {
                    egress.give(to, sealed, waits, counters);
                }
            }
            self.post(counters);
            self.flush(counters);
        } else if !circulate(datagram) {
            self.put(to, datagram, counters);
        }
    }

    /// True if a datagram sent now leaves with others for the same node.
    fn keeps_to(&self, to: SocketAddr) -> bool {
        let answers = self.rest.is_of(to) && (self.together || !self.rest.is_over());
        self.more || answers || self.egress.queue.to == Some(to)
    }

    /// Sets whether datagrams sent now answer datagrams that came together, and leave together.
    pub(crate) fn answers_together(&mut self, together: bool) {
        self.together = together;
    }

    /// Whether the datagram sent next is followed by another one for the same node.
    pub(crate) fn expect_more(&mut self, more: bool) {
        self.more = more;
    }

    /// Whether a page that is sent now leaves with others: more follow, or some wait.
    fn has_company(&self, to: SocketAddr) -> bool {
        self.more || self.together || self.has_more() || self.egress.queue.is_large_for(to)
    }

    /// True if more datagrams came together with the one received last.
    pub(crate) fn has_more(&self) -> bool {
        let multicast_batches = self.multicast_batches.as_ref();
        let came = !self.rest.is_over() || !self.overheard.is_over();
        came || multicast_batches.is_some_and(MulticastBatches::has_more)
    }

    /// Sends the datagrams that wait for more of their kind, unless answers to datagrams that came
    /// in together are still to join them.
    pub(crate) fn depart(&mut self, counters: &mut Counters) {
        if !self.has_more() {
            self.circulate(counters);
            self.egress.depart(counters);
            self.egress.send_held(counters);
        }
    }

    /// Whether datagrams wait until the socket is writable.
    pub(crate) fn awaits_room(&self) -> bool {
        self.egress.awaits_room()
    }

    /// The socket.
    pub(crate) fn udp(&self) -> &Udp {
        &self.egress.udp
    }

    fn put(&mut self, to: SocketAddr, datagram: &[u8], counters: &mut Counters) {
        if let Some(edge) = &mut self.edge
            && edge.send(to, datagram)
        {
            return self.post(counters);
        }
        let more = self.together || self.more;
        let waits = waits(more, &self.rest, &self.egress.queue, to);
        self.egress.give(to, datagram, waits, counters);
    }

    /// Sends the datagrams that the impairer held back until now, and those of an experiment.
    pub(crate) fn release(&mut self, now: u64, counters: &mut Counters) {
        if let Some(edge) = &mut self.edge {
            edge.expire(now);
            self.post(counters);
        }
        self.try_group(now, counters);
        self.try_ways(now, counters);
        self.egress.send_held(counters);
        self.egress.release(now, counters);
    }

    /// When [`Network::release`] has something to do next.
    pub(crate) fn due(&self) -> Option<u64> {
        let edge = self.edge.as_ref().and_then(Edge::due);
        let multicast_batches = self
            .multicast_batches
            .as_ref()
            .and_then(MulticastBatches::due);
        let ways = self.ways.as_ref().and_then(Ways::due);
        [self.egress.due(), edge, multicast_batches, ways]
            .into_iter()
            .flatten()
            .min()
    }
}

/// The hash of a message, without the page behind it: an answer to the same request is the same.
fn hash(message: &[u8]) -> MessageHash {
    let mut hasher = DefaultHasher::new();
    message.hash(&mut hasher);
    hasher.finish()
}

/// Whether a small datagram leaves together with others: if more of its kind follow, or
/// were before it.
fn waits(more: bool, rest: &Rest, queue: &SendQueue, to: SocketAddr) -> bool {
    more || !rest.is_over() || queue.to == Some(to)
}
