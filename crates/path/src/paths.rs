//! The ways to all other nodes.

use crate::BASE;
use crate::packet::{Cut, HEAD, Packet, Piece};
use crate::prober::{Prober, Step};
use crate::sender::{Put, Sender};
use crate::sent::Sent;
use pagemesh_wire::header::MAX_DATAGRAM;
use pagemesh_wire::{NodeId, PublicKey};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// What leads to whom, what is under way in pieces, and what came of such.
#[derive(Debug)]
pub struct Paths {
    /// Bytes that sealing adds to a datagram.
    overhead: usize,
    stream: u32,
    ways: BTreeMap<SocketAddr, Way>,
    sent: Sent,
    senders: BTreeMap<(SocketAddr, PublicKey), Sender>,
    /// Memory of messages that came whole.
    spare: Vec<Vec<u8>>,
    /// The message that came whole last.
    whole: Vec<u8>,
    /// What is to be sent.
    outbox: Vec<Letter>,
    /// When [`Paths::act`] has something to do.
    due: Option<u64>,
    counts: Counts,
}

/// The way to a node.
#[derive(Debug)]
struct Way {
    node: NodeId,
    /// Of members only.
    prober: Option<Prober>,
    /// Of the next message in pieces.
    next: u32,
}

/// Something to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Where to.
    pub to: SocketAddr,
    /// Which node that is; [`NodeId::NONE`] if no member.
    pub node: NodeId,
    /// What.
    pub bytes: Vec<u8>,
    /// How.
    pub manner: Manner,
}

/// How something is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// As anything else.
    Usual,
    /// In one piece or not at all. If it is longer than the link, tell
    /// [`Paths::too_long`].
    Uncut,
}

/// What came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came<'a> {
    /// A message is whole again.
    Whole(&'a [u8]),
    /// Nothing for the node. There may be something to send.
    Handled,
    /// Nothing that is ever said, or not now.
    Refused,
}

/// What the ways ask of the world around.
pub trait Surroundings {
    /// A number nobody can foresee.
    fn nonce(&mut self) -> u64;

    /// Bytes of UDP payload that leave this host towards an address in one packet; more
    /// than any datagram has does not matter.
    fn link(&mut self, to: SocketAddr) -> usize;
}

/// What is known of the way to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The member.
    pub node: NodeId,
    /// Where it is.
    pub address: SocketAddr,
    /// Bytes of UDP payload that arrive in one packet.
    pub size: usize,
    /// Whether that was found out by a probe.
    pub found: bool,
}

/// How much there was of what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Probes sent.
    pub probes: u64,
    /// Ways that carried less than before.
    pub shrunk: u64,
    /// Messages that left in pieces.
    pub cut: u64,
    /// Messages that came in pieces.
    pub joined: u64,
    /// Times that missing pieces were asked for.
    pub asked: u64,
    /// Pieces sent again for who missed them.
    pub repaired: u64,
    /// Messages of which pieces stayed missing.
    pub given_up: u64,
    /// Pieces that were there before, or too late.
    pub late: u64,
    /// Packets refused: malformed, contradictory, or confirming what was never asked.
    pub refused: u64,
}

/// Nodes that are no members and send in pieces; of more, who was silent longest is
/// forgotten.
const STRANGERS: usize = 8;

/// Bytes of messages that came in part, of one sender at most.
const ROOM: usize = 1 << 19;

/// Memory kept for messages to come.
const SPARE: usize = 8;

/// Letters that wait at most; more than one burst makes.
const LETTERS: usize = 256;

impl Paths {
    /// Nobody is known. Sealing adds `overhead` bytes to every datagram, and `stream` is
    /// drawn at random.
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

    /// Learns who the other members are.
    pub fn meet(&mut self, now: u64, members: impl Iterator<Item = (SocketAddr, NodeId)>) {
        let mut before = std::mem::take(&mut self.ways);
        for (address, node) in members {
            let known = before.remove(&address);
            let (prober, next) = known.map_or((None, 0), |way| (way.prober, way.next));
            let prober = prober.or_else(|| Some(Prober::new(now)));
            let way = Way { node, prober, next };
            self.ways.insert(address, way);
        }
        // Whoever is no member any more may still remember the numbers it had.
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
        // Who is a stranger now may have been one before, too.
        self.senders
            .retain(|at, sender| stays(at) || sender.size() > 0);
        self.look();
    }

    /// Whether a message of this many bytes leaves as one datagram. The time is asked for
    /// only if it matters.
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

    /// Cuts a message: `piece` gets what stands in front of each piece, its bytes, and
    /// the zeros behind them. False if it has too many bytes for any way.
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

    /// The number of the next message in pieces.
    fn number(&mut self, to: SocketAddr) -> (u32, u32) {
        let strangers = self.ways.values().filter(|way| way.prober.is_none());
        if !self.ways.contains_key(&to) && strangers.count() >= STRANGERS {
            // Their numbers begin anew, so the stream does.
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

    /// A packet came at `now`, from there, under this seal.
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
                // An answer that took too long confirms what is not asked any more.
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

    /// The message that came whole last.
    #[must_use]
    pub fn whole(&self) -> &[u8] {
        &self.whole
    }

    /// Forgets a stranger if there are many, before another one comes.
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

    /// Does what is due at `now`.
    pub fn act(&mut self, now: u64, around: &mut impl Surroundings) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        let mut outbox = Vec::new();
        for (to, way) in &mut self.ways {
            let Some(prober) = &mut way.prober else {
                continue;
            };
            // Two sides of one thing, asked for one at a time.
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

    /// Asks all senders for what is missing.
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

    /// A probe of so many bytes, without its seal, does not leave this host.
    pub fn too_long(&mut self, now: u64, to: SocketAddr, length: usize) {
        let way = self.ways.get_mut(&to);
        if let Some(prober) = way.and_then(|way| way.prober.as_mut()) {
            prober.too_long(now, length + self.overhead);
            self.look();
        }
    }

    /// What is to be sent.
    pub fn take_letters(&mut self) -> Vec<Letter> {
        std::mem::take(&mut self.outbox)
    }

    /// Whether anything is.
    #[must_use]
    pub fn has_letters(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// When [`Paths::act`] has something to do.
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        self.due
    }

    /// What there was since the last time somebody asked.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// What is known of the ways to members.
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
        if self.outbox.len() < LETTERS {
            let node = self.ways.get(&to).map_or(NodeId::NONE, |way| way.node);
            self.outbox.push(Letter {
                to,
                node,
                bytes,
                manner,
            });
        }
    }
}
