//! Betweenness centrality of the packages of this machine's distribution, by all
//! processes of a job, in shared memory.
//!
//! Rank 0 reads the package lists and writes the graph into a segment of policy `release`.
//! Each process takes sources off a counter, searches the graph from each and
//! adds what it finds to the sums of all packages, with atomic operations; at a barrier
//! the sums of all processes become one. Rank 0 then checks the result against a
//! computation of its own, without shared memory, and measures what threads reach.

mod brandes;
mod graph;
mod packages;
mod shared;

pub use shared::Progress;

use anyhow::{Context, Result, ensure};
use brandes::{Search, value, zeros};
use clap::Args;
use graph::Graph;
use pagemesh::{Job, Mesh};
use serde::{Deserialize, Serialize};
use shared::Shared;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// Packages that are shown.
const SHOWN: usize = 5;

/// How far the shared result may be from the single process's, as a part of it: sums are
/// added in another order.
const AGREEMENT: f64 = 1e-9;

/// Which packages lie on the shortest paths of dependency between the others
#[derive(Args, Clone, Debug)]
pub struct Centrality {
    /// Follow the paths from so many packages, evenly chosen; from all if there are fewer
    #[arg(long, default_value_t = 12_000)]
    pub sources: usize,
    /// Use only the first so many packages
    #[arg(long)]
    pub packages: Option<usize>,
    /// Write the result there, as JSON, instead of showing it
    #[arg(long, value_name = "FILE")]
    result: Option<PathBuf>,
}

/// The result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Packages.
    pub packages: usize,
    /// Dependencies between them.
    pub dependencies: usize,
    /// Packages from which paths were followed.
    pub sources: usize,
    /// Processes that shared the work.
    pub processes: u32,
    /// Processors that this machine has for the processes.
    pub processors: usize,
    /// Largest difference from the single process's result, as a part of it.
    pub difference: f64,
    /// Reading the package lists and writing the graph.
    pub load_seconds: f64,
    /// All processes, in shared memory, from the graph to the sums.
    pub shared_seconds: f64,
    /// The same by one process, without.
    pub single_seconds: f64,
    /// The same by as many threads as processes, in one process.
    pub threads_seconds: f64,
    /// Those with the most, in order.
    pub top: Vec<Ranked>,
}

/// A package and its betweenness.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ranked {
    /// Its name.
    pub package: String,
    /// Shortest paths through it, each by its part of those between the same two packages.
    pub betweenness: f64,
}

impl Centrality {
    /// Takes part in the job that the environment describes; rank 0 shows the result.
    ///
    /// # Errors
    /// If shared memory or the package lists cannot be read, or the result is wrong.
    pub fn run(&self, show: impl FnOnce(Vec<String>) -> Result<()>) -> Result<()> {
        let mesh = Mesh::connect()?;
        let job = Job::from_env(&mesh)?;
        if job.rank() > 0 {
            job.barrier(0).wait()?; // the segment is there
            return self.compute(&Shared::open(&mesh, &job)?, &job);
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
        shared.meet()?;
        self.compute(&shared, &job)?;
        let sums: Vec<f64> = shared.sums()?.iter().map(value).collect();
        let shared_seconds = loaded.elapsed().as_secs_f64();
        Shared::remove(&mesh, &job);
        let (single, single_seconds) = self.with_threads(&graph, 1);
        let (_, threads_seconds) = self.with_threads(&graph, job.size() as usize);
        let outcome = Outcome {
            packages: graph.names.len(),
            dependencies: graph.edges.targets.len(),
            sources: self.chosen(&graph),
            processes: job.size(),
            processors: std::thread::available_parallelism()?.get(),
            difference: largest_difference(&sums, &single),
            load_seconds: (loaded - start).as_secs_f64(),
            shared_seconds,
            single_seconds,
            threads_seconds,
            top: top(&graph, &sums),
        };
        self.tell(&outcome, show)?;
        outcome.check()
    }

    /// How many sources there are.
    fn chosen(&self, graph: &Graph) -> usize {
        self.sources.clamp(1, graph.names.len())
    }

    /// This process's part.
    fn compute(&self, shared: &Shared, job: &Job) -> Result<()> {
        let (edges, sums) = (shared.edges()?, shared.sums()?);
        let sources = self.sources.clamp(1, edges.count());
        let progress = Progress::new(job.segment().map()?);
        if job.rank() == 0 {
            progress.announce(sources)?;
        }
        let mut search = Search::new(edges.count());
        loop {
            let taken = progress.take(sources)?;
            if taken.is_empty() {
                return shared.meet();
            }
            for index in taken {
                search.from(source(index, sources, edges.count()), edges, sums);
            }
        }
    }

    /// The same by threads of this process, without PageMesh; and in how many seconds.
    fn with_threads(&self, graph: &Graph, threads: usize) -> (Vec<f64>, f64) {
        let start = Instant::now();
        let (count, sources) = (graph.names.len(), self.chosen(graph));
        let (edges, next) = (graph.edges.borrowed(), AtomicUsize::new(0));
        let compute = || {
            let (sums, mut search) = (zeros(count), Search::new(count));
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= sources {
                    return sums;
                }
                search.from(source(index, sources, count), edges, &sums);
            }
        };
        let parts: Vec<Vec<AtomicU64>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(compute)).collect();
            let parts = threads.into_iter().map(|thread| thread.join());
            parts
                .map(|part| part.expect("a search does not panic"))
                .collect()
        });
        let sum = |package: usize| parts.iter().map(|part| value(&part[package])).sum();
        ((0..count).map(sum).collect(), start.elapsed().as_secs_f64())
    }

    fn tell(&self, outcome: &Outcome, show: impl FnOnce(Vec<String>) -> Result<()>) -> Result<()> {
        if let Some(path) = &self.result {
            let text = serde_json::to_string(outcome)?;
            return std::fs::write(path, text)
                .with_context(|| format!("writing {}", path.display()));
        }
        show(outcome.lines())
    }
}

/// The package that is source number `index` of so many.
fn source(index: usize, sources: usize, packages: usize) -> u32 {
    (index * packages / sources) as u32
}

impl Outcome {
    /// How many times as fast as one process.
    #[must_use]
    pub fn speedup(&self) -> f64 {
        self.single_seconds / self.shared_seconds
    }

    /// How many times as fast threads are, which share memory without any network.
    #[must_use]
    pub fn ideal(&self) -> f64 {
        self.single_seconds / self.threads_seconds
    }

    /// For people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let processes = self.processes;
        let mut lines = vec![
            format!(
                "{} packages, {} dependencies: which packages lie on the shortest paths from {} \
                 of them to all others?",
                self.packages, self.dependencies, self.sources
            ),
            format!(
                "one process {:.2} s, {processes} nodes {:.2} s: {:.2} times as fast; \
                 {processes} threads of one process: {:.2} times (processors: {})",
                self.single_seconds,
                self.shared_seconds,
                self.speedup(),
                self.ideal(),
                self.processors,
            ),
            format!(
                "largest difference from one process: {:.0e} of the value",
                self.difference
            ),
        ];
        for (place, ranked) in self.top.iter().enumerate() {
            lines.push(format!(
                "{:>3}. {:<24} {:.0}",
                place + 1,
                ranked.package,
                ranked.betweenness
            ));
        }
        lines
    }

    fn check(&self) -> Result<()> {
        ensure!(
            self.difference <= AGREEMENT,
            "the result in shared memory differs from that of one process by {:e} of it: \
             shared memory was not coherent",
            self.difference
        );
        Ok(())
    }
}

fn largest_difference(sums: &[f64], expected: &[f64]) -> f64 {
    let pairs = sums.iter().zip(expected);
    // A sum that is no number must not pass unseen.
    pairs
        .map(|(one, other)| (one - other).abs() / other.abs().max(1.0))
        .fold(0.0, |largest, difference| {
            if difference > largest || difference.is_nan() {
                difference
            } else {
                largest
            }
        })
}

fn top(graph: &Graph, sums: &[f64]) -> Vec<Ranked> {
    let mut order: Vec<usize> = (0..sums.len()).collect();
    order.sort_by(|one, other| sums[*other].total_cmp(&sums[*one]));
    order
        .into_iter()
        .take(SHOWN)
        .map(|package| Ranked {
            package: graph.names[package].clone(),
            betweenness: sums[package],
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_found_wherever_it_is() {
        assert_eq!(largest_difference(&[1.0, 2.0], &[1.0, 2.0]), 0.0);
        assert_eq!(largest_difference(&[1.0, 2.0], &[1.5, 4.0]), 0.5);
        assert!(largest_difference(&[f64::NAN, 2.0], &[1.0, 2.0]).is_nan());
        assert!(largest_difference(&[1.0, f64::NAN], &[1.5, 2.0]).is_nan());
    }

    #[test]
    fn sources_are_spread_over_all_packages() {
        let sources: Vec<u32> = (0..4).map(|index| source(index, 4, 10)).collect();
        assert_eq!(sources, [0, 2, 5, 7]);
        assert!((0..10).all(|index| source(index, 10, 10) == index as u32));
    }
}
