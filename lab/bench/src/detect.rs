//! The cost of finding out which pages a program wrote, and which bytes (T6): three ways, with the
//! cost for every page that was written, in each interval.
//!
//! - *fault*: pages are protected; the first store stops its thread, a twin is made,
//!   the page is writable; at the end of the interval it is protected again.
//! - *compare*: pages stay writable, and each is compared with its twin.
//! - *scan*: pages are protected, and the kernel lifts that by itself; one call tells
//!   which pages were written, and these are compared with their twins.
//!
//! In all of them the changes are encoded, and the twin is ready for the next interval.

use super::Effort;
use super::report::{Report, Samples};
use anyhow::{Context as _, Result, anyhow};
use pagemesh_diff::{PAGE, Page, encode};
use pagemesh_os::memfd::Memfd;
use pagemesh_os::pagemap::Pagemap;
use pagemesh_os::poll::Poll;
use pagemesh_os::region::{Region, Shape};
use pagemesh_os::uffd::{FaultBuffer, Uffd};
use pagemesh_os::{clock, cpu};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Pages that may be written.
const PAGES: usize = 320;

/// Words of a page that are written in an interval: a tenth.
const WORDS: usize = 51;

const LENGTH: u64 = (PAGES * PAGE) as u64;

/// Which of the pages are written in every interval.
const EVERY: [(&str, usize); 2] = [("all", 1), ("tenth", 10)];

/// Memory as a program has it, as the daemon has it, and its twins.
struct Field {
    program: Region,
    frames: Memfd,
    twins: Vec<Page>,
    diff: Vec<u8>,
    uffd: Uffd,
    base: u64,
}

impl Field {
    fn new(handshake: impl Fn(&Uffd) -> std::io::Result<()>) -> Result<Self> {
        let shape = Shape {
            words: PAGES * PAGE / 8,
            bytes: 0,
        };
        let program = Region::create("pagemesh-bench", shape)?;
        for word in program.words() {
            word.store(1, Ordering::Relaxed);
        }
        let frames = Memfd::adopt(program.as_fd().try_clone_to_owned()?);
        let base = program.words().as_ptr() as u64;
        let (uffd, _) = Uffd::create(None)?;
        handshake(&uffd)?;
        uffd.register(base, LENGTH)?;
        let mut field = Self {
            program,
            frames,
            twins: vec![[0; PAGE]; PAGES],
            diff: Vec::new(),
            uffd,
            base,
        };
        for page in 0..PAGES {
            field.look(page)?;
        }
        Ok(field)
    }

    /// The program's stores in an interval.
    fn store(&self, interval: u64, every: usize) {
        for page in (0..PAGES).step_by(every) {
            for word in 0..WORDS {
                let at = page * PAGE / 8 + word * 10;
                self.program.word(at).store(interval, Ordering::Relaxed);
            }
        }
    }

    /// Compares a page with its twin, which follows; bytes of the diff.
    fn look(&mut self, page: usize) -> Result<usize> {
        let mut now = [0; PAGE];
        self.frames.read((page * PAGE) as u64, &mut now)?;
        self.diff.clear();
        let lines = encode(&self.twins[page], &now, &mut self.diff);
        lines.copy(&now, &mut self.twins[page]);
        Ok(self.diff.len())
    }

    fn address(&self, page: usize) -> u64 {
        self.base + (page * PAGE) as u64
    }
}

/// Nanoseconds for each written page of an interval, for each interval.
fn timed(
    effort: &Effort,
    every: usize,
    mut interval: impl FnMut(u64) -> Result<()>,
) -> Result<Samples> {
    let mut nanos = Vec::new();
    let count = u64::from(effort.rounds * effort.count.min(100));
    for number in 2..count + 2 {
        let start = clock::monotonic();
        interval(number)?;
        let took = clock::monotonic() - start;
        nanos.push(took / PAGES.div_ceil(every) as u64);
    }
    let mut samples = Samples::default();
    samples.extend(nanos);
    Ok(samples)
}

/// The stores alone, which are part of all the others.
fn stores(effort: &Effort, every: usize) -> Result<Samples> {
    let field = Field::new(|uffd| uffd.handshake().map(|_| ()))?;
    timed(effort, every, |interval| {
        field.store(interval, every);
        Ok(())
    })
}

fn compare(effort: &Effort, every: usize) -> Result<Samples> {
    let mut field = Field::new(|uffd| uffd.handshake().map(|_| ()))?;
    timed(effort, every, |interval| {
        field.store(interval, every);
        (0..PAGES).try_for_each(|page| field.look(page).map(|_| ()))
    })
}

fn scan(effort: &Effort, every: usize) -> Result<Samples> {
    let mut field = Field::new(Uffd::handshake_async)?;
    let pagemap = Pagemap::own()?;
    field.uffd.protect(field.base, LENGTH);
    let mut written = Vec::new();
    timed(effort, every, |interval| {
        field.store(interval, every);
        written.clear();
        let range = field.base..field.base + LENGTH;
        pagemap.take_written(range, |run| written.push(run))?;
        for run in &written {
            let pages =
                (run.start - field.base) as usize / PAGE..(run.end - field.base) as usize / PAGE;
            for page in pages {
                field.look(page)?;
            }
        }
        Ok(())
    })
}

/// Every first store is a fault, served by another thread as by the daemon.
fn fault(effort: &Effort, every: usize) -> Result<Samples> {
    let mut field = Field::new(|uffd| uffd.handshake().map(|_| ()))?;
    let over = AtomicBool::new(false);
    field.uffd.protect(field.base, LENGTH);
    let uffd = Uffd::adopt(field.uffd.as_fd().try_clone_to_owned()?)?;
    let frames = Memfd::adopt(field.frames.as_fd().try_clone_to_owned()?);
    let base = field.base;
    thread::scope(|scope| {
        let server = scope.spawn(|| serve(&uffd, &frames, base, &over));
        let samples = timed(effort, every, |interval| {
            field.store(interval, every);
            for page in (0..PAGES).step_by(every) {
                field.uffd.protect(field.address(page), PAGE as u64);
                field.look(page)?;
            }
            Ok(())
        });
        over.store(true, Ordering::Relaxed);
        server
            .join()
            .map_err(|_| anyhow!("who serves faults is gone"))??;
        samples
    })
}

/// Makes a twin for each fault, until told to end.
fn serve(uffd: &Uffd, frames: &Memfd, base: u64, over: &AtomicBool) -> Result<()> {
    // As a daemon that is pinned beside its program.
    cpu::pin(0)?;
    let mut poll = Poll::new()?;
    poll.add(uffd, 0)?;
    let (mut ready, mut faults) = (Vec::new(), FaultBuffer::default());
    let mut twin = [0; PAGE];
    while !over.load(Ordering::Relaxed) {
        poll.wait(Some(1_000_000), &mut ready)?;
        uffd.read(&mut faults)?;
        for index in 0..faults.len() {
            if let Some(fault) = faults.get(index) {
                let address = fault.address & !(PAGE as u64 - 1);
                frames.read(address - base, &mut twin)?;
                uffd.unprotect(address, PAGE as u64);
            }
        }
    }
    Ok(())
}

/// Adds a row for each way, beside the stores alone.
pub(super) fn measure(effort: &Effort, report: &mut Report) {
    type Way = fn(&Effort, usize) -> Result<Samples>;
    let ways: [(&str, Way); 3] = [("fault", fault), ("compare", compare), ("scan", scan)];
    for (share, every) in EVERY {
        let stores = on_one_processor(|| stores(effort, every));
        for (name, way) in ways {
            let name = format!("detect_{name}_{share}");
            if !effort.wants(&[&name]) {
                continue;
            }
            match (on_one_processor(|| way(effort, every)), &stores) {
                (Ok(samples), Ok(stores)) => {
                    report.row(name, "none", &samples, Some(("stores_alone", stores)));
                }
                (Err(why), _) => report.skip(name, &why),
                (_, Err(why)) => report.skip(name, why),
            }
        }
    }
}

/// A thread of its own, so that others are not bound.
fn on_one_processor(work: impl FnOnce() -> Result<Samples> + Send) -> Result<Samples> {
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            cpu::pin(0).context("cannot run on the first processor")?;
            work()
        });
        worker.join().map_err(|_| anyhow!("a thread panicked"))?
    })
}
