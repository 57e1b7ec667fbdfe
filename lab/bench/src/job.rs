//! Programs on `Tmk.h` as jobs on the nodes of a sandbox, and what they did.

use super::copies;
use super::cpu_slots::pin_process;
use super::quota::Quota;
use anyhow::{Context, Result};
use pagemesh_cli::sandbox::{Plan, Sandbox};
use pagemesh_forecast::Waited;
use pagemesh_os::procstat::ProcStat;
use serde::Deserialize;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// No run may take longer.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);

/// What the library says at the end, behind this word.
const TOLD: &str = "Tmk: ";

/// A cluster to run programs on.
pub(super) struct Stand<'q> {
    sandbox: Sandbox,
    quota: Option<&'q Quota>,
}

/// What a process says of itself.
#[derive(Clone, Deserialize)]
pub(super) struct Told {
    pub(super) seconds: f64,
    pub(super) user: f64,
    pub(super) system: f64,
    pub(super) barriers: u64,
    pub(super) locks: u64,
    /// Of each, in order: nanoseconds.
    pub(super) barrier_times: Vec<u64>,
    /// Nanoseconds, and how often.
    pub(super) lock_times: Vec<(u64, u64)>,
}

/// Locks that took longer, in nanoseconds, were asked of a daemon.
const ASKED: u64 = 2_000;

/// What daemons have counted, all together.
#[derive(Clone, Copy, Default)]
pub(super) struct Counted {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    /// Messages that were sent again.
    pub(super) resent: u64,
    pub(super) pages: u64,
    pub(super) diffs: u64,
    /// Faults of all kinds.
    pub(super) all_faults: u64,
    /// Faults for which another node had to help, and what they took, if all on a node
    /// took what is usual there.
    pub(super) faults: u64,
    pub(super) fault_nanos: u64,
    pub(super) user: f64,
    pub(super) system: f64,
}

/// What a job did.
pub(super) struct Outcome {
    /// Of the parallel part, as the first process says.
    pub(super) seconds: f64,
    /// What each process says of itself.
    pub(super) told: Vec<Told>,
    pub(super) before: Counted,
    pub(super) after: Counted,
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
                    "resent" => all.resent += value,
                    "pages_out" => all.pages += value,
                    "diffs_made" => all.diffs += value,
                    "faults_read" | "faults_write" => all.all_faults += value,
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

    /// Runs a program on all nodes, under a policy.
    pub(super) fn run(&self, path: &Path, arguments: &[String], policy: &str) -> Result<Outcome> {
        self.run_replicated(path, arguments, policy, 0)
    }

    /// The same, with so many replicas of what is shared.
    pub(super) fn run_replicated(
        &self,
        path: &Path,
        arguments: &[String],
        policy: &str,
        replicas: u8,
    ) -> Result<Outcome> {
        /// A job of its own for each run.
        static JOB: AtomicU64 = AtomicU64::new(0);
        let job = JOB.fetch_add(1, Ordering::Relaxed).to_string();
        let before = self.counted()?;
        let mut started = Vec::new();
        for (number, node) in self.sandbox.nodes().iter().enumerate() {
            let group = self.quota.map(|quota| (quota, number));
            let mut command = copies::command(Some(node), group, path);
            command
                .args(arguments)
                .args(["--", "--stats", "--policy", policy])
                .arg(format!("--replicas={replicas}"))
                .env("PAGEMESH_JOB", &job);
            let copy = copies::start(&mut command, path)?;
            self.pin(number, copy.id())?;
            started.push(copy);
        }
        let outputs = copies::finish(started, PATIENCE)?;
        let after = self.counted()?;
        let told: Result<Vec<Told>> = outputs.iter().map(told).collect();
        Ok(Outcome {
            seconds: copies::seconds(&outputs[0])?,
            told: told?,
            before,
            after,
        })
    }
}

/// What processes waited for, all of them together.
pub(super) fn waited(told: &[Told]) -> Waited {
    let all = told.iter().flat_map(|one| &one.lock_times);
    let asked = all.filter(|(nanos, _)| *nanos > ASKED);
    let each = asked.flat_map(|(nanos, count)| (0..*count).map(|_| *nanos));
    let locks: Vec<u64> = each.collect();
    let barriers: Vec<_> = told.iter().map(|one| one.barrier_times.clone()).collect();
    Waited::of(&locks, &barriers, &[])
}

fn told(output: &Output) -> Result<Told> {
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find_map(|line| line.strip_prefix(TOLD));
    let line = line.context("a program does not say what it did")?;
    Ok(serde_json::from_str(line)?)
}

/// Seconds of a process, as user and as system.
pub(super) fn processor_seconds(process: u32) -> Result<[f64; 2]> {
    let stat = ProcStat::of(process).with_context(|| format!("process {process}"))?;
    Ok(stat.seconds())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_used_a_processor() {
        let [user, system] = processor_seconds(std::process::id()).unwrap();
        assert!(user >= 0.0 && system >= 0.0);
    }
}
