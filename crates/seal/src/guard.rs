//! The guard between a node and its network.

mod handshake;
mod newcomer;

use crate::Now;
use crate::dice::Dice;
use crate::frame::{Frame, Kind};
use crate::half::{Answered, Begun, Waiting};
use crate::identity::Identity;
use crate::members::Members;
use crate::peer::Peer;
use crate::rate::Rate;
use crate::secret::Ring;
use crate::token::{Grant, Token};
use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use pagemesh_wire::PublicKey;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Seals, opens and refuses datagrams.
pub struct Guard {
    me: Identity,
    ring: Ring,
    token: Option<Token>,
    pace: Pace,
    dice: Arc<dyn Dice>,
    members: Members,
    peers: BTreeMap<PublicKey, Peer>,
    newcomers: BTreeMap<SocketAddr, Newcomer>,
    answered: BTreeMap<u32, Answered>,
    places: BTreeMap<u32, Place>,
    handshakes: Rate,
    hints: Rate,
    sealed: Vec<u8>,
    turned_away: Option<(SocketAddr, Refused)>,
}

/// Lifetimes of sessions and hellos.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Age at which a session is replaced.
    pub rekey_after: Duration,
    /// Number of datagrams after which a session is replaced.
    pub rekey_datagrams: u64,
    /// Time after which an unanswered hello is repeated, if there are datagrams to send.
    pub repeat: Duration,
    /// Time after which an unanswered hello is replaced by a new one.
    pub renew: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            rekey_after: Duration::from_secs(600),
            // With a page per datagram: below 2^37 blocks of the cipher under one key.
            rekey_datagrams: 1 << 28,
            repeat: Duration::from_millis(10),
            renew: Duration::from_secs(1),
        }
    }
}

/// The receiver of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// A member, whose key the coordinator told.
    Member(PublicKey),
    /// The host at the address, which is not a member, or was met before it became one.
    Anybody,
}

/// A datagram for the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The receiver's address.
    pub to: SocketAddr,
    /// The datagram's bytes.
    pub bytes: Vec<u8>,
}

/// The datagrams to be sent.
pub type Outbox = Vec<Outgoing>;

/// The length and sender of an opened datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The sender's key.
    pub key: PublicKey,
    /// Number of bytes that it sealed.
    pub length: usize,
}

/// Why a datagram was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refused {
    /// The datagram is not sealed.
    #[error("not sealed: its sender has no key, give it one (--key or a join token)")]
    Unsealed,
    /// It has no frame of this layer, or is too short.
    #[error("malformed")]
    Malformed,
    /// It belongs to no session known here.
    #[error("of an unknown session")]
    Unknown,
    /// It was opened before, or is far too late.
    #[error("replayed")]
    Replayed,
    /// It was changed on its way, or made by a host without the key.
    #[error("forged or damaged")]
    Forged,
    /// It was made with a key that is not accepted here (any more).
    #[error("made with a wrong or outdated key")]
    WrongKey,
    /// It was made with an expired token.
    #[error("made with a token that has expired")]
    Expired,
    /// A host that is not a member sent a member's hello.
    #[error("not a member")]
    Stranger,
    /// The coordinator has banned the sender.
    #[error("banned from the cluster")]
    Banned,
    /// Too many handshakes arrive at once.
    #[error("too many greetings at once")]
    Flooded,
}

/// The handshake or session that a frame's number refers to.
#[derive(Clone, Copy, Debug)]
enum Place {
    Peer(PublicKey),
    Newcomer(SocketAddr),
}

/// An address, and the host that was met there.
#[derive(Debug, Default)]
struct Newcomer {
    begun: Option<Begun>,
    met: Option<PublicKey>,
    waiting: Waiting,
}

impl Guard {
    /// A guard without sessions.
    #[must_use]
    pub fn new(
        me: Identity,
        ring: Ring,
        token: Option<Token>,
        pace: Pace,
        dice: Arc<dyn Dice>,
    ) -> Self {
        Self {
            me,
            ring,
            token,
            pace,
            dice,
            members: Members::default(),
            peers: BTreeMap::new(),
            newcomers: BTreeMap::new(),
            answered: BTreeMap::new(),
            places: BTreeMap::new(),
            handshakes: Rate::full(),
            hints: Rate::full(),
            sealed: Vec::new(),
            turned_away: None,
        }
    }

    /// This host's public key.
    #[must_use]
    pub const fn public(&self) -> PublicKey {
        self.me.public()
    }

    /// This host's key pair.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.me
    }

    /// Replaces the ring after the key file has changed. Everything based on a key that is no
    /// longer in it ends: handshakes of newcomers, and the sessions they led to. Members agree on
    /// new sessions by their own keys.
    pub fn set_ring(&mut self, ring: Ring) {
        let before = std::mem::replace(&mut self.ring, ring);
        let ring = &self.ring;
        let void =
            |grant: &Grant| before.get(grant.secret).is_some() && ring.get(grant.secret).is_none();
        self.answered.retain(|_, half| !void(&half.grant));
        for newcomer in self.newcomers.values_mut() {
            let begun = newcomer
                .begun
                .take_if(|begun| begun.grant.as_ref().is_some_and(void));
            if let Some(begun) = begun {
                self.places.remove(&begun.ours);
            }
        }
        for (key, peer) in &mut self.peers {
            for number in peer.end_sessions(void) {
                self.places.remove(&number);
            }
            if peer.number().is_none() {
                for newcomer in self.newcomers.values_mut() {
                    newcomer.met.take_if(|met| met == key);
                }
            }
        }
    }

    /// The address where this host's introduction was last refused, and why. The answer is not
    /// authenticated: use it only for messages to people.
    #[must_use]
    pub const fn turned_away(&self) -> Option<(SocketAddr, Refused)> {
        self.turned_away
    }

    /// Sets the members and the banned hosts, as the coordinator told. A banned host gets no new
    /// session. The node ignores datagrams of its old sessions, except to answer that the host is
    /// banned.
    pub fn set_members(
        &mut self,
        members: impl Iterator<Item = PublicKey>,
        banned: impl Iterator<Item = PublicKey>,
    ) {
        self.members.set(members, banned);
    }

    /// Seals a datagram, given in parts; the buffer that holds it may be swapped for another.
    /// Without a session the datagram waits, and a hello is sent first.
    pub fn seal(
        &mut self,
        now: Now,
        address: SocketAddr,
        whom: Whom,
        parts: &[&[u8]],
        outbox: &mut Outbox,
    ) -> Option<&mut Vec<u8>> {
        let key = match whom {
            Whom::Member(key) => Some(key),
            Whom::Anybody => self
                .newcomers
                .get(&address)
                .and_then(|newcomer| newcomer.met),
        };
        let Some(key) = key else {
            self.knock(now, address, parts, outbox);
            return None;
        };
        let peer = self.peers.entry(key).or_default();
        let wants_new = peer.wants_new(now.since, &self.pace);
        if let Some(session) = peer.sealer(now.since, &self.pace) {
            session.seal(parts, &mut self.sealed);
            if wants_new {
                self.handshake(now, address, key, outbox);
            }
            return Some(&mut self.sealed);
        }
        if matches!(whom, Whom::Anybody) {
            // The host came as a newcomer, long ago, and may not know that it was admitted: then it
            // does not answer a member's hello. A host that has only a token does not accept an
            // introduction either, but introduces itself when it hears that the old session is
            // unknown.
            let worn = peer.number();
            self.newcomers.entry(address).or_default().met = None;
            self.knock(now, address, parts, outbox);
            if let Some(number) = worn {
                self.hint(now, address, number, outbox);
            }
            return None;
        }
        peer.waiting.push(parts);
        self.handshake(now, address, key, outbox);
        None
    }

    /// Opens a datagram and writes its contents to `into`, which must be as long as the datagram.
    /// `None` if the datagram belongs to this layer.
    ///
    /// # Errors
    /// If it is refused, with the reason.
    pub fn open(
        &mut self,
        now: Now,
        source: SocketAddr,
        datagram: &[u8],
        into: &mut [u8],
        outbox: &mut Outbox,
    ) -> Result<Option<Opened>, Refused> {
        if !crate::is_sealed(datagram) {
            // Send a hint; otherwise a daemon without a key would try for ever without an
            // explanation.
            self.hint(now, source, 0, outbox);
            return Err(Refused::Unsealed);
        }
        let frame = Frame::decode(datagram).ok_or(Refused::Malformed)?;
        match frame.kind {
            Kind::Data => {
                let opened = self.data((now, source), &frame, datagram, into, outbox);
                if opened == Err(Refused::Unknown) {
                    self.hint(now, source, frame.to, outbox);
                }
                opened.map(Some)
            }
            Kind::Newcomer => self
                .knocked(now, source, &frame, datagram, outbox)
                .map(|()| None),
            Kind::NewcomerReply => self
                .let_in(now, source, &frame, datagram, outbox)
                .map(|()| None),
            Kind::NewcomerConfirm => self.proved(now, source, &frame, datagram).map(|()| None),
            Kind::Hello => self
                .greeted(now, source, &frame, datagram, outbox)
                .map(|()| None),
            Kind::HelloReply => self
                .agreed(now, source, &frame, datagram, outbox)
                .map(|()| None),
            Kind::Unknown => {
                self.unknown(now, source, &frame, outbox);
                Ok(None)
            }
            Kind::TurnedAway => {
                self.turned_away_by(&frame);
                Ok(None)
            }
            // Such come from a multicast group only.
            Kind::Shared => Err(Refused::Malformed),
        }
    }

    fn data(
        &mut self,
        (now, source): (Now, SocketAddr),
        frame: &Frame,
        datagram: &[u8],
        into: &mut [u8],
        outbox: &mut Outbox,
    ) -> Result<Opened, Refused> {
        let Some(Place::Peer(key)) = self.places.get(&frame.to).copied() else {
            return Err(Refused::Unknown);
        };
        let is_member = self.members.contains(&key);
        let peer = self.peers.get_mut(&key).ok_or(Refused::Unknown)?;
        let grant = peer.grant(frame.to);
        if !is_member && grant.is_some_and(|grant| grant.has_expired(now.unix)) {
            return Err(Refused::Expired);
        }
        let (length, displaced) = peer.open(frame, datagram, into, (now.since, &self.pace))?;
        peer.let_go((now.since, &self.pace), source, outbox);
        if let Some(number) = displaced {
            self.places.remove(&number);
        }
        Ok(Opened { key, length })
    }

    /// Tells a sender that its session is unknown here: this daemon may have been replaced.
    fn hint(&mut self, now: Now, source: SocketAddr, number: u32, outbox: &mut Outbox) {
        if self.hints.take(now.since) {
            let frame = Frame {
                kind: Kind::Unknown,
                to: 0,
                count: u64::from(number),
            };
            outbox.push(Outgoing {
                to: source,
                bytes: frame.encode().to_vec(),
            });
        }
    }

    /// Handles the hint that a session is unknown at the other host. The hint need not be genuine:
    /// a new session does no harm, and the old one stays in use until then.
    fn unknown(&mut self, now: Now, source: SocketAddr, frame: &Frame, outbox: &mut Outbox) {
        let Ok(number) = u32::try_from(frame.count) else {
            return;
        };
        let found = self.peers.iter().find(|(_, peer)| peer.seals_for(number));
        let Some(key) = found.map(|(key, _)| *key) else {
            return;
        };
        if self.members.contains(&key) && self.handshakes.take(now.since) {
            self.handshake(now, source, key, outbox);
        } else if let Some(newcomer) = self.newcomers.get_mut(&source) {
            // Not a member: introduces itself again when there are datagrams to send.
            newcomer.met = None;
        }
    }

    /// A number for a session or handshake, different from all others in use.
    fn number(&self) -> u32 {
        loop {
            let mut bytes = [0; 4];
            self.dice.fill(&mut bytes);
            let number = u32::from_le_bytes(bytes);
            let used = self.places.contains_key(&number) || self.answered.contains_key(&number);
            if number != 0 && !used {
                return number;
            }
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("me", &self.me)
            .field("peers", &self.peers.len())
            .finish_non_exhaustive()
    }
}
