//! Handshakes between members.

use super::{Guard, Outbox, Outgoing, Place, Refused};
use crate::Now;
use crate::frame::{self, FRAME, Frame, Kind};
use crate::half::Begun;
use crate::members::{self, Short};
use crate::noise::{self, Side};
use crate::peer::Reply;
use crate::session::Session;
use core::net::SocketAddr;
use pagemesh_wire::PublicKey;

const PROLOGUE: &[u8] = b"pagemesh member 1";

/// Buffer size in bytes; more than any message of a handshake needs.
pub(super) const ROOM: usize = 256;

impl Guard {
    /// Sends a hello to a member, or repeats it.
    pub(super) fn handshake(
        &mut self,
        now: Now,
        address: SocketAddr,
        key: PublicKey,
        outbox: &mut Outbox,
    ) {
        if self.members.is_banned(&key) {
            return;
        }
        let pace = self.pace;
        let begun = self
            .peers
            .get_mut(&key)
            .and_then(|peer| peer.begun.as_mut());
        if let Some(begun) = begun
            && begun.goes_on(now, &pace, address, outbox)
        {
            return;
        }
        if let Some(begun) = self.greeting(now, key) {
            outbox.push(Outgoing {
                to: address,
                bytes: begun.greeting.clone(),
            });
            self.places.insert(begun.ours, Place::Peer(key));
            let peer = self.peers.entry(key).or_default();
            if let Some(old) = peer.begun.replace(begun) {
                self.places.remove(&old.ours);
            }
        }
    }

    /// A new hello; `None` if the key is not a valid point of the curve.
    fn greeting(&self, now: Now, key: PublicKey) -> Option<Begun> {
        let initiator = Side::Initiator;
        let mut state = noise::member(&self.me, &key, PROLOGUE, &self.dice, initiator).ok()?;
        let ours = self.number();
        let frame = Frame {
            kind: Kind::Hello,
            to: 0,
            count: u64::from(ours),
        };
        let mut message = [0; ROOM];
        let time = u64::try_from(now.since.as_nanos()).unwrap_or(u64::MAX);
        let length = state
            .write_message(&time.to_le_bytes(), &mut message)
            .ok()?;
        let name = members::short(&self.public());
        let mut greeting = [&frame.encode()[..], &name, &message[..length]].concat();
        frame::sign(&members::greeting_key(&key), &mut greeting);
        Some(Begun {
            state: Box::new(state),
            ours,
            greeting,
            sent: now.since,
            began: now.since,
            grant: None,
        })
    }

    /// Handles a member's hello.
    pub(super) fn greeted(
        &mut self,
        now: Now,
        source: SocketAddr,
        frame: &Frame,
        datagram: &[u8],
        outbox: &mut Outbox,
    ) -> Result<(), Refused> {
        let mine = members::greeting_key(&self.public());
        let signed = frame::verified(&mine, datagram).ok_or(Refused::Forged)?;
        let (name, message) = signed[FRAME..]
            .split_first_chunk::<{ size_of::<Short>() }>()
            .ok_or(Refused::Malformed)?;
        let key = self.members.named(name).ok_or(Refused::Stranger)?;
        let theirs = u32::try_from(frame.count).map_err(|_| Refused::Malformed)?;
        let peer = self.peers.entry(key).or_default();
        if let Some(last) = &peer.answered
            && last.greeting == datagram
        {
            // The answer was lost: send it again.
            outbox.push(Outgoing {
                to: source,
                bytes: last.reply.clone(),
            });
            return Ok(());
        }
        if !self.handshakes.take(now.since) {
            return Err(Refused::Flooded);
        }
        let reply = self.answer(now, key, theirs, message)?;
        let peer = self.peers.entry(key).or_default();
        peer.answered = Some(Reply {
            greeting: datagram.to_vec(),
            reply: reply.clone(),
        });
        outbox.push(Outgoing {
            to: source,
            bytes: reply,
        });
        Ok(())
    }

    /// Computes the answer to a hello; the other host can use the session when it gets the answer.
    fn answer(
        &mut self,
        now: Now,
        key: PublicKey,
        theirs: u32,
        message: &[u8],
    ) -> Result<Vec<u8>, Refused> {
        let responder = Side::Responder;
        let mut state = noise::member(&self.me, &key, PROLOGUE, &self.dice, responder)
            .map_err(|_| Refused::Forged)?;
        let mut time = [0; ROOM];
        let length = state.read_message(message, &mut time);
        let time = match length {
            Ok(8) => u64::from_le_bytes(*time.first_chunk().expect("eight bytes were read")),
            _ => return Err(Refused::Forged),
        };
        let peer = self.peers.entry(key).or_default();
        if time <= peer.greeted {
            return Err(Refused::Replayed);
        }
        peer.greeted = time;
        let mut reply = [0; ROOM];
        let length = state
            .write_message(&[], &mut reply)
            .map_err(|_| Refused::Forged)?;
        let ours = self.number();
        let session = Session::new(&mut state, responder, ours, theirs, now.since);
        let peer = self.peers.entry(key).or_default();
        if let Some(old) = peer.propose(session) {
            self.places.remove(&old);
        }
        self.places.insert(ours, Place::Peer(key));
        let frame = Frame {
            kind: Kind::HelloReply,
            to: theirs,
            count: u64::from(ours),
        };
        Ok([&frame.encode()[..], &reply[..length]].concat())
    }

    /// Handles a member's answer to this host's hello.
    pub(super) fn agreed(
        &mut self,
        now: Now,
        source: SocketAddr,
        frame: &Frame,
        datagram: &[u8],
        outbox: &mut Outbox,
    ) -> Result<(), Refused> {
        let Some(Place::Peer(key)) = self.places.get(&frame.to).copied() else {
            return Err(Refused::Unknown);
        };
        let peer = self.peers.get_mut(&key).ok_or(Refused::Unknown)?;
        let theirs = u32::try_from(frame.count).map_err(|_| Refused::Malformed)?;
        let begun = peer.begun.as_mut().filter(|begun| begun.ours == frame.to);
        let begun = begun.ok_or(Refused::Replayed)?;
        begun
            .state
            .read_message(&datagram[FRAME..], &mut [0; ROOM])
            .map_err(|_| Refused::Forged)?;
        let ours = begun.ours;
        let mut session = Session::new(&mut begun.state, Side::Initiator, ours, theirs, now.since);
        peer.waiting.leave(&mut session, source, outbox);
        peer.begun = None;
        if let Some(old) = peer.establish(session) {
            self.places.remove(&old);
        }
        Ok(())
    }
}
