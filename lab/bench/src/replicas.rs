//! `bench replicas`: faults, locks, barriers and programs with one replica, beside none.

use super::agent::Order;
use super::fault::shuffled;
use super::job::Stand;
use super::programs::{KERNELS, Kernel, Size};
use super::report::{Report, Samples};
use super::testbed::Testbed;
use super::{Effort, Waiting};
use anyhow::Result;
use clap::Args;
use pagemesh_cli::output;
use pagemesh_cli::sandbox::Plan;
use std::path::PathBuf;

/// What replicas cost: one beside none, in turn
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Three nodes: two that share, and one more that may be the backup. Programs are those of \
                  lab/apps/kernels, built by `make build` or `make -C lab/apps`; their rows are \
                  microseconds of the parallel part."
)]
pub(crate) struct Replicas {
    #[command(flatten)]
    effort: Effort,
    /// Where the programs are
    #[arg(
        long,
        value_name = "DIRECTORY",
        default_value = "lab/apps/build/kernels"
    )]
    programs: PathBuf,
    /// How large their problems are
    #[arg(long, value_enum, default_value = "full")]
    size: Size,
}

/// The policies whose segments have replicas and are memory that all nodes store to.
const POLICIES: [&str; 2] = ["sequential", "release"];

/// Pages that a node changed before it gives a lock away, or arrives at a barrier.
const CHANGED: [u32; 3] = [1, 10, 100];

/// Locks and barriers of a round.
const MEETINGS: u32 = 100;

/// The two that share; the home is the first.
const SHARING: [usize; 2] = [0, 1];

const NODES: usize = 3;

const LOCK: u64 = 1;
const BARRIER: u64 = 2;

/// Times without a replica, and with one.
type Beside = [Samples; 2];

/// What is measured on a new segment, with so many changed pages; gives the times of node 0.
type Turn = fn(&mut Testbed, &Effort, u32) -> Result<Vec<u64>>;

impl Replicas {
    pub(super) fn measure(&self) -> Result<Report> {
        let mut report = Report::new("replicas");
        for waiting in self.effort.waitings() {
            for policy in POLICIES {
                self.operations(policy, waiting, &mut report)?;
            }
        }
        for policy in POLICIES {
            for kernel in &KERNELS {
                self.program(kernel, policy, &mut report);
            }
        }
        Ok(report)
    }

    fn operations(&self, policy: &str, waiting: Waiting, report: &mut Report) -> Result<()> {
        let faults: [(String, u32, Turn); 3] = [
            (format!("{policy}/read_fault"), 0, read),
            (format!("{policy}/upgrade"), 0, upgrade),
            (format!("{policy}/write_fault"), 0, write),
        ];
        let locks = CHANGED.map(|pages| {
            (
                format!("{policy}/lock_{pages}_changed"),
                pages,
                lock as Turn,
            )
        });
        let barriers = CHANGED.map(|pages| {
            (
                format!("{policy}/barrier_{pages}_changed"),
                pages,
                meet as Turn,
            )
        });
        let all = faults.into_iter().chain(locks).chain(barriers);
        let wanted: Vec<_> = all
            .filter(|(name, ..)| self.effort.wants(&[name]))
            .collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let mut testbed = Testbed::new(NODES, &self.effort, waiting)?;
        for (name, changed, turn) in wanted {
            let times = self.in_turn(&mut testbed, policy, &name, changed, turn)?;
            let [without, with] = &times;
            report.row(name, waiting.name(), with, Some(("no_replica", without)));
        }
        Ok(())
    }

    fn in_turn(
        &self,
        testbed: &mut Testbed,
        policy: &str,
        name: &str,
        changed: u32,
        turn: Turn,
    ) -> Result<Beside> {
        let mut times = Beside::default();
        for round in self.effort.rounds() {
            // Each goes first in every second round.
            let first = round as usize % 2;
            for replicas in [first, 1 - first] {
                let segment = format!("bench.{name}.{replicas}.{round}").replace('/', ".");
                let pages = self.effort.count.max(changed * SHARING.len() as u32);
                testbed.open_replicated(&segment, pages, policy, replicas as u8)?;
                let taken = turn(testbed, &self.effort, changed.max(1))?;
                testbed.remove(&segment)?;
                if round != Effort::WARM_UP {
                    times[replicas].extend(taken);
                }
            }
        }
        Ok(times)
    }

    /// A program on two of the nodes; it is left out where it cannot run.
    fn program(&self, kernel: &Kernel, policy: &str, report: &mut Report) {
        let name = format!("{policy}/program/{}", kernel.name);
        if !self.effort.wants(&[&name]) {
            return;
        }
        match self.run(kernel, policy) {
            Err(why) => report.skip(name, &why),
            Ok([without, with]) => {
                report.row(
                    name,
                    Waiting::Spin.name(),
                    &with,
                    Some(("no_replica", &without)),
                );
            }
        }
    }

    fn run(&self, kernel: &Kernel, policy: &str) -> Result<Beside> {
        let path = self.programs.join(kernel.file);
        let arguments = kernel.arguments(self.size);
        let mut times = Beside::default();
        for _ in 0..self.effort.rounds {
            for (replicas, samples) in times.iter_mut().enumerate() {
                let stand = Stand::start(&Plan::new(SHARING.len()), None)?;
                let outcome = stand.run_replicated(&path, &arguments, policy, replicas as u8)?;
                samples.extend(vec![(outcome.seconds * 1e9) as u64]);
                output::note(format_args!(
                    "{} under {policy} with {replicas} replica(s): {:.3} s",
                    kernel.name, outcome.seconds
                ));
            }
        }
        Ok(times)
    }
}

/// Node 0 loads what node 1 stored.
fn read(testbed: &mut Testbed, effort: &Effort, _: u32) -> Result<Vec<u64>> {
    let pages = stored(testbed, effort)?;
    testbed.touch(0, &pages, false)
}

/// Node 0 has loaded what node 1 stored, and stores.
fn upgrade(testbed: &mut Testbed, effort: &Effort, _: u32) -> Result<Vec<u64>> {
    let pages = stored(testbed, effort)?;
    testbed.touch(0, &pages, false)?;
    testbed.touch(0, &pages, true)
}

/// Node 0 stores to what node 1 stored to.
fn write(testbed: &mut Testbed, effort: &Effort, _: u32) -> Result<Vec<u64>> {
    let pages = stored(testbed, effort)?;
    testbed.touch(0, &pages, true)
}

/// Node 1 stored to these pages, and node 0 had the lock after it; in an order that is not guessed.
fn stored(testbed: &mut Testbed, effort: &Effort) -> Result<Vec<u32>> {
    let pages = shuffled(0..effort.count, 0);
    change_and_take(testbed, effort.count)?;
    Ok(pages)
}

/// Node 0 takes the lock under which node 1 has changed pages, again and again.
fn lock(testbed: &mut Testbed, effort: &Effort, changed: u32) -> Result<Vec<u64>> {
    let mut times = Vec::new();
    for _ in 0..effort.count.min(MEETINGS) {
        times.extend(change_and_take(testbed, changed)?);
    }
    Ok(times)
}

fn change_and_take(testbed: &mut Testbed, changed: u32) -> Result<Vec<u64>> {
    let change = Order::Change {
        number: LOCK,
        pages: changed,
    };
    testbed.ask(1, &change)?;
    let take = Order::Lock {
        number: LOCK,
        count: 1,
    };
    testbed.ask(0, &take)
}

/// Each node has changed pages that only it stores to, and they meet, again and again.
fn meet(testbed: &mut Testbed, effort: &Effort, changed: u32) -> Result<Vec<u64>> {
    let mut times = Vec::new();
    for _ in 0..effort.count.min(MEETINGS) {
        for agent in SHARING {
            let first = agent as u32 * changed;
            let pages = (first..first + changed).collect();
            testbed.ask(agent, &Order::Add { pages })?;
        }
        times.extend(testbed.meet(BARRIER, SHARING.len(), 1)?);
    }
    Ok(times)
}
