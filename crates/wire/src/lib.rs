//! Identities, units and every message that crosses a socket.
//!
//! Nothing lies below this crate. [`peer`] is spoken between daemons, in
//! datagrams; [`local`] between a daemon and the processes of its node, over a
//! Unix socket; [`lockword`] through a shared mapping. Everything decoded here
//! may come from an enemy: decoding never panics, never allocates more than the
//! datagram that was received, and refuses what it does not know.

#![forbid(unsafe_code)]

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

pub use ids::{
    CallId, ClientId, ClusterId, Incarnation, MappingId, NodeId, RequestId, SegmentId, SyncKey,
    Ticket, Version,
};
pub use node_set::NodeSet;
pub use public_key::PublicKey;
pub use units::{ByteLen, ByteOffset, PAGE_SIZE, PageCount, PageIndex};
pub use vector_time::VectorTime;
