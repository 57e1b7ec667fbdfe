//! Exhaustive exploration: the real [`Node`](pagemesh_core::Node)s of a small
//! cluster, every order of everything that can happen, every state once.
//!
//! The explorer chooses what happens next: which thread runs, which daemon gets which input, which
//! datagram arrives, gets lost, comes twice or late, whose clock runs, which host dies. The
//! checkers are those of the simulator, and they check every step; besides, from every state there
//! must be a way to an end in which no request is open.
//!
//! # Time
//! Time is no number here but a step: clocks stand still until nothing else can
//! happen ([`Wait`](state::Step::Wait)), and then everything that is repeated is
//! due. That one clock runs ahead while datagrams are still under way
//! ([`Tick`](state::Step::Tick)) is a misfortune like others. Two states that
//! differ only by when they happened are one: the digest measures times from
//! the host's own now ([`timeless`]).
//!
//! # Cost
//! Hosts are independent except for their datagrams, so each state of a host is kept once and each
//! of its reactions computed once ([`lab`]); a state of the cluster is a handful of numbers, known
//! by its digest of 128 bits.

mod happen;
mod lab;
mod observe;
mod remains;
mod search;
mod setting;
mod site;
mod stage;
mod state;
mod tale;
pub(crate) mod timeless;

pub(crate) use lab::{CLUSTER, address};
pub(crate) use search::overheard;
pub(crate) use site::{Outcome, Sight, Site, Stimulus};
pub(crate) use stage::cluster;

pub use search::{Exploration, explore};
pub use setting::Setting;
pub use tale::replay;

#[cfg(test)]
mod tests;
