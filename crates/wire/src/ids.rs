//! Identities: each kind is a type of its own.

use core::fmt;
use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
        )]
        $(#[$doc])*
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id! {
    /// A member of the cluster; the coordinator hands them out from 1.
    #[serde(try_from = "u16")]
    NodeId(u16), "n"
}

impl TryFrom<u16> for NodeId {
    type Error = &'static str;

    fn try_from(number: u16) -> Result<Self, Self::Error> {
        if number < Self::LIMIT {
            Ok(Self(number))
        } else {
            Err("node number out of range")
        }
    }
}

impl RequestId {
    /// The number in messages that no node has asked for.
    pub const NONE: Self = Self(0);
}

impl NodeId {
    /// A host that has not been admitted yet.
    pub const NONE: Self = Self(0);
    /// The first node of every cluster, and its first coordinator.
    pub const FIRST: Self = Self(1);
    /// One more than the largest number a node may have.
    pub const LIMIT: u16 = 1024;
    /// One more than the largest number that a coordinator gives to hosts which have real daemons.
    pub const NEAR: u16 = 128;

    /// Whether this names a node a cluster can have.
    #[must_use]
    pub fn is_valid(self) -> bool {
        self.0 > 0 && self.0 < Self::LIMIT
    }

    /// Whether this names a node that can have a real daemon.
    #[must_use]
    pub fn is_near(self) -> bool {
        self.is_valid() && self.0 < Self::NEAR
    }
}

id! {
    /// The epoch of a coordinator: how many coordinators the cluster has had, in the upper 16
    /// bits, and the number of this one in the lower 16. So terms of two coordinators are never
    /// equal, and a term names its coordinator.
    Term(u32), "term-"
}

impl Term {
    /// Of a host that knows no coordinator yet.
    pub const NONE: Self = Self(0);

    /// The term of the first node.
    pub const FIRST: Self = Self(1 << 16 | NodeId::FIRST.0 as u32);

    /// The term of `coordinator` if it takes over after this one. There is none after the last.
    #[must_use]
    pub fn next(self, coordinator: NodeId) -> Option<Self> {
        let count = u32::from(self.count()).checked_add(1)?;
        let count = u16::try_from(count).ok()?;
        Some(Self(u32::from(count) << 16 | u32::from(coordinator.0)))
    }

    /// How many coordinators the cluster has had, this one included.
    #[must_use]
    pub fn count(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// The node that coordinates in this term.
    #[must_use]
    pub fn coordinator(self) -> NodeId {
        NodeId((self.0 & 0xffff) as u16)
    }
}

id! {
    /// The cluster, drawn at random by its first node; foreign datagrams are dropped.
    ClusterId(u64), "cluster-"
}

id! {
    /// One life of one daemon, drawn at random at its start. A daemon that
    /// comes back is a new incarnation, and datagrams of the old one are void.
    Incarnation(u64), "life-"
}

id! {
    /// A segment, unique in its cluster for ever. The upper 16 bits are its home.
    SegmentId(u64), "s"
}

impl SegmentId {
    /// No segment: a node's stash has pages of files under it that the node keeps for others.
    pub const KEPT_FILES: Self = Self(0xffff_ffff_ffff);

    /// The segment numbered `serial` among those created by `home`.
    #[must_use]
    pub fn new(home: NodeId, serial: u64) -> Self {
        Self((u64::from(home.0) << 48) | (serial & 0xffff_ffff_ffff))
    }

    /// The node that created the segment and answers for it.
    #[must_use]
    pub fn home(self) -> NodeId {
        NodeId((self.0 >> 48) as u16)
    }
}

id! {
    /// How often a page (or a lock token) has changed hands or become writable.
    /// All copies of one page that carry the same version hold the same bytes.
    Version(u64), "v"
}

impl Version {
    /// The version after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

id! {
    /// One request of one node for a page or a token. Answers to older requests are ignored.
    RequestId(u64), "r"
}

id! {
    /// One remote procedure call of one node; answered at most once.
    CallId(u64), "c"
}

id! {
    /// One mapping of one segment in one process of this node.
    MappingId(u64), "m"
}

id! {
    /// One process connected to this node's daemon.
    ClientId(u32), "p"
}

id! {
    /// One request of a local client that still waits for its reply.
    Ticket(u64), "t"
}

/// A lock, condition variable or barrier: any 64-bit number within a segment.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct SyncKey {
    /// The segment (or job) that scopes the number.
    pub segment: SegmentId,
    /// The number chosen by the program.
    pub number: u64,
}

impl fmt::Display for SyncKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.segment, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_names_its_coordinator_and_is_larger_than_those_before() {
        let first = Term::FIRST;
        assert_eq!((first.count(), first.coordinator()), (1, NodeId::FIRST));
        let second = first.next(NodeId(3)).unwrap();
        assert_eq!((second.count(), second.coordinator()), (2, NodeId(3)));
        assert!(second > first && second.next(NodeId(2)).unwrap() > second);
        assert_ne!(first.next(NodeId(2)), first.next(NodeId(3)));
        assert_eq!(Term(u32::MAX).next(NodeId(2)), None);
    }

    #[test]
    fn a_segment_names_its_home() {
        let id = SegmentId::new(NodeId(7), 42);
        assert_eq!(id.home(), NodeId(7));
        assert_ne!(id, SegmentId::new(NodeId(8), 42));
    }
}
