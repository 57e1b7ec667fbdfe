//! The keys that two hosts share after a handshake.

use crate::frame::{FRAME, Frame, Kind, TAG};
use crate::guard::Refused;
use crate::noise::{Handshake, Side};
use crate::token::Grant;
use crate::window::Window;
use core::time::Duration;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

/// A key for each direction, with counter and replay window.
#[derive(Debug)]
pub(crate) struct Session {
    /// This host's number of the session, in front of incoming datagrams.
    pub(crate) ours: u32,
    /// The other host's number of the session, in front of outgoing datagrams.
    pub(crate) theirs: u32,
    /// When the session was made.
    pub(crate) began: Duration,
    /// The grant whose secret its keys were made with; `None` between members.
    pub(crate) grant: Option<Grant>,
    out: LessSafeKey,
    back: LessSafeKey,
    /// Counter of the next datagram; never used twice under one key.
    next: u64,
    window: Window,
}

impl Session {
    /// The session of a finished handshake.
    pub(crate) fn new(
        handshake: &mut Handshake,
        side: Side,
        ours: u32,
        theirs: u32,
        began: Duration,
    ) -> Self {
        let (initiator, responder) = handshake.dangerously_get_raw_split();
        let (out, back) = match side {
            Side::Initiator => (initiator, responder),
            Side::Responder => (responder, initiator),
        };
        Self {
            ours,
            theirs,
            began,
            grant: None,
            out: key(&out),
            back: key(&back),
            next: 0,
            window: Window::default(),
        }
    }

    /// Marks a session from a newcomer's handshake with the grant it is based on.
    pub(crate) const fn resting_on(mut self, grant: Grant) -> Self {
        self.grant = Some(grant);
        self
    }

    /// Number of datagrams sealed so far.
    pub(crate) const fn sealed(&self) -> u64 {
        self.next
    }

    /// Writes a sealed datagram into `out`, replacing its contents.
    pub(crate) fn seal(&mut self, parts: &[&[u8]], out: &mut Vec<u8>) {
        let frame = Frame {
            kind: Kind::Data,
            to: self.theirs,
            count: self.next,
        };
        let frame = frame.encode();
        out.clear();
        out.extend_from_slice(&frame);
        parts.iter().for_each(|part| out.extend_from_slice(part));
        let nonce = nonce(self.next);
        self.next += 1;
        let tag = self
            .out
            .seal_in_place_separate_tag(nonce, Aad::from(frame), &mut out[FRAME..])
            .expect("a datagram is shorter than the cipher's limit");
        out.extend_from_slice(tag.as_ref());
    }

    /// Opens a datagram of this session; returns the number of bytes written to `into`.
    pub(crate) fn open(
        &mut self,
        frame: &Frame,
        datagram: &[u8],
        into: &mut [u8],
    ) -> Result<usize, Refused> {
        if !self.window.is_new(frame.count) {
            return Err(Refused::Replayed);
        }
        let sealed = datagram.get(FRAME..).unwrap_or_default();
        let (sealed, tag) = sealed.split_last_chunk::<TAG>().ok_or(Refused::Malformed)?;
        let into = into.get_mut(..sealed.len()).ok_or(Refused::Malformed)?;
        let aad = Aad::from(frame.encode());
        into.copy_from_slice(sealed);
        self.back
            .open_in_place_separate_tag(nonce(frame.count), aad, (*tag).into(), into, 0..)
            .map_err(|_| Refused::Forged)?;
        self.window.note(frame.count);
        Ok(into.len())
    }
}

/// A key for AES-256-GCM.
pub(crate) fn key(bytes: &[u8; 32]) -> LessSafeKey {
    let key = UnboundKey::new(&AES_256_GCM, bytes).expect("the key has the cipher's length");
    LessSafeKey::new(key)
}

/// The nonce of a counter; a counter is never used twice under one key.
pub(crate) fn nonce(counter: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&counter.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}
