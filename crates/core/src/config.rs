//! The configuration of a node: its identity, its times and bounds, and the quotas of users.

use crate::control::Kept;
use core::net::SocketAddr;
use core::time::Duration;
use pagemesh_wire::{ByteLen, ClusterId, Incarnation, NodeId, Program, PublicKey, Term, Versions};
use serde::{Deserialize, Serialize};

/// The configuration that a node is started with.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Config {
    /// The node's name, by default the host name.
    pub name: String,
    /// The source address of the node's datagrams, as peers see it.
    pub address: SocketAddr,
    /// The node's incarnation, drawn at random for this life of the daemon.
    pub incarnation: Incarnation,
    /// The public key for the seal of this node's datagrams; none if datagrams are not sealed.
    pub key: PublicKey,
    /// Whether the node joins the cluster of a daemon or is the first node of a new one.
    pub start: Start,
    /// Resend, heartbeat and death times and some bounds; the simulator shortens them.
    pub pace: Pace,
    /// Whether to look, in segments of policy `release`, for bytes that two nodes wrote without a
    /// lock or barrier between them.
    pub check_races: bool,
    /// Quotas of one user; only the first node's count.
    pub quotas: Quotas,
    /// Whether this node, when it coordinates, names a standby and streams its decisions to it.
    pub standby: bool,
    /// Whether this node, when it was declared dead, joins again by itself with the programs that
    /// lost nothing.
    pub rejoin: bool,
    /// Whether this node, when it coordinates or is the standby, puts decisions on a disk
    /// ([`Effect::Keep`](crate::Effect::Keep)).
    pub keeps: bool,
    /// Whether what the coordinator decides is kept in a store that all nodes share, which also
    /// elects the next coordinator ([`Effect::Elect`](crate::Effect::Elect)); `keeps` is set, too.
    #[serde(default)]
    pub elected: bool,
    /// Whether the driver traps the accesses to a segment only when something else than the loads and
    /// stores of this node's processes concerns its pages ([`Effect::Trap`](crate::Effect::Trap)).
    #[serde(default)]
    pub traps_late: bool,
    /// The program of this daemon, and the versions of the protocol that it speaks: it reads these
    /// and no others.
    #[serde(default)]
    pub program: Program,
    /// Whether this node, when it coordinates, gives numbers up to [`NodeId::LIMIT`], and tells
    /// members of changes instead of whole views; and whether this node's signs of life go by way of a
    /// relay if there are many members. For the simulator: a daemon's state does not have it, and neither
    /// a standby nor a disk goes with it (decisions 53, 59).
    #[serde(skip)]
    pub far_numbers: bool,
}

impl Config {
    /// One more than the largest number that this node gives.
    pub(crate) fn numbers(&self) -> u16 {
        if self.far_numbers {
            NodeId::LIMIT
        } else {
            NodeId::NEAR
        }
    }

    /// A node that seals nothing and has all defaults.
    pub fn plain(
        name: impl Into<String>,
        address: SocketAddr,
        incarnation: Incarnation,
        start: Start,
    ) -> Self {
        Self {
            name: name.into(),
            address,
            incarnation,
            key: PublicKey::NONE,
            start,
            pace: Pace::default(),
            check_races: false,
            quotas: Quotas::default(),
            standby: false,
            rejoin: false,
            keeps: false,
            elected: false,
            traps_late: false,
            program: Program::of(Versions::SPOKEN),
            far_numbers: false,
        }
    }

    /// Whether a coordinator may be replaced, so that nodes that count as dead are to be told.
    pub(crate) fn may_be_replaced(&self) -> bool {
        self.standby || self.keeps
    }
}

/// Quotas of one user in the whole cluster. The superuser has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Quotas {
    /// See [`crate::limits::SEGMENTS_OF_USER`].
    pub segments: u32,
    /// See [`crate::limits::BYTES_OF_USER`].
    pub bytes: ByteLen,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            segments: crate::limits::SEGMENTS_OF_USER,
            bytes: crate::limits::BYTES_OF_USER,
        }
    }
}

/// A coordinator that goes on from its disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Life {
    /// What the disk has.
    pub kept: Kept,
    /// The number of the node, from [`Kept::next_life`].
    pub node: NodeId,
    /// The term in which it coordinates, from there, too.
    pub term: Term,
}

/// How a node begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Start {
    /// Found a cluster and be its coordinator.
    Found(ClusterId),
    /// Join the cluster of the daemon at this address.
    Join(SocketAddr),
    /// Go on as the coordinator with what its disk has; this includes the entry of this life.
    Resume(Box<Life>),
}

/// Times and bounds that depend on the network and the host, not on the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pace {
    /// See [`crate::limits::RESEND_FIRST`].
    pub resend_first: Duration,
    /// See [`crate::limits::RESEND_SOONEST`]. If this is not below `resend_first`, all first waits
    /// are the same.
    pub resend_soonest: Duration,
    /// See [`crate::limits::RESEND_CEILING`].
    pub resend_ceiling: Duration,
    /// See [`crate::limits::HEARTBEAT`].
    pub heartbeat: Duration,
    /// See [`crate::limits::DEAD_AFTER`].
    pub dead_after: Duration,
    /// See [`crate::limits::AHEAD`]; zero if no page is to be asked for ahead.
    pub ahead: u32,
    /// See [`crate::limits::NOTICES_KEPT`].
    pub notices: u32,
    /// See [`crate::limits::TWINS_KEPT`].
    pub twins: u32,
    /// See [`crate::limits::LARGE_DIFF`].
    #[serde(default = "large_diff")]
    pub large_diff: u16,
    /// See [`crate::limits::LARGE_DIFFS_SHOWN`].
    #[serde(default = "shown")]
    pub shown: u8,
    /// See [`crate::limits::LEFT_TO_READER`].
    #[serde(default = "left_to_reader")]
    pub left_to_reader: u8,
    /// See [`crate::limits::FRAMES_AT_ONCE`].
    #[serde(default = "frames_at_once")]
    pub frames_at_once: u32,
}

fn frames_at_once() -> u32 {
    crate::limits::FRAMES_AT_ONCE
}

fn left_to_reader() -> u8 {
    crate::limits::LEFT_TO_READER
}

fn large_diff() -> u16 {
    crate::limits::LARGE_DIFF
}

fn shown() -> u8 {
    crate::limits::LARGE_DIFFS_SHOWN
}

impl Default for Pace {
    fn default() -> Self {
        use crate::limits;
        Self {
            resend_first: limits::RESEND_FIRST,
            resend_soonest: limits::RESEND_SOONEST,
            resend_ceiling: limits::RESEND_CEILING,
            heartbeat: limits::HEARTBEAT,
            dead_after: limits::DEAD_AFTER,
            ahead: limits::AHEAD,
            notices: limits::NOTICES_KEPT,
            twins: limits::TWINS_KEPT,
            large_diff: limits::LARGE_DIFF,
            shown: limits::LARGE_DIFFS_SHOWN,
            left_to_reader: limits::LEFT_TO_READER,
            frames_at_once: limits::FRAMES_AT_ONCE,
        }
    }
}
