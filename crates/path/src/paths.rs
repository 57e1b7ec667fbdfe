//! The paths to all other nodes.

use crate::BASE;
use crate::packet::{Cut, HEAD, Packet, Piece};
use crate::prober::{Prober, Step};
use crate::sender::{Put, Sender};
use crate::sent::Sent;
use pagemesh_wire::header::MAX_DATAGRAM;
use pagemesh_wire::{NodeId, PublicKey};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The paths to the other nodes, the messages sent in pieces, and the messages partly received.
#[derive(Debug)]
pub struct Paths {
    /// Bytes that sealing adds to a datagram.
    overhead: usize,
    stream: u32,
    ways: BTreeMap<SocketAddr, Way>,
    sent: Sent,
    senders: BTreeMap<(SocketAddr, PublicKey), Sender>,
    /// Buffers of completed messages, for reuse.
    spare: Vec<Vec<u8>>,
    /// The last completed message.
    whole: Vec<u8>,
    /// Datagrams to be sent.
    outbox: Vec<Outgoing>,
    /// When [`Paths::act`] must be called next.
    due: Option<u64>,
    counts: Counts,
}

/// The path to a node.
#[derive(Debug)]
struct Way {
    node: NodeId,
    /// `None` if the node is not a member.
    prober: Option<Prober>,
    /// The number of the next message in pieces.
    next: u32,
}

/// A packet to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The receiver's address.
    pub to: SocketAddr,
    /// The receiver; [`NodeId::NONE`] if it is not a member.
    pub node: NodeId,
    /// The packet's bytes.
    pub bytes: Vec<u8>,
    /// Whether it may be fragmented.
    pub manner: Manner,
}

/// How a datagram is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Like any other datagram.
    Usual,
    /// Without IP fragmentation. If it exceeds the link's MTU, call [`Paths::too_long`].
    Uncut,
}

/// The result of receiving a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came<'a> {
    /// A message is complete.
    Whole(&'a [u8]),
    /// The packet was handled here and contains no message. There may be datagrams to send.
    Handled,
    /// The packet is malformed, or not valid now.
    Refused,
}

/// Services of the environment that the paths need.
pub trait Surroundings {
    /// A number that cannot be predicted.
    fn nonce(&mut self) -> u64;

    /// Bytes of UDP payload that can leave this host towards an address in one packet. A value
    /// greater than the longest datagram makes no difference.
    fn link(&mut self, to: SocketAddr) -> usize;
}

/// The state of the path to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The member.
    pub node: NodeId,
    /// Its address.
    pub address: SocketAddr,
    /// Bytes of UDP payload that arrive in one packet.
    pub size: usize,
    /// True if a probe has found this size.
    pub found: bool,
}

/// Counters of the paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Probes sent.
    pub probes: u64,
    /// Times that a path was found to carry less than before.
    pub shrunk: u64,
    /// Messages sent in pieces.
    pub cut: u64,
    /// Messages completed from pieces.
    pub joined: u64,
    /// Requests for missing pieces.
    pub asked: u64,
    /// Pieces sent again because receivers missed them.
    pub repaired: u64,
    /// Messages given up because pieces stayed missing.
    pub given_up: u64,
    /// Pieces that were duplicates, or late.
    pub late: u64,
    /// Packets refused: malformed, contradictory, or confirming a probe that was never sent.
    pub refused: u64,
}

/// Number of nodes without membership that may send in pieces; if there are more, the one that has
/// been silent longest is forgotten.
const STRANGERS: usize = 8;

/// Limit of the memory for partly received messages of one sender, in bytes.
const ROOM: usize = 1 << 19;

/// Number of buffers kept for reuse.
const SPARE: usize = 8;

/// Maximum number of datagrams that wait to be sent; more than one burst produces.
const OUTGOING: usize = 256;

impl Paths {
    /// No paths at first. Sealing adds `overhead` bytes to every datagram, and `stream` is drawn at
    /// random.
    #[must_use]
    pub fn new(overhead: usize, stream: u32) -> Self {
        Self {
            overhead,
            stream,
            ways: BTreeMap::new(),
            sent: Sent::default(),
            senders: BTreeMap::new(),
            spare: Vec::new(),
            whole: Vec::new(),
            outbox: Vec::new(),
            due: None,
            counts: Counts::default(),
        }
    }

    /// Sets the other members.
    pub fn meet(&mut self, now: u64, members: impl Iterator<Item = (SocketAddr, NodeId)>) {
        let mut before = std::mem::take(&mut self.ways);
        for (address, node) in members {
            let known = before.remove(&address);
            let (prober, next) = known.map_or((None, 0), |way| (way.prober, way.next));
            let prober = prober.or_else(|| Some(Prober::new(now)));
            let way = Way { node, prober, next };
            self.ways.insert(address, way);
        }
        // A node that is no longer a member may still remember the message numbers used for it.
        for (address, way) in before {
            let node = NodeId::NONE;
            let prober = None;
            self.ways.insert(
                address,
                Way {
                    node,
                    prober,
                    ..way
                },
            );
        }
        let ways = &self.ways;
        let member = |way: &Way| way.prober.is_some();
        let stays = |at: &(SocketAddr, PublicKey)| ways.get(&at.0).is_some_and(member);
        // A node without membership may have had none before, either: keep its partly received
        // messages.
        self.senders
            .retain(|at, sender| stays(at) || sender.size() > 0);
        self.look();
    }

    /// True if a message of `length` bytes fits one datagram to this address. `now` is called only
    /// if the size matters.
    pub fn carries(&mut self, now: impl FnOnce() -> u64, to: SocketAddr, length: usize) -> bool {
        if length + self.overhead <= BASE {
            return true;
        }
        let prober = self.ways.get_mut(&to).and_then(|way| way.prober.as_mut());
        let Some(prober) = prober else {
            return false;
        };
        if prober.uses(now) {
            self.due = Some(self.due.map_or(prober.due(), |due| due.min(prober.due())));
        }
        length + self.overhead <= prober.size()
    }

    /// Bytes of UDP payload that arrive at an address in one packet, as far as is known.
    #[must_use]
    pub fn size(&self, to: SocketAddr) -> usize {
        let prober = self.ways.get(&to).and_then(|way| way.prober.as_ref());
        prober.map_or(BASE, Prober::size)
    }

    /// Divides a message: calls `piece` with the header of each piece, its bytes, and the zeros
    /// that pad it. False if the message is too long for any path.
    pub fn cut(
        &mut self,
        now: u64,
        to: SocketAddr,
        message: &[u8],
        mut piece: impl FnMut(&[u8; HEAD], &[u8], &[u8]),
    ) -> bool {
        let most = self.size(to) - self.overhead - HEAD;
        let Some(cut) = Cut::new(message.len(), most) else {
            return false;
        };
        let (stream, number) = self.number(to);
        for (index, bytes) in message.chunks(cut.each()).enumerate() {
            let head = Piece {
                stream,
                number,
                cut,
                index: index as u8,
                bytes,
            };
            let padding = &[0; crate::packet::PIECES][..cut.each() - bytes.len()];
            piece(&head.head(), bytes, padding);
        }
        self.sent.keep(now, (to, stream, number), cut, message);
        self.counts.cut += 1;
        true
    }

    /// The stream and number of the next message in pieces.
    fn number(&mut self, to: SocketAddr) -> (u32, u32) {
        let strangers = self.ways.values().filter(|way| way.prober.is_none());
        if !self.ways.contains_key(&to) && strangers.count() >= STRANGERS {
            // Their numbers start again, so the stream must change.
            self.ways.retain(|_, way| way.prober.is_some());
            self.stream = self.stream.wrapping_add(1);
        }
        let way = self.ways.entry(to).or_insert(Way {
            node: NodeId::NONE,
            prober: None,
            next: 0,
        });
        let number = way.next;
        way.next = way.next.wrapping_add(1);
        let stream = self.stream;
        if number == u32::MAX {
            self.stream = self.stream.wrapping_add(1);
        }
        (stream, number)
    }

    /// Receives a packet at `now` from an address, sealed with this key.
    pub fn came(&mut self, now: u64, from: SocketAddr, key: PublicKey, bytes: &[u8]) -> Came<'_> {
        match Packet::decode(bytes) {
            Some(Packet::Probe { nonce, length }) => {
                let length = length + self.overhead;
                self.post(from, &Packet::Confirm { nonce, length }, Manner::Usual);
                Came::Handled
            }
            Some(Packet::Confirm { nonce, length }) => {
                let way = self.ways.get_mut(&from);
                let prober = way.and_then(|way| way.prober.as_mut());
                let ours = prober.is_some_and(|prober| prober.confirmed(now, nonce, length));
                self.look();
                // A late confirmation may belong to a probe that is no longer open.
                self.counts.late += u64::from(!ours);
                Came::Handled
            }
            Some(Packet::Missing {
                stream,
                number,
                pieces,
            }) => {
                for bytes in self.sent.again(from, (stream, number), pieces) {
                    self.counts.repaired += 1;
                    self.push(from, bytes, Manner::Usual);
                }
                Came::Handled
            }
            Some(Packet::Piece(piece)) => self.piece(now, (from, key), &piece),
            None => {
                self.counts.refused += 1;
                Came::Refused
            }
        }
    }

    fn piece(&mut self, now: u64, from: (SocketAddr, PublicKey), piece: &Piece<'_>) -> Came<'_> {
        if !self.senders.contains_key(&from) {
            self.make_room(from.0);
            self.senders.insert(from, Sender::new(piece.stream));
        }
        let sender = self.senders.get_mut(&from).expect("it was just put there");
        let put = sender.put(now, piece, &mut self.spare);
        while sender.size() > ROOM && sender.drop_oldest(&mut self.spare) {}
        let due = sender.due;
        self.spare.truncate(SPARE);
        match put {
            Put::Whole(bytes) => {
                self.counts.joined += 1;
                self.look();
                let before = std::mem::replace(&mut self.whole, bytes);
                self.spare.push(before);
                Came::Whole(&self.whole)
            }
            Put::Part => {
                self.due = [self.due, due].into_iter().flatten().min();
                Came::Handled
            }
            Put::Late => {
                self.counts.late += 1;
                Came::Handled
            }
            Put::Refused => {
                self.counts.refused += 1;
                Came::Refused
            }
        }
    }

    /// The last completed message.
    #[must_use]
    pub fn whole(&self) -> &[u8] {
        &self.whole
    }

    /// Forgets a node without membership if there are too many, before a new one is added.
    fn make_room(&mut self, from: SocketAddr) {
        if self.is_member(from) {
            return;
        }
        let strangers = || {
            let known = self.senders.iter();
            known.filter(|((address, _), _)| !self.is_member(*address))
        };
        if strangers().count() >= STRANGERS {
            let silent = strangers().min_by_key(|(_, sender)| sender.heard);
            if let Some(silent) = silent.map(|(at, _)| *at) {
                self.senders.remove(&silent);
            }
        }
    }

    fn is_member(&self, address: SocketAddr) -> bool {
        let way = self.ways.get(&address);
        way.is_some_and(|way| way.prober.is_some())
    }

    /// Does the work that is due at `now`.
    pub fn act(&mut self, now: u64, around: &mut impl Surroundings) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        let mut outbox = Vec::new();
        for (to, way) in &mut self.ways {
            let Some(prober) = &mut way.prober else {
                continue;
            };
            // Both closures borrow the surroundings; they are called one at a time.
            let around = std::cell::RefCell::new(&mut *around);
            let (link, nonce) = (
                || {
                    around
                        .borrow_mut()
                        .link(*to)
                        .min(MAX_DATAGRAM + self.overhead)
                },
                || around.borrow_mut().nonce(),
            );
            let shrunk = prober.shrunk();
            let step = prober.act(now, link, nonce);
            self.counts.shrunk += prober.shrunk() - shrunk;
            if let Step::Send { nonce, length } = step {
                let length = length - self.overhead;
                outbox.push((*to, Packet::Probe { nonce, length }));
            }
        }
        self.counts.probes += outbox.len() as u64;
        for (to, probe) in outbox {
            self.post(to, &probe, Manner::Uncut);
        }
        self.ask(now);
        self.look();
    }

    /// Requests missing pieces from all senders.
    fn ask(&mut self, now: u64) {
        let mut senders = std::mem::take(&mut self.senders);
        for ((from, _), sender) in &mut senders {
            if sender.due.is_none_or(|due| now < due) {
                continue;
            }
            let prober = self.ways.get(from).and_then(|way| way.prober.as_ref());
            let round = prober.map_or(0, Prober::round);
            let given_up = sender.act(now, round, |stream, number, pieces| {
                self.counts.asked += 1;
                let missing = Packet::Missing {
                    stream,
                    number,
                    pieces,
                };
                self.post(*from, &missing, Manner::Usual);
            });
            self.counts.given_up += given_up;
        }
        self.senders = senders;
    }

    /// Notes that a probe of this length, without its seal, exceeds this host's link.
    pub fn too_long(&mut self, now: u64, to: SocketAddr, length: usize) {
        let way = self.ways.get_mut(&to);
        if let Some(prober) = way.and_then(|way| way.prober.as_mut()) {
            prober.too_long(now, length + self.overhead);
            self.look();
        }
    }

    /// Takes the datagrams to be sent.
    pub fn take_outgoing(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.outbox)
    }

    /// True if there are datagrams to be sent.
    #[must_use]
    pub fn has_outgoing(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// When [`Paths::act`] must be called next.
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        self.due
    }

    /// Takes the counters since the last call.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// The state of the paths to all members.
    pub fn known(&self) -> impl Iterator<Item = Known> {
        self.ways.iter().filter_map(|(address, way)| {
            let prober = way.prober.as_ref()?;
            Some(Known {
                node: way.node,
                address: *address,
                size: prober.size(),
                found: prober.is_found(),
            })
        })
    }

    fn look(&mut self) {
        let probers = self.ways.values().filter_map(|way| way.prober.as_ref());
        let senders = self.senders.values().filter_map(|sender| sender.due);
        self.due = probers.map(Prober::due).chain(senders).min();
    }

    fn post(&mut self, to: SocketAddr, packet: &Packet<'_>, manner: Manner) {
        self.push(to, packet.encode(), manner);
    }

    fn push(&mut self, to: SocketAddr, bytes: Vec<u8>, manner: Manner) {
        if self.outbox.len() < OUTGOING {
            let node = self.ways.get(&to).map_or(NodeId::NONE, |way| way.node);
            self.outbox.push(Outgoing {
                to,
                node,
                bytes,
                manner,
            });
        }
    }
}
