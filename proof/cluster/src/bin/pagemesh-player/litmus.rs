//! One thread of a litmus test, over and over.
//!
//! A batch is many runs of the program, each on places of its own, so that one
//! barrier serves them all. Before every batch the pages are brought into
//! different states: owned by one thread's node, copied to some of the others.
//! The threads run in step, by the clock, each a little early or late.

use crate::say;
use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use pagemesh::{Barrier, Mapping, Mesh, PAGE_SIZE};
use pagemesh_os::clock::monotonic;
use pagemesh_tests::dice::{Dice, mix};
use pagemesh_tests::litmus::{Access, Litmus};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

#[derive(Args)]
pub(crate) struct Player {
    segment: String,
    /// Which program
    #[arg(long)]
    test: String,
    /// Which of its threads
    #[arg(long)]
    thread: usize,
    /// Where the places of one run are
    #[arg(long, value_enum)]
    layout: Layout,
    /// Runs between two barriers
    #[arg(long)]
    runs: usize,
    /// How many batches of so many runs
    #[arg(long)]
    batches: usize,
    #[arg(long)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Layout {
    /// A page for each.
    Pages,
    /// One page for all.
    Words,
}

/// Where the conductor writes the beat: the first page.
const START: usize = 0;
const STEP: usize = 8;

/// From the conductor's word to the first run of a batch.
const UPBEAT: u64 = 200_000;

impl Player {
    pub(crate) fn play(self) -> Result<()> {
        let litmus = Litmus::named(&self.test).context("no such litmus test")?;
        ensure!(self.thread < litmus.threads.len(), "no such thread");
        let segment = Mesh::connect()?.open(&self.segment, pagemesh::Access::Writable)?;
        let parties = u32::try_from(litmus.threads.len())?;
        Thread {
            litmus,
            memory: segment.map()?,
            barrier: segment.barrier(0, parties),
            dice: Dice::new(mix(self.seed ^ self.thread as u64)),
            loads: String::new(),
            finals: String::new(),
            step: UPBEAT,
            of: self,
        }
        .play()
    }
}

struct Thread {
    of: Player,
    litmus: &'static Litmus,
    memory: Mapping,
    barrier: Barrier,
    dice: Dice,
    loads: String,
    finals: String,
    step: u64,
}

impl Thread {
    fn play(mut self) -> Result<()> {
        for batch in 0..self.of.batches {
            self.clear(batch)?;
            self.barrier.wait()?;
            self.scatter()?;
            self.barrier.wait()?;
            self.run()?;
            self.barrier.wait()?;
            self.collect()?;
            self.barrier.wait()?;
        }
        say(&format!("loads {}", self.loads))?;
        say(&format!("finals {}", self.finals))
    }

    /// One thread stores zeros everywhere, and so comes to own the pages.
    fn clear(&self, batch: usize) -> Result<()> {
        let threads = self.litmus.threads.len();
        for run in 0..self.of.runs {
            let dice = mix(self.of.seed ^ (batch * self.of.runs + run) as u64);
            if dice as usize % threads == self.of.thread {
                for place in 0..self.litmus.places {
                    self.word(run, place)?.store(0, SeqCst);
                }
            }
        }
        Ok(())
    }

    /// All threads take copies of some of the pages, in step with the conductor.
    fn scatter(&mut self) -> Result<()> {
        for run in 0..self.of.runs {
            for place in 0..self.litmus.places {
                if self.dice.once_in(2) && self.word(run, place)?.load(SeqCst) != 0 {
                    bail!("a place is not zero after it was cleared");
                }
            }
        }
        if self.of.thread == 0 {
            self.memory.atomic_u64(STEP)?.store(self.step, SeqCst);
            let start = monotonic() + UPBEAT;
            self.memory.atomic_u64(START)?.store(start, SeqCst);
        }
        Ok(())
    }

    fn run(&mut self) -> Result<()> {
        let start = self.memory.atomic_u64(START)?.load(SeqCst);
        let step = self.memory.atomic_u64(STEP)?.load(SeqCst);
        for run in 0..self.of.runs {
            let early = self.dice.below(step as usize / 2) as u64;
            wait_until(start + (run + 1) as u64 * step - early);
            for access in self.litmus.threads[self.of.thread] {
                match *access {
                    Access::Store(place, value) => {
                        self.word(run, place)?.store(value.into(), SeqCst);
                    }
                    Access::Load(place) => {
                        let seen = self.word(run, place)?.load(SeqCst);
                        self.loads.push(digit(seen)?);
                    }
                }
            }
        }
        // A little faster than it went: so it goes as fast as it can, in step.
        let took = monotonic().saturating_sub(start) / self.of.runs as u64;
        self.step = (took * 9 / 10).clamp(10_000, 2_000_000);
        Ok(())
    }

    fn collect(&mut self) -> Result<()> {
        if self.of.thread == 0 {
            for run in 0..self.of.runs {
                for place in 0..self.litmus.places {
                    let seen = self.word(run, place)?.load(SeqCst);
                    self.finals.push(digit(seen)?);
                }
            }
        }
        Ok(())
    }

    fn word(&self, run: usize, place: usize) -> Result<&std::sync::atomic::AtomicU64> {
        let at = match self.of.layout {
            Layout::Pages => (1 + run * self.litmus.places + place) * PAGE_SIZE,
            Layout::Words => (1 + run) * PAGE_SIZE + place * 1024,
        };
        Ok(self.memory.atomic_u64(at)?)
    }
}

fn digit(value: u64) -> Result<char> {
    let digit = u32::try_from(value)
        .ok()
        .and_then(|v| char::from_digit(v, 10));
    digit.with_context(|| format!("{value} was never stored"))
}

/// Sleeps through long waits and leaves the processor to others in short ones.
fn wait_until(moment: u64) {
    loop {
        let left = moment.saturating_sub(monotonic());
        match left {
            0 => return,
            150_000.. => std::thread::sleep(Duration::from_nanos(left - 100_000)),
            _ => std::thread::yield_now(),
        }
    }
}
