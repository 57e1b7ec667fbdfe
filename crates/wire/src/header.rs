//! The fixed header in front of every datagram between daemons.

use crate::{ClusterId, Incarnation, NodeId, Term};

/// Bytes of a header.
pub const HEADER_SIZE: usize = 32;

/// Spoken here. Another number is refused with a clear error; see `docs/protocol.md`.
pub const PROTOCOL_VERSION: u8 = 4;

/// Largest datagram ever sent: header, body and one page.
pub const MAX_DATAGRAM: usize = 16 * 1024;

pub(crate) const MAGIC: [u8; 2] = *b"PM";

/// Offset of the form, which is not zero if the bytes behind the body are not a plain page. Zero
/// once the form was taken off; [`Header::split`] refuses any other value.
const FORM: usize = 3;

/// The form of a datagram of this version; zero, as for most, if its body is followed by a plain
/// page or by nothing. Zero also for other datagrams, which are refused elsewhere.
#[must_use]
pub fn form(datagram: &[u8]) -> u8 {
    match datagram.first_chunk::<HEADER_SIZE>() {
        Some(head) if head[..3] == [MAGIC[0], MAGIC[1], PROTOCOL_VERSION] => head[FORM],
        _ => 0,
    }
}

/// Sets the form of a datagram.
///
/// # Panics
/// If it has no header.
pub fn set_form(datagram: &mut [u8], form: u8) {
    datagram[FORM] = form;
}

/// Sets whom a datagram is for.
///
/// # Panics
/// If it has no header.
pub fn set_receiver(datagram: &mut [u8], to: NodeId) {
    datagram[6..8].copy_from_slice(&to.0.to_le_bytes());
}

/// The fields of every datagram before its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// The cluster spoken in; zero from a host that has not joined yet.
    pub cluster: ClusterId,
    /// The sender; [`NodeId::NONE`] from a host that has not joined yet.
    pub from: NodeId,
    /// Whom it is for; [`NodeId::NONE`] when the sender knows only an address.
    pub to: NodeId,
    /// The sender's life, so that a restarted daemon is not mistaken for its predecessor.
    pub incarnation: Incarnation,
    /// Bytes of the encoded message; page contents follow it.
    pub body: u16,
    /// The newest term that the sender knows. It fences: a datagram of a coordinator of an older
    /// term counts for nothing any more, and a newer term tells a coordinator that it is none.
    pub term: Term,
}

/// Why a datagram is no datagram of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum HeaderError {
    /// Shorter than a header, or than its header says.
    #[error("datagram shorter than it says")]
    Truncated,
    /// Not PageMesh at all.
    #[error("not a PageMesh datagram")]
    Foreign,
    /// Another version of the protocol: upgrade the older daemon.
    #[error("protocol version {0}, but this daemon speaks {PROTOCOL_VERSION}")]
    Version(u8),
    /// Longer than anything we ever say.
    #[error("datagram longer than {MAX_DATAGRAM} bytes")]
    Oversized,
    /// Reserved bytes are not zero, or a node number is out of range.
    #[error("malformed header")]
    Malformed,
}

/// Sets the length of a datagram's message.
///
/// # Panics
/// If it has no header.
pub fn set_body(datagram: &mut [u8], body: u16) {
    datagram[24..26].copy_from_slice(&body.to_le_bytes());
}

impl Header {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        bytes[0..2].copy_from_slice(&MAGIC);
        bytes[2] = PROTOCOL_VERSION;
        bytes[4..6].copy_from_slice(&self.from.0.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.to.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.cluster.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.incarnation.0.to_le_bytes());
        bytes[24..26].copy_from_slice(&self.body.to_le_bytes());
        bytes[26..30].copy_from_slice(&self.term.0.to_le_bytes());
        bytes
    }

    /// Splits a datagram into header, body and page contents.
    ///
    /// # Errors
    /// If the datagram is not one of ours; nothing of it may be believed then.
    pub fn split(datagram: &[u8]) -> Result<(Self, &[u8], &[u8]), HeaderError> {
        let (head, rest) = datagram
            .split_first_chunk::<HEADER_SIZE>()
            .ok_or(HeaderError::Truncated)?;
        if datagram.len() > MAX_DATAGRAM {
            return Err(HeaderError::Oversized);
        }
        if head[0..2] != MAGIC {
            return Err(HeaderError::Foreign);
        }
        if head[2] != PROTOCOL_VERSION {
            return Err(HeaderError::Version(head[2]));
        }
        let word = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let long = |at: usize| {
            u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes are eight"))
        };
        let header = Self {
            from: NodeId(word(4)),
            to: NodeId(word(6)),
            cluster: ClusterId(long(8)),
            incarnation: Incarnation(long(16)),
            body: word(24),
            term: Term(u32::from(word(28)) << 16 | u32::from(word(26))),
        };
        let reserved_zero = head[FORM] == 0 && head[30..].iter().all(|byte| *byte == 0);
        let coordinator = header.term.coordinator();
        let out_of_range = [header.from, header.to, coordinator]
            .iter()
            .any(|node| node.0 >= NodeId::LIMIT);
        if !reserved_zero || out_of_range {
            return Err(HeaderError::Malformed);
        }
        if usize::from(header.body) > rest.len() {
            return Err(HeaderError::Truncated);
        }
        let (body, page) = rest.split_at(usize::from(header.body));
        Ok((header, body, page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Header {
        Header {
            cluster: ClusterId(0x1122_3344_5566_7788),
            from: NodeId(3),
            to: NodeId(4),
            incarnation: Incarnation(9),
            body: 2,
            term: Term(2 << 16 | 5),
        }
    }

    #[test]
    fn splits_what_it_encodes() {
        let mut datagram = sample().encode().to_vec();
        datagram.extend_from_slice(b"bopage");
        let (header, body, page) = Header::split(&datagram).unwrap();
        assert_eq!((header, body, page), (sample(), &b"bo"[..], &b"page"[..]));
    }

    #[test]
    fn golden_bytes() {
        let golden = "504d040003000400887766554433221109000000000000000200050002000000";
        let hex: String = sample()
            .encode()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(hex, golden);
    }

    #[test]
    fn a_form_is_seen_and_taken_off() {
        let mut datagram = [sample().encode().as_slice(), b"bo"].concat();
        assert_eq!(form(&datagram), 0);
        set_form(&mut datagram, 0x12);
        assert_eq!(form(&datagram), 0x12);
        assert_eq!(Header::split(&datagram), Err(HeaderError::Malformed));
        datagram[2] = 9;
        assert_eq!(
            form(&datagram),
            0,
            "who knows what another version means by it"
        );
        assert_eq!(form(&datagram[..31]), 0);
    }

    #[test]
    fn refuses_what_is_not_ours() {
        let good = sample().encode();
        assert_eq!(Header::split(&good[..31]), Err(HeaderError::Truncated));
        assert_eq!(Header::split(&good), Err(HeaderError::Truncated));
        let long = [good.as_slice(), &[0; MAX_DATAGRAM]].concat();
        assert_eq!(Header::split(&long), Err(HeaderError::Oversized));
        let with = |at: usize, byte: u8| {
            let mut bad = [good.as_slice(), b"bo"].concat();
            bad[at] = byte;
            bad
        };
        assert_eq!(Header::split(&with(0, b'X')), Err(HeaderError::Foreign));
        assert_eq!(Header::split(&with(2, 9)), Err(HeaderError::Version(9)));
        assert_eq!(Header::split(&with(3, 1)), Err(HeaderError::Malformed));
        assert_eq!(Header::split(&with(5, 0xff)), Err(HeaderError::Malformed));
        assert_eq!(Header::split(&with(27, 1)), Err(HeaderError::Malformed));
        assert_eq!(Header::split(&with(31, 1)), Err(HeaderError::Malformed));
    }
}
