//! The identity of a daemon, where datagrams are sealed.

use core::fmt;
use serde::{Deserialize, Serialize};

/// A daemon's public key: drawn at its start, told by the coordinator to all
/// members. All zeros where nothing is sealed.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PublicKey(pub [u8; 32]);

impl PublicKey {
    /// Of a daemon that seals nothing.
    pub const NONE: Self = Self([0; 32]);
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8]
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
