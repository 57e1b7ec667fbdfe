//! The daemon: connects a [`pagemesh_core::Node`] to the kernel.
//!
//! One thread waits for datagrams, faults and local processes, feeds them to
//! the node as inputs, and carries out the node's effects in order and
//! completely before the next input (the driver's law, `core/src/effect.rs`).
//! Nothing here decides what a page may do; that is the core's business.

#![forbid(unsafe_code)]

mod answer;
mod blank;
mod changes;
mod multicast_batches;
mod contention;
mod daemon;
mod listener;
mod driver;
mod multicast_reach;
#[cfg(feature = "experiment")]
mod experiment;
#[cfg(not(feature = "experiment"))]
#[path = "no_experiment.rs"]
mod experiment;
mod faults;
mod forks;
mod crash_point;
mod executor;
mod request_slots;
mod successors;
mod in_place;
pub mod keeper;
mod key_file;
mod labels;
pub mod launch;
mod receive_batch;
mod locks;
mod mapping;
mod network;
mod note;
mod opening;
mod options;
mod packing;
mod pages;
mod payload;
mod process;
mod quota;
mod races;
mod priority;
mod receipts;
mod recorder;
mod registry;
mod kept_writable;
mod runs;
mod sealing;
mod segment;
mod serve;
mod session;
mod sessions;
mod sharing;
mod diff_store;
mod stamps;
mod stash;
mod sysv;
mod takeover;
mod counters;
mod threads;
mod tickets;
mod token;
mod turn;
mod unused;
mod waiter;
mod unplaced_contents;

pub use daemon::{run, run_announced};
pub use experiment::Experiment;
#[cfg(feature = "experiment")]
pub use experiment::{ExperimentError, Tick};
#[doc(hidden)]
pub use crash_point::CrashPoint;
pub use options::{Admission, Compress, Options, Waiting};
pub use quota::{Quota, QuotaError};
