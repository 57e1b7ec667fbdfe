//! A node of PageMesh as a pure state machine.
//!
//! There is one entry point: [`Node::handle`] takes an [`Input`] and appends [`Effects`]. The core
//! has no clock, thread, socket, random numbers or page contents: time is an argument and bytes are
//! named, not held. The same code runs in the daemon, in the deterministic simulator and in
//! exhaustive exploration.

#![forbid(unsafe_code)]

mod backoff;
mod caller;
mod calls;
mod config;
mod continuation;
mod control;
mod directory;
mod effect;
pub mod event;
mod executor;
mod global;
mod input;
mod inspection;
mod kept_writable;
mod leaving;
pub mod limits;
mod link;
mod membership;
mod names;
mod node;
mod on_reply;
mod ownership;
mod patience;
mod policies;
mod prefetch;
mod progress;
mod reductions;
mod rejoin;
mod segment;
mod segments;
mod services;
mod shell;
mod steps;
mod sync;
mod sysv;
mod time;
mod timers;
mod trapping;

pub use config::{Config, Life, Pace, Quotas, Start};
pub use control::{Kept, KeptEntry};
pub use directory::Usage;
pub use effect::{
    Afterwards, DiffWork, Effect, Effects, Mappings, PageRange, Reply, Rights, Source,
};
pub use event::Event;
pub use executor::{At, DiffBatch, DiffExecutor, EffectExecutor, Next, Reclaimed};
pub use global::{Budgets, MemoryReport, Placement};
pub use input::{Input, Request};
pub use inspection::Inspection;
pub use kept_writable::KeptWritable;
pub use node::Node;
pub use policies::release_messages as release;
pub use policies::sequential_messages as sequential;
pub use rejoin::Rejoined;
pub use time::Time;
