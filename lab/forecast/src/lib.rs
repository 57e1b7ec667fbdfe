//! Forecasts a program's time on more nodes than there are processors.
//!
//! Real nodes ([`pagemesh_core::Node`]) under a clock that advances by measured costs ([`Costs`]):
//! each host has one processor, which its daemon and its program share, and a line to each other
//! host. Programs are access patterns; a load returns the value stored last, as sequential
//! consistency promises. There are no failures here, and no checks: `pagemesh-sim` has those. There
//! is no randomness either: the same costs give the same figure.
//!
//! A figure is worth as much as the comparison of the same forecast with a real run on as many
//! nodes as there are processors for.

#![forbid(unsafe_code)]

mod cluster;
mod costs;
mod engine;
mod host;
mod programs;
mod release;
mod site;

pub use costs::{Costs, Steps};
pub use engine::Stuck;
pub use programs::{Battleship, Matrix, Played, battleship, fault, invalidation, matrix, upgrade};
pub use release::{BadTrace, Fit, ReleaseCosts, Replayed, Spent, Trace, Wait, Waited, fit, replay};

#[cfg(test)]
mod tests;
