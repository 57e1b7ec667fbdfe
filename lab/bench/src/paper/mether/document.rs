//! What was measured.

use super::super::super::report::Machine;
use super::super::figures::Measured;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// One run of the whole benchmark, or several put together.
#[derive(Serialize, Deserialize)]
pub(super) struct Document {
    pub(super) bench: String,
    pub(super) machine: String,
    pub(super) processors: usize,
    pub(super) to: u32,
    pub(super) bound: u32,
    pub(super) rounds: u32,
    pub(super) grid: u32,
    pub(super) iterations: u32,
    /// The runs on quiet processors.
    #[serde(flatten)]
    pub(super) quiet: Runs,
    /// The runs beside a companion that takes a tenth of each processor in bursts.
    #[serde(default)]
    pub(super) busy: Runs,
}

/// All runs under the same conditions.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Runs {
    /// When each part was measured, and of which sources.
    #[serde(default)]
    pub(super) parts: BTreeMap<String, Measured>,
    /// In the order of [`PROTOCOLS`](super::protocol::PROTOCOLS).
    pub(super) counts: Vec<Count>,
    /// Seconds of the solver as one process without messages.
    pub(super) solver_alone: Option<f64>,
    pub(super) solver: Vec<Solved>,
}

/// A run of the counting program: the median by wall-clock time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Count {
    pub(super) name: String,
    /// Where the counter was at the end.
    pub(super) value: u64,
    pub(super) seconds: f64,
    /// Seconds of the programs, mean of both.
    pub(super) user: f64,
    pub(super) system: f64,
    /// Seconds of the daemons, mean of both.
    pub(super) daemon_user: f64,
    pub(super) daemon_system: f64,
    /// Context switches of both programs and both daemons.
    pub(super) switches: u64,
    pub(super) losses: u64,
    pub(super) wins: u64,
    /// Microseconds from the own addition to the sight of the other one's.
    pub(super) latency: f64,
    pub(super) bytes: u64,
    pub(super) packets: u64,
}

/// A run of the solver.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Solved {
    pub(super) nodes: usize,
    pub(super) seconds: f64,
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) packets: u64,
    pub(super) residual: f64,
}

impl Document {
    fn new() -> Self {
        let machine = Machine::this();
        Self {
            bench: "paper mether".to_owned(),
            machine: machine.to_string(),
            processors: machine.cores(),
            to: 0,
            bound: 0,
            rounds: 0,
            grid: 0,
            iterations: 0,
            quiet: Runs::default(),
            busy: Runs::default(),
        }
    }

    /// The kept document, if it is of this machine.
    pub(super) fn kept(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path.filter(|path| path.exists()) else {
            return Ok(Self::new());
        };
        let kept = Self::read(path)?;
        let new = Self::new();
        Ok(if kept.machine == new.machine {
            kept
        } else {
            new
        })
    }

    /// A file that `--keep` wrote on any machine.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let name = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        serde_json::from_str(&text).with_context(|| format!("{name} is no file that --keep wrote"))
    }

    /// The runs beside a companion, or those without.
    pub(super) fn runs(&mut self, busy: bool) -> &mut Runs {
        match busy {
            true => &mut self.busy,
            false => &mut self.quiet,
        }
    }
}

impl Count {
    /// Per addition.
    pub(super) fn each(&self, number: f64) -> f64 {
        number / self.value.max(1) as f64
    }

    /// Whether it came to the end.
    pub(super) fn is_whole(&self, to: u32) -> bool {
        self.value >= u64::from(to)
    }

    /// Losses for a win.
    pub(super) fn losses_for_a_win(&self) -> f64 {
        self.losses as f64 / self.wins.max(1) as f64
    }

    /// Thousand bytes a second.
    pub(super) fn load(&self) -> f64 {
        self.bytes as f64 / self.seconds / 1000.0
    }

    /// Seconds of processor of a host: program and daemon.
    pub(super) fn host(&self) -> f64 {
        self.user + self.system + self.daemon_user + self.daemon_system
    }
}
