//! The fixed header in front of every datagram between daemons.

use crate::{ClusterId, Incarnation, NodeId, Term, Versions};

/// Bytes of a header.
pub const HEADER_SIZE: usize = 32;

/// The newest version of the protocol that this program speaks.
pub const PROTOCOL_VERSION: u8 = 5;

/// The oldest. Datagrams of all versions from there to [`PROTOCOL_VERSION`] are read at any time;
/// in which of them a cluster speaks is negotiated (decision 47).
pub const OLDEST_VERSION: u8 = 4;

/// Largest datagram ever sent: header, body and one page.
pub const MAX_DATAGRAM: usize = 16 * 1024;

pub(crate) const MAGIC: [u8; 2] = *b"PM";

/// Offset of the form, which is not zero if the bytes behind the body are not a plain page. Zero
/// once the form was taken off; [`Header::split`] refuses any other value.
const FORM: usize = 3;

/// The form of a datagram of a version that is spoken here; zero, as for most, if its body is
/// followed by a plain page or by nothing. Zero also for other datagrams, which are refused elsewhere.
#[must_use]
pub fn form(datagram: &[u8]) -> u8 {
    match datagram.first_chunk::<HEADER_SIZE>() {
        Some(head) if head[..2] == MAGIC && Versions::SPOKEN.contains(head[2]) => head[FORM],
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
    /// The version of the protocol in which the message is encoded.
    pub version: u8,
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
    /// The lower bits of the newest generation that the sender knows: see
    /// [`MemberView::generation`](crate::peer::MemberView::generation).
    pub generation: u16,
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
    #[error("protocol version {0}, but this daemon speaks {here}", here = Versions::SPOKEN)]
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
        bytes[2] = self.version;
        bytes[4..6].copy_from_slice(&self.from.0.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.to.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.cluster.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.incarnation.0.to_le_bytes());
        bytes[24..26].copy_from_slice(&self.body.to_le_bytes());
        bytes[26..30].copy_from_slice(&self.term.0.to_le_bytes());
        bytes[30..32].copy_from_slice(&self.generation.to_le_bytes());
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
        if !Versions::SPOKEN.contains(head[2]) {
            return Err(HeaderError::Version(head[2]));
        }
        let word = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let long = |at: usize| {
            u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes are eight"))
        };
        let header = Self {
            version: head[2],
            from: NodeId(word(4)),
            to: NodeId(word(6)),
            cluster: ClusterId(long(8)),
            incarnation: Incarnation(long(16)),
            body: word(24),
            term: Term(u32::from(word(28)) << 16 | u32::from(word(26))),
            generation: word(30),
        };
        let reserved_zero = head[FORM] == 0;
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
            version: PROTOCOL_VERSION,
            cluster: ClusterId(0x1122_3344_5566_7788),
            from: NodeId(3),
            to: NodeId(4),
            incarnation: Incarnation(9),
            body: 2,
            term: Term(2 << 16 | 5),
            generation: 0x0107,
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
        for version in OLDEST_VERSION..=PROTOCOL_VERSION {
            let golden = format!(
                "504d{version:02x}0003000400887766554433221109000000000000000200050002000701"
            );
            let header = Header {
                version,
                ..sample()
            };
            let bytes = header.encode();
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, golden);
            let datagram = [&bytes[..], b"bo"].concat();
            assert_eq!(
                Header::split(&datagram).map(|(header, ..)| header),
                Ok(header)
            );
        }
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
        for version in [0, OLDEST_VERSION - 1, PROTOCOL_VERSION + 1, 0xff] {
            let foreign = Err(HeaderError::Version(version));
            assert_eq!(Header::split(&with(2, version)), foreign);
        }
        assert_eq!(Header::split(&with(3, 1)), Err(HeaderError::Malformed));
        assert_eq!(Header::split(&with(5, 0xff)), Err(HeaderError::Malformed));
        assert_eq!(Header::split(&with(27, 4)), Err(HeaderError::Malformed));
    }
}
