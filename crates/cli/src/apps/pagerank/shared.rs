//! The graph and the ranks in shared memory.

use super::graph::{Graph, base};
use super::words::Words;
use anyhow::Result;
use pagemesh::{Access, Job, Mapping, Mesh, PAGE_SIZE};
use std::ops::Range;

/// Ranks in one page. Slices end at pages, so that no two processes write one.
const PER_PAGE: usize = PAGE_SIZE / 8;

/// What a process found in its slice, or all of them together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sums {
    /// How much the ranks changed.
    pub(super) delta: f64,
    /// The rank of packages that depend on nothing.
    pub(super) dangling: f64,
}

impl Sums {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            delta: self.delta + other.delta,
            dangling: self.dangling + other.dangling,
        }
    }
}

/// All segments of the computation, mapped.
pub(super) struct Shared {
    graph: SharedGraph,
    /// Of even and of odd rounds.
    ranks: [Words; 2],
    /// Two pages a process, for even and odd rounds.
    sums: Words,
    /// The job's own segment; who looks on reads it there.
    progress: Words,
}

impl Shared {
    /// Makes the segments and fills them.
    pub(super) fn create(mesh: &Mesh, job: &Job, graph: &Graph) -> Result<Self> {
        let count = graph.names.len();
        let sums = 2 * PER_PAGE * job.size() as usize;
        let shared = Self {
            graph: SharedGraph::create(mesh, &name(job, "graph"), graph)?,
            ranks: [
                Words::create(mesh, &name(job, "ranks.even"), count)?,
                Words::create(mesh, &name(job, "ranks.odd"), count)?,
            ],
            sums: Words::create(mesh, &name(job, "sums"), sums)?,
            progress: Words::of(job.segment())?,
        };
        for package in 0..count {
            shared.ranks[0].set_f64(package, 1.0 / count as f64);
        }
        Ok(shared)
    }

    /// Opens what rank 0 has made.
    pub(super) fn open(mesh: &Mesh, job: &Job) -> Result<Self> {
        let open = |part| Words::open(mesh, &name(job, part), Access::Writable);
        Ok(Self {
            graph: SharedGraph::open(mesh, &name(job, "graph"))?,
            ranks: [open("ranks.even")?, open("ranks.odd")?],
            sums: open("sums")?,
            progress: Words::of(job.segment())?,
        })
    }

    /// Removes the names; the memory goes with the last process.
    pub(super) fn remove(mesh: &Mesh, job: &Job) {
        for part in ["graph", "ranks.even", "ranks.odd", "sums"] {
            let _ = mesh.remove(&name(job, part));
        }
    }

    /// The packages of one process: whole pages of ranks, with about as many
    /// dependencies as those of every other.
    pub(super) fn slice(&self, rank: u32, size: u32) -> Range<usize> {
        let count = self.graph.count();
        let work = |package: usize| self.graph.start(package) + package;
        let cut = |part: u32| {
            let wanted = work(count) * part as usize / size as usize;
            let mut pages = (0..count).step_by(PER_PAGE);
            pages.find(|page| work(*page) >= wanted).unwrap_or(count)
        };
        let end = if rank + 1 == size {
            count
        } else {
            cut(rank + 1)
        };
        cut(rank)..end
    }

    /// What there is before the first round.
    pub(super) fn first_sums(&self) -> Sums {
        let count = self.graph.count();
        let nowhere = (0..count).filter(|package| self.graph.share(*package) == 0.0);
        Sums {
            delta: f64::INFINITY,
            dangling: nowhere.count() as f64 / count as f64,
        }
    }

    /// One round of a slice: reads all ranks, writes those of the slice.
    pub(super) fn compute(
        &self,
        slice: &Range<usize>,
        round: u32,
        damping: f64,
        dangling: f64,
    ) -> Sums {
        let now = &self.ranks[round as usize % 2];
        let next = &self.ranks[(round as usize + 1) % 2];
        let base = base(damping, dangling, self.graph.count());
        let mut sums = Sums::default();
        for target in slice.clone() {
            let given: f64 = (self.graph.start(target)..self.graph.start(target + 1))
                .map(|edge| self.graph.source(edge))
                .map(|source| now.f64(source) * self.graph.share(source))
                .sum();
            let rank = base + damping * given;
            next.set_f64(target, rank);
            sums.delta += (rank - now.f64(target)).abs();
            if self.graph.share(target) == 0.0 {
                sums.dangling += rank;
            }
        }
        sums
    }

    /// Tells the others what was found in a slice.
    pub(super) fn post(&self, rank: u32, round: u32, sums: Sums) {
        let page = page(rank, round);
        self.sums.set_f64(page, sums.delta);
        self.sums.set_f64(page + 1, sums.dangling);
    }

    /// What a process posted in this round, once all are at the barrier.
    pub(super) fn posted(&self, rank: u32, round: u32) -> Sums {
        let page = page(rank, round);
        Sums {
            delta: self.sums.f64(page),
            dangling: self.sums.f64(page + 1),
        }
    }

    /// For those who look on.
    pub(super) fn report(&self, rounds: u32, delta: f64) {
        self.progress.set_f64(1, delta);
        self.progress.set(0, rounds.into());
    }

    /// The ranks after so many rounds.
    pub(super) fn ranks(&self, rounds: u32) -> Vec<f64> {
        let ranks = &self.ranks[rounds as usize % 2];
        (0..self.graph.count())
            .map(|package| ranks.f64(package))
            .collect()
    }
}

/// Where a process posts what it found in a round.
fn page(rank: u32, round: u32) -> usize {
    (2 * rank as usize + round as usize % 2) * PER_PAGE
}

/// The job's number keeps the segments of two jobs apart.
fn name(job: &Job, part: &str) -> String {
    format!("pagerank.{part}.{}", job.segment().name())
}

/// The progress of a computation, as somebody sees it who takes no part.
pub(crate) struct Progress(Words);

impl Progress {
    /// Of the job whose segment this is a mapping of.
    pub(crate) fn new(mapping: Mapping) -> Self {
        Self(Words::over(mapping))
    }

    /// Rounds done, and the change in the last of them.
    pub(crate) fn look(&self) -> (u64, f64) {
        (self.0.get(0), self.0.f64(1))
    }
}

/// [`Graph`] in a segment: two counts, then starts, sources and shares.
struct SharedGraph {
    words: Words,
    count: usize,
    sources: usize,
    shares: usize,
}

impl SharedGraph {
    /// The counts have a page of their own; everything else follows.
    const STARTS: usize = PER_PAGE;

    fn create(mesh: &Mesh, name: &str, graph: &Graph) -> Result<Self> {
        let (count, edges) = (graph.names.len(), graph.sources.len());
        let (_, shares) = Self::places(count, edges);
        let words = Words::create(mesh, name, shares + count)?;
        words.set(0, count as u64);
        words.set(1, edges as u64);
        let shared = Self::over(words);
        shared.words.set_u32s(Self::STARTS, &graph.starts);
        shared.words.set_u32s(shared.sources, &graph.sources);
        for (package, share) in graph.shares.iter().enumerate() {
            shared.words.set_f64(shared.shares + package, *share);
        }
        Ok(shared)
    }

    fn open(mesh: &Mesh, name: &str) -> Result<Self> {
        Ok(Self::over(Words::open(mesh, name, Access::ReadOnly)?))
    }

    fn over(words: Words) -> Self {
        let count = words.get(0) as usize;
        let (sources, shares) = Self::places(count, words.get(1) as usize);
        Self {
            words,
            count,
            sources,
            shares,
        }
    }

    /// Words before the sources, and before the shares.
    fn places(count: usize, edges: usize) -> (usize, usize) {
        let sources = Self::STARTS + (count + 1).div_ceil(2);
        (sources, sources + edges.div_ceil(2))
    }

    fn count(&self) -> usize {
        self.count
    }

    fn start(&self, package: usize) -> usize {
        self.words.u32(Self::STARTS, package) as usize
    }

    fn source(&self, edge: usize) -> usize {
        self.words.u32(self.sources, edge) as usize
    }

    fn share(&self, package: usize) -> f64 {
        self.words.f64(self.shares + package)
    }
}
