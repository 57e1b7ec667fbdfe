//! Between a node and its network.

mod door;
mod greet;

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

/// Seals, opens, refuses.
pub struct Guard {
    me: Identity,
    ring: Ring,
    token: Option<Token>,
    pace: Pace,
    dice: Arc<dyn Dice>,
    members: Members,
    peers: BTreeMap<PublicKey, Peer>,
    doors: BTreeMap<SocketAddr, Door>,
    answered: BTreeMap<u32, Answered>,
    places: BTreeMap<u32, Place>,
    handshakes: Rate,
    hints: Rate,
    sealed: Vec<u8>,
    turned_away: Option<(SocketAddr, Refused)>,
}

/// How long things last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// A session is replaced after this long ...
    pub rekey_after: Duration,
    /// ... or after so many datagrams.
    pub rekey_datagrams: u64,
    /// An unanswered greeting is repeated, when there is something to say.
    pub repeat: Duration,
    /// An unanswered greeting is replaced by a new one.
    pub renew: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            rekey_after: Duration::from_secs(600),
            // A page a datagram: below 2^37 blocks of the cipher under one key.
            rekey_datagrams: 1 << 28,
            repeat: Duration::from_millis(10),
            renew: Duration::from_secs(1),
        }
    }
}

/// Whom a datagram is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// A member, whose key the coordinator told.
    Member(PublicKey),
    /// Whoever is at the address: a stranger, or met as one.
    Anybody,
}

/// Bytes for the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Where to.
    pub to: SocketAddr,
    /// What.
    pub bytes: Vec<u8>,
}

/// Letters to send.
pub type Outbox = Vec<Letter>;

/// How much was in a datagram, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The sender's key.
    pub key: PublicKey,
    /// Bytes it sealed.
    pub length: usize,
}

/// Why a datagram was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refused {
    /// Not sealed at all.
    #[error("not sealed: its sender has no key, give it one (--key or a join token)")]
    Unsealed,
    /// No frame of this layer, or too short.
    #[error("malformed")]
    Malformed,
    /// Of no session known here.
    #[error("of an unknown session")]
    Unknown,
    /// Opened before, or far too late.
    #[error("replayed")]
    Replayed,
    /// Changed on its way, or made by somebody without the key.
    #[error("forged or damaged")]
    Forged,
    /// Made with a key that is not accepted here (any more).
    #[error("made with a wrong or outdated key")]
    WrongKey,
    /// A token whose time is over.
    #[error("made with a token that has expired")]
    Expired,
    /// A member's greeting by somebody who is none.
    #[error("not a member")]
    Stranger,
    /// The coordinator has banned its sender.
    #[error("banned from the cluster")]
    Banned,
    /// Too many handshakes at once.
    #[error("too many greetings at once")]
    Flooded,
}

/// Where the number in front of a datagram leads.
#[derive(Clone, Copy, Debug)]
enum Place {
    Peer(PublicKey),
    Door(SocketAddr),
}

/// An address, and who was met there.
#[derive(Debug, Default)]
struct Door {
    begun: Option<Begun>,
    met: Option<PublicKey>,
    waiting: Waiting,
}

impl Guard {
    /// A guard who has met nobody.
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
            doors: BTreeMap::new(),
            answered: BTreeMap::new(),
            places: BTreeMap::new(),
            handshakes: Rate::full(),
            hints: Rate::full(),
            sealed: Vec::new(),
            turned_away: None,
        }
    }

    /// This host's key, as others know it.
    #[must_use]
    pub const fn public(&self) -> PublicKey {
        self.me.public()
    }

    /// Who this host is.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.me
    }

    /// The key file was changed. What rests on a key that is not in it any more ends: handshakes
    /// at the door, and the sessions they led to. Members agree on new sessions by their own keys.
    pub fn set_ring(&mut self, ring: Ring) {
        let before = std::mem::replace(&mut self.ring, ring);
        let ring = &self.ring;
        let void =
            |grant: &Grant| before.get(grant.secret).is_some() && ring.get(grant.secret).is_none();
        self.answered.retain(|_, half| !void(&half.grant));
        for door in self.doors.values_mut() {
            let begun = door
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
                for door in self.doors.values_mut() {
                    door.met.take_if(|met| met == key);
                }
            }
        }
    }

    /// Where this host's introduction was last said to be refused, and why. The answer is not
    /// authenticated: it may be told to people, and decides nothing.
    #[must_use]
    pub const fn turned_away(&self) -> Option<(SocketAddr, Refused)> {
        self.turned_away
    }

    /// The coordinator tells who the members are, and who never shall be again.
    /// Who is banned gets no new session. Of old ones the node itself takes no
    /// notice, but to say that the other is out.
    pub fn set_members(
        &mut self,
        members: impl Iterator<Item = PublicKey>,
        banned: impl Iterator<Item = PublicKey>,
    ) {
        self.members.set(members, banned);
    }

    /// Seals a datagram, given in parts; the memory it is in may be swapped for other.
    /// Without a session it waits for one, and a greeting goes out first.
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
            Whom::Anybody => self.doors.get(&address).and_then(|door| door.met),
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
                self.greet(now, address, key, outbox);
            }
            return Some(&mut self.sealed);
        }
        if matches!(whom, Whom::Anybody) {
            // Met at the door, long ago. It may not know that it was ever admitted:
            // then it answers no member's greeting. Who has no key but a token does
            // not open its door either, but knocks when it hears of the old session.
            let worn = peer.number();
            self.doors.entry(address).or_default().met = None;
            self.knock(now, address, parts, outbox);
            if let Some(number) = worn {
                self.hint(now, address, number, outbox);
            }
            return None;
        }
        peer.waiting.push(parts);
        self.greet(now, address, key, outbox);
        None
    }

    /// Opens a datagram; what was in it is written to `into`, which must be as
    /// long. `None` if it was this layer's own business.
    ///
    /// # Errors
    /// If it is not let in, with the reason.
    pub fn open(
        &mut self,
        now: Now,
        source: SocketAddr,
        datagram: &[u8],
        into: &mut [u8],
        outbox: &mut Outbox,
    ) -> Result<Option<Opened>, Refused> {
        if !crate::is_sealed(datagram) {
            // Lest a daemon without a key knocks for ever and nobody says why.
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
            Kind::Door => self
                .knocked(now, source, &frame, datagram, outbox)
                .map(|()| None),
            Kind::DoorReply => self
                .let_in(now, source, &frame, datagram, outbox)
                .map(|()| None),
            Kind::DoorConfirm => self.proved(now, source, &frame, datagram).map(|()| None),
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

    /// Tells a sender that its session is unknown here: this daemon may have
    /// been replaced.
    fn hint(&mut self, now: Now, source: SocketAddr, number: u32, outbox: &mut Outbox) {
        if self.hints.take(now.since) {
            let frame = Frame {
                kind: Kind::Unknown,
                to: 0,
                count: u64::from(number),
            };
            outbox.push(Letter {
                to: source,
                bytes: frame.encode().to_vec(),
            });
        }
    }

    /// Somebody says that a session is unknown there. Whoever it is: a new one
    /// does no harm, and the old one goes on until then.
    fn unknown(&mut self, now: Now, source: SocketAddr, frame: &Frame, outbox: &mut Outbox) {
        let Ok(number) = u32::try_from(frame.count) else {
            return;
        };
        let found = self.peers.iter().find(|(_, peer)| peer.seals_for(number));
        let Some(key) = found.map(|(key, _)| *key) else {
            return;
        };
        if self.members.contains(&key) && self.handshakes.take(now.since) {
            self.greet(now, source, key, outbox);
        } else if let Some(door) = self.doors.get_mut(&source) {
            // Not a member: knocks again when there is something to say.
            door.met = None;
        }
    }

    /// A number that leads here, unlike any other now in use.
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
