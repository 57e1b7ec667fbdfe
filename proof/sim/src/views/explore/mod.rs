//! Every order of events of three nodes and one page of policy `views`, on the real code: datagrams
//! get lost, come twice and overtake each other, hosts vanish, timers fire early.
//!
//! Checked in every state (docs/memory-model.md, "Views"): one living host may store; a load of the
//! consistent copy finds the last store; a load of an inconsistent copy finds something that was
//! stored, and nothing older than this host has seen before, nor, on demand, than what was stored before
//! its last purge (INV-purge-finds); after a death nothing older than the
//! newest copy left; from every state all programs can end; and in the end all copies are those that
//! were published last.

mod setting;
#[cfg(test)]
pub(super) use world::suffer;
mod world;

use crate::small::search::{Visited, every_state};
pub use setting::ViewsSetting;

/// Explores a setting, up to so many states.
///
/// # Errors
/// What broke, and the shortest path to it.
pub fn explore_views(setting: &ViewsSetting, limit: usize) -> Result<Visited, String> {
    every_state(world::World::new(setting)?, limit)
}
