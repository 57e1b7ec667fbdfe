//! Every order of events of a coordinator's takeover, on the real code: three nodes and one name,
//! whose coordinator dies, stands still or is cut off at any moment, and whose standby is promoted
//! at any moment, while datagrams get lost, come twice or come after all others. The old coordinator
//! comes back.
//!
//! Checked in every state: INV-fenced (a node believes in newer coordinators only, and what an older
//! one sends changes nothing at a node that has promised or that knows a newer one), INV-standby-knows
//! (whoever takes over knows every name, owner, mode and member that anybody was told of, and no call
//! is executed twice), and INV-progress (from every state all programs can end, all living hosts
//! can follow one coordinator, and an old one learns that it is none).

mod names;
mod setting;
#[cfg(test)]
mod tests;
mod world;

use crate::small::search::{Visited, every_state};
pub use setting::{TakeoverMistake, TakeoverSetting};

/// Explores a setting, up to so many states.
///
/// # Errors
/// What broke, and the shortest path to it.
pub fn explore_takeover(setting: &TakeoverSetting, limit: usize) -> Result<Visited, String> {
    every_state(world::World::new(setting)?, limit)
}
