//! Identities, units and every message that crosses a socket.
//!
//! This crate depends on no other of the workspace. Daemons exchange [`peer`] messages in
//! datagrams; a daemon and the processes of its node exchange [`local`] messages over a Unix
//! socket; [`lockword`] is a word in a shared mapping. All input may be hostile: decoding never
//! panics, never allocates more than the datagram that was received, and refuses unknown values.

#![forbid(unsafe_code)]

pub mod etcd;
#[cfg(test)]
mod golden;
pub mod header;
mod ids;
pub mod local;
pub mod lockword;
pub mod multicast_batch;
mod node_set;
pub mod notice;
pub mod peer;
mod public_key;
pub mod sysv;
mod text;
mod units;
mod vector_time;
mod versions;

pub use ids::{
    CallId, ClientId, ClusterId, Incarnation, MappingId, NodeId, RequestId, SegmentId, SyncKey,
    Term, Ticket, Version,
};
pub use node_set::NodeSet;
pub use public_key::PublicKey;
pub use units::{ByteLen, ByteOffset, PAGE_SIZE, PageCount, PageIndex};
pub use vector_time::VectorTime;
pub use versions::{Program, Release, Versions};
