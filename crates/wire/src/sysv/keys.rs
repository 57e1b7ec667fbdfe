//! Which object has which key: messages between nodes and the first node, which keeps the register.
//!
//! Keys fall into buckets. A bucket whose objects are all at home on one node is lent to it: that
//! node then decides alone which object has which of its keys, without a message.

use super::{Family, Id};
use serde::{Deserialize, Serialize};

/// The name of an object: families have keys of their own.
pub type Name = (Family, i32);

/// Some of all keys, which are decided upon together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Bucket(pub u8);

impl Bucket {
    /// Where a key falls, in all families.
    #[must_use]
    pub fn of(key: i32) -> Self {
        // Keys of `ftok` differ in few bits, high or low ones.
        Self((key.cast_unsigned().wrapping_mul(0x9e37_79b1) >> 24) as u8)
    }
}

/// Several buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Buckets([u64; 4]);

impl Buckets {
    /// None of them.
    pub const NONE: Self = Self([0; 4]);
    /// All there are.
    pub const ALL: Self = Self([u64::MAX; 4]);

    /// Whether this one is among them.
    #[must_use]
    pub fn contains(&self, bucket: Bucket) -> bool {
        self.0[usize::from(bucket.0 >> 6)] & Self::bit(bucket) != 0
    }

    /// One more.
    pub fn insert(&mut self, bucket: Bucket) {
        self.0[usize::from(bucket.0 >> 6)] |= Self::bit(bucket);
    }

    /// One less.
    pub fn remove(&mut self, bucket: Bucket) {
        self.0[usize::from(bucket.0 >> 6)] &= !Self::bit(bucket);
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = Bucket> {
        let all = (0..=u8::MAX).map(Bucket);
        all.filter(|bucket| self.contains(*bucket))
    }

    fn bit(bucket: Bucket) -> u64 {
        1 << (bucket.0 & 63)
    }
}

impl FromIterator<Bucket> for Buckets {
    fn from_iter<I: IntoIterator<Item = Bucket>>(buckets: I) -> Self {
        let mut all = Self::NONE;
        buckets.into_iter().for_each(|bucket| all.insert(bucket));
        all
    }
}

/// Requests of a node to the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KeyRequest {
    /// Which object has the key? If none has, it is to be the asker's own one of this
    /// number, if it offers one.
    Find {
        /// Made already, but not known to any other node yet.
        offer: Option<Id>,
    },
    /// The asker's object of this number does not have the key any more.
    Drop {
        /// Which had it.
        id: Id,
    },
}

/// Answers of the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Word {
    /// No object has the key.
    Nobodys,
    /// The object that the asking node offered has it from now on.
    Yours,
    /// This one has it, unless its home says that it is gone.
    Theirs(Id),
}

/// An object and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Entry {
    /// The family.
    pub family: Family,
    /// The key.
    pub key: i32,
    /// The object.
    pub id: Id,
}

/// Entries that are given back in one reply: they must fit a datagram.
pub const ENTRIES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_a_set() {
        let mut some: Buckets = [Bucket(0), Bucket(63), Bucket(64), Bucket(255)]
            .into_iter()
            .collect();
        assert_eq!(some.iter().count(), 4);
        some.remove(Bucket(64));
        assert!(!some.contains(Bucket(64)) && some.contains(Bucket(255)));
        assert_eq!(Buckets::ALL.iter().count(), 256);
        assert_eq!(Buckets::NONE.iter().count(), 0);
    }

    #[test]
    fn keys_that_differ_little_fall_into_many_buckets() {
        let many = |keys: &mut dyn Iterator<Item = i32>| {
            keys.map(Bucket::of).collect::<Buckets>().iter().count()
        };
        assert!(many(&mut (1..=64)) > 50);
        assert!(many(&mut (1..=64).map(|project| project << 24 | 0x1234)) > 50);
    }
}
