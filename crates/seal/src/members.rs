//! Whose greetings are answered.

use pagemesh_wire::PublicKey;
use ring::digest::{SHA256, digest};
use std::collections::{BTreeMap, BTreeSet};

/// A key's name in a greeting.
pub(crate) type Short = [u8; 8];

/// The members of the cluster, as the coordinator told.
#[derive(Debug, Default)]
pub(crate) struct Members {
    keys: BTreeMap<Short, PublicKey>,
    banned: BTreeSet<PublicKey>,
}

impl Members {
    /// From now on, these and nobody else; and never these.
    pub(crate) fn set(
        &mut self,
        members: impl Iterator<Item = PublicKey>,
        banned: impl Iterator<Item = PublicKey>,
    ) {
        self.banned = banned.collect();
        let keys = members.filter(|key| !self.banned.contains(key));
        self.keys = keys.map(|key| (short(&key), key)).collect();
    }

    /// The member of this short name.
    pub(crate) fn named(&self, name: &Short) -> Option<PublicKey> {
        self.keys.get(name).copied()
    }

    /// Whether this is a member's key.
    pub(crate) fn contains(&self, key: &PublicKey) -> bool {
        self.named(&short(key)) == Some(*key)
    }

    /// Whether the host was told never to come back.
    pub(crate) fn is_banned(&self, key: &PublicKey) -> bool {
        self.banned.contains(key)
    }
}

/// A key's name in a greeting.
pub(crate) fn short(key: &PublicKey) -> Short {
    *first(digest(&SHA256, &key.0).as_ref())
}

fn first(hash: &[u8]) -> &Short {
    hash.first_chunk().expect("a hash is longer")
}

/// Signs greetings to a member: only who knows its key can make it compute.
pub(crate) fn greeting_key(of: &PublicKey) -> [u8; 32] {
    let hash = digest(&SHA256, &[b"pagemesh greeting\0", &of.0[..]].concat());
    hash.as_ref().try_into().expect("SHA-256 has 32 bytes")
}
