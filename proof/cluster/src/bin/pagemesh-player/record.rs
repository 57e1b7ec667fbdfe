//! Random loads and stores, written down with the moments when they began and ended.

use crate::say;
use anyhow::{Result, anyhow};
use clap::Args;
use pagemesh::{Access, Mapping, Mesh, PAGE_SIZE};
use pagemesh_history::Access as Seen;
use pagemesh_os::clock::monotonic;
use pagemesh_tests::dice::{Dice, mix};
use pagemesh_tests::record::{PLACES, write};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

#[derive(Args)]
pub(crate) struct Record {
    segment: String,
    /// Which process this is, from 0
    #[arg(long)]
    place: u64,
    /// How many there are
    #[arg(long)]
    parties: u32,
    #[arg(long)]
    seed: u64,
}

const THREADS: u64 = 2;
const ACCESSES: u64 = 1500;

/// A processor may look at the clock a little before or after the access itself.
const SLACK: u64 = 100;

impl Record {
    pub(crate) fn play(self) -> Result<()> {
        let segment = Mesh::connect()?.open(&self.segment, Access::Writable)?;
        let memory = segment.map()?;
        segment.barrier(0, self.parties).wait()?;
        let mut history = Vec::new();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let number = self.place * THREADS + thread;
                    let dice = Dice::new(mix(self.seed ^ number));
                    let memory = &memory;
                    scope.spawn(move || act(memory, number, dice))
                })
                .collect();
            for thread in threads {
                history.extend(thread.join().map_err(|_| anyhow!("a panic"))??);
            }
            anyhow::Ok(())
        })?;
        say(&write(&history))
    }
}

fn act(memory: &Mapping, thread: u64, mut dice: Dice) -> Result<Vec<Seen<usize>>> {
    let mut history = Vec::new();
    for number in 0..ACCESSES {
        let place = dice.below(PLACES);
        let word = word(memory, place)?;
        let store = dice.once_in(3);
        let began = monotonic() - SLACK;
        let value = if store {
            // No other store ever has this value.
            let value = (thread + 1) << 32 | number;
            word.store(value, SeqCst);
            value
        } else {
            word.load(SeqCst)
        };
        history.push(Seen {
            place,
            store,
            value,
            began,
            ended: Some(monotonic() + SLACK),
        });
    }
    Ok(history)
}

fn word(memory: &Mapping, place: usize) -> Result<&AtomicU64> {
    Ok(memory.atomic_u64(place / 2 * PAGE_SIZE + place % 2 * 2048)?)
}
