//! Tokens of locks, where the policy of the segment sends something with them.

use super::{Ask, Pass, Payload};
use crate::NodeId;
use serde::{Deserialize, Serialize};

/// A request for the token of a lock, with a payload of its node's policy.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Acquire {
    /// The request.
    pub ask: Ask,
    /// For the policy on the node that grants it; at most [`Acquire::PAYLOAD`] bytes.
    pub payload: Payload,
}

impl Acquire {
    /// Bytes that a policy may say with a request: a vector time of as many nodes as there can be.
    pub const PAYLOAD: usize = 2048;
}

/// A grant of a token, with a payload of the sender's policy for the receiver.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Grant {
    /// The token.
    pub pass: Pass,
    /// For the policy on the receiving node.
    pub payload: Payload,
    /// The payloads of the requests that wait next; at most [`Grant::WAITING`] of them, with
    /// [`Grant::WAITING_BYTES`] together.
    pub waiting: Vec<(NodeId, Payload)>,
}

impl Grant {
    /// How many requests' payloads travel at most.
    pub const WAITING: usize = 4;

    /// How many bytes they have at most.
    pub const WAITING_BYTES: usize = 1024;
}
