//! The command `pagemesh-bench`, as a library: measures, as ratios to what stands beside
//! it in the same run. One module a benchmark.

#![forbid(unsafe_code)]
// These panic where nothing can be written; `pagemesh_cli::output` has what does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod agent;
mod ages;
mod boards;
mod burn;
mod compress;
mod copies;
mod cpu_slots;
mod detect;
mod diff;
mod far;
mod fault;
mod files;
mod forged;
mod job;
mod loss;
mod memory;
mod paper;
mod peers;
mod programs;
mod quota;
mod raw;
mod readers;
mod recorder;
mod replicas;
mod report;
mod stream;
mod sync;
mod tcp;
mod testbed;
mod turns;
mod walk;

use anyhow::Result;
use clap::{Args, Parser, Subcommand, ValueEnum};
use pagemesh_cli::sandbox::Plan;
use pagemesh_cli::{Exit, Global};
use report::Report;
use std::process::ExitCode;

/// Measure PageMesh on this machine and network.
#[derive(Parser)]
#[command(name = "pagemesh-bench", version, propagate_version = true)]
struct Bench {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    which: Which,
}

/// Runs the command line of this process. As `daemon` or `keeper` it is that of `pagemesh`:
/// this program's daemons have the switches of experiments, which those of `pagemesh` lack.
#[must_use]
pub fn main() -> ExitCode {
    let first = std::env::args_os().nth(1);
    if first.is_some_and(|word| word == "daemon" || word == "keeper") {
        return pagemesh_cli::main();
    }
    let bench = Bench::parse();
    pagemesh_cli::run("pagemesh-bench", &bench.global, |global| {
        bench.which.run(global)
    })
}

#[derive(Subcommand)]
enum Which {
    /// How well replacement finds the pages that programs use, beside true LRU
    Ages(ages::Ages),
    /// What a fault costs, beside the raw exchange of the same bytes
    Fault(Effort),
    /// What it costs to make pages smaller for the wire, and how small they become
    Compress(Effort),
    /// What it costs to find, encode and apply the changes of a page
    Diff(Effort),
    /// What a page costs that does not fit into memory: from a donor, and by the kernel's swapping
    Far(far::Far),
    /// How many forged datagrams a second leave good faults under twice their latency
    Forged(Effort),
    /// What a daemon needs to remember of a page
    Memory(memory::Memory),
    /// What the flight recorder adds to a fault, beside a cluster without one
    Recorder(Effort),
    /// How old state is that one process writes and many watch, beside UDP multicast and brokers
    Boards(boards::Boards),
    /// What lost datagrams cost, beside TCP
    Loss(loss::Loss),
    /// Faults, locks and barriers beside MPI's one-sided operations, a Redis and TCP
    Peers(peers::Peers),
    /// How long many nodes take to read what one wrote, beside one node
    Readers(readers::Readers),
    /// What it costs that another node has what a node stored before any sees it
    Replicas(replicas::Replicas),
    /// How fast a segment is read and written from front to back, beside TCP
    Stream(stream::Stream),
    /// What locks and barriers cost, beside the raw round trip
    Sync(Effort),
    /// What a paper measured, beside its figures
    Paper(paper::Paper),
    /// Parallel kernels on nodes and on native threads, with what they waited for
    Programs(programs::Programs),
    /// Whether a slow node gets its turns at a page and a lock for which a fast one contends
    Turns(turns::Turns),
    /// A process that only computes
    #[command(hide = true)]
    Burn(burn::Burn),
    /// A process that takes a tenth of each processor in bursts
    #[command(hide = true)]
    Companion(boards::Companion),
    /// One process of a benchmark, told what to do on its standard input
    #[command(hide = true)]
    Agent(agent::Agent),
}

/// How long to measure, and how daemons wait meanwhile.
#[derive(Args, Clone, Debug)]
pub(crate) struct Effort {
    /// Measurements per round
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=4000))]
    count: u32,
    /// Rounds, baseline and measurement in turn, after one to warm up
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Only this way of waiting; both by default
    #[arg(long, value_enum)]
    waiting: Option<Waiting>,
    /// Keep idle processors awake (`/dev/cpu_dma_latency`), baseline included
    #[arg(long)]
    latency: bool,
    /// Largest packet between the nodes
    #[arg(long, default_value_t = ETHERNET_JUMBO, value_parser = clap::value_parser!(u32).range(576..=65535))]
    mtu: u32,
    /// Measure only rows whose names begin so
    #[arg(long, value_name = "PREFIX")]
    only: Option<String>,
}

/// Packets of this size carry a page at once.
const ETHERNET_JUMBO: u32 = 9000;

/// How daemons and the raw baseline wait for a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Waiting {
    /// Ask again and again.
    Spin,
    /// Sleep until the kernel wakes us.
    Block,
}

impl Waiting {
    fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Block => "block",
        }
    }
}

impl Effort {
    /// The round that counts for nothing.
    const WARM_UP: u32 = 0;

    /// Rounds of threads that fault at once.
    const CROWD_ROUNDS: u32 = 5;

    /// All rounds.
    fn rounds(&self) -> std::ops::RangeInclusive<u32> {
        Self::WARM_UP..=self.rounds
    }

    /// Whether one of these rows is wanted.
    fn wants(&self, rows: &[&str]) -> bool {
        let only = self.only.as_deref().unwrap_or_default();
        rows.iter().any(|row| row.starts_with(only))
    }

    fn waitings(&self) -> Vec<Waiting> {
        self.waiting
            .map_or_else(|| vec![Waiting::Spin, Waiting::Block], |one| vec![one])
    }
}

impl Which {
    fn run(self, global: &Global) -> Result<Exit> {
        let report = match self {
            Self::Fault(effort) => each_waiting("fault", &effort, fault::measure)?,
            Self::Forged(effort) => each_waiting("forged", &effort, forged::measure)?,
            Self::Recorder(effort) => each_waiting("recorder", &effort, recorder::measure)?,
            Self::Sync(effort) => each_waiting("sync", &effort, sync::measure)?,
            Self::Compress(effort) => compress::measure(&effort)?,
            Self::Diff(effort) => diff::measure(&effort),
            Self::Memory(memory) => memory.measure()?,
            Self::Ages(ages) => ages.measure()?,
            Self::Far(far) => far.measure()?,
            Self::Loss(loss) => loss.measure()?,
            Self::Peers(peers) => peers.measure()?,
            Self::Turns(turns) => turns.measure()?,
            Self::Readers(readers) => readers.measure()?,
            Self::Replicas(replicas) => replicas.measure()?,
            Self::Stream(stream) => stream.measure()?,
            Self::Agent(agent) => return agent.run(),
            Self::Burn(burn) => return burn.run(),
            Self::Companion(companion) => return companion.run(),
            Self::Boards(boards) => {
                boards.measure()?.print(global.output)?;
                return Ok(Exit::OK);
            }
            Self::Paper(paper) => return paper.run(global),
            Self::Programs(programs) => return programs.run(global),
        };
        report.print(global.output)?;
        Ok(Exit::OK)
    }
}

/// Gives a plan's daemons these switches, if any: then they are this program's.
fn switch(plan: &mut Plan, switches: &str) -> Result<()> {
    if !switches.is_empty() {
        plan.experiment = switches.to_owned();
        plan.program = Some(std::env::current_exe()?);
    }
    Ok(())
}

/// A node with a program, and one that lends so many pages.
fn nodes_with_idle_memory(pages: u32) -> Plan {
    let mut plan = Plan::new(2);
    plan.mtu = ETHERNET_JUMBO;
    let lend = format!("{}K", u64::from(pages) * 4);
    let arguments = ["--memory", "4G", "--lend", &lend];
    plan.daemon_args = arguments.map(str::to_owned).to_vec();
    plan
}

fn each_waiting(
    name: &'static str,
    effort: &Effort,
    measure: fn(&Effort, Waiting, &mut Report) -> Result<()>,
) -> Result<Report> {
    let mut report = Report::new(name);
    for waiting in effort.waitings() {
        measure(effort, waiting, &mut report)?;
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Bench::command().debug_assert();
    }
}
