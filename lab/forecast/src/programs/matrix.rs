//! Matrix multiply in bands of rows.

use super::nanos;
use crate::cluster::Cluster;
use crate::costs::Costs;
use crate::engine::Stuck;
use crate::host::{Act, Place, Program};
use core::time::Duration;
use pagemesh_wire::peer::Window;
use std::collections::VecDeque;

/// A multiplication of `lab/apps/mirage/matrix.c`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    /// Rows and columns.
    pub n: u32,
    /// Rows and pages have common borders above 120.
    pub padding: bool,
    /// Nodes, of which the first only loads and collects.
    pub sites: u32,
    /// The time of one process alone, for all of it.
    pub alone: Duration,
    /// Time that a waiting process sleeps between two looks.
    pub nap: Duration,
    /// Δ.
    pub window: Window,
}

/// Multiplications, whose median counts: the first finds memory that was never used.
const TIMES: u32 = 5;

/// Bytes of a number.
const NUMBER: u32 = 4;

const PAGE: u32 = 4096;

/// The cost of checking, in steps of the innermost loop: two products with a vector.
const CHECK: u64 = 4;

/// Where the three matrices are.
#[derive(Clone, Copy)]
struct Layout {
    n: u32,
    /// Numbers from row to row.
    stride: u32,
    /// Pages of a matrix.
    pages: u32,
}

impl Layout {
    fn of(matrix: &Matrix) -> Self {
        let n = matrix.n;
        let stride = if matrix.padding && n > 120 {
            n.next_power_of_two().max(128)
        } else {
            n
        };
        let pages = (n * stride * NUMBER).div_ceil(PAGE);
        Self { n, stride, pages }
    }

    /// The page of a number of matrix 0, 1 or 2.
    fn page(&self, matrix: u32, row: u32, column: u32) -> u32 {
        matrix * self.pages + (row * self.stride + column) * NUMBER / PAGE
    }

    /// The pages of a row.
    fn row(&self, matrix: u32, row: u32) -> impl Iterator<Item = u32> + use<> {
        self.page(matrix, row, 0)..=self.page(matrix, row, self.n - 1)
    }
}

fn memory(page: u32) -> Place {
    Place {
        segment: 0,
        page,
        word: 0,
    }
}

/// The segment that shows which processes have begun and which are done; all of it is one page.
fn sign(worker: u32) -> Place {
    Place {
        segment: 1,
        page: 0,
        word: worker,
    }
}

/// One of the processes: the first loads and collects, the others multiply.
struct Process {
    me: u32,
    sites: u32,
    layout: Layout,
    /// Nanoseconds of the innermost loop.
    step: f64,
    nap: u64,
    time: u32,
    acts: VecDeque<Act>,
    /// Looks at this word until it is not zero.
    awaits: Option<Place>,
}

impl Program for Process {
    fn next(&mut self, loaded: u64) -> Act {
        if let Some(place) = self.awaits {
            if loaded == 0 {
                self.acts.push_front(Act::Load(place));
                self.acts.push_front(Act::Sleep(self.nap));
            }
            self.awaits = None;
        }
        if self.acts.is_empty() && self.time < TIMES {
            self.time += 1;
            self.plan();
        }
        let act = self.acts.pop_front().unwrap_or(Act::End);
        if let Act::Load(place) = act
            && place.segment == 1
        {
            self.awaits = Some(place);
        }
        act
    }
}

impl Process {
    fn work(&self, steps: u64) -> Act {
        Act::Work((steps as f64 * self.step) as u64)
    }

    /// One multiplication.
    fn plan(&mut self) {
        if self.me == 0 {
            self.collect();
        } else {
            self.multiply();
        }
        // The program's barriers are no pages: all processes meet here.
        self.acts.push_back(Act::Meet);
        if self.me == 0 {
            let signs = 0..self.sites;
            self.acts
                .extend(signs.map(|worker| Act::Store(sign(worker), 0)));
        }
        self.acts.push_back(Act::Meet);
    }

    fn collect(&mut self) {
        let layout = self.layout;
        let n = u64::from(layout.n);
        let loaded = (0..2 * layout.pages).map(|page| Act::Store(memory(page), 1));
        self.acts.extend(loaded);
        self.acts.extend([Act::Note, Act::Store(sign(0), 1)]);
        let done = (1..self.sites).map(|worker| Act::Load(sign(worker)));
        self.acts.extend(done);
        self.acts.push_back(self.work(CHECK / 2 * n * n));
        for row in 0..layout.n {
            let pages = layout.row(2, row).map(|page| Act::Load(memory(page)));
            self.acts.extend(pages);
            self.acts.push_back(self.work(CHECK / 2 * n));
        }
        self.acts.push_back(Act::Note);
    }

    fn multiply(&mut self) {
        let layout = self.layout;
        let (n, workers) = (layout.n, self.sites - 1);
        let begin = n * (self.me - 1) / workers;
        let end = n * self.me / workers;
        self.acts.push_back(Act::Load(sign(0)));
        for row in begin..end {
            // The first sum goes through a row of A, and down all of B.
            let mut last = [u32::MAX; 2];
            for k in 0..n {
                let pages = [layout.page(0, row, k), layout.page(1, k, 0)];
                for (last, page) in last.iter_mut().zip(pages) {
                    if *last != page {
                        self.acts.push_back(Act::Load(memory(page)));
                        *last = page;
                    }
                }
                if row == begin {
                    self.acts.push_back(self.work(1));
                }
            }
            if row > begin {
                self.acts.push_back(self.work(u64::from(n)));
            }
            let mut done = 1;
            for page in layout.row(2, row) {
                self.acts.push_back(Act::Store(memory(page), 1));
                let inside = |column: &u32| layout.page(2, row, *column) == page;
                let sums = (done..n).filter(inside).count() as u64;
                self.acts.push_back(self.work(sums * u64::from(n)));
                done += sums as u32;
            }
        }
        self.acts.push_back(Act::Store(sign(self.me), 1));
    }
}

/// The time of a multiplication.
///
/// # Errors
/// If the costs allow no end.
pub fn matrix(costs: &Costs, matrix: &Matrix) -> Result<Duration, Stuck> {
    let layout = Layout::of(matrix);
    let n = u64::from(matrix.n);
    let step = nanos(matrix.alone) as f64 / (n * n * n + CHECK * n * n) as f64;
    let process = |me| {
        Box::new(Process {
            me,
            sites: matrix.sites,
            layout,
            step,
            nap: nanos(matrix.nap),
            time: 0,
            acts: VecDeque::new(),
            awaits: None,
        }) as Box<dyn Program>
    };
    let programs = (0..matrix.sites).map(process).collect();
    let mut cluster = Cluster::new(*costs, matrix.window, &[3 * layout.pages, 1], programs)?;
    let notes = cluster.run()?;
    let mut took: Vec<_> = notes
        .as_chunks::<2>()
        .0
        .iter()
        .map(|[begin, end]| *end - *begin)
        .collect();
    took.sort();
    Ok(took[took.len() / 2])
}
