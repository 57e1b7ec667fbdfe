//! Runs many seeds on all cores.

use crate::canary::Canary;
use crate::check::Violation;
use crate::log::LEGEND;
use crate::plan::{Large, Profile};
use crate::run::{Options, run};
use crate::world::Stats;
use pagemesh_core::Time;
use std::fmt::Write;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// A range of seeds to run.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// The first seed.
    pub from: u64,
    /// Number of seeds.
    pub count: u64,
    /// How bad network and faults are.
    pub profile: Profile,
    /// A bug to plant in all runs.
    pub canary: Option<Canary>,
    /// Kill daemons again and again, and replace them from their journals.
    pub replace: bool,
    /// The first host's daemon dies or stands still, and the standby is promoted.
    pub takeover: bool,
    /// The first host's daemon is killed, once or twice, and goes on from its disk.
    pub resume: bool,
    /// The coordinator dies or stands still, and etcd elects another.
    pub etcd: bool,
    /// Daemons are replaced by ones of another program, newer or older, again and again.
    pub upgrade: bool,
    /// Clusters of many hosts.
    pub large: Option<Large>,
    /// End at the first failure instead of running all.
    pub stop_at_failure: bool,
}

/// A seed that broke an invariant.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// Simulated time of the failure.
    pub at: Time,
    /// The broken invariant.
    pub violation: Violation,
}

/// Results of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Number of seeds that were run.
    pub seeds: u64,
    /// Counters summed over all runs; `worst_wait` is the maximum.
    pub stats: Stats,
    /// The seed with the longest wait.
    pub slowest: u64,
    /// Seeds that broke an invariant, in ascending order.
    pub failures: Vec<Failure>,
}

impl Campaign {
    /// Runs all seeds; calls `progress` now and then with the number of seeds that are done.
    pub fn run(&self, progress: impl Fn(u64) + Sync) -> Summary {
        let next = AtomicU64::new(self.from);
        let stop = AtomicBool::new(false);
        let summary = Mutex::new(Summary::default());
        let workers = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| self.work(&next, &stop, &summary, &progress));
            }
        });
        let mut summary = summary.into_inner().expect("workers do not panic");
        summary.failures.sort_by_key(|failure| failure.seed);
        summary
    }

    fn work(
        &self,
        next: &AtomicU64,
        stop: &AtomicBool,
        summary: &Mutex<Summary>,
        progress: &(impl Fn(u64) + Sync),
    ) {
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed - self.from >= self.count {
                break;
            }
            let options = Options {
                seed,
                profile: self.profile,
                canary: self.canary,
                replace: self.replace,
                takeover: self.takeover,
                resume: self.resume,
                etcd: self.etcd,
                upgrade: self.upgrade,
                large: self.large,
                log: false,
            };
            let outcome = run(options);
            let mut summary = summary.lock().expect("workers do not panic");
            summary.seeds += 1;
            if outcome.stats.worst_wait > summary.stats.worst_wait {
                summary.slowest = seed;
            }
            summary.stats.add(&outcome.stats);
            if let Some((at, violation)) = outcome.failure {
                summary.failures.push(Failure {
                    seed,
                    at,
                    violation,
                });
                stop.fetch_or(self.stop_at_failure, Ordering::Relaxed);
            }
            let seeds = summary.seeds;
            drop(summary);
            progress(seeds);
        }
    }
}

impl Stats {
    fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.datagrams += other.datagrams;
        self.messages += other.messages;
        self.pages += other.pages;
        self.lost += other.lost;
        self.twice += other.twice;
        self.sealed += other.sealed;
        self.pieces += other.pieces;
        self.faults += other.faults;
        self.replaced += other.replaced;
        self.buried_alive += other.buried_alive;
        self.promotions += other.promotions;
        self.upgraded += other.upgraded;
        self.happenings += other.happenings;
        self.stolen += other.stolen;
        self.pressed_out += other.pressed_out;
        self.untrapped += other.untrapped;
        self.most_stops = self.most_stops.max(other.most_stops);
        self.worst_wait = self.worst_wait.max(other.worst_wait);
        self.simulated += other.simulated;
    }
}

/// Reports a failure: the broken invariant, the last lines of the log, and the command that
/// reproduces it.
#[must_use]
pub fn failure_report(options: Options, lines: usize) -> Option<String> {
    let outcome = run(Options {
        log: true,
        ..options
    });
    let (at, violation) = outcome.failure?;
    let mut report = String::new();
    let _ = writeln!(report, "seed {} at {at}: {violation}", options.seed);
    let _ = writeln!(report, "{LEGEND}");
    let skipped = outcome.lines.len().saturating_sub(lines);
    if skipped > 0 {
        let _ = writeln!(report, "      ... {skipped} lines before ...");
    }
    for line in &outcome.lines[skipped..] {
        let _ = writeln!(report, "{line}");
    }
    let _ = writeln!(report, "commit {}", commit());
    let _ = writeln!(report, "replay: {}", replay_line(options));
    Some(report)
}

fn replay_line(options: Options) -> String {
    let mut line = format!("cargo xtask sim --seed {}", options.seed);
    if options.profile != Profile::default() {
        let _ = write!(line, " --profile {}", options.profile);
    }
    if options.replace {
        line.push_str(" --replace");
    }
    if options.takeover {
        line.push_str(" --takeover");
    }
    if options.resume {
        line.push_str(" --resume");
    }
    if options.etcd {
        line.push_str(" --etcd");
    }
    if options.upgrade {
        line.push_str(" --upgrade");
    }
    if let Some(Large { nodes, segments }) = options.large {
        let _ = write!(line, " --nodes {nodes} --segments {segments}");
    }
    if let Some(canary) = options.canary {
        let _ = write!(line, " --canary {canary}");
    }
    line
}

/// The commit of the sources, if git tells it.
fn commit() -> String {
    let asked = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output();
    let known = asked.ok().filter(|output| output.status.success());
    known.map_or_else(
        || "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
