//! In which version of the protocol a message goes.

use super::{Call, Message, Reply};

/// In which version of the protocol a message goes (decision 47).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// In the one that the cluster speaks: the newest that all members speak.
    Spoken,
    /// In the oldest that sender and receiver have in common. What keeps members together is
    /// understood whatever program a member has become meanwhile. Such messages never change.
    Oldest,
    /// In the newest that sender and receiver have in common: who the members are.
    Newest,
}

impl Message {
    /// In which version it goes.
    #[must_use]
    pub fn manner(&self) -> Manner {
        match self {
            Self::Heartbeat { .. }
            | Self::HeartbeatAck { .. }
            | Self::Expelled
            | Self::Resume(_)
            | Self::Runs { .. } => Manner::Oldest,
            Self::Welcome(_)
            | Self::Call {
                body: Call::Members(_) | Call::MembersChange(_),
                ..
            }
            | Self::Reply {
                body: Reply::Members(_),
                ..
            } => Manner::Newest,
            _ => Manner::Spoken,
        }
    }
}
