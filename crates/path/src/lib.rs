//! The way to another node: how large a datagram it carries, and messages cut to fit.
//!
//! A page is larger than most links carry at once. [`Paths`] finds out by probes what
//! the way to each member carries ([`prober`]), cuts what is longer into pieces of
//! one length, puts pieces together again, and repairs single ones: who misses some
//! asks for just those.
//!
//! Like the node and the guard this is pure: time, dice and sockets are its caller's,
//! so the simulator runs the very same code. It stands between message and seal:
//! every piece is sealed by itself, so that no forged one ever takes memory here.
//!
//! Times are nanoseconds of a clock that never goes back; lengths are bytes of UDP
//! payload unless said otherwise.

#![forbid(unsafe_code)]

mod assembly;
mod gone;
pub mod packet;
mod paths;
pub mod prober;
mod sender;
mod sent;

pub use packet::{HEAD, Packet, Piece, is_packet};
pub use paths::{Came, Counts, Known, Letter, Manner, Paths, Surroundings};

/// Bytes that any way carries, or IP cuts: where nothing is known yet.
pub const BASE: usize = 1200;

/// Milliseconds and microseconds in nanoseconds.
const MS: u64 = 1_000_000;
const US: u64 = 1_000;
