//! Authentication and encryption between hosts.
//!
//! A [`Guard`] stands between a node and its network: it seals outgoing datagrams for their
//! receivers, opens incoming ones or refuses them, and passes nothing else to the node. Like the
//! node it is pure: the caller supplies time, randomness and sockets, so that the simulator runs
//! the very same code.
//!
//! Two handshakes of the Noise framework lead to a session between two hosts:
//!
//! - at the *newcomer*, a host that knows the cluster's [`Secret`] or a [`Token`]
//!   made from it introduces itself to a member (`XXpsk3`);
//! - *members* know each other's public keys from the coordinator (`KK`).
//!
//! What a member shares with several others at once it seals by a key of its own ([`SharedSealer`]),
//! which it tells each of them through their session.
//!
//! A session seals datagrams by AES-256-GCM with explicit counters, the frame
//! in front as associated data, and refuses what it has opened before. See
//! `docs/security.md` for the threat model.

#![forbid(unsafe_code)]

mod dice;
mod frame;
mod guard;
mod half;
mod identity;
mod members;
mod noise;
mod page;
mod peer;
mod rate;
mod secret;
mod session;
mod shared;
pub mod stream;
mod text;
mod token;
mod window;

pub use dice::{Dice, SystemDice};
pub use frame::{MAX_OVERHEAD, is_sealed};
pub use guard::{Guard, Opened, Outbox, Outgoing, Pace, Refused, Whom};
pub use identity::Identity;
pub use page::{PAGE_SECRET, PageSealer};
pub use secret::{Ring, Secret, SecretId};
pub use shared::{SHARED_KEY, SharedOpener, SharedSealer};
pub use text::BadText;
pub use token::{Grant, Token};

use core::time::Duration;

/// The present time, on two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// On a monotonic clock.
    pub since: Duration,
    /// Seconds since the epoch, for tokens that expire.
    pub unix: u64,
}
