//! The records of datagrams.

use pagemesh_core::Time;
use std::net::SocketAddr;

/// Datagrams as those see them who look on.
#[derive(Default)]
pub(crate) struct Traffic {
    /// When the last one left that was no sign of life.
    pub(crate) last_message: Time,
    /// How many each host has sent since somebody began to count.
    pub(crate) sent: Vec<u64>,
    /// Descriptions of those sent, for scenarios.
    pub(crate) transcript: Option<Vec<String>>,
    /// Those that a scenario holds back: where to, where from, and their bytes.
    pub(crate) held: Vec<(SocketAddr, SocketAddr, Vec<u8>)>,
}
