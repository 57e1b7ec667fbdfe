//! Introductions of hosts that know the cluster's key, or have a token.

use super::handshake::ROOM;
use super::{Guard, Outbox, Outgoing, Place, Refused};
use crate::Now;
use crate::frame::{self, FRAME, Frame, Kind};
use crate::half::{Answered, Begun};
use crate::noise::{self, Side};
use crate::secret::Secret;
use crate::session::Session;
use crate::token::{GRANT_SIZE, Grant, Token};
use core::net::SocketAddr;
use pagemesh_wire::PublicKey;

/// Maximum number of introduced hosts whose proof is awaited; the oldest are forgotten first.
const AWAITED: usize = 64;

/// Maximum number of addresses at which hosts were met.
const NEWCOMERS: usize = 1024;

impl Guard {
    /// Introduces this host at an address; the datagrams for it wait.
    pub(super) fn knock(
        &mut self,
        now: Now,
        address: SocketAddr,
        parts: &[&[u8]],
        outbox: &mut Outbox,
    ) {
        let pace = self.pace;
        let newcomer = self.newcomers.entry(address).or_default();
        newcomer.waiting.push(parts);
        if let Some(begun) = &mut newcomer.begun
            && begun.goes_on(now, &pace, address, outbox)
        {
            return;
        }
        let Some(begun) = self.introduction(now) else {
            return;
        };
        outbox.push(Outgoing {
            to: address,
            bytes: begun.greeting.clone(),
        });
        self.places.insert(begun.ours, Place::Newcomer(address));
        let newcomer = self.newcomers.entry(address).or_default();
        if let Some(old) = newcomer.begun.replace(begun) {
            self.places.remove(&old.ours);
        }
    }

    /// The first message of an introduction; `None` without key and token.
    fn introduction(&self, now: Now) -> Option<Begun> {
        let token = match (self.ring.newest(), &self.token) {
            (Some(secret), _) => Token::new(secret, 0, &*self.dice),
            (None, Some(token)) => token.clone(),
            (None, None) => return None,
        };
        let grant = token.grant.encode();
        let initiator = Side::Initiator;
        let mut state =
            noise::newcomer(&self.me, &token.proof, &grant, &self.dice, initiator).ok()?;
        let ours = self.number();
        let frame = Frame {
            kind: Kind::Newcomer,
            to: 0,
            count: u64::from(ours),
        };
        let mut message = [0; ROOM];
        let length = state.write_message(&[], &mut message).ok()?;
        let mut greeting = [&frame.encode()[..], &grant, &message[..length]].concat();
        frame::sign(&newcomer_key(token.proof), &mut greeting);
        Some(Begun {
            state: Box::new(state),
            ours,
            greeting,
            sent: now.since,
            began: now.since,
            grant: Some(token.grant),
        })
    }

    /// Handles the introduction of a host.
    pub(super) fn knocked(
        &mut self,
        now: Now,
        source: SocketAddr,
        frame: &Frame,
        datagram: &[u8],
        outbox: &mut Outbox,
    ) -> Result<(), Refused> {
        let rest = datagram[FRAME..]
            .split_first_chunk::<GRANT_SIZE>()
            .map(|(grant, _)| Grant::decode(grant));
        let grant = rest.ok_or(Refused::Malformed)?;
        let Some(secret) = self.ring.get(grant.secret) else {
            return Err(self.turn_away(now, source, frame, Refused::WrongKey, outbox));
        };
        let proof = grant.proof(secret);
        let signed = frame::verified(&newcomer_key(proof), datagram).ok_or(Refused::Forged)?;
        if grant.has_expired(now.unix) {
            return Err(self.turn_away(now, source, frame, Refused::Expired, outbox));
        }
        let theirs = u32::try_from(frame.count).map_err(|_| Refused::Malformed)?;
        if !self.handshakes.take(now.since) {
            return Err(Refused::Flooded);
        }
        let message = &signed[FRAME + GRANT_SIZE..];
        let responder = Side::Responder;
        let mut state = noise::newcomer(&self.me, &proof, &grant.encode(), &self.dice, responder)
            .map_err(|_| Refused::Forged)?;
        let mut reply = [0; ROOM];
        let length = state
            .read_message(message, &mut [0; ROOM])
            .and_then(|_| state.write_message(&[], &mut reply))
            .map_err(|_| Refused::Forged)?;
        let ours = self.number();
        self.make_room();
        self.answered.insert(
            ours,
            Answered {
                state: Box::new(state),
                theirs,
                source,
                began: now.since,
                grant,
            },
        );
        let frame = Frame {
            kind: Kind::NewcomerReply,
            to: theirs,
            count: u64::from(ours),
        };
        outbox.push(Outgoing {
            to: source,
            bytes: [&frame.encode()[..], &reply[..length]].concat(),
        });
        Ok(())
    }

    /// Tells a host why its introduction is not accepted, in fewer bytes than the introduction has.
    fn turn_away(
        &mut self,
        now: Now,
        source: SocketAddr,
        greeting: &Frame,
        why: Refused,
        outbox: &mut Outbox,
    ) -> Refused {
        if let Ok(theirs) = u32::try_from(greeting.count)
            && self.hints.take(now.since)
        {
            let frame = Frame {
                kind: Kind::TurnedAway,
                to: theirs,
                count: u64::from(why == Refused::Expired),
            };
            outbox.push(Outgoing {
                to: source,
                bytes: frame.encode().to_vec(),
            });
        }
        why
    }

    /// Handles the hint that the introduction of this number is not accepted. The introduction is
    /// repeated all the same, because any host that has seen it could forge the hint.
    pub(super) fn turned_away_by(&mut self, frame: &Frame) {
        let Some(Place::Newcomer(address)) = self.places.get(&frame.to).copied() else {
            return;
        };
        let why = if frame.count == 0 {
            Refused::WrongKey
        } else {
            Refused::Expired
        };
        self.turned_away = Some((address, why));
    }

    fn make_room(&mut self) {
        if self.answered.len() < AWAITED {
            return;
        }
        let oldest = self.answered.iter().min_by_key(|(_, half)| half.began);
        if let Some(number) = oldest.map(|(number, _)| *number) {
            self.answered.remove(&number);
        }
    }

    /// Handles a member's answer to this host's introduction, and sends the proof.
    pub(super) fn let_in(
        &mut self,
        now: Now,
        source: SocketAddr,
        frame: &Frame,
        datagram: &[u8],
        outbox: &mut Outbox,
    ) -> Result<(), Refused> {
        let Some(Place::Newcomer(address)) = self.places.get(&frame.to).copied() else {
            return Err(Refused::Unknown);
        };
        let theirs = u32::try_from(frame.count).map_err(|_| Refused::Malformed)?;
        let newcomer = self.newcomers.get_mut(&address).ok_or(Refused::Unknown)?;
        let begun = newcomer
            .begun
            .as_mut()
            .filter(|begun| begun.ours == frame.to);
        let begun = begun.ok_or(Refused::Replayed)?;
        let mut proof = [0; ROOM];
        let length = begun
            .state
            .read_message(&datagram[FRAME..], &mut [0; ROOM])
            .and_then(|_| begun.state.write_message(&[], &mut proof))
            .map_err(|_| Refused::Forged)?;
        let key = remote(&begun.state).ok_or(Refused::Forged)?;
        let (ours, grant) = (begun.ours, begun.grant.ok_or(Refused::Unknown)?);
        let session = Session::new(&mut begun.state, Side::Initiator, ours, theirs, now.since);
        let mut session = session.resting_on(grant);
        let confirm = Frame {
            kind: Kind::NewcomerConfirm,
            to: theirs,
            count: u64::from(ours),
        };
        outbox.push(Outgoing {
            to: source,
            bytes: [&confirm.encode()[..], &proof[..length]].concat(),
        });
        newcomer.waiting.leave(&mut session, source, outbox);
        newcomer.begun = None;
        self.turned_away = None;
        self.meet(address, key, session);
        Ok(())
    }

    /// Handles the proof of an introduced host.
    pub(super) fn proved(
        &mut self,
        now: Now,
        source: SocketAddr,
        frame: &Frame,
        datagram: &[u8],
    ) -> Result<(), Refused> {
        let mut half = self.answered.remove(&frame.to).ok_or(Refused::Unknown)?;
        let read = half.state.read_message(&datagram[FRAME..], &mut [0; ROOM]);
        if half.source != source || u64::from(half.theirs) != frame.count || read.is_err() {
            // The proof came from another host: the introduced one may still send its own.
            if read.is_err() {
                self.answered.insert(frame.to, half);
            }
            return Err(Refused::Forged);
        }
        let key = remote(&half.state).ok_or(Refused::Forged)?;
        if self.members.is_banned(&key) {
            return Err(Refused::Banned);
        }
        let responder = Side::Responder;
        let session = Session::new(&mut half.state, responder, frame.to, half.theirs, now.since);
        if self.newcomers.len() >= NEWCOMERS {
            self.newcomers
                .retain(|_, newcomer| newcomer.begun.is_some());
        }
        self.meet(source, key, session.resting_on(half.grant));
        Ok(())
    }

    fn meet(&mut self, address: SocketAddr, key: PublicKey, session: Session) {
        self.newcomers.entry(address).or_default().met = Some(key);
        self.places.insert(session.ours, Place::Peer(key));
        let peer = self.peers.entry(key).or_default();
        if let Some(old) = peer.establish(session) {
            self.places.remove(&old);
        }
    }
}

/// The key that signs introductions: only hosts that know the proof can make a member compute a
/// handshake.
fn newcomer_key(proof: [u8; 32]) -> [u8; 32] {
    Secret::from_bytes(proof).derive("introduction", b"")
}

fn remote(state: &noise::Handshake) -> Option<PublicKey> {
    state.get_remote_static()?.try_into().ok().map(PublicKey)
}
