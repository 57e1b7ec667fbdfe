//! Switches for measuring, which only the laboratory's build has. MIRAGE+'s (M25): how pages are cut
//! and acknowledged, which thread handles received datagrams, and when time windows end. GMS's: how
//! slow the disk is.

mod disk;
mod edge;
mod handoff;
mod parcels;
mod switches;
mod ticks;

pub use disk::Disk;
pub(crate) use disk::SlowDisk;
pub(crate) use edge::Edge;
pub use switches::{Experiment, ExperimentError};
pub use ticks::Tick;
pub(crate) use ticks::Ticks;
