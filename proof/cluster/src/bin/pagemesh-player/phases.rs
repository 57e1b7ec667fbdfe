//! Phase by phase: values written before a barrier are read after it.

use anyhow::{Result, ensure};
use clap::Args;
use pagemesh::{Access, Mesh};
use std::sync::atomic::Ordering;

#[derive(Args)]
pub(crate) struct Phases {
    segment: String,
    /// Which of the parties this is, from 0
    #[arg(long)]
    place: usize,
    /// How many parties there are
    #[arg(long)]
    parties: usize,
    /// How many phases
    #[arg(long)]
    phases: u64,
    /// Bytes from one party's word to the next: less than a page shares pages
    #[arg(long)]
    stride: usize,
}

impl Phases {
    pub(crate) fn play(self) -> Result<()> {
        let mesh = Mesh::connect()?;
        let memory = mesh.open(&self.segment, Access::Writable)?.map()?;
        let barrier = memory.segment().barrier(9, u32::try_from(self.parties)?);
        let word = |place: usize| memory.atomic_u64(place * self.stride);
        for phase in 1..=self.phases {
            // Plain stores and loads: the barrier is all the order there is.
            word(self.place)?.store(phase, Ordering::Relaxed);
            barrier.wait()?;
            for place in 0..self.parties {
                let seen = word(place)?.load(Ordering::Relaxed);
                ensure!(seen == phase, "party {place} is in {seen} in phase {phase}");
            }
            barrier.wait()?;
        }
        Ok(())
    }
}
