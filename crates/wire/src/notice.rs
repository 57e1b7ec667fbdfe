//! The only message between daemons of different protocol versions: that they differ. The layout of
//! this datagram, and of the parts of a header it is made from, never changes.

use crate::header::{HEADER_SIZE, MAGIC, PROTOCOL_VERSION};
use crate::{Incarnation, NodeId};

/// "I speak another version than you": the answer to a host that wants to join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Notice {
    /// The protocol version of its sender.
    pub version: u8,
    /// The life it answers.
    pub to: Incarnation,
}

impl Notice {
    /// Stands where a header says in which form a datagram is: no form has it.
    pub const MARK: u8 = 1;

    /// The answer to a datagram of another version: one, if it comes from a host that belongs to no
    /// cluster yet. It is never longer than that datagram, and is itself not answered.
    #[must_use]
    pub fn answering(datagram: &[u8]) -> Option<Self> {
        let head = datagram.first_chunk::<HEADER_SIZE>()?;
        let from = u16::from_le_bytes([head[4], head[5]]);
        let joins = head[0..2] == MAGIC && head[3] != Self::MARK && NodeId(from) == NodeId::NONE;
        joins.then_some(Self {
            version: PROTOCOL_VERSION,
            to: incarnation(head),
        })
    }

    /// The datagram's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        bytes[0..2].copy_from_slice(&MAGIC);
        bytes[2] = self.version;
        bytes[3] = Self::MARK;
        bytes[16..24].copy_from_slice(&self.to.0.to_le_bytes());
        bytes
    }

    /// The notice in this datagram, if it is one.
    #[must_use]
    pub fn decode(datagram: &[u8]) -> Option<Self> {
        let head = datagram.first_chunk::<HEADER_SIZE>()?;
        let notice = Self {
            version: head[2],
            to: incarnation(head),
        };
        (datagram == notice.encode()).then_some(notice)
    }
}

fn incarnation(head: &[u8; HEADER_SIZE]) -> Incarnation {
    let bytes = head[16..24].try_into().expect("eight bytes are eight");
    Incarnation(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClusterId;
    use crate::header::{Header, HeaderError};

    fn joining() -> [u8; HEADER_SIZE] {
        let header = Header {
            cluster: ClusterId(0),
            from: NodeId::NONE,
            to: NodeId::NONE,
            incarnation: Incarnation(0x1122_3344_5566_7788),
            body: 0,
            term: crate::Term::NONE,
            generation: 0,
        };
        let mut bytes = header.encode();
        bytes[2] = 9;
        bytes
    }

    #[test]
    fn golden_bytes() {
        let notice = Notice {
            version: 1,
            to: Incarnation(0x1122_3344_5566_7788),
        };
        let golden = "504d010100000000000000000000000088776655443322110000000000000000";
        let hex: String = notice.encode().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, golden);
        assert_eq!(Notice::decode(&notice.encode()), Some(notice));
    }

    #[test]
    fn who_wants_to_join_is_answered_and_nobody_else() {
        let datagram = joining();
        let notice = Notice::answering(&datagram).unwrap();
        assert_eq!(notice.version, PROTOCOL_VERSION);
        assert_eq!(notice.to, Incarnation(0x1122_3344_5566_7788));
        let mut member = datagram;
        member[4] = 3;
        assert_eq!(Notice::answering(&member), None, "a member knows already");
        assert_eq!(
            Notice::answering(&notice.encode()),
            None,
            "no talk without end"
        );
        assert_eq!(Notice::answering(&datagram[..31]), None);
    }

    #[test]
    fn no_version_takes_a_notice_for_a_datagram_of_its_own() {
        let notice = Notice {
            version: PROTOCOL_VERSION,
            to: Incarnation(7),
        };
        assert_eq!(Header::split(&notice.encode()), Err(HeaderError::Malformed));
        assert_eq!(Notice::decode(&joining()), None);
    }
}
