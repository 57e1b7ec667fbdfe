//! Operations of two processes on two nodes, round by round, that are not plain memory: barriers,
//! watches, conditions, and mappings that come and go. It ends when the input of the first one
//! does.

use crate::say;
use anyhow::{Result, ensure};
use clap::Args;
use pagemesh::{Access, Mesh, PAGE_SIZE};
use std::io::Read as _;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

#[derive(Args)]
pub(crate) struct Rounds {
    segment: String,
    /// The one of the two that leads
    #[arg(long)]
    first: bool,
}

const STOP: usize = 0;
const BYTE: usize = PAGE_SIZE;
const READY: usize = 2 * PAGE_SIZE;

static OVER: AtomicBool = AtomicBool::new(false);

impl Rounds {
    pub(crate) fn play(self) -> Result<()> {
        std::thread::spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            OVER.store(true, Relaxed);
        });
        let mut round = 1;
        while self.round(round)? {
            round += 1;
        }
        say(&round.to_string())
    }

    /// False if it was the last one.
    fn round(&self, round: u64) -> Result<bool> {
        let memory = Mesh::connect()?
            .open(&self.segment, Access::Writable)?
            .map()?;
        let segment = memory.segment();
        if self.first {
            let stop = u64::from(OVER.load(Relaxed));
            memory.atomic_u64(STOP)?.store(stop, SeqCst);
        }
        segment.barrier(1, 2).wait()?;
        if memory.load_u64(STOP)? == 1 {
            return Ok(false);
        }
        if self.first {
            memory.write(BYTE, &[round as u8])?;
        } else {
            let seen = memory.wait_change(BYTE, (round - 1) as u8, None)?;
            ensure!(seen == round as u8, "{seen} in round {round}");
        }
        let mut guard = segment.lock(3).lock()?;
        ensure!(!guard.recovered(), "nobody died");
        if self.first {
            memory.atomic_u64(READY)?.store(round, SeqCst);
            segment.condition(3).signal()?;
        }
        while memory.load_u64(READY)? < round {
            segment.condition(3).wait(&mut guard)?;
        }
        guard.unlock();
        // Else the next round's stop might overtake this one's.
        segment.barrier(2, 2).wait()?;
        Ok(true)
    }
}
