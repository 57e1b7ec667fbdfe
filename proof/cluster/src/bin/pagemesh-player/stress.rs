//! All operations at random, from several threads, checked as they go.
//!
//! Every thread of the test owns one *slot* of 64 bytes, which all others read;
//! slots of different nodes share pages. *Totals* are raised under locks, each
//! twice, on two pages that must agree. *Atomics* are added to. *Patterns* fill
//! pages, by stores or by `read(2)`, under locks.
//!
//! Some processes may be *victims*, which go on until they are killed. Data under a lock may be
//! half-written by a dead one if, and only if, the next holder is told; it then repairs the data.

use crate::say;
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use pagemesh::{Access, LockGuard, Mapping, Mesh, PAGE_SIZE, Segment};
use pagemesh_tests::dice::{Dice, mix};
use pagemesh_tests::stress::{ATOMICS, Finals, PATTERNS, Report, TOTALS};
use rustix::fs::{MemfdFlags, memfd_create};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

#[derive(Args)]
pub(crate) struct Stress {
    segment: String,
    #[arg(long)]
    seed: u64,
    /// How long
    #[arg(long)]
    seconds: f64,
    /// How many processes there are in all
    #[arg(long)]
    processes: u32,
    /// Threads of each process
    #[arg(long)]
    threads: usize,
    /// Which process this is, from 0
    #[arg(long)]
    place: usize,
    /// So many processes more are killed again and again
    #[arg(long, default_value_t = 0)]
    victims: usize,
    /// Be one of them: places after those of the others
    #[arg(long)]
    victim: bool,
    /// Look on without the right to write, until killed
    #[arg(long)]
    onlooker: bool,
}

/// On a machine that is too busy, time alone would let threads end idle.
const ACTS_AT_LEAST: u64 = 60;

const GATHER: u64 = 1;
const FINISH: u64 = 2;
const TOTAL_LOCK: u64 = 100;
const PATTERN_LOCK: u64 = 200;

// The pages.
const SLOT_PAGES: usize = 4;
const TOTALS_AT: usize = SLOT_PAGES * PAGE_SIZE;
const SHADOWS_AT: usize = TOTALS_AT + 2 * PAGE_SIZE;
const ATOMICS_AT: usize = SHADOWS_AT + 2 * PAGE_SIZE;
const PATTERNS_AT: usize = ATOMICS_AT + 2 * PAGE_SIZE;

const SLOT: usize = 64;
const PATTERN_WORDS: usize = PAGE_SIZE / 8;

impl Stress {
    pub(crate) fn play(self) -> Result<()> {
        let access = if self.onlooker {
            Access::ReadOnly
        } else {
            Access::Writable
        };
        let segment = Mesh::connect()?.open(&self.segment, access)?;
        let ground = Ground {
            memory: segment.map()?,
            slots: (self.processes as usize + self.victims) * self.threads,
            deaths: self.victims > 0,
            segment,
        };
        if self.victim || self.onlooker {
            say("playing")?;
            let never = Instant::now() + Duration::from_secs(1 << 30);
            return self.in_threads(&ground, never).map(|_| ());
        }
        let gather = ground.segment.barrier(GATHER, self.processes);
        gather.wait()?;
        let end = Instant::now() + Duration::from_secs_f64(self.seconds);
        let report = self.in_threads(&ground, end)?;
        ground.segment.barrier(FINISH, self.processes).wait()?;
        say(&serde_json::to_string(&report)?)?;
        if self.place == 0 {
            say(&serde_json::to_string(&ground.finals()?)?)?;
        }
        // No process leaves before the sums are read.
        gather.wait()?;
        Ok(())
    }

    fn in_threads(&self, ground: &Ground, end: Instant) -> Result<Report> {
        let mut sum = Report::default();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let slot = self.place * self.threads + thread;
                    let dice = Dice::new(mix(self.seed.wrapping_add(slot as u64)));
                    scope.spawn(move || Actor::new(ground, slot, dice)?.act(end))
                })
                .collect();
            for thread in threads {
                let report = thread.join().map_err(|_| anyhow::anyhow!("a panic"))??;
                add(&mut sum, report);
            }
            Ok(sum)
        })
    }
}

fn add(sum: &mut Report, part: Report) {
    fn each<const N: usize>(sum: &mut [u64; N], part: [u64; N]) {
        sum.iter_mut()
            .zip(part)
            .for_each(|(sum, part)| *sum += part);
    }
    sum.slots.extend(part.slots);
    each(&mut sum.totals, part.totals);
    each(&mut sum.atomics, part.atomics);
    each(&mut sum.patterns, part.patterns);
    sum.read += part.read;
}

/// The shared memory, with its layout.
struct Ground {
    segment: Segment,
    memory: Mapping,
    slots: usize,
    deaths: bool,
}

impl Ground {
    fn word(&self, at: usize) -> &AtomicU64 {
        self.memory
            .atomic_u64(at)
            .expect("the test made it big enough")
    }

    fn slot(&self, slot: usize, word: usize) -> &AtomicU64 {
        self.word(slot_at(slot, word))
    }

    /// Also for processes that may only read.
    fn look(&self, slot: usize, word: usize) -> u64 {
        let seen = self.memory.load_u64(slot_at(slot, word));
        seen.expect("the test made it big enough")
    }

    /// Neighbouring sums are on different pages.
    fn sum(&self, base: usize, which: usize) -> &AtomicU64 {
        self.word(base + which % 2 * PAGE_SIZE + which / 2 * 8)
    }

    fn pattern(&self, which: usize, word: usize) -> &AtomicU64 {
        self.word(PATTERNS_AT + which * PAGE_SIZE + word * 8)
    }

    fn finals(&self) -> Result<Finals> {
        let mut finals = Finals::default();
        for slot in 0..self.slots {
            finals.slots.push(self.slot(slot, 0).load(SeqCst) / 2);
        }
        for which in 0..TOTALS {
            let (guard, total, shadow) = self.open_total(which)?;
            finals.totals[which] = total;
            finals.shadows[which] = shadow;
            guard.unlock();
        }
        for which in 0..ATOMICS {
            finals.atomics[which] = self.sum(ATOMICS_AT, which).load(SeqCst);
        }
        for which in 0..PATTERNS {
            let (guard, count) = self.open_pattern(which)?;
            finals.patterns[which] = count;
            guard.unlock();
        }
        Ok(finals)
    }

    fn lock(&self, key: u64) -> Result<LockGuard> {
        let guard = self.segment.lock(key).lock().context("locking")?;
        let expected = self.deaths || !guard.recovered();
        ensure!(expected, "nobody died, yet lock {key} was recovered");
        Ok(guard)
    }

    /// Locks a total; it and its shadow, put right if their last holder died.
    fn open_total(&self, which: usize) -> Result<(LockGuard, u64, u64)> {
        let guard = self.lock(TOTAL_LOCK + which as u64)?;
        let total = self.sum(TOTALS_AT, which).load(Relaxed);
        let shadow = self.sum(SHADOWS_AT, which).load(Relaxed);
        if guard.recovered() && total == shadow + 1 {
            self.sum(SHADOWS_AT, which).store(total, Relaxed);
            return Ok((guard, total, total));
        }
        ensure!(
            total == shadow,
            "total {which} is {total}, its shadow {shadow}"
        );
        Ok((guard, total, shadow))
    }

    /// Locks a pattern; how often it was written, put right if its last holder died.
    fn open_pattern(&self, which: usize) -> Result<(LockGuard, u64)> {
        let guard = self.lock(PATTERN_LOCK + which as u64)?;
        if guard.recovered() {
            // Its first word is stored first.
            let count = self.pattern(which, 0).load(Relaxed);
            let page = pattern_page(which, count);
            self.memory.write(PATTERNS_AT + which * PAGE_SIZE, &page)?;
        }
        let count = self.check_pattern(which)?;
        Ok((guard, count))
    }

    /// How often the pattern was written, if it is whole.
    fn check_pattern(&self, which: usize) -> Result<u64> {
        let count = self.pattern(which, 0).load(Relaxed);
        for word in 1..PATTERN_WORDS {
            let (seen, expected) = (
                self.pattern(which, word).load(Relaxed),
                pattern_word(which, count, word),
            );
            ensure!(
                seen == expected,
                "pattern {which} of count {count}: word {word} is {seen:#x}, not {expected:#x}"
            );
        }
        Ok(count)
    }
}

/// Slots of neighbours, who are on different nodes, share pages.
fn slot_at(slot: usize, word: usize) -> usize {
    let (page, place) = (slot % SLOT_PAGES, slot / SLOT_PAGES);
    page * PAGE_SIZE + place * SLOT + word * 8
}

/// Zero for a pattern that was never written.
fn pattern_word(which: usize, count: u64, word: usize) -> u64 {
    if count == 0 {
        return 0;
    }
    mix(count ^ ((which as u64) << 56) ^ ((word as u64) << 40))
}

fn slot_word(slot: usize, count: u64, word: usize) -> u64 {
    mix(count ^ ((slot as u64) << 48) ^ ((word as u64) << 40))
}

/// One thread.
struct Actor<'a> {
    ground: &'a Ground,
    slot: usize,
    dice: Dice,
    /// The count last seen in every slot: none ever falls.
    seen: Vec<u64>,
    raised: u64,
    report: Report,
    /// Where patterns take a turn through the kernel.
    file: OwnedFd,
}

impl<'a> Actor<'a> {
    fn new(ground: &'a Ground, slot: usize, dice: Dice) -> Result<Self> {
        Ok(Self {
            ground,
            slot,
            dice,
            seen: vec![0; ground.slots],
            // A victim goes on where its predecessor was killed.
            raised: ground.look(slot, 0).div_ceil(2),
            report: Report::default(),
            file: memfd_create("pattern", MemfdFlags::CLOEXEC)?,
        })
    }

    fn act(mut self, end: Instant) -> Result<Report> {
        let mut acts = 0;
        while acts < ACTS_AT_LEAST || Instant::now() < end {
            acts += 1;
            match self.dice.below(20) {
                _ if !self.ground.memory.is_writable() => {
                    self.read_slot()?;
                    // The processor is for those whose stores are to be seen.
                    std::thread::sleep(Duration::from_micros(50));
                }
                0..7 => self.raise_slot(),
                7..14 => self.read_slot()?,
                14..17 => self.raise_total()?,
                17..19 => self.raise_atomic(),
                _ => self.write_pattern()?,
            }
        }
        self.report.slots.push((self.slot, self.raised));
        Ok(self.report)
    }

    /// Odd while it is written, as readers can see.
    fn raise_slot(&mut self) {
        let (ground, slot) = (self.ground, self.slot);
        self.raised += 1;
        ground.slot(slot, 0).store(2 * self.raised - 1, SeqCst);
        for word in 1..8 {
            let value = slot_word(slot, self.raised, word);
            ground.slot(slot, word).store(value, SeqCst);
        }
        ground.slot(slot, 0).store(2 * self.raised, SeqCst);
    }

    fn read_slot(&mut self) -> Result<()> {
        let slot = self.dice.below(self.ground.slots);
        let load = |word| self.ground.look(slot, word);
        let (before, words, after) = (load(0), [1, 2, 3, 4, 5, 6, 7].map(load), load(0));
        ensure!(before <= after, "slot {slot} fell from {before} to {after}");
        let last = self.seen[slot];
        ensure!(last <= before, "slot {slot} fell from {last} to {before}");
        self.seen[slot] = after;
        if before != after || before % 2 == 1 || before == 0 {
            return Ok(());
        }
        for (word, seen) in (1..).zip(words) {
            let expected = slot_word(slot, before / 2, word);
            ensure!(
                seen == expected,
                "slot {slot} is torn in word {word}: {words:x?}"
            );
        }
        self.report.read += 1;
        Ok(())
    }

    fn raise_total(&mut self) -> Result<()> {
        let which = self.dice.below(TOTALS);
        let (guard, total, shadow) = self.ground.open_total(which)?;
        self.ground.sum(TOTALS_AT, which).store(total + 1, Relaxed);
        self.ground
            .sum(SHADOWS_AT, which)
            .store(shadow + 1, Relaxed);
        guard.unlock();
        self.report.totals[which] += 1;
        Ok(())
    }

    fn raise_atomic(&mut self) {
        let which = self.dice.below(ATOMICS);
        self.ground.sum(ATOMICS_AT, which).fetch_add(1, SeqCst);
        self.report.atomics[which] += 1;
    }

    fn write_pattern(&mut self) -> Result<()> {
        let which = self.dice.below(PATTERNS);
        let (guard, count) = self.ground.open_pattern(which)?;
        let page = pattern_page(which, count + 1);
        if self.dice.once_in(2) {
            self.ground
                .memory
                .write(PATTERNS_AT + which * PAGE_SIZE, &page)?;
        } else {
            self.through_the_kernel(which, &page)?;
        }
        guard.unlock();
        self.report.patterns[which] += 1;
        Ok(())
    }

    /// By `pread(2)` into the segment, and back by `pwrite(2)`, to compare.
    fn through_the_kernel(&self, which: usize, page: &[u8]) -> Result<()> {
        rustix::io::pwrite(&self.file, page, 0)?;
        let memory = self.ground.memory.as_ptr();
        // SAFETY: a whole page of the mapping, which the kernel fills as any other
        // process might; no Rust reference to it exists.
        let moved = unsafe {
            let at = memory.add(PATTERNS_AT + which * PAGE_SIZE).cast();
            let file = self.file.as_raw_fd();
            let read = libc::pread(file, at, PAGE_SIZE, 0);
            (
                read,
                libc::pwrite(file, at.cast_const(), PAGE_SIZE, PAGE_SIZE as i64),
            )
        };
        let whole = PAGE_SIZE as isize;
        if moved != (whole, whole) {
            let error = std::io::Error::last_os_error();
            bail!("read and write of a page moved {moved:?} bytes: {error}");
        }
        let mut back = vec![0; PAGE_SIZE];
        rustix::io::pread(&self.file, &mut back, PAGE_SIZE as u64)?;
        ensure!(
            back == page,
            "pattern {which} changed on its way through the kernel"
        );
        Ok(())
    }
}

fn pattern_page(which: usize, count: u64) -> Vec<u8> {
    let words = (0..PATTERN_WORDS).map(|word| match word {
        0 => count,
        _ => pattern_word(which, count, word),
    });
    words.flat_map(u64::to_ne_bytes).collect()
}
