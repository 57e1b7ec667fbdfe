//! The only message between daemons of different protocol versions: that they differ. The layout of
//! this datagram, and of the parts of a header it is made from, never changes.

use crate::header::{HEADER_SIZE, MAGIC};
use crate::{Incarnation, NodeId, Versions};

/// "I speak other versions than you": the answer to a host that wants to join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Notice {
    /// The protocol versions of its sender.
    pub speaks: Versions,
    /// The life it answers.
    pub to: Incarnation,
}

impl Notice {
    /// Stands where a header says in which form a datagram is: no form has it.
    pub const MARK: u8 = 1;

    /// The last version whose notices name one version, and that reads no others.
    const NAMES_ONE: u8 = 4;

    /// The answer to a datagram of another version: one, if it comes from a host that belongs to no
    /// cluster yet. It is never longer than that datagram, and is itself not answered.
    #[must_use]
    pub fn answering(datagram: &[u8], speaks: Versions) -> Option<Self> {
        let head = datagram.first_chunk::<HEADER_SIZE>()?;
        let from = u16::from_le_bytes([head[4], head[5]]);
        let joins = head[0..2] == MAGIC && head[3] != Self::MARK && NodeId(from) == NodeId::NONE;
        let reads_one = head[2] <= Self::NAMES_ONE;
        joins.then_some(Self {
            speaks: match reads_one {
                true => Versions::only(speaks.newest),
                false => speaks,
            },
            to: incarnation(head),
        })
    }

    /// The datagram's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        bytes[0..2].copy_from_slice(&MAGIC);
        bytes[2] = self.speaks.newest;
        bytes[3] = Self::MARK;
        if self.speaks.oldest != self.speaks.newest {
            bytes[24] = self.speaks.oldest;
        }
        bytes[16..24].copy_from_slice(&self.to.0.to_le_bytes());
        bytes
    }

    /// The notice in this datagram, if it is one.
    #[must_use]
    pub fn decode(datagram: &[u8]) -> Option<Self> {
        let head = datagram.first_chunk::<HEADER_SIZE>()?;
        let newest = head[2];
        let oldest = if head[24] == 0 { newest } else { head[24] };
        let notice = Self {
            speaks: Versions { oldest, newest },
            to: incarnation(head),
        };
        (notice.speaks.is_range() && datagram == notice.encode()).then_some(notice)
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
    use crate::header::{Header, HeaderError, PROTOCOL_VERSION};

    fn joining() -> [u8; HEADER_SIZE] {
        let header = Header {
            version: PROTOCOL_VERSION,
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
        let one = "504d010100000000000000000000000088776655443322110000000000000000";
        let two = "504d030100000000000000000000000088776655443322110200000000000000";
        for (oldest, newest, golden) in [(1, 1, one), (2, 3, two)] {
            let notice = Notice {
                speaks: Versions { oldest, newest },
                to: Incarnation(0x1122_3344_5566_7788),
            };
            let hex: String = notice.encode().iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(hex, golden);
            assert_eq!(Notice::decode(&notice.encode()), Some(notice));
        }
        let nonsense = Notice {
            speaks: Versions {
                oldest: 9,
                newest: 3,
            },
            to: Incarnation(1),
        };
        assert_eq!(Notice::decode(&nonsense.encode()), None);
    }

    #[test]
    fn who_wants_to_join_is_answered_and_nobody_else() {
        let datagram = joining();
        let here = Versions::SPOKEN;
        let notice = Notice::answering(&datagram, here).unwrap();
        assert_eq!(notice.speaks, here);
        let mut old = datagram;
        old[2] = 3;
        let said = Notice::answering(&old, here).unwrap().speaks;
        assert_eq!(said, Versions::only(PROTOCOL_VERSION), "it reads one");
        assert_eq!(notice.to, Incarnation(0x1122_3344_5566_7788));
        let mut member = datagram;
        member[4] = 3;
        let answer = |datagram: &[u8]| Notice::answering(datagram, here);
        assert_eq!(answer(&member), None, "a member knows already");
        assert_eq!(answer(&notice.encode()), None, "no talk without end");
        assert_eq!(answer(&datagram[..31]), None);
    }

    #[test]
    fn no_version_takes_a_notice_for_a_datagram_of_its_own() {
        let notice = Notice {
            speaks: Versions::only(PROTOCOL_VERSION),
            to: Incarnation(7),
        };
        assert_eq!(Header::split(&notice.encode()), Err(HeaderError::Malformed));
        assert_eq!(Notice::decode(&joining()), None);
    }
}
