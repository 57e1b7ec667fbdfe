//! The hosts whose hellos are answered.

use pagemesh_wire::PublicKey;
use ring::digest::{SHA256, digest};
use std::collections::{BTreeMap, BTreeSet};

/// The short name of a key in a hello.
pub(crate) type Short = [u8; 8];

/// The keys of the cluster's members, as the coordinator told.
#[derive(Debug, Default)]
pub(crate) struct Members {
    keys: BTreeMap<Short, PublicKey>,
    banned: BTreeSet<PublicKey>,
}

impl Members {
    /// Sets the members and the banned keys.
    pub(crate) fn set(
        &mut self,
        members: impl Iterator<Item = PublicKey>,
        banned: impl Iterator<Item = PublicKey>,
    ) {
        self.banned = banned.collect();
        let keys = members.filter(|key| !self.banned.contains(key));
        self.keys = keys.map(|key| (short(&key), key)).collect();
    }

    /// The key of the member with this short name.
    pub(crate) fn named(&self, name: &Short) -> Option<PublicKey> {
        self.keys.get(name).copied()
    }

    /// True if this is a member's key.
    pub(crate) fn contains(&self, key: &PublicKey) -> bool {
        self.named(&short(key)) == Some(*key)
    }

    /// True if the host is banned.
    pub(crate) fn is_banned(&self, key: &PublicKey) -> bool {
        self.banned.contains(key)
    }
}

/// The short name of a key in a hello.
pub(crate) fn short(key: &PublicKey) -> Short {
    *first(digest(&SHA256, &key.0).as_ref())
}

fn first(hash: &[u8]) -> &Short {
    hash.first_chunk().expect("a hash is longer")
}

/// The key that signs hellos to a member: only hosts that know the member's key can make it
/// compute a handshake.
pub(crate) fn greeting_key(of: &PublicKey) -> [u8; 32] {
    let hash = digest(&SHA256, &[b"pagemesh greeting\0", &of.0[..]].concat());
    hash.as_ref().try_into().expect("SHA-256 has 32 bytes")
}
