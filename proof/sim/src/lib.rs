//! Simulates a whole cluster in one thread, from one seed.
//!
//! Real nodes ([`pagemesh_core::Node`]) on simulated hosts: simulated kernels and clocks, a
//! network that loses, duplicates, delays and cuts off, and processes that run random programs
//! and die. Every load is compared with a single golden memory, and every step with the
//! invariants of [`Invariant`]. The same seed gives the same run, bit for bit.

#![forbid(unsafe_code)]

mod answer;
mod campaign;
mod canary;
mod check;
mod checkers;
mod dice;
mod executor;
mod explore;
mod files;
mod fuzz;
mod golden;
mod hearing;
mod hints;
mod instants;
mod kernel;
mod labelled;
mod lines;
mod log;
mod misfortune;
mod network;
mod packing;
mod perform;
mod plan;
mod private;
mod process;
mod receipts;
mod recording;
mod rejoin;
mod run;
mod scenario;
mod sealing;
mod small;
mod step;
mod storms;
mod systemv;
mod takeover;
mod transcript;
mod upgrade;
mod views;
mod ways;
mod witness;

/// Simulated clusters are cloned and dropped all the time.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
mod workload;
mod world;

pub use campaign::{Campaign, Failure, Summary, failure_report};
pub use canary::Canary;
pub use check::{Invariant, Violation};
pub use explore::{Exploration, Setting, explore, replay};
pub use files::{Files, FilesMistake, FilesSeen, files};
pub use fuzz::{Breach, Fuzz, Target};
pub use labelled::{Labelled, Planted, Sighted, labelled, sequential};
pub use log::LEGEND;
pub use plan::{Large, Profile};
pub use private::{Private, PrivateMistake, Remote, private, private_told};
pub use rejoin::{RejoinMistake, RejoinRun, RejoinSeen, rejoin};
pub use run::{Options, Outcome, run};
pub use scenario::rewrite_scenario;
pub use small::search::Visited;
pub use systemv::{Chance, Mistake, SystemV, Tried, nonsense, system_v};
pub use takeover::{TakeoverMistake, TakeoverSetting, explore_takeover};
pub use views::{
    ViewsMistake, ViewsRun, ViewsSeen, ViewsSetting, explore_views, views, views_told,
};
pub use world::Stats;

#[cfg(test)]
mod large;
#[cfg(test)]
mod readers;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod turns;
#[cfg(test)]
mod workers;
