//! The clear-text header in front of everything sealed.

use ring::hmac;
use subtle::ConstantTimeEq as _;

/// Length of a frame in bytes.
pub(crate) const FRAME: usize = 16;

/// Length of an authentication tag in bytes.
pub(crate) const TAG: usize = 16;

/// Bytes that sealing adds to a datagram.
pub const MAX_OVERHEAD: usize = FRAME + TAG;

const MAGIC: [u8; 2] = *b"PS";
const VERSION: u8 = 1;

/// The kind of data that follows a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The introduction of a host that is not a member: grant, first message, tag.
    Newcomer = 1,
    /// The answer to an introduction: second message.
    NewcomerReply = 2,
    /// The proof of the introducing host: third message.
    NewcomerConfirm = 3,
    /// A member's hello: its key's short name, first message, tag.
    Hello = 4,
    /// The answer to a hello: second message.
    HelloReply = 5,
    /// A sealed datagram of a session.
    Data = 6,
    /// "I know no session with this number": an unauthenticated hint.
    Unknown = 7,
    /// "Your introduction is not accepted": an unauthenticated hint, which explains and changes
    /// nothing.
    TurnedAway = 8,
    /// A sealed datagram for several members, under a key of its sender.
    Shared = 9,
}

/// The header in front of everything sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The kind of data that follows.
    pub(crate) kind: Kind,
    /// The receiver's number of the session or handshake; zero in hellos; the sender's number of the
    /// key of a shared datagram.
    pub(crate) to: u32,
    /// The counter of a data or shared datagram; otherwise the sender's number of the handshake.
    pub(crate) count: u64,
}

/// True if a datagram has the mark of this layer; it may still be malformed.
#[must_use]
pub fn is_sealed(datagram: &[u8]) -> bool {
    datagram.starts_with(&MAGIC)
}

impl Frame {
    pub(crate) fn encode(&self) -> [u8; FRAME] {
        let mut bytes = [0; FRAME];
        bytes[..2].copy_from_slice(&MAGIC);
        bytes[2] = VERSION;
        bytes[3] = self.kind as u8;
        bytes[4..8].copy_from_slice(&self.to.to_le_bytes());
        bytes[8..].copy_from_slice(&self.count.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(datagram: &[u8]) -> Option<Self> {
        let bytes = datagram.first_chunk::<FRAME>()?;
        if bytes[..2] != MAGIC || bytes[2] != VERSION {
            return None;
        }
        let kind = match bytes[3] {
            1 => Kind::Newcomer,
            2 => Kind::NewcomerReply,
            3 => Kind::NewcomerConfirm,
            4 => Kind::Hello,
            5 => Kind::HelloReply,
            6 => Kind::Data,
            7 => Kind::Unknown,
            8 => Kind::TurnedAway,
            9 => Kind::Shared,
            _ => return None,
        };
        let (to, count) = bytes[4..]
            .split_first_chunk()
            .expect("twelve bytes are left");
        Some(Self {
            kind,
            to: u32::from_le_bytes(*to),
            count: u64::from_le_bytes(count.try_into().expect("eight bytes are left")),
        })
    }
}

/// Appends a tag over all bytes of the hello.
pub(crate) fn sign(key: &[u8; 32], greeting: &mut Vec<u8>) {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let tag = hmac::sign(&key, greeting);
    greeting.extend_from_slice(&tag.as_ref()[..TAG]);
}

/// The signed bytes, if the tag at the end is genuine. Compared in constant time.
pub(crate) fn verified<'a>(key: &[u8; 32], greeting: &'a [u8]) -> Option<&'a [u8]> {
    let (signed, tag) = greeting.split_last_chunk::<TAG>()?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let expected = hmac::sign(&key, signed);
    if !bool::from(expected.as_ref()[..TAG].ct_eq(tag)) {
        return None;
    }
    Some(signed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let frame = Frame {
            kind: Kind::Data,
            to: 0x0403_0201,
            count: 9,
        };
        let bytes = frame.encode();
        assert_eq!(bytes, *b"PS\x01\x06\x01\x02\x03\x04\x09\0\0\0\0\0\0\0");
        assert_eq!(Frame::decode(&bytes), Some(frame));
        assert!(Frame::decode(&bytes[..15]).is_none());
        for (at, wrong) in [(0, b'Q'), (2, 2), (3, 0), (3, 10)] {
            let mut bad = bytes;
            bad[at] = wrong;
            assert!(Frame::decode(&bad).is_none(), "{at}");
        }
    }

    #[test]
    fn a_tag_covers_everything() {
        let key = [7; 32];
        let mut greeting = b"hello".to_vec();
        sign(&key, &mut greeting);
        assert_eq!(verified(&key, &greeting), Some(&b"hello"[..]));
        assert_eq!(verified(&[8; 32], &greeting), None);
        for at in 0..greeting.len() {
            let mut bad = greeting.clone();
            bad[at] ^= 1;
            assert_eq!(verified(&key, &bad), None);
        }
    }
}
