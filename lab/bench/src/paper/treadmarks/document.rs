//! All that was measured, as JSON has it, and as it is kept from one round to the next.

use super::super::super::report::Machine;
use super::super::figures::Measured;
use super::super::origin::{Note, Origin};
use super::program::base_of;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

/// One run of the whole benchmark, or several put together.
#[derive(Serialize, Deserialize)]
pub(super) struct Document {
    pub(super) bench: String,
    pub(super) machine: Machine,
    /// When it was measured last, in UTC.
    pub(super) date: String,
    /// The origin of what was measured at each date.
    #[serde(default)]
    pub(super) sessions: BTreeMap<String, Origin>,
    pub(super) basics: Vec<Basic>,
    /// Where and when the basics were measured, if that is known: they have no figure in common with
    /// the rest, so they may be of another machine.
    #[serde(default)]
    pub(super) basics_of: Option<Place>,
    /// Seconds of each sequential program, without shared memory: the bases of speedups.
    pub(super) alone: Vec<Alone>,
    pub(super) runs: Vec<Run>,
    #[serde(default)]
    pub(super) busy: Vec<Busy>,
    #[serde(default)]
    pub(super) divided: Vec<Divided>,
    pub(super) substrates: Vec<Substrate>,
    pub(super) limited: Vec<Limited>,
    #[serde(default)]
    pub(super) forecasts: Vec<Forecast>,
    /// The parts that could not be measured, and why.
    pub(super) missing: Vec<String>,
    /// What a person wrote into the file.
    #[serde(default)]
    pub(super) notes: Vec<Note>,
}

/// Names of basic operations, by which claims find them.
pub(super) const LOCK_OF_LAST: &str = "lock, from the node that had it last";
pub(super) const LOCK_OF_THIRD: &str = "lock, that a third node had last";
pub(super) const BARRIER: &str = "barrier of 8";
pub(super) const FAULT: &str = "remote page fault, 4096 bytes";

/// A machine and a time.
#[derive(Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) machine: Machine,
    pub(super) measured: Measured,
}

/// An operation, in microseconds.
#[derive(Serialize, Deserialize)]
pub(super) struct Basic {
    pub(super) name: String,
    /// Of the segment; none if no segment takes part.
    #[serde(default)]
    pub(super) policy: Option<String>,
    pub(super) ours: f64,
    /// Beside a companion that takes a tenth of each processor in bursts.
    #[serde(default)]
    pub(super) busy: Option<f64>,
    pub(super) paper: f64,
}

/// A sequential program, without shared memory.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Alone {
    /// The paper's program: its variants are the same program alone.
    pub(super) program: String,
    /// A larger problem than the paper's.
    pub(super) large: bool,
    /// With a fifth of a processor.
    #[serde(default)]
    pub(super) slow: bool,
    /// The order of its search, if that is not the parallel program's: shown, and no base.
    #[serde(default)]
    pub(super) order: Option<String>,
    pub(super) seconds: f64,
    /// The date of its session.
    #[serde(default)]
    pub(super) measured: String,
}

/// One program on some nodes.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) program: String,
    /// A larger problem than the paper's.
    pub(super) large: bool,
    pub(super) policy: String,
    pub(super) nodes: usize,
    /// Of the parallel part.
    pub(super) seconds: f64,
    /// How many runs these are the median of: all figures are those of the run in the middle.
    #[serde(default = "once")]
    pub(super) rounds: u32,
    /// The date of its session.
    #[serde(default)]
    pub(super) measured: String,
    /// Of as many copies of the sequential version at a time, one on each processor, each solving
    /// the whole problem: shows by how much the processors slow each other down.
    #[serde(default)]
    pub(super) crowd_seconds: Option<f64>,
    /// The paper's, with 8 processors: ATM and Ethernet.
    pub(super) paper_speedup: Option<(f64, f64)>,
    /// From `Tmk_startup` to `Tmk_exit`: the time to which all following counts belong.
    pub(super) whole_seconds: f64,
    /// As each process comes to them.
    pub(super) barriers: u64,
    /// Of all processes together.
    pub(super) locks: u64,
    pub(super) messages: u64,
    pub(super) bytes: u64,
    /// Pages that were sent.
    pub(super) pages: u64,
    /// Differences made.
    pub(super) diffs: u64,
    /// The typical wait for a lock that a daemon was asked for, without the longest tenth.
    #[serde(default)]
    pub(super) lock_wait: Option<Typical>,
    /// The same of who came last to each barrier.
    #[serde(default)]
    pub(super) barrier_wait: Option<Typical>,
    /// For a page for which another node had to help, as daemons saw it, but for the longest
    /// tenth. Only of the first run of a cluster.
    #[serde(default)]
    pub(super) fault_wait: Option<Typical>,
    pub(super) shares: Shares,
}

/// A run, and its sequential program, both beside a companion that takes a tenth of each processor in
/// bursts.
#[derive(Serialize, Deserialize)]
pub(super) struct Busy {
    /// Seconds of the sequential program.
    pub(super) alone: f64,
    pub(super) run: Run,
}

impl Busy {
    pub(super) fn speedup(&self) -> f64 {
        self.alone / self.run.seconds
    }
}

/// The typical value of some waits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Typical {
    pub(super) micros: f64,
    pub(super) count: usize,
}

/// Where the processors' time went (TR4): parts of 1.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct Shares {
    /// The program's own code, and that of the library in it.
    pub(super) computation: f64,
    /// The kernel, for programs and daemons.
    pub(super) kernel: f64,
    /// The daemons' own code.
    pub(super) pagemesh: f64,
    pub(super) idle: f64,
}

/// Where the kernel's and the daemons' time went in a run (TR5, TR6): parts of the time
/// of all nodes.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Divided {
    pub(super) program: String,
    pub(super) large: bool,
    pub(super) policy: String,
    pub(super) nodes: usize,
    /// The kernel: datagrams, packets, waiting for them.
    pub(super) kernel_communication: f64,
    /// Faults, pages, rights.
    pub(super) kernel_memory: f64,
    pub(super) kernel_other: f64,
    /// PageMesh: twins, diffs, placing pages.
    pub(super) memory: f64,
    /// Intervals and vector times.
    pub(super) consistency: f64,
    /// Locks, barriers, requests, coding of messages, waiting.
    pub(super) other: f64,
}

/// Water on some network.
#[derive(Serialize, Deserialize)]
pub(super) struct Substrate {
    pub(super) name: String,
    pub(super) run: Run,
}

/// A run on nodes that have a part of a processor each.
#[derive(Serialize, Deserialize)]
pub(super) struct Limited {
    pub(super) run: Run,
    /// The speedup of as many processes that share nothing.
    pub(super) ceiling: f64,
}

fn once() -> u32 {
    1
}

/// The forecast of a program's time, from its own traces and measured costs.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Forecast {
    pub(super) program: String,
    pub(super) large: bool,
    /// A problem for 64 nodes.
    #[serde(default)]
    pub(super) huge: bool,
    pub(super) nodes: usize,
    /// Of the parallel part.
    pub(super) seconds: f64,
    /// Of the sequential program, measured in the same minutes.
    #[serde(default)]
    pub(super) alone: Option<f64>,
    /// The date of its session.
    #[serde(default)]
    pub(super) measured_at: String,
    /// Microseconds in a loop: a round trip, a lock, a fault.
    #[serde(default)]
    pub(super) costs: [f64; 3],
    /// The factor between costs in the program and in a loop, fitted to the waits of processes in
    /// the measured run ...
    #[serde(default)]
    pub(super) slower: f64,
    /// ... and how many times as long as that where the program has just computed.
    #[serde(default)]
    pub(super) cold: f64,
    /// Where it was measured on as many nodes.
    pub(super) measured: Option<f64>,
    pub(super) messages: u64,
    pub(super) measured_messages: Option<u64>,
    /// The shares of processes' time: compute, leave the processor to a daemon, wait for pages,
    /// locks, barriers and conditions.
    #[serde(default)]
    pub(super) shares: [f64; 6],
}

impl Document {
    /// Nothing yet.
    pub(super) fn new() -> Self {
        let now = humantime::format_rfc3339_seconds(SystemTime::now());
        Self {
            bench: "paper treadmarks".to_owned(),
            machine: Machine::this(),
            date: now.to_string(),
            sessions: BTreeMap::from([(now.to_string(), Origin::now())]),
            basics: Vec::new(),
            basics_of: None,
            alone: Vec::new(),
            runs: Vec::new(),
            busy: Vec::new(),
            divided: Vec::new(),
            substrates: Vec::new(),
            limited: Vec::new(),
            forecasts: Vec::new(),
            missing: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// A file that `--keep` wrote.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} is no file that --keep wrote", path.display()))
    }

    /// The kept document, if it is of this machine.
    ///
    /// # Errors
    /// If the file is none of these.
    pub(super) fn kept(path: Option<&Path>) -> Result<Self> {
        let new = Self::new();
        let Some(path) = path.filter(|path| path.exists()) else {
            return Ok(new);
        };
        let kept = Self::read(path)?;
        if kept.machine != new.machine {
            return Ok(new);
        }
        let mut sessions = kept.sessions;
        sessions.extend(new.sessions);
        Ok(Self {
            date: new.date,
            sessions,
            missing: Vec::new(),
            ..kept
        })
    }

    /// Measures basic operations, into a file whose other figures may be of another machine.
    pub(super) fn measure_basics(
        &mut self,
        measure: impl FnOnce() -> Result<Vec<Basic>>,
    ) -> Result<()> {
        let origin = Origin::now();
        self.basics = measure()?;
        self.basics_of = Some(Place {
            machine: Machine::this(),
            measured: Measured::ended(origin),
        });
        Ok(())
    }

    /// The measurements have ended.
    pub(super) fn end(&mut self) {
        if let Some(origin) = self.sessions.get_mut(&self.date) {
            origin.end();
        }
        let used: Vec<String> = (self.alone.iter().map(|one| &one.measured))
            .chain(self.all_runs().map(|run| &run.measured))
            .chain(self.forecasts.iter().map(|one| &one.measured_at))
            .cloned()
            .collect();
        let date = &self.date;
        self.sessions
            .retain(|session, _| session == date || used.contains(session));
    }

    fn all_runs(&self) -> impl Iterator<Item = &Run> {
        let limited = self.limited.iter().map(|one| &one.run);
        let substrates = self.substrates.iter().map(|one| &one.run);
        let busy = self.busy.iter().map(|one| &one.run);
        (self.runs.iter().chain(busy))
            .chain(limited)
            .chain(substrates)
    }

    /// Adds the time of a program alone, in the place of an earlier measurement. A sequential
    /// program that is measured for two programs counts with its shorter time.
    pub(super) fn add_alone(&mut self, one: Alone) {
        let one = Alone {
            program: base_of(&one.program).to_owned(),
            measured: self.date.clone(),
            ..one
        };
        let what = |one: &Alone| (one.program.clone(), one.large, one.slow, one.order.clone());
        let (same, others): (Vec<_>, Vec<_>) = self
            .alone
            .drain(..)
            .partition(|other| what(other) == what(&one));
        self.alone = others;
        let shorter = same
            .into_iter()
            .find(|other| other.measured == one.measured && other.seconds < one.seconds);
        self.alone.push(shorter.unwrap_or(one));
    }

    /// Seconds of the sequential program that a program's speedups are against.
    pub(super) fn base(&self, program: &str, large: bool, slow: bool) -> Option<f64> {
        let program = base_of(program);
        let same = |one: &&Alone| {
            (&*one.program, one.large, one.slow) == (program, large, slow) && one.order.is_none()
        };
        self.alone.iter().find(same).map(|one| one.seconds)
    }

    /// Alone to together, of nodes with a processor each.
    pub(super) fn speedup(&self, run: &Run) -> Option<f64> {
        Some(self.base(&run.program, run.large, false)? / run.seconds)
    }

    /// Speedup for each node.
    pub(super) fn efficiency(&self, run: &Run) -> Option<f64> {
        Some(self.speedup(run)? / run.nodes as f64)
    }

    /// The efficiency that processors which share nothing have here, at the same time: they slow
    /// each other down without shared memory.
    pub(super) fn ceiling(&self, run: &Run) -> Option<f64> {
        Some(self.base(&run.program, run.large, false)? / run.crowd_seconds?)
    }

    /// Alone to together, of nodes with a fifth of a processor each.
    pub(super) fn slow_speedup(&self, one: &Limited) -> Option<f64> {
        Some(self.base(&one.run.program, one.run.large, true)? / one.run.seconds)
    }

    /// Adds a run, in the place of the same measured before.
    pub(super) fn add(&mut self, run: Run) {
        let run = self.dated(run);
        self.runs.retain(|other| !other.is_like(&run));
        self.runs.push(run);
    }

    /// Adds a run beside a companion, in the place of the same measured before.
    pub(super) fn add_busy(&mut self, one: Busy) {
        let run = self.dated(one.run);
        self.busy.retain(|other| !other.run.is_like(&run));
        self.busy.push(Busy { run, ..one });
    }

    fn dated(&self, run: Run) -> Run {
        let measured = self.date.clone();
        Run { measured, ..run }
    }

    /// Adds how the time of a run divides, in the place of the same measured before.
    pub(super) fn add_divided(&mut self, one: Divided) {
        let what = |one: &Divided| {
            let (program, policy) = (one.program.clone(), one.policy.clone());
            (program, one.large, policy, one.nodes)
        };
        self.divided.retain(|other| what(other) != what(&one));
        self.divided.push(one);
    }

    /// Adds a run on a network, in the place of the same measured before.
    pub(super) fn add_substrate(&mut self, name: &str, run: Run) {
        let run = self.dated(run);
        let same = |other: &Substrate| other.name == name && other.run.is_like(&run);
        self.substrates.retain(|other| !same(other));
        let name = name.to_owned();
        self.substrates.push(Substrate { name, run });
    }

    /// Adds a run on slow nodes, in the place of the same measured before.
    pub(super) fn add_limited(&mut self, run: Run, ceiling: f64) {
        let run = self.dated(run);
        self.limited.retain(|other| !other.run.is_like(&run));
        self.limited.push(Limited { run, ceiling });
    }

    /// Adds a forecast, in the place of the same made before.
    pub(super) fn add_forecast(&mut self, one: Forecast) {
        let what = |one: &Forecast| (one.program.clone(), (one.large, one.huge), one.nodes);
        self.forecasts.retain(|other| what(other) != what(&one));
        self.forecasts.push(Forecast {
            measured_at: self.date.clone(),
            ..one
        });
    }

    /// The forecast of a program on so many nodes that was kept, not of a problem for 64.
    pub(super) fn forecast(&self, program: &str, large: bool, nodes: usize) -> Option<&Forecast> {
        let same =
            |one: &&Forecast| (&*one.program, one.large, one.huge) == (program, large, false);
        let mut all = self.forecasts.iter().filter(same);
        all.find(|one| one.nodes == nodes)
    }

    /// In the order of the paper, however it was measured.
    pub(super) fn sort(&mut self, place: impl Fn(&str) -> usize) {
        let key = |run: &Run| {
            let policy = run.policy.clone();
            (run.large, place(&run.program), run.nodes, policy)
        };
        self.alone
            .sort_by_key(|one| (one.slow, one.large, place(&one.program), one.order.clone()));
        self.runs.sort_by_key(key);
        self.busy.sort_by_key(|one| key(&one.run));
        self.divided
            .sort_by_key(|one| (one.large, place(&one.program), one.policy.clone()));
        self.limited.sort_by_key(|one| key(&one.run));
        self.forecasts
            .sort_by_key(|one| ((one.large, one.huge), place(&one.program), one.nodes));
    }
}

impl Run {
    /// Of the same program, problem, policy and nodes.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let what = |run: &Self| {
            let (program, policy) = (run.program.clone(), run.policy.clone());
            (program, run.large, policy, run.nodes)
        };
        what(self) == what(other)
    }
}

impl Forecast {
    /// Alone to the forecast.
    pub(super) fn speedup(&self) -> Option<f64> {
        Some(self.alone? / self.seconds)
    }
}

#[cfg(test)]
pub(super) mod tests;
