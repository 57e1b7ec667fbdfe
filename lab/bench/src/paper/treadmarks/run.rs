//! Running the programs, and finding out what they did.

use super::super::super::cpu_slots::pin_process;
use super::super::copies;
use super::super::quota::Quota;
use super::document::{Run, Shares, Typical};
use super::program::{Program, Size};
use anyhow::{Context, Result};
use pagemesh_cli::sandbox::{Plan, Sandbox};
use pagemesh_forecast::{Wait, Waited};
use serde::Deserialize;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// No run may take longer.
const PATIENCE: Duration = Duration::from_secs(300);

/// What the library says at the end, behind this word.
const TOLD: &str = "Tmk: ";

/// Where programs and data are, and how large the problems.
pub(super) struct Place<'p> {
    pub(super) programs: &'p Path,
    pub(super) data: &'p Path,
    pub(super) size: Size,
}

/// A cluster to run programs on.
pub(super) struct Stand<'q> {
    sandbox: Sandbox,
    quota: Option<&'q Quota>,
}

/// What a process says of itself.
#[derive(Clone, Deserialize)]
struct Told {
    seconds: f64,
    user: f64,
    system: f64,
    barriers: u64,
    locks: u64,
    /// Of each, in order: nanoseconds.
    barrier_times: Vec<u64>,
    /// Nanoseconds, and how often.
    lock_times: Vec<(u64, u64)>,
}

/// Locks that took longer, in nanoseconds, were asked of a daemon.
const ASKED: u64 = 2_000;

/// What daemons have counted, all together.
#[derive(Clone, Copy, Default)]
struct Counted {
    messages: u64,
    bytes: u64,
    pages: u64,
    diffs: u64,
    /// Faults for which another node had to help, and what they took, if all on a node
    /// took what is usual there.
    faults: u64,
    fault_nanos: u64,
    user: f64,
    system: f64,
}

impl<'q> Stand<'q> {
    /// Nodes have a processor each, as long as there are enough and no quota.
    pub(super) fn start(plan: &Plan, quota: Option<&'q Quota>) -> Result<Self> {
        let sandbox = Sandbox::start(plan).context("cannot set the stage")?;
        let stand = Self { sandbox, quota };
        for node in 0..stand.size() {
            stand.pin(node, stand.sandbox.node(node).pid())?;
        }
        Ok(stand)
    }

    fn size(&self) -> usize {
        self.sandbox.nodes().len()
    }

    /// The processes of the nodes themselves.
    pub(super) fn daemons(&self) -> Vec<u32> {
        let nodes = self.sandbox.nodes().iter();
        nodes.map(|node| node.pid()).collect()
    }

    fn pin(&self, node: usize, process: u32) -> Result<()> {
        let enough = self.size() <= pagemesh_os::cpu::available();
        if enough && self.quota.is_none() {
            pin_process(process, node).context("cannot pin a process")?;
        }
        Ok(())
    }

    fn counted(&self) -> Result<Counted> {
        let mut all = Counted::default();
        for node in self.sandbox.nodes() {
            let (mut faults, mut usual) = (0, 0);
            for (name, value) in node.control()?.counters()? {
                match name.as_str() {
                    "datagrams_out" => all.messages += value,
                    "bytes_out" => all.bytes += value,
                    "pages_out" => all.pages += value,
                    "diffs_made" => all.diffs += value,
                    "fault_remote_count" => faults = value,
                    "fault_remote_usual_ns" => usual = value,
                    _ => {}
                }
            }
            all.faults += faults;
            all.fault_nanos += faults * usual;
            let [user, system] = processor_seconds(node.pid())?;
            all.user += user;
            all.system += system;
        }
        Ok(all)
    }
}

impl Place<'_> {
    /// Seconds of a program alone.
    pub(super) fn alone(&self, program: &Program, quota: Option<&Quota>) -> Result<f64> {
        let path = self.programs.join(program.file());
        let mut command = copies::command(None, quota.map(|quota| (quota, 0)), &path);
        command.args(self.arguments(program)).arg("--sequential");
        let copy = copies::start(&mut command, &path)?;
        if quota.is_none() {
            // As the first node's will be.
            pin_process(copy.id(), 0).context("cannot pin a process")?;
        }
        copies::seconds(&copies::finish(vec![copy], PATIENCE)?[0])
    }

    /// Seconds of as many copies at a time, each alone with its problem, one on each
    /// processor: their mean.
    pub(super) fn crowd(&self, program: &Program, copies: usize) -> Result<f64> {
        let path = self.programs.join(program.file());
        let mut started = Vec::new();
        for number in 0..copies {
            let mut command = copies::command(None, None, &path);
            command.args(self.arguments(program)).arg("--sequential");
            let copy = copies::start(&mut command, &path)?;
            pin_process(copy.id(), number).context("cannot pin a process")?;
            started.push(copy);
        }
        let outputs = copies::finish(started, PATIENCE)?;
        let seconds: Result<Vec<f64>> = outputs.iter().map(copies::seconds).collect();
        Ok(seconds?.iter().sum::<f64>() / copies.max(1) as f64)
    }

    /// A program on all nodes.
    pub(super) fn together(
        &self,
        stand: &Stand<'_>,
        program: &'static Program,
        policy: &str,
        alone: f64,
    ) -> Result<Run> {
        /// A job of its own for each run.
        static JOB: AtomicU64 = AtomicU64::new(0);
        let job = JOB.fetch_add(1, Ordering::Relaxed).to_string();
        let path = self.programs.join(program.file());
        let before = stand.counted()?;
        let mut started = Vec::new();
        for (number, node) in stand.sandbox.nodes().iter().enumerate() {
            let group = stand.quota.map(|quota| (quota, number));
            let mut command = copies::command(Some(node), group, &path);
            command
                .args(self.arguments(program))
                .args(["--", "--stats", "--policy", policy])
                .env("PAGEMESH_JOB", &job);
            let copy = copies::start(&mut command, &path)?;
            stand.pin(number, copy.id())?;
            started.push(copy);
        }
        let outputs = copies::finish(started, PATIENCE)?;
        let after = stand.counted()?;
        let seconds = copies::seconds(&outputs[0])?;
        let told: Result<Vec<Told>> = outputs.iter().map(told).collect();
        let run = put_together(program, policy, seconds, alone, &told?, before, after);
        Ok(Run {
            large: self.size.is_large(),
            ..run
        })
    }

    pub(super) fn arguments(&self, program: &Program) -> Vec<String> {
        program.arguments(self.size, &self.data.to_string_lossy())
    }
}

fn put_together(
    program: &Program,
    policy: &str,
    seconds: f64,
    alone: f64,
    told: &[Told],
    before: Counted,
    after: Counted,
) -> Run {
    let sum = |of: fn(&Told) -> f64| told.iter().map(of).sum::<f64>();
    let whole = told.iter().map(|one| one.seconds).fold(0.0, f64::max);
    let time = (whole * told.len() as f64).max(f64::MIN_POSITIVE);
    let computation = sum(|one| one.user) / time;
    let kernel = (sum(|one| one.system) + after.system - before.system) / time;
    let pagemesh = (after.user - before.user) / time;
    let waited = waited(told);
    Run {
        program: program.name.to_owned(),
        large: false,
        policy: policy.to_owned(),
        nodes: told.len(),
        seconds,
        speedup: alone / seconds,
        crowd_seconds: None,
        paper_speedup: program.speedup,
        whole_seconds: whole,
        barriers: told.iter().map(|one| one.barriers).max().unwrap_or(0),
        locks: told.iter().map(|one| one.locks).sum(),
        messages: after.messages - before.messages,
        bytes: after.bytes - before.bytes,
        pages: after.pages - before.pages,
        diffs: after.diffs - before.diffs,
        lock_wait: waited.locks.map(micros),
        barrier_wait: waited.barriers.map(micros),
        fault_wait: (before.faults == 0 && after.faults > 0).then(|| Typical {
            micros: after.fault_nanos as f64 / after.faults as f64 / 1000.0,
            count: after.faults as usize,
        }),
        shares: Shares {
            computation,
            kernel,
            pagemesh,
            idle: (1.0 - computation - kernel - pagemesh).max(0.0),
        },
    }
}

/// What processes waited for, all of them together.
fn waited(told: &[Told]) -> Waited {
    let all = told.iter().flat_map(|one| &one.lock_times);
    let asked = all.filter(|(nanos, _)| *nanos > ASKED);
    let each = asked.flat_map(|(nanos, count)| (0..*count).map(|_| *nanos));
    let locks: Vec<u64> = each.collect();
    let barriers: Vec<_> = told.iter().map(|one| one.barrier_times.clone()).collect();
    Waited::of(&locks, &barriers, &[])
}

fn micros(wait: Wait) -> Typical {
    Typical {
        micros: wait.typical.as_secs_f64() * 1e6,
        count: wait.count,
    }
}

fn told(output: &Output) -> Result<Told> {
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find_map(|line| line.strip_prefix(TOLD));
    let line = line.context("a program does not say what it did")?;
    Ok(serde_json::from_str(line)?)
}

/// Seconds of a process, as user and as system.
fn processor_seconds(process: u32) -> Result<[f64; 2]> {
    let path = format!("/proc/{process}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    // The name, in parentheses, may contain anything.
    let rest = text.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let seconds = |field: usize| {
        let field = fields.get(field).and_then(|text| text.parse::<f64>().ok());
        field
            .map(|count| count / ticks)
            .with_context(|| path.clone())
    };
    Ok([seconds(11)?, seconds(12)?])
}

#[cfg(test)]
mod tests {
    use super::super::program::PROGRAMS;
    use super::*;

    #[test]
    fn time_is_divided_without_rest() {
        let told = Told {
            seconds: 2.0,
            user: 1.0,
            system: 0.2,
            barriers: 5,
            locks: 7,
            barrier_times: vec![30_000; 40],
            lock_times: vec![(70, 100), (20_000, 11), (90_000, 9)],
        };
        let after = Counted {
            messages: 100,
            diffs: 3,
            user: 0.2,
            system: 0.2,
            ..Counted::default()
        };
        let (program, told) = (&PROGRAMS[0], [told.clone(), told]);
        let run = put_together(
            program,
            "release",
            1.5,
            3.0,
            &told,
            Counted::default(),
            after,
        );
        assert_eq!((run.speedup, run.barriers, run.locks), (2.0, 5, 14));
        assert_eq!(run.diffs, 3);
        let typical = |micros, count| Some(Typical { micros, count });
        let locks = (22.0 * 20.0 + 14.0 * 90.0) / 36.0;
        let found = run.lock_wait.unwrap();
        assert!(
            (found.micros - locks).abs() < 0.01,
            "{found:?}: locks of this node stay out"
        );
        assert_eq!((found.count, run.barrier_wait), (40, typical(30.0, 40)));
        assert_eq!(run.fault_wait, None);
        let shares = run.shares;
        let all = shares.computation + shares.kernel + shares.pagemesh + shares.idle;
        assert!((all - 1.0).abs() < 1e-9, "{all}");
        assert!((shares.kernel - 0.15).abs() < 1e-9);
    }

    #[test]
    fn this_process_has_used_a_processor() {
        let [user, system] = processor_seconds(std::process::id()).unwrap();
        assert!(user >= 0.0 && system >= 0.0);
    }
}
