//! PageRank of the packages of this machine's distribution, by all processes of
//! a job, in shared memory.
//!
//! Rank 0 reads the package lists and writes the graph into one segment. Two
//! more segments hold the ranks, one of this round and one of the next. Each
//! process computes a slice of the next ranks from all of the present ones, with
//! plain loads and stores, and waits for the others at a barrier. Rank 0 then
//! checks the result against a computation of its own, without shared memory.

mod graph;
mod packages;
mod shared;
mod words;

pub(crate) use shared::Progress;

use anyhow::{Context, Result, ensure};
use clap::Args;
use graph::Graph;
use pagemesh::{Job, Mesh};
use serde::{Deserialize, Serialize};
use shared::{Shared, Sums};
use std::path::PathBuf;
use std::time::Instant;

/// Probability to follow a dependency rather than to jump anywhere.
const DAMPING: f64 = 0.85;

/// Packages that are shown.
const SHOWN: usize = 10;

/// How far the shared result may be from the single process's.
const AGREEMENT: f64 = 1e-9;

/// PageRank over the dependencies of all packages this machine knows
#[derive(Args, Clone, Debug)]
pub(crate) struct PageRank {
    /// Stop when the ranks change by less than this in total
    #[arg(long, default_value_t = 1e-9)]
    tolerance: f64,
    /// Stop after so many rounds
    #[arg(long, default_value_t = 200)]
    rounds: u32,
    /// Use only the first so many packages
    #[arg(long)]
    pub(crate) packages: Option<usize>,
    /// Write the result there, as JSON, instead of showing it
    #[arg(long, value_name = "FILE")]
    result: Option<PathBuf>,
}

/// What came out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) packages: usize,
    pub(crate) dependencies: usize,
    pub(crate) processes: u32,
    pub(crate) rounds: u32,
    /// Total change in the last round.
    pub(crate) delta: f64,
    /// Largest difference from the single process's result.
    pub(crate) difference: f64,
    /// Reading the package lists and writing the graph.
    pub(crate) load_seconds: f64,
    /// All rounds, in shared memory.
    pub(crate) shared_seconds: f64,
    /// The same rounds by one process, without.
    pub(crate) single_seconds: f64,
    pub(crate) top: Vec<Ranked>,
}

/// A package and its rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ranked {
    pub(crate) package: String,
    pub(crate) rank: f64,
}

impl PageRank {
    /// Takes part in the job that the environment describes.
    pub(crate) fn run(&self) -> Result<()> {
        let mesh = Mesh::connect()?;
        let job = Job::from_env(&mesh)?;
        if job.rank() > 0 {
            job.barrier(0).wait()?; // the graph is there
            let shared = Shared::open(&mesh, &job)?;
            self.iterate(&shared, &job)?;
            return Ok(());
        }
        let start = Instant::now();
        let graph = Graph::build(&packages::read(self.packages)?);
        ensure!(
            !graph.names.is_empty(),
            "no packages found; try apt-get update"
        );
        let shared = Shared::create(&mesh, &job, &graph)?;
        job.barrier(0).wait()?;
        let loaded = Instant::now();
        let (rounds, delta) = self.iterate(&shared, &job)?;
        let computed = Instant::now();
        let ranks = shared.ranks(rounds);
        let single = Instant::now();
        let expected = graph.page_rank(DAMPING, rounds);
        let outcome = Outcome {
            packages: graph.names.len(),
            dependencies: graph.sources.len(),
            processes: job.size(),
            rounds,
            delta,
            difference: largest_difference(&ranks, &expected),
            load_seconds: (loaded - start).as_secs_f64(),
            shared_seconds: (computed - loaded).as_secs_f64(),
            single_seconds: single.elapsed().as_secs_f64(),
            top: top(&graph, &ranks),
        };
        Shared::remove(&mesh, &job);
        self.tell(&outcome)?;
        outcome.check()
    }

    /// Rounds until nothing changes any more; how many, and the last change.
    fn iterate(&self, shared: &Shared, job: &Job) -> Result<(u32, f64)> {
        let slice = shared.slice(job.rank(), job.size());
        let barrier = job.barrier(1);
        let mut before = shared.first_sums();
        for round in 0..self.rounds {
            let mine = shared.compute(&slice, round, DAMPING, before.dangling);
            shared.post(job.rank(), round, mine);
            barrier.wait()?;
            before = (0..job.size())
                .map(|rank| shared.posted(rank, round))
                .fold(Sums::default(), Sums::plus);
            if job.rank() == 0 {
                shared.report(round + 1, before.delta);
            }
            if before.delta < self.tolerance {
                return Ok((round + 1, before.delta));
            }
        }
        Ok((self.rounds, before.delta))
    }

    fn tell(&self, outcome: &Outcome) -> Result<()> {
        if let Some(path) = &self.result {
            let text = serde_json::to_string(outcome)?;
            return std::fs::write(path, text)
                .with_context(|| format!("writing {}", path.display()));
        }
        crate::output::lines(outcome.lines())
    }
}

impl Outcome {
    /// For people.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!(
                "{} packages, {} dependencies, {} processes: {} rounds, last change {:.1e}",
                self.packages, self.dependencies, self.processes, self.rounds, self.delta
            ),
            format!(
                "loading {:.2} s, shared memory {:.2} s; one process alone {:.2} s, \
                 largest difference {:.1e}",
                self.load_seconds, self.shared_seconds, self.single_seconds, self.difference
            ),
        ];
        for (place, ranked) in self.top.iter().enumerate() {
            lines.push(format!(
                "{:>3}. {:<24} {:.6}",
                place + 1,
                ranked.package,
                ranked.rank
            ));
        }
        lines
    }

    fn check(&self) -> Result<()> {
        ensure!(
            self.difference <= AGREEMENT,
            "the result in shared memory differs from that of one process by {:e}: \
             shared memory was not coherent",
            self.difference
        );
        Ok(())
    }
}

fn largest_difference(ranks: &[f64], expected: &[f64]) -> f64 {
    let pairs = ranks.iter().zip(expected);
    // A rank that is no number must not pass unseen.
    pairs
        .map(|(one, other)| (one - other).abs())
        .fold(0.0, |largest, difference| {
            if difference > largest || difference.is_nan() {
                difference
            } else {
                largest
            }
        })
}

fn top(graph: &Graph, ranks: &[f64]) -> Vec<Ranked> {
    let mut order: Vec<usize> = (0..ranks.len()).collect();
    order.sort_by(|one, other| ranks[*other].total_cmp(&ranks[*one]));
    order
        .into_iter()
        .take(SHOWN)
        .map(|package| Ranked {
            package: graph.names[package].clone(),
            rank: ranks[package],
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_found_wherever_it_is() {
        assert_eq!(largest_difference(&[1.0, 2.0], &[1.0, 2.0]), 0.0);
        assert_eq!(largest_difference(&[1.0, 2.0], &[1.5, 2.0]), 0.5);
        assert!(largest_difference(&[f64::NAN, 2.0], &[1.0, 2.0]).is_nan());
        assert!(largest_difference(&[1.0, f64::NAN], &[1.5, 2.0]).is_nan());
    }
}
