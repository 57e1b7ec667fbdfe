//! The journal of a node: a snapshot of it, and every input since.
//!
//! A [`Node`](pagemesh_core::Node) is pure, and the effects of an input are carried out in order
//! and completely before the next one. So the journal is enough to have the node: [`recover`]
//! returns the node of a daemon that was killed at any instant, with the effects of its last input
//! and how many of them were carried out; a [`Dump`] of the journal shows people how the node came
//! to its state.
//!
//! The memory of a journal is a slice of atomic words that outlives its writer.
//! [`Journal`] writes it, and only ever publishes whole records; nothing in it
//! is believed before its checksum was compared.
//!
//! # The writer's law
//! 1. [`Journal::input`] (or [`Journal::next`]) comes before
//!    [`Node::handle`](pagemesh_core::Node::handle) with the same input.
//!    [`Journal::join`] comes before it where several inputs are handled before
//!    anything is carried out: then they count as one.
//! 2. [`Journal::progress`] comes after each effect that was carried out.
//! 3. [`Journal::follow`] comes when an effect gives rise to an input that is to
//!    be handled after the effects; it counts from the next `progress` on.
//! 4. [`Journal::note`] remembers what else the writer needs to be had again; it
//!    counts from the next publication on (of an input, of progress, or
//!    [`Journal::publish`]): together with it or not at all.
//! 5. [`Journal::snapshot`] and [`Journal::hand_over`] come between inputs, when nothing is left
//!    to do.

#![forbid(unsafe_code)]

mod bytes;
mod dump;
mod journal;
mod layout;
mod note;
mod pen;
mod record;
mod recover;
mod replay;
mod script;

pub use pagemesh_schema as schema;

pub use dump::{Dump, DumpError, Verdict};
pub use journal::{Full, Journal};
pub use note::{Kind, Note, Opening, Pending};
pub use record::Record;
pub use recover::{Heard, RecoverError, Recovered, recover};
pub use replay::{Damage, Transition, digest};

/// The format of snapshots: raise it whenever the state of a node changes shape. What one version
/// hands to another is not a snapshot but a document of its [`schema`].
pub const FORMAT: u64 = 39;

/// The code that wrote a log: only the same code may replay it.
pub const FINGERPRINT: u64 = match u64::from_str_radix(env!("PAGEMESH_FINGERPRINT"), 16) {
    Ok(fingerprint) => fingerprint,
    Err(_) => panic!("the build script wrote a number"),
};
