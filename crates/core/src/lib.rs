//! A node of PageMesh as a pure state machine.
//!
//! One way in, one way out: [`Node::handle`] takes an [`Input`] and appends
//! [`Effects`]. No clock, thread, socket, dice or page contents live here; time
//! is an argument and bytes are named, not held. The same code runs in the
//! daemon, in the deterministic simulator and in exhaustive exploration.

#![forbid(unsafe_code)]

mod effect;
pub mod event;
mod input;
pub mod limits;
mod node;
mod time;

pub use effect::{Effect, Effects, Reply, Rights, Source};
pub use event::Event;
pub use input::{Input, Request};
pub use node::{Config, Node, Pace, Start};
pub use time::Time;
