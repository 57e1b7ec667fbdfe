//! The graph and the sums, in a segment of policy `release`, and the number of the next
//! source, in the job's own segment, of policy `sequential`.

use crate::brandes::Sums;
use crate::graph::{Edges, Graph};
use anyhow::{Context, Result};
use pagemesh::{
    Access, Advice, Barrier, Job, Kind, Mapping, Merge, Mesh, Options, PAGE_SIZE, Policy, Segment,
    Spread,
};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Sources that a process takes at once: some 20 ms of work.
const TAKEN: usize = 64;

/// The segment of all processes, mapped.
pub(crate) struct Shared {
    segment: Segment,
    memory: Mapping,
    layout: Layout,
    parties: u32,
}

/// Where in the segment things begin, in bytes. The first page has the counts; sums begin
/// at a page, so that no page has both what is read by all and what is written by all.
#[derive(Clone, Copy)]
struct Layout {
    count: usize,
    edges: usize,
}

impl Layout {
    const COUNT: usize = 0;
    const EDGES: usize = 8;
    const STARTS: usize = PAGE_SIZE;

    fn targets(self) -> usize {
        Self::STARTS + 4 * (self.count + 1)
    }

    fn sums(self) -> Range<u64> {
        let start = (self.targets() + 4 * self.edges).next_multiple_of(PAGE_SIZE) as u64;
        start..start + 8 * self.count as u64
    }

    fn graph(self) -> Range<u64> {
        Self::STARTS as u64..self.sums().start
    }
}

impl Shared {
    /// Makes the segment and fills it.
    pub(crate) fn create(mesh: &Mesh, job: &Job, graph: &Graph) -> Result<Self> {
        let (starts, targets) = (&graph.edges.starts, &graph.edges.targets);
        let layout = Layout {
            count: graph.edges.count(),
            edges: targets.len(),
        };
        let options = Options {
            exclusive: true,
            policy: Policy::Release {
                spread: Spread::default(),
            },
            ..Options::default()
        };
        let name = name(job);
        let segment = mesh
            .create(&name, layout.sums().end, options)
            .with_context(|| format!("creating the segment {name}"))?;
        // Contributions of processes to a sum are added where they meet, without a lock.
        segment.reduce(layout.sums(), Merge::Sum, Kind::F64)?;
        let memory = segment.map()?;
        memory
            .atomic_u64(Layout::COUNT)?
            .store(layout.count as u64, Ordering::Relaxed);
        memory
            .atomic_u64(Layout::EDGES)?
            .store(layout.edges as u64, Ordering::Relaxed);
        fill(memory.atomic_u32s(Layout::STARTS, starts.len())?, starts);
        fill(
            memory.atomic_u32s(layout.targets(), targets.len())?,
            targets,
        );
        Ok(Self {
            segment,
            memory,
            layout,
            parties: job.size(),
        })
    }

    /// Opens what rank 0 has made, and has its daemon fetch the graph at once.
    pub(crate) fn open(mesh: &Mesh, job: &Job) -> Result<Self> {
        let name = name(job);
        let segment = mesh
            .open(&name, Access::Writable)
            .with_context(|| format!("opening the segment {name}"))?;
        let mut shared = Self {
            memory: segment.map()?,
            segment,
            layout: Layout { count: 0, edges: 0 },
            parties: job.size(),
        };
        shared.meet()?;
        shared.layout = Layout {
            count: shared.memory.load_u64(Layout::COUNT)? as usize,
            edges: shared.memory.load_u64(Layout::EDGES)? as usize,
        };
        shared
            .segment
            .advise(shared.layout.graph(), Advice::WillNeed)?;
        Ok(shared)
    }

    /// Removes the name; the memory goes with the last process.
    pub(crate) fn remove(mesh: &Mesh, job: &Job) {
        let _ = mesh.remove(&name(job));
    }

    /// Waits until all processes are here; then each sees what all have written.
    pub(crate) fn meet(&self) -> Result<()> {
        let barrier: Barrier = self.segment.barrier(0, self.parties);
        Ok(barrier.wait()?)
    }

    pub(crate) fn edges(&self) -> Result<Edges<&[AtomicU32]>> {
        let Layout { count, edges } = self.layout;
        Ok(Edges {
            starts: self.memory.atomic_u32s(Layout::STARTS, count + 1)?,
            targets: self.memory.atomic_u32s(self.layout.targets(), edges)?,
        })
    }

    pub(crate) fn sums(&self) -> Result<&Sums> {
        let start = self.layout.sums().start as usize;
        Ok(self.memory.atomic_u64s(start, self.layout.count)?)
    }
}

fn fill(words: &[AtomicU32], values: &[AtomicU32]) {
    for (word, value) in words.iter().zip(values) {
        word.store(value.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// The job's number keeps the segments of two jobs apart.
fn name(job: &Job) -> String {
    format!("centrality.{}", job.segment().name())
}

/// How many sources are taken, in the job's own segment: each store to it is seen by the
/// next load on any node.
pub struct Progress(Mapping);

impl Progress {
    /// Of the job whose segment this is a mapping of.
    #[must_use]
    pub fn new(mapping: Mapping) -> Self {
        Self(mapping)
    }

    /// Takes the next of so many sources; none are left at the end.
    ///
    /// # Errors
    /// If the segment is gone.
    pub fn take(&self, sources: usize) -> Result<Range<usize>> {
        let taken = self
            .0
            .atomic_u64(0)?
            .fetch_add(TAKEN as u64, Ordering::Relaxed);
        let first = (taken as usize).min(sources);
        Ok(first..(first + TAKEN).min(sources))
    }

    /// Stores the number of sources.
    ///
    /// # Errors
    /// If the segment is gone.
    pub fn announce(&self, sources: usize) -> Result<()> {
        self.0
            .atomic_u64(8)?
            .store(sources as u64, Ordering::Relaxed);
        Ok(())
    }

    /// How many sources are taken, of how many.
    ///
    /// # Errors
    /// If the segment is gone.
    pub fn look(&self) -> Result<(u64, u64)> {
        Ok((self.0.load_u64(0)?, self.0.load_u64(8)?))
    }
}
