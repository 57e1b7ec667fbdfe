//! MIRAGE+'s switches for measuring (M25), which only the laboratory's build has: how pages are cut
//! and acknowledged, which thread handles received datagrams, and when time windows end.

mod edge;
mod handoff;
mod parcels;
mod switches;
mod ticks;

pub(crate) use edge::Edge;
pub use switches::{Experiment, ExperimentError};
pub use ticks::Tick;
pub(crate) use ticks::Ticks;
