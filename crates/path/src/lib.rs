//! The path to another node: which datagram size it carries, and messages divided to fit.
//!
//! A page is larger than most links carry at once. [`Paths`] finds out by probes what the path to
//! each member carries ([`prober`]), divides longer messages into pieces of equal length, joins
//! pieces again, and repairs losses: a receiver requests just the pieces that it misses.
//!
//! Like the node and the guard this is pure: the caller supplies time, randomness and sockets, so
//! the simulator runs the very same code. It works between message and seal: every piece is sealed
//! by itself, so that a forged one never takes memory here.
//!
//! Times are nanoseconds of a monotonic clock; lengths are bytes of UDP payload unless said
//! otherwise.

#![forbid(unsafe_code)]

mod assembly;
mod gone;
pub mod packet;
mod paths;
pub mod prober;
mod sender;
mod sent;

pub use packet::{HEAD, Packet, Piece, is_packet};
pub use paths::{Came, Counts, Known, Manner, Outgoing, Paths, Surroundings};

/// Datagram size in bytes while nothing is known of a path: every path carries it, or IP fragments
/// it.
pub const BASE: usize = 1200;

/// Milliseconds and microseconds in nanoseconds.
const MS: u64 = 1_000_000;
const US: u64 = 1_000;
