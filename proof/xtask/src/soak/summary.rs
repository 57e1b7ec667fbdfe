//! The parts that ran, their results, and the files that were kept.

use super::child::End;
use pagemesh_sim::{Profile, Target};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

/// Raised when a field of the JSON document changes its meaning or vanishes.
const SCHEMA_VERSION: u32 = 1;

/// All of it; this very structure is the JSON document.
#[derive(Debug, Default, Serialize)]
pub(super) struct Summary {
    schema_version: u32,
    commit: String,
    seed: u64,
    minutes_asked: f64,
    minutes: f64,
    interrupted: bool,
    sim: BTreeMap<String, Simulated>,
    fuzz: BTreeMap<String, u64>,
    tests: BTreeMap<String, Tested>,
    pub(super) failures: Vec<Failure>,
}

/// The results of one profile of the simulator.
#[derive(Debug, Default, Serialize)]
struct Simulated {
    seeds: u64,
    operations: u64,
    datagrams: u64,
    lost: u64,
    doubled: u64,
    faults: u64,
    replaced: u64,
    failures: u64,
}

/// The results of one test.
#[derive(Debug, Default, Serialize)]
struct Tested {
    runs: u64,
    seconds: f64,
    failures: u64,
}

/// A failure.
#[derive(Debug, Serialize)]
pub(super) struct Failure {
    /// The part that failed.
    pub(super) part: String,
    /// With which seed.
    pub(super) seed: u64,
    /// The failure's message.
    pub(super) what: String,
    /// The line that runs it again.
    pub(super) again: String,
    /// Logs and dumps.
    pub(super) kept: Option<PathBuf>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.what.lines().next().unwrap_or_default();
        write!(
            f,
            "{} (seed {}): {line}\n  again: {}",
            self.part, self.seed, self.again
        )?;
        match &self.kept {
            Some(path) => write!(f, "\n  kept:  {}", path.display()),
            None => Ok(()),
        }
    }
}

impl Summary {
    pub(super) fn new(seed: u64, minutes: f64) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            commit: commit(),
            seed,
            minutes_asked: minutes,
            ..Self::default()
        }
    }

    /// Seeds were simulated.
    pub(super) fn simulated(&mut self, profile: Profile, done: &pagemesh_sim::Summary) {
        let here = self.sim.entry(profile.to_string()).or_default();
        here.seeds += done.seeds;
        here.operations += done.stats.operations;
        here.datagrams += done.stats.datagrams;
        here.lost += done.stats.lost;
        here.doubled += done.stats.twice;
        here.faults += done.stats.faults;
        here.replaced += done.stats.replaced;
        here.failures += done.failures.len() as u64;
    }

    /// Counts hostile inputs of a target.
    pub(super) fn fuzzed(&mut self, target: Target, inputs: u64) {
        *self.fuzz.entry(target.to_string()).or_default() += inputs;
    }

    /// A test ended.
    pub(super) fn tested(&mut self, name: &str, took: Duration, end: &End) {
        if *end == End::Stopped {
            return;
        }
        let here = self.tests.entry(name.to_owned()).or_default();
        here.runs += 1;
        here.seconds += took.as_secs_f64();
        here.failures += u64::from(matches!(end, End::Bad(_)));
    }

    /// All is over.
    pub(super) fn close(&mut self, took: Duration, interrupted: bool) {
        self.minutes = took.as_secs_f64() / 60.0;
        self.interrupted = interrupted;
    }

    /// Few words.
    pub(super) fn line(&self) -> String {
        let seeds: u64 = self.sim.values().map(|sim| sim.seeds).sum();
        let runs: u64 = self.tests.values().map(|test| test.runs).sum();
        let failures = self.failures.len();
        format!("{seeds} seeds, {runs} real runs, {failures} failures")
    }

    /// For programs.
    pub(super) fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// For people.
    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> fmt::Result {
        let ended = if self.interrupted {
            ", interrupted"
        } else {
            ""
        };
        writeln!(
            text,
            "soak of {:.1} min{ended}, --seed {}, commit {}: {}",
            self.minutes,
            self.seed,
            self.commit,
            self.line()
        )?;
        for (profile, sim) in &self.sim {
            writeln!(
                text,
                "  sim {profile:<40} {:>9} seeds {:>12} operations {:>12} datagrams, {} lost, \
                 {} doubled, {} other faults, {} daemons replaced, {} failures",
                sim.seeds,
                sim.operations,
                sim.datagrams,
                sim.lost,
                sim.doubled,
                sim.faults,
                sim.replaced,
                sim.failures
            )?;
        }
        for (target, inputs) in &self.fuzz {
            writeln!(text, "  fuzz {target:<39} {inputs:>9} inputs")?;
        }
        for (name, test) in &self.tests {
            writeln!(
                text,
                "  {name:<60} {:>4} runs {:>7.0} s, {} failures",
                test.runs, test.seconds, test.failures
            )?;
        }
        for failure in &self.failures {
            writeln!(text, "FAILED {failure}")?;
        }
        Ok(())
    }
}

fn commit() -> String {
    let asked = std::process::Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output();
    let known = asked.ok().filter(|output| output.status.success());
    known.map_or_else(
        || "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
