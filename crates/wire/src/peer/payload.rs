//! Data of a segment's policy that other messages carry: bytes that only the policy reads.

use core::fmt;
use serde::de::{DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::SegmentId;

/// Bytes that a policy made and the same policy on another node reads. Locks, barriers, calls and
/// links carry them and look at nothing in them.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Payload(Vec<u8>);

impl Payload {
    /// Nothing is said.
    pub const EMPTY: Self = Self(Vec::new());

    /// Encodes a value of a policy.
    ///
    /// # Panics
    /// If serde cannot encode the value, which no plain struct or enum causes.
    #[must_use]
    pub fn of<T: Serialize>(said: &T) -> Self {
        Self(postcard::to_allocvec(said).expect("what policies say has no unencodable part"))
    }

    /// Decodes all of it. Any peer may have made it: none if it is nothing of this type.
    #[must_use]
    pub fn read<T: DeserializeOwned>(&self) -> Option<T> {
        let (said, rest) = postcard::take_from_bytes(&self.0).ok()?;
        rest.is_empty().then_some(said)
    }

    /// All of it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// How many bytes that is.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Payload(")?;
        for byte in &self.0 {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_byte_buf(Bytes)
    }
}

struct Bytes;

impl<'de> Visitor<'de> for Bytes {
    type Value = Payload;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Payload, E> {
        Ok(Payload(bytes.to_vec()))
    }

    fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Payload, E> {
        Ok(Payload(bytes))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Payload, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = items.next_element()? {
            bytes.push(byte);
        }
        Ok(Payload(bytes))
    }
}

/// The envelope of everything that a policy of one node says to the same policy of another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PolicyMessage {
    /// The segment, and with it the policy.
    pub segment: SegmentId,
    /// The message of the policy.
    pub body: Payload,
}
