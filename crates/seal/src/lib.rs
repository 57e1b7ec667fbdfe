//! Who may speak to a node, and in secret.
//!
//! Between a node and its network stands a [`Guard`]. What goes out is sealed
//! for its receiver, what comes in is opened or refused; nothing else reaches
//! the node. Like the node it is pure: time, dice and sockets are its caller's,
//! so that the simulator runs the very same code.
//!
//! Two handshakes of the Noise framework lead to a session between two hosts:
//!
//! - at the *door*, a host that knows the cluster's [`Secret`] or a [`Token`]
//!   made from it introduces itself to a member (`XXpsk3`);
//! - *members* know each other's public keys from the coordinator (`KK`).
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
mod peer;
mod rate;
mod secret;
mod session;
pub mod stream;
mod text;
mod token;
mod window;

pub use dice::{Dice, SystemDice};
pub use frame::{MAX_OVERHEAD, is_sealed};
pub use guard::{Guard, Letter, Opened, Outbox, Pace, Refused, Whom};
pub use identity::Identity;
pub use secret::{Ring, Secret, SecretId};
pub use text::BadText;
pub use token::{Grant, Token};

use core::time::Duration;

/// When something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// On a clock that never goes back.
    pub since: Duration,
    /// Seconds of the calendar's clock, for tokens that expire.
    pub unix: u64,
}
