//! What a snapshot says about its segment.

use pagemesh_wire::ByteLen;
use pagemesh_wire::peer::{Policy, SegmentSpec};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The header of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The name of the segment when it was saved.
    pub name: String,
    /// Its size, mode, policy and replicas.
    pub spec: SegmentSpec,
    /// Bytes of a page.
    pub page_size: u32,
    /// When the save began: nanoseconds since 1970, by the clock of the saving host.
    pub saved: u64,
    /// Which moment the contents are of.
    pub consistency: Consistency,
}

/// The header of version 1.
#[derive(Serialize, Deserialize)]
struct First {
    name: String,
    spec: (ByteLen, u16, Policy),
    page_size: u32,
    saved: u64,
    consistency: Consistency,
}

impl From<First> for Header {
    fn from(first: First) -> Self {
        let (size, mode, policy) = first.spec;
        Self {
            name: first.name,
            spec: SegmentSpec {
                size,
                mode,
                policy,
                replicas: 0,
            },
            page_size: first.page_size,
            saved: first.saved,
            consistency: first.consistency,
        }
    }
}

impl Header {
    /// Reads the bytes of a header of this version; none if they are not whole, or too many.
    pub(crate) fn decode(version: u32, bytes: &[u8]) -> Option<Self> {
        let (header, rest) = match version {
            1 => {
                let (first, rest) = postcard::take_from_bytes::<First>(bytes).ok()?;
                (first.into(), rest)
            }
            _ => postcard::take_from_bytes(bytes).ok()?,
        };
        rest.is_empty().then_some(header)
    }

    /// When the save began.
    #[must_use]
    pub fn saved_at(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.saved)
    }
}

/// Which moment the contents of a snapshot are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Consistency {
    /// One instant: every page was as saved while no process of the cluster could store to any.
    Instant,
    /// The saving process held this lock of the segment.
    Lock(u64),
    /// Each state of the board is whole, as it was published.
    Published,
    /// A program saved its own segment, ordered by its own locks and barriers.
    Caller,
    /// Nothing orders the copy with stores: each page may be of another moment.
    Unordered,
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instant => f.write_str("instant"),
            Self::Lock(number) => write!(f, "lock {number}"),
            Self::Published => f.write_str("published"),
            Self::Caller => f.write_str("caller"),
            Self::Unordered => f.write_str("unordered"),
        }
    }
}
