//! Datagrams for several members at once, each sealed once.
//!
//! A sender draws a key, tells it to each receiver through their session, and draws another one when
//! one of them is no member any more. Every receiver could seal with that key, too, and so speak in
//! the sender's name to the others: a caller must accept nothing from these datagrams that a member
//! could not bring about in its own name.

use crate::dice::Dice;
use crate::frame::{FRAME, Frame, Kind, TAG};
use crate::guard::Refused;
use crate::session::{key, nonce};
use crate::window::Window;
use core::fmt;
use pagemesh_wire::PublicKey;
use ring::aead::{Aad, LessSafeKey};
use std::collections::BTreeMap;

/// Bytes of a key.
pub const SHARED_KEY: usize = 32;

/// Keys of one sender that a receiver has: datagrams under the one before may still be under way.
const KEPT: usize = 2;

/// A key is replaced after so many datagrams, as that of a session.
const MOST: u64 = 1 << 28;

/// Seals for several members.
pub struct SharedSealer {
    number: u32,
    bytes: [u8; SHARED_KEY],
    key: LessSafeKey,
    /// Counter of the next datagram; never used twice under one key.
    next: u64,
}

impl SharedSealer {
    /// A sealer with a new key.
    pub fn new(dice: &dyn Dice) -> Self {
        let (mut bytes, mut number) = ([0; SHARED_KEY], [0; 4]);
        dice.fill(&mut bytes);
        dice.fill(&mut number);
        Self {
            number: u32::from_le_bytes(number),
            key: key(&bytes),
            bytes,
            next: 0,
        }
    }

    /// The key's number.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// The key. It must leave only sealed for one receiver.
    #[must_use]
    pub const fn key(&self) -> &[u8; SHARED_KEY] {
        &self.bytes
    }

    /// The counter of the next datagram, which a receiver must be told with the key.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Whether the key has sealed so much that another one must take its place.
    #[must_use]
    pub const fn is_worn(&self) -> bool {
        self.next >= MOST
    }

    /// Appends a sealed datagram to `out`.
    ///
    /// # Panics
    /// If `clear` is longer than a message of AES-GCM may be (64 GiB).
    pub fn seal(&mut self, clear: &[u8], out: &mut Vec<u8>) {
        let frame = Frame {
            kind: Kind::Shared,
            to: self.number,
            count: self.next,
        };
        let (frame, start) = (frame.encode(), out.len());
        out.extend_from_slice(&frame);
        out.extend_from_slice(clear);
        let nonce = nonce(self.next);
        self.next += 1;
        let tag =
            self.key
                .seal_in_place_separate_tag(nonce, Aad::from(frame), &mut out[start + FRAME..]);
        let tag = tag.expect("a datagram is shorter than the cipher's limit");
        out.extend_from_slice(tag.as_ref());
    }
}

/// Does not print the key.
impl fmt::Debug for SharedSealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedSealer({}, {} sealed)", self.number, self.next)
    }
}

/// Opens what members share with this one.
#[derive(Debug, Default)]
pub struct SharedOpener {
    /// The last keys of each sender, the newest first.
    keys: BTreeMap<PublicKey, Vec<Opening>>,
}

#[derive(Debug)]
struct Opening {
    number: u32,
    key: LessSafeKey,
    window: Window,
}

impl SharedOpener {
    /// A member tells a key of its own, through their session, and the counter of the next datagram.
    /// Those before are never opened, so that none is opened twice by a daemon and its successor.
    pub fn learn(&mut self, from: PublicKey, (number, next): (u32, u64), bytes: &[u8; SHARED_KEY]) {
        let keys = self.keys.entry(from).or_default();
        // The same one again must not open what was opened before.
        if keys.iter().any(|known| known.number == number) {
            return;
        }
        keys.truncate(KEPT - 1);
        keys.insert(
            0,
            Opening {
                number,
                key: key(bytes),
                window: Window::starting(next),
            },
        );
    }

    /// Forgets the keys of all but these members.
    pub fn keep(&mut self, members: impl Fn(&PublicKey) -> bool) {
        self.keys.retain(|from, _| members(from));
    }

    /// The number of the key of a shared datagram; `None` if it is none.
    #[must_use]
    pub fn number(datagram: &[u8]) -> Option<u32> {
        let frame = Frame::decode(datagram)?;
        (frame.kind == Kind::Shared).then_some(frame.to)
    }

    /// Opens a datagram of a member; returns the number of bytes written to `into`, which must be as
    /// long as the datagram.
    ///
    /// # Errors
    /// If it is refused, with the reason; [`Refused::Unknown`] if the member has not told the key.
    pub fn open(
        &mut self,
        from: PublicKey,
        datagram: &[u8],
        into: &mut [u8],
    ) -> Result<usize, Refused> {
        let frame = Frame::decode(datagram).ok_or(Refused::Malformed)?;
        if frame.kind != Kind::Shared {
            return Err(Refused::Malformed);
        }
        let keys = self.keys.get_mut(&from).ok_or(Refused::Unknown)?;
        let opening = keys.iter_mut().find(|known| known.number == frame.to);
        let opening = opening.ok_or(Refused::Unknown)?;
        if !opening.window.is_new(frame.count) {
            return Err(Refused::Replayed);
        }
        let sealed = datagram.get(FRAME..).unwrap_or_default();
        let (sealed, tag) = sealed.split_last_chunk::<TAG>().ok_or(Refused::Malformed)?;
        let into = into.get_mut(..sealed.len()).ok_or(Refused::Malformed)?;
        into.copy_from_slice(sealed);
        let aad = Aad::from(frame.encode());
        opening
            .key
            .open_in_place_separate_tag(nonce(frame.count), aad, (*tag).into(), into, 0..)
            .map_err(|_| Refused::Forged)?;
        opening.window.note(frame.count);
        Ok(into.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::SystemDice;

    fn sealed(sealer: &mut SharedSealer, clear: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        sealer.seal(clear, &mut out);
        out
    }

    #[test]
    fn each_receiver_opens_once_what_is_genuine() {
        let (one, other) = (PublicKey([1; 32]), PublicKey([2; 32]));
        let mut sealer = SharedSealer::new(&SystemDice::default());
        let mut into = [0; 200];
        for _ in 0..2 {
            let mut opener = SharedOpener::default();
            let told = (sealer.number(), sealer.next());
            let number = sealer.number();
            let datagram = sealed(&mut sealer, b"a state");
            assert_eq!(SharedOpener::number(&datagram), Some(number));
            assert_eq!(
                opener.open(one, &datagram, &mut into),
                Err(Refused::Unknown)
            );
            opener.learn(one, told, sealer.key());
            assert_eq!(
                opener.open(other, &datagram, &mut into),
                Err(Refused::Unknown),
                "the key is of one sender"
            );
            for at in 0..datagram.len() {
                let mut bad = datagram.clone();
                bad[at] ^= 4;
                assert!(opener.open(one, &bad, &mut into).is_err(), "{at}");
                assert!(opener.open(one, &datagram[..at], &mut into).is_err());
            }
            assert_eq!(opener.open(one, &datagram, &mut into), Ok(7));
            assert_eq!(&into[..7], b"a state");
            opener.learn(one, told, sealer.key());
            assert_eq!(
                opener.open(one, &datagram, &mut into),
                Err(Refused::Replayed),
                "told the key again or not"
            );
            let mut successor = SharedOpener::default();
            successor.learn(one, (number, sealer.next()), sealer.key());
            assert_eq!(
                successor.open(one, &datagram, &mut into),
                Err(Refused::Replayed)
            );
        }
    }

    #[test]
    fn the_key_before_is_kept_and_those_of_strangers_are_not() {
        let one = PublicKey([1; 32]);
        let dice = SystemDice::default();
        let mut sealers = [(); 3].map(|()| SharedSealer::new(&dice));
        let mut opener = SharedOpener::default();
        for sealer in &sealers {
            opener.learn(one, (sealer.number(), sealer.next()), sealer.key());
        }
        let mut into = [0; 200];
        let mut opens = |opener: &mut SharedOpener, number: usize| {
            let datagram = sealed(&mut sealers[number], b"x");
            opener.open(one, &datagram, &mut into)
        };
        assert_eq!(opens(&mut opener, 0), Err(Refused::Unknown));
        assert_eq!(opens(&mut opener, 1), Ok(1));
        assert_eq!(opens(&mut opener, 2), Ok(1));
        opener.keep(|_| false);
        assert_eq!(opens(&mut opener, 2), Err(Refused::Unknown));
    }
}
