//! The daemon: connects a [`pagemesh_core::Node`] to the kernel.
//!
//! One thread waits for datagrams, faults and local processes, feeds them to
//! the node as inputs, and carries out the node's effects in order and
//! completely before the next input (the driver's law, `core/src/effect.rs`).
//! Nothing here decides what a page may do; that is the core's business.

#![forbid(unsafe_code)]

mod answer;
mod blank;
mod budget;
mod changes;
mod contention;
mod counters;
mod crash_point;
mod daemon;
mod diff_store;
mod driver;
mod edition;
mod etcd;
mod executor;
#[cfg(feature = "experiment")]
mod experiment;
#[cfg(not(feature = "experiment"))]
#[path = "no_experiment.rs"]
mod experiment;
mod faults;
mod forks;
mod host;
mod in_place;
pub mod keeper;
mod kept_writable;
mod key_file;
mod labels;
pub mod launch;
mod ledger;
mod lending;
mod listener;
mod locks;
mod mapping;
mod multicast_batches;
mod multicast_reach;
mod network;
mod options;
mod packing;
mod pages;
mod payload;
mod priority;
mod process;
mod quota;
mod races;
mod receipts;
mod receive_batch;
mod recorder;
mod registry;
mod request_slots;
mod sealing;
mod segment;
mod serve;
mod session;
mod sessions;
mod shared_messages;
mod sharing;
mod stamps;
mod stash;
mod status;
mod successors;
mod sysv;
mod takeover;
mod threads;
mod tickets;
mod token;
mod turn;
mod unplaced_contents;
mod unused;
mod waiter;

pub use budget::{Amount, MemoryOptions};
#[doc(hidden)]
pub use crash_point::CrashPoint;
pub use daemon::{run, run_announced};
pub use etcd::{EtcdFault, look_into_etcd};
pub use experiment::Experiment;
#[cfg(feature = "experiment")]
pub use experiment::{Disk, ExperimentError, Tick};
pub use options::{Admission, Compress, Options, Waiting};
pub use pagemesh_core::Placement;
pub use quota::{Quota, QuotaError};
