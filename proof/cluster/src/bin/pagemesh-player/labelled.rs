//! A properly labelled program at random: conflicting accesses of two processes are ordered by a
//! barrier or a lock. So every process knows the values it must find, under any policy.
//!
//! Two grounds: bytes that belong to a phase, each written by one process, its
//! neighbours by others; and bytes that belong to locks, those of one lock
//! scattered among those of all others.

use crate::say;
use anyhow::{Result, ensure};
use clap::Args;
use pagemesh::{Access, Mapping, Mesh, PAGE_SIZE};
use pagemesh_tests::dice::{Dice, mix};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

#[derive(Args)]
pub(crate) struct Labelled {
    segment: String,
    /// Which of the processes this is, from 0
    #[arg(long)]
    place: usize,
    /// How many processes there are
    #[arg(long)]
    processes: usize,
    /// The same for all
    #[arg(long)]
    seed: u64,
    /// How many phases at most
    #[arg(long, default_value_t = u64::MAX)]
    phases: u64,
    /// How long: the first process decides
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
}

/// Pages of each ground.
pub(crate) const PAGES: usize = 3;

/// Bytes written in a phase, by all processes together.
const STROKES: usize = 400;

/// Locks, and bytes of each; the first eight are its counter.
const LOCKS: usize = 7;
const CELLS: usize = 16;

/// Where the first process says whether this is the last phase.
const LAST: usize = 2 * PAGES * PAGE_SIZE;

/// Numbers of the barrier and of the first lock.
const MEETING: u64 = 100;
const FIRST_LOCK: u64 = 200;

/// A process at play.
struct Play {
    memory: Mapping,
    /// The expected contents of the phases' pages.
    expected: Vec<u8>,
    turns: u64,
}

impl Labelled {
    pub(crate) fn play(self) -> Result<()> {
        let mesh = Mesh::connect()?;
        let memory = mesh.open(&self.segment, Access::Writable)?.map()?;
        let barrier = memory
            .segment()
            .barrier(MEETING, u32::try_from(self.processes)?);
        let mut play = Play {
            memory,
            expected: vec![0; PAGES * PAGE_SIZE],
            turns: 0,
        };
        let mut dice = Dice::new(mix(self.seed) ^ self.place as u64);
        let end = Instant::now() + Duration::from_secs_f64(self.seconds);
        let mut phase = 0;
        loop {
            phase += 1;
            play.write(&self, phase)?;
            for _ in 0..dice.below(4) {
                play.take_turn(&mut dice)?;
            }
            if self.place == 0 {
                let last = phase >= self.phases || Instant::now() > end;
                play.memory.atomic_u8(LAST)?.store(last.into(), Relaxed);
            }
            barrier.wait()?;
            play.check(phase)?;
            let last = play.memory.atomic_u8(LAST)?.load(Relaxed);
            barrier.wait()?;
            if last == 1 {
                break;
            }
        }
        say(&format!("{phase} {}", play.turns))?;
        let counts: Result<Vec<_>> = (0..LOCKS).map(|lock| play.count(lock)).collect();
        say(&counts?.iter().sum::<u64>().to_string())?;
        // Stays until all have looked, so that nothing has to come from the dead.
        barrier.wait()?;
        Ok(())
    }
}

impl Play {
    /// Writes this process's bytes of a phase, and remembers those of all processes.
    fn write(&mut self, who: &Labelled, phase: u64) -> Result<()> {
        let mut dice = Dice::new(who.seed ^ mix(phase));
        let mut writer = vec![usize::MAX; self.expected.len()];
        // Close together, so that words and pages are shared.
        let (page, width) = (dice.below(PAGES), 1 << (3 + dice.below(10)));
        for _ in 0..STROKES {
            let at = (page * PAGE_SIZE + dice.below(width)) % self.expected.len();
            let (process, byte) = (dice.below(who.processes), dice.throw() as u8);
            if writer[at] == usize::MAX {
                writer[at] = process;
            }
            if writer[at] == process {
                self.expected[at] = byte;
                if process == who.place {
                    self.memory.atomic_u8(at)?.store(byte, Relaxed);
                }
            }
        }
        Ok(())
    }

    fn check(&self, phase: u64) -> Result<()> {
        for (at, expected) in self.expected.iter().enumerate() {
            let found = self.memory.atomic_u8(at)?.load(Relaxed);
            ensure!(
                found == *expected,
                "phase {phase}: byte {at} is {found}, not {expected}"
            );
        }
        Ok(())
    }

    /// Takes a lock, looks whether its bytes belong together, and changes them.
    fn take_turn(&mut self, dice: &mut Dice) -> Result<()> {
        let lock = dice.below(LOCKS);
        let guard = self
            .memory
            .segment()
            .lock(FIRST_LOCK + lock as u64)
            .lock()?;
        ensure!(
            !guard.recovered(),
            "nobody died, yet lock {lock} was recovered"
        );
        let count = self.count(lock)?;
        for cell in 8..CELLS {
            let found = self.memory.atomic_u8(cell_at(lock, cell))?.load(Relaxed);
            let expected = expected_in(lock, cell, count);
            ensure!(
                found == expected,
                "lock {lock}: cell {cell} is {found} after {count} turns, not {expected}"
            );
        }
        for (cell, byte) in (count + 1).to_le_bytes().into_iter().enumerate() {
            self.memory
                .atomic_u8(cell_at(lock, cell))?
                .store(byte, Relaxed);
        }
        for cell in 8..CELLS {
            let byte = expected_in(lock, cell, count + 1);
            self.memory
                .atomic_u8(cell_at(lock, cell))?
                .store(byte, Relaxed);
        }
        self.turns += 1;
        guard.unlock();
        Ok(())
    }

    /// How often a lock was taken.
    fn count(&self, lock: usize) -> Result<u64> {
        let mut bytes = [0; 8];
        for (cell, byte) in bytes.iter_mut().enumerate() {
            *byte = self.memory.atomic_u8(cell_at(lock, cell))?.load(Relaxed);
        }
        Ok(u64::from_le_bytes(bytes))
    }
}

/// Where a byte of a lock lies: beside those of other locks, some on another page.
fn cell_at(lock: usize, cell: usize) -> usize {
    let near = cell * LOCKS + lock;
    let page = PAGES + (cell % 3).min(PAGES - 1);
    page * PAGE_SIZE + near
}

/// The value of a lock's byte after `count` turns.
fn expected_in(lock: usize, cell: usize, count: u64) -> u8 {
    if count == 0 {
        return 0;
    }
    mix(count * LOCKS as u64 + lock as u64).to_le_bytes()[cell % 8]
}
