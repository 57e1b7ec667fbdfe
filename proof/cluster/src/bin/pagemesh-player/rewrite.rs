//! Pages that are rewritten phase by phase: their diffs are deferred, and some of them are needed.

use anyhow::{Result, ensure};
use clap::Args;
use pagemesh::{Access, Mapping, Mesh, PAGE_SIZE};
use std::sync::atomic::Ordering;

/// Words of a page.
const WORDS: usize = PAGE_SIZE / 8;

/// In one phase of so many the second party stores, too.
const SHARED: u64 = 3;

#[derive(Args)]
pub(crate) struct Rewrite {
    segment: String,
    /// Which of two parties this is: 0 rewrites all words of each page but the first, 1 stores to that
    /// one in every third phase, and so needs diffs, not copies
    #[arg(long)]
    place: usize,
    /// How many phases
    #[arg(long)]
    phases: u64,
}

impl Rewrite {
    pub(crate) fn play(self) -> Result<()> {
        let mesh = Mesh::connect()?;
        let memory = mesh.open(&self.segment, Access::Writable)?.map()?;
        let barrier = memory.segment().barrier(9, 2);
        for phase in 1..=self.phases {
            self.store(&memory, phase)?;
            barrier.wait()?;
            check(&memory, phase)?;
            barrier.wait()?;
        }
        Ok(())
    }

    fn store(&self, memory: &Mapping, phase: u64) -> Result<()> {
        for at in 0..memory.len() / 8 {
            let is_mine = match at % WORDS {
                0 => self.place == 1 && phase.is_multiple_of(SHARED),
                _ => self.place == 0,
            };
            if is_mine {
                let word = memory.atomic_u64(at * 8)?;
                word.store(expected(at, phase), Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

fn check(memory: &Mapping, phase: u64) -> Result<()> {
    for at in 0..memory.len() / 8 {
        let seen = memory.atomic_u64(at * 8)?.load(Ordering::Relaxed);
        let expected = expected(at, phase);
        ensure!(
            seen == expected,
            "word {at} is {seen}, not {expected}, in phase {phase}"
        );
    }
    Ok(())
}

/// What a word holds at the end of a phase.
fn expected(at: usize, phase: u64) -> u64 {
    match at % WORDS {
        0 => phase - phase % SHARED,
        _ => phase + at as u64,
    }
}
