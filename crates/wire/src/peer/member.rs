//! The members of a cluster.

use crate::{ClusterId, Incarnation, NodeId, PublicKey};
use core::net::SocketAddr;
use serde::{Deserialize, Serialize};

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Member {
    /// Its number.
    pub id: NodeId,
    /// Its name, by default the host name.
    pub name: String,
    /// Where its daemon listens.
    pub address: SocketAddr,
    /// Which of its lives this is.
    pub incarnation: Incarnation,
    /// Proves that a datagram is its own, where datagrams are sealed.
    pub key: PublicKey,
    /// Alive, or why not.
    pub health: Health,
}

/// Whether a member still counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Health {
    /// Takes part.
    Alive,
    /// Left in order, its pages handed over.
    Left,
    /// Did not answer for too long; pages that only it held are lost.
    Dead,
    /// Put out for good: its key opens nothing any more.
    Revoked,
    /// Was dead, and its loss has been dealt with.
    Forgotten,
}

/// All members, as the coordinator knows them; a larger epoch wins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MemberView {
    /// Rises with every change.
    pub epoch: u64,
    /// Everyone who ever joined, by number.
    pub members: Vec<Member>,
}

/// A host asks to be admitted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Join {
    /// Its name.
    pub name: String,
    /// Its life.
    pub incarnation: Incarnation,
    /// Bytes of its pages; must be [`PAGE_SIZE`].
    pub page_size: u32,
    /// Where it may be reached, if not where the datagram came from.
    pub advertise: Option<SocketAddr>,
}

/// The coordinator admits a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Welcome {
    /// The life it answers.
    pub incarnation: Incarnation,
    /// The number of the new node.
    pub node: NodeId,
    /// The cluster it is in now.
    pub cluster: ClusterId,
    /// Everyone.
    pub view: MemberView,
}
