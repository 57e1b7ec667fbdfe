//! The sources of events that a daemon waits for, as numbers for the kernel.

use pagemesh_wire::{ClientId, MappingId};

/// The source that became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A datagram.
    Network,
    /// A process wants to connect.
    Listener,
    /// A signal.
    Signals,
    /// A connected process.
    Session(ClientId),
    /// Faults of a mapping.
    Mapping(MappingId),
    /// The keeper is gone.
    Keeper,
    /// The key file has changed.
    Keys,
    /// The disk has what the coordinator decided.
    Ledger,
    /// Etcd has elected this node.
    Elections,
}

impl Token {
    const KIND: u32 = 56;

    /// As the kernel keeps it.
    pub(crate) fn encode(self) -> u64 {
        let (kind, number) = match self {
            Self::Network => (1, 0),
            Self::Listener => (2, 0),
            Self::Signals => (3, 0),
            Self::Session(client) => (4, u64::from(client.0)),
            Self::Mapping(mapping) => (5, mapping.0),
            Self::Keeper => (6, 0),
            Self::Keys => (7, 0),
            Self::Ledger => (8, 0),
            Self::Elections => (9, 0),
        };
        (kind << Self::KIND) | number
    }

    pub(crate) fn decode(token: u64) -> Option<Self> {
        let number = token & ((1 << Self::KIND) - 1);
        match token >> Self::KIND {
            1 => Some(Self::Network),
            2 => Some(Self::Listener),
            3 => Some(Self::Signals),
            4 => u32::try_from(number)
                .ok()
                .map(|n| Self::Session(ClientId(n))),
            5 => Some(Self::Mapping(MappingId(number))),
            6 => Some(Self::Keeper),
            7 => Some(Self::Keys),
            8 => Some(Self::Ledger),
            9 => Some(Self::Elections),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_as_they_were() {
        for token in [
            Token::Network,
            Token::Listener,
            Token::Signals,
            Token::Session(ClientId(u32::MAX)),
            Token::Mapping(MappingId(1 << 40)),
            Token::Keeper,
            Token::Keys,
            Token::Ledger,
            Token::Elections,
        ] {
            assert_eq!(Token::decode(token.encode()), Some(token));
        }
        assert_eq!(Token::decode(0), None);
    }
}
