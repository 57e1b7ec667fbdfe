//! `bench programs`: the parallel kernels of `lab/apps/kernels`, as native threads and on
//! nodes, in turn. Speedups are over one native thread of the same round.

mod kernels;
mod tables;

use super::copies;
use super::job::{Outcome, PATIENCE, Stand};
use super::quota::Quota;
use super::report::Machine;
use anyhow::{Result, bail, ensure};
use clap::{Args, ValueEnum};
pub(super) use kernels::{KERNELS, Kernel};
use pagemesh_cli::sandbox::Plan;
use pagemesh_cli::{Exit, Format, Global, output};
use serde::Serialize;
use std::path::PathBuf;

/// The share of a processor that a limited node's program gets.
const SHARE: f64 = 0.2;

/// Numbers of native threads.
const THREADS: [usize; 2] = [1, 2];

/// Measure the parallel kernels
#[derive(Args)]
#[command(
    after_help = "The kernels are those of lab/apps/kernels, built by `make build` or `make -C lab/apps`. Each is \
                  run as native threads of one process, with one process on one node, and with one on \
                  each of two nodes. Limited nodes get a fifth of a processor for their program, and \
                  need root and control groups of version 1; their ceiling is the speedup of as many \
                  processes that share nothing."
)]
pub(super) struct Programs {
    /// Where the kernels are
    #[arg(
        long,
        value_name = "DIRECTORY",
        default_value = "lab/apps/build/kernels"
    )]
    programs: PathBuf,
    /// Only these
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// How large the problems are
    #[arg(long, value_enum, default_value = "full")]
    size: Size,
    /// Under these policies
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "release",
        value_name = "NAME"
    )]
    policies: Vec<String>,
    /// Numbers of nodes at full speed
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2], value_name = "N")]
    nodes: Vec<usize>,
    /// Numbers of nodes with a fifth of a processor each; 0 for none
    #[arg(long, value_delimiter = ',', default_values_t = [4, 8], value_name = "N")]
    limited: Vec<usize>,
    /// Times each run is repeated; with more than one, the median counts
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

/// How large the problems are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Size {
    /// Done in parts of a second.
    Small,
    /// One to ten seconds on one processor.
    Full,
}

/// All that was measured.
#[derive(Serialize)]
struct Document {
    bench: &'static str,
    machine: Machine,
    size: Size,
    rounds: u32,
    rows: Vec<Row>,
    /// What could not be measured, and why.
    missing: Vec<String>,
}

/// One kernel under one policy. Times are those of the parallel part, in seconds.
#[derive(Serialize)]
struct Row {
    program: &'static str,
    policy: String,
    native: Vec<Native>,
    nodes: Vec<OnNodes>,
    limited: Vec<Limited>,
}

/// Threads of one process.
#[derive(Clone, Copy, Serialize)]
struct Native {
    threads: usize,
    seconds: f64,
    speedup: f64,
}

/// A process on each of some nodes. What was counted is of all nodes, from the start of
/// the processes to their end.
#[derive(Clone, Serialize)]
struct OnNodes {
    nodes: usize,
    seconds: f64,
    /// Over one native thread.
    speedup: f64,
    messages: u64,
    /// Of these, the ones that were sent again.
    resent: u64,
    megabytes: f64,
    faults: u64,
    /// Seconds of each process, on average: for faults that another node had to answer, at
    /// barriers, and for locks.
    fault_wait: f64,
    barrier_wait: f64,
    lock_wait: f64,
}

/// Nodes with a part of a processor each.
#[derive(Serialize)]
struct Limited {
    /// The speedup of as many processes that share nothing.
    ceiling: f64,
    #[serde(flatten)]
    run: OnNodes,
}

/// Groups of limited nodes, and the ceiling of each number of them.
struct Limits {
    quota: Quota,
    ceilings: Vec<(usize, f64)>,
}

impl Programs {
    pub(super) fn run(self, global: &Global) -> Result<Exit> {
        let chosen = self.chosen()?;
        let mut document = Document {
            bench: "programs",
            machine: Machine::this(),
            size: self.size,
            rounds: self.rounds,
            rows: Vec::new(),
            missing: Vec::new(),
        };
        let limits = match self.limits() {
            Ok(limits) => limits,
            Err(why) => {
                document.missing.push(format!("limited nodes: {why:#}"));
                None
            }
        };
        for kernel in chosen {
            self.measure(kernel, limits.as_ref(), &mut document)?;
        }
        match global.output {
            Format::Json => output::json(serde_json::to_value(&document)?)?,
            Format::Table | Format::Wide => tables::print(&document)?,
        }
        Ok(Exit::OK)
    }

    fn chosen(&self) -> Result<Vec<&'static Kernel>> {
        let known = |name: &String| KERNELS.iter().any(|kernel| kernel.name == name);
        let names: Vec<_> = KERNELS.iter().map(|kernel| kernel.name).collect();
        if let Some(name) = self.only.iter().find(|name| !known(name)) {
            bail!("no kernel {name:?}; there are {}", names.join(", "));
        }
        ensure!(
            self.nodes.iter().all(|nodes| *nodes > 0),
            "--nodes: a job has at least one node"
        );
        let wanted = |kernel: &&Kernel| {
            self.only.is_empty() || self.only.iter().any(|name| name == kernel.name)
        };
        Ok(KERNELS.iter().filter(wanted).collect())
    }

    fn limits(&self) -> Result<Option<Limits>> {
        let counts: Vec<usize> = self.limited.iter().copied().filter(|n| *n > 0).collect();
        let Some(most) = counts.iter().max() else {
            return Ok(None);
        };
        let quota = Quota::new(*most, SHARE)?;
        let one = quota.burn(1)?;
        let ceiling = |nodes: usize| Ok((nodes, one / quota.burn(nodes)?));
        let ceilings: Result<Vec<_>> = counts.into_iter().map(ceiling).collect();
        let ceilings = ceilings?;
        Ok(Some(Limits { quota, ceilings }))
    }

    /// A kernel under every policy; its native threads only once.
    fn measure(
        &self,
        kernel: &'static Kernel,
        limits: Option<&Limits>,
        document: &mut Document,
    ) -> Result<()> {
        let mut native = Vec::new();
        for threads in THREADS {
            let seconds =
                self.median(|| self.natively(kernel, threads, None), |seconds| *seconds)?;
            let base = native.first().map_or(seconds, |one: &Native| one.seconds);
            let speedup = base / seconds;
            output::note(format_args!(
                "{}: {threads} native thread(s) {seconds:.3} s",
                kernel.name
            ));
            native.push(Native {
                threads,
                seconds,
                speedup,
            });
        }
        let base = native[0].seconds;
        let slow = limits.map(|limits| self.natively(kernel, 1, Some(&limits.quota)));
        let slow = slow.transpose()?;
        for policy in &self.policies {
            let mut row = Row {
                program: kernel.name,
                policy: policy.clone(),
                native: native.clone(),
                nodes: Vec::new(),
                limited: Vec::new(),
            };
            for nodes in &self.nodes {
                row.nodes
                    .push(self.on_nodes(kernel, policy, *nodes, None, base)?);
            }
            if let (Some(limits), Some(slow)) = (limits, slow) {
                for (nodes, ceiling) in &limits.ceilings {
                    let quota = Some(&limits.quota);
                    row.limited.push(Limited {
                        ceiling: *ceiling,
                        run: self.on_nodes(kernel, policy, *nodes, quota, slow)?,
                    });
                }
            }
            document.rows.push(row);
        }
        Ok(())
    }

    /// Seconds of threads of one process.
    fn natively(&self, kernel: &Kernel, threads: usize, quota: Option<&Quota>) -> Result<f64> {
        let path = self.programs.join(format!("{}-threads", kernel.file));
        let mut command = copies::command(None, quota.map(|quota| (quota, 0)), &path);
        command
            .args(kernel.arguments(self.size))
            .arg(format!("--processes={threads}"));
        let copy = copies::start(&mut command, &path)?;
        copies::seconds(&copies::finish(vec![copy], PATIENCE)?[0])
    }

    /// A process on each of some nodes, which are new for every run.
    fn on_nodes(
        &self,
        kernel: &'static Kernel,
        policy: &str,
        nodes: usize,
        quota: Option<&Quota>,
        base: f64,
    ) -> Result<OnNodes> {
        let path = self.programs.join(kernel.file);
        let mut plan = Plan::new(nodes);
        if quota.is_some() {
            plan.waiting = Some("block".to_owned());
        }
        let once = || {
            let stand = Stand::start(&plan, quota)?;
            let outcome = stand.run(&path, &kernel.arguments(self.size), policy)?;
            Ok(counted(&outcome, base))
        };
        let run = self.median(once, |run| run.seconds)?;
        output::note(format_args!(
            "{}: {nodes}{} node(s) under {policy} {:.3} s",
            kernel.name,
            if quota.is_some() { " limited" } else { "" },
            run.seconds
        ));
        Ok(run)
    }

    /// The run with the median of the seconds.
    fn median<T>(
        &self,
        mut measure: impl FnMut() -> Result<T>,
        seconds: impl Fn(&T) -> f64,
    ) -> Result<T> {
        let all: Result<Vec<T>> = (0..self.rounds).map(|_| measure()).collect();
        let mut all = all?;
        all.sort_by(|one, other| seconds(one).total_cmp(&seconds(other)));
        Ok(all.swap_remove(all.len() / 2))
    }
}

/// What a run took and counted; `base` is one native thread.
fn counted(outcome: &Outcome, base: f64) -> OnNodes {
    let Outcome {
        seconds,
        ref told,
        before,
        after,
    } = *outcome;
    let processes = told.len().max(1) as f64;
    let each = |nanos: u64| nanos as f64 / 1e9 / processes;
    let barriers = told.iter().flat_map(|one| &one.barrier_times).sum();
    let locks = told.iter().flat_map(|one| &one.lock_times);
    OnNodes {
        nodes: told.len(),
        seconds,
        speedup: base / seconds,
        messages: after.messages - before.messages,
        resent: after.resent - before.resent,
        megabytes: (after.bytes - before.bytes) as f64 / 1e6,
        faults: after.all_faults - before.all_faults,
        fault_wait: each(after.fault_nanos.saturating_sub(before.fault_nanos)),
        barrier_wait: each(barriers),
        lock_wait: each(locks.map(|(nanos, count)| nanos * count).sum()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::{Counted, Told};
    use super::*;

    #[test]
    fn a_run_is_counted_from_its_start() {
        let told = Told {
            seconds: 2.5,
            user: 1.0,
            system: 0.2,
            barriers: 2,
            locks: 3,
            barrier_times: vec![250_000_000, 750_000_000],
            lock_times: vec![(100_000_000, 2), (50_000_000, 1)],
        };
        let count = |messages, bytes, all_faults, fault_nanos| Counted {
            messages,
            bytes,
            all_faults,
            fault_nanos,
            ..Counted::default()
        };
        let run = counted(
            &Outcome {
                seconds: 2.0,
                told: vec![told.clone(), told],
                before: count(10, 1_000_000, 5, 100),
                after: count(110, 4_500_000, 25, 1_000_000_100),
            },
            3.0,
        );
        assert_eq!((run.nodes, run.speedup, run.messages), (2, 1.5, 100));
        assert_eq!((run.megabytes, run.faults), (3.5, 20));
        assert_eq!(
            (run.fault_wait, run.barrier_wait, run.lock_wait),
            (0.5, 1.0, 0.25)
        );
    }
}
