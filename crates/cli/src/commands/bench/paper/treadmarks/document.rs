//! All that was measured, as JSON has it.

use super::super::super::report::Machine;
use serde::Serialize;
use std::time::SystemTime;

/// One run of the whole benchmark.
#[derive(Serialize)]
pub(super) struct Document {
    pub(super) bench: &'static str,
    pub(super) machine: Machine,
    /// When, in UTC.
    pub(super) date: String,
    /// Larger problems than the paper's.
    pub(super) large: bool,
    pub(super) basics: Vec<Basic>,
    /// Seconds of each program alone, without shared memory.
    pub(super) alone: Vec<(&'static str, f64)>,
    pub(super) runs: Vec<Run>,
    pub(super) substrates: Vec<Substrate>,
    pub(super) limited: Vec<Limited>,
    /// What could not be measured, and why.
    pub(super) missing: Vec<String>,
}

/// An operation, in microseconds.
#[derive(Serialize)]
pub(super) struct Basic {
    pub(super) name: &'static str,
    pub(super) ours: f64,
    pub(super) paper: f64,
}

/// One program on some nodes.
#[derive(Clone, Serialize)]
pub(super) struct Run {
    pub(super) program: &'static str,
    pub(super) policy: String,
    pub(super) nodes: usize,
    /// Of the parallel part.
    pub(super) seconds: f64,
    /// Alone to together.
    pub(super) speedup: f64,
    /// The paper's, with 8 processors: ATM and Ethernet.
    pub(super) paper_speedup: Option<(f64, f64)>,
    /// From `Tmk_startup` to `Tmk_exit`: what all that follows counts.
    pub(super) whole_seconds: f64,
    /// As each process comes to them.
    pub(super) barriers: u64,
    /// Of all processes together.
    pub(super) locks: u64,
    pub(super) messages: u64,
    pub(super) bytes: u64,
    /// Pages that were sent.
    pub(super) pages: u64,
    /// Differences made; only policies that make some count them.
    pub(super) diffs: Option<u64>,
    pub(super) shares: Shares,
}

/// Where the processors' time went (TR4): parts of 1.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Shares {
    /// The program's own code, and that of the library in it.
    pub(super) computation: f64,
    /// The kernel, for programs and daemons.
    pub(super) kernel: f64,
    /// The daemons' own code.
    pub(super) pagemesh: f64,
    pub(super) idle: f64,
}

/// Water on some network.
#[derive(Serialize)]
pub(super) struct Substrate {
    pub(super) name: &'static str,
    pub(super) run: Run,
}

/// A run on nodes that have a part of a processor each.
#[derive(Serialize)]
pub(super) struct Limited {
    pub(super) run: Run,
    /// The speedup of as many processes that share nothing.
    pub(super) ceiling: f64,
    /// The speedup as part of that.
    pub(super) relative: f64,
}

impl Document {
    /// Nothing yet.
    pub(super) fn new(large: bool) -> Self {
        let now = humantime::format_rfc3339_seconds(SystemTime::now());
        Self {
            bench: "paper treadmarks",
            machine: Machine::this(),
            date: now.to_string(),
            large,
            basics: Vec::new(),
            alone: Vec::new(),
            runs: Vec::new(),
            substrates: Vec::new(),
            limited: Vec::new(),
            missing: [
                "TR5, TR6: how the kernel's and the daemon's time divide is not told apart yet",
                "8 and 64 nodes from the simulator: not built",
            ]
            .map(str::to_owned)
            .into(),
        }
    }
}

impl Limited {
    /// Beside its ceiling.
    pub(super) fn new(run: Run, ceiling: f64) -> Self {
        Self {
            relative: run.speedup / ceiling,
            run,
            ceiling,
        }
    }
}
