//! One process of a benchmark, on one node: it reads orders, one JSON object a
//! line, and answers each with a line.

use super::peers::redis;
use super::{compress, files, forged, raw, tcp, walk};
use anyhow::{Context, Result};
use clap::Args;
use pagemesh::{Access, Advice, ByteLen, FilePool, Mapping, Mesh, Options, Policy, Segment};
use pagemesh_cli::Exit;
use pagemesh_os::clock::monotonic;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Take orders on standard input
#[derive(Args)]
pub(crate) struct Agent {
    /// Run on this processor only
    #[arg(long)]
    cpu: Option<usize>,
}

/// Orders to an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Create or open the segment, and map it.
    Open {
        name: String,
        pages: u32,
        window_nanos: Option<u64>,
    },
    /// The same, with a policy by its name.
    OpenWith {
        name: String,
        pages: u32,
        policy: String,
        replicas: u8,
    },
    /// Create and map a private segment, of which so many pages may be in memory here.
    OpenPrivate {
        name: String,
        pages: u32,
        local: u32,
    },
    /// Take frames for so many pages of files.
    OpenFrames { name: String, pages: u32 },
    /// Read pages of a file, in this order; answers with times. What no node has it brings itself.
    ReadFile { file: u64, pages: Vec<u32> },
    /// Take so many pages of this process's own memory.
    Own { pages: u32 },
    /// As [`Order::Touch`], of this process's own memory.
    TouchOwn { pages: Vec<u32>, write: bool },
    /// Load or store one word of each page, in this order; answers with times.
    Touch { pages: Vec<u32>, write: bool },
    /// Load one word of each page and then store it, in this order; answers with three times of the
    /// monotonic clock for each: before the load, between, behind the store.
    LoadStore { pages: Vec<u32> },
    /// Answers with the first word of each page.
    Words { pages: Vec<u32> },
    /// Fill as many pages with the contents that `bench compress` calls by this name.
    Fill { pages: u32, kind: String },
    /// Add one to the first word of each page, in this order; answers with times.
    Add { pages: Vec<u32> },
    /// Take a lock, load or store the first word of a page, release; answers with the time.
    Guarded { number: u64, page: u32, write: bool },
    /// Take and release a lock so often; answers with the times of the taking.
    Lock { number: u64, count: u32 },
    /// Take and release so many locks, from number 1 on; answers with the times of the taking.
    Locks { count: u32 },
    /// Take a lock, store something new to so many pages, release it.
    Change { number: u64, pages: u32 },
    /// Meet the others so often; answers with times.
    Barrier {
        number: u64,
        parties: u32,
        count: u32,
    },
    /// Send so many forged datagrams a second; answers with how many left.
    Forge { to: SocketAddr, rate: u32 },
    /// Load or store every word of the first pages; answers with one time.
    Walk { pages: u32, write: bool },
    /// Store every word of so many new pages of a memfd; answers with one time.
    FillMemfd { pages: u32 },
    /// Load one word of each page, dealt to so many threads; answers with one time.
    Crowd { pages: Vec<u32>, threads: u32 },
    /// Take and release a lock for so long, with pauses; answers with how often.
    ContendLock {
        number: u64,
        millis: u64,
        pause_nanos: u64,
    },
    /// Add to the first word for so long, with pauses; answers with how often.
    Contend { millis: u64, pause_nanos: u64 },
    /// Pages will be touched here and there.
    Random,
    /// Close the segment and remove its name, if it still has one.
    Remove { name: String },
    /// The counters of the daemon: see [`COUNTED`].
    Counters,
    /// Send so many bytes to who connects.
    TcpServe { bind: SocketAddr, bytes: u64 },
    /// Receive so many bytes; answers with one time.
    TcpFetch { to: SocketAddr, bytes: u64 },
    /// Answer so many requests with a page each.
    TcpAnswer {
        bind: SocketAddr,
        count: u32,
        spin: bool,
    },
    /// Ask so often; answers with times.
    TcpExchange {
        to: SocketAddr,
        count: u32,
        spin: bool,
    },
    /// Store so many pages in a Redis, and get each; answers with times.
    RedisGet {
        to: SocketAddr,
        count: u32,
        spin: bool,
    },
    /// Let a Redis add so often; answers with times.
    RedisAdd {
        to: SocketAddr,
        count: u32,
        spin: bool,
    },
    /// Answer raw requests.
    RawServe {
        bind: SocketAddr,
        reply: usize,
        count: u32,
        wait: raw::Wait,
    },
    /// Ask raw requests; answers with times.
    RawExchange {
        to: SocketAddr,
        reply: usize,
        count: u32,
        wait: raw::Wait,
    },
    /// Ask all of them at once, again and again; answers with times.
    RawGather {
        from: Vec<SocketAddr>,
        count: u32,
        wait: raw::Wait,
    },
    /// Answer the writer of a page when asked, and pass on what is asked.
    RawHolder(raw::Holder),
    /// Ask holders of a page to give it up; answers with times.
    RawWriter(raw::Writer),
    /// Let so many others go on when all have asked; answers with times.
    RawMeet {
        bind: SocketAddr,
        others: u32,
        count: u32,
        wait: raw::Wait,
    },
}

/// The counters that [`Order::Counters`] answers with.
pub(super) const COUNTED: &[&str] = &[
    "faults_read",
    "faults_local",
    "bytes_in",
    "bytes_out",
    "datagrams_in",
    "datagrams_out",
    "asked_ahead",
    "came_ahead",
    "repaired",
    "resent",
    "ownerships_arrived",
    "tokens_in",
    "pages_in",
    "pages_out",
    "pages_from_disk",
    "pages_returned",
    "pages_lent",
    "faults_soft",
    "pages_borrowed",
    "file_pages_here",
    "file_pages_in",
    "file_pages_out",
    "file_pages_read",
    "file_pages_put",
    "file_pages_kept",
];

/// Answers of an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// Nanoseconds of each, in order; empty for orders that measure nothing.
    Times(Vec<u64>),
    /// It did not work.
    Failed(String),
}

impl Agent {
    pub(crate) fn run(self) -> Result<Exit> {
        if let Some(cpu) = self.cpu {
            pagemesh_os::cpu::pin(cpu).context("cannot pin this process")?;
        }
        let mut actor = Actor::default();
        let mut out = std::io::stdout().lock();
        for line in std::io::stdin().lock().lines() {
            let order: Order = serde_json::from_str(&line?).context("not an order")?;
            let answer = match actor.obey(&order) {
                Ok(times) => Answer::Times(times),
                Err(error) => Answer::Failed(format!("{error:#}")),
            };
            writeln!(out, "{}", serde_json::to_string(&answer)?)?;
            out.flush()?;
        }
        Ok(Exit::OK)
    }
}

#[derive(Default)]
struct Actor {
    testbed: Option<(Segment, Mapping)>,
    /// Memory that no segment has.
    own: Vec<AtomicU64>,
    /// Frames for pages of files.
    frames: Option<FilePool>,
}

/// Words of a page.
const WORDS: usize = 512;

impl Actor {
    fn obey(&mut self, order: &Order) -> Result<Vec<u64>> {
        match order {
            Order::Open {
                name,
                pages,
                window_nanos,
            } => {
                let sequential = |nanos| Policy::Sequential {
                    manager: pagemesh::Manager::Dynamic,
                    window: pagemesh::Window::Nanos(nanos),
                };
                let policy = window_nanos.map(sequential).unwrap_or_default();
                self.open(name, *pages, under(policy))
            }
            Order::OpenWith {
                name,
                pages,
                policy,
                replicas,
            } => self.open_with(name, *pages, policy, *replicas),
            Order::OpenPrivate { name, pages, local } => self.open_private(name, *pages, *local),
            Order::OpenFrames { name, pages } => self.open_frames(name, *pages),
            Order::ReadFile { file, pages } => {
                files::read(self.frames.as_ref().context("no frames")?, *file, pages)
            }
            Order::Own { pages } => Ok(self.own(*pages)),
            Order::TouchOwn { pages, write } => Ok(self.touch_own(pages, *write)),
            Order::Change { number, pages } => self.change(*number, *pages),
            Order::Touch { pages, write } => self.touch(pages, *write),
            Order::Fill { pages, kind } => self.fill(*pages, kind),
            Order::LoadStore { pages } => self.load_store(pages),
            Order::Words { pages } => self.words(pages),
            Order::Add { pages } => self.each(pages, |word| {
                word.fetch_add(1, Relaxed);
            }),
            Order::Guarded {
                number,
                page,
                write,
            } => self.guarded(*number, *page, *write),
            Order::Lock { number, count } => {
                let lock = self.segment()?.lock(*number);
                timed(*count, || lock.lock().map(drop).map_err(Into::into))
            }
            Order::Locks { count } => self.take_locks(*count),
            Order::Barrier {
                number,
                parties,
                count,
            } => {
                let barrier = self.segment()?.barrier(*number, *parties);
                timed(*count, || barrier.wait().map_err(Into::into))
            }
            Order::Walk { pages, write } => walk::walk(self.mapping()?, *pages, *write),
            Order::FillMemfd { pages } => walk::fill_memfd(*pages),
            Order::Crowd { pages, threads } => walk::crowd(self.mapping()?, pages, *threads),
            Order::Contend {
                millis,
                pause_nanos,
            } => self.contend(*millis, *pause_nanos),
            Order::ContendLock {
                number,
                millis,
                pause_nanos,
            } => self.contend_lock(*number, *millis, *pause_nanos),
            Order::TcpAnswer { bind, count, spin } => tcp::answer(*bind, *count, *spin),
            Order::TcpExchange { to, count, spin } => tcp::exchange(*to, *count, *spin),
            Order::RedisGet { to, count, spin } => redis::get(*to, *count, *spin),
            Order::RedisAdd { to, count, spin } => redis::add(*to, *count, *spin),
            Order::Random => {
                let segment = self.segment()?;
                segment.advise(0..segment.size(), Advice::Random)?;
                Ok(Vec::new())
            }
            Order::Remove { name } => {
                self.testbed = None;
                let _ = Mesh::connect()?.remove(name);
                Ok(Vec::new())
            }
            Order::Counters => counters(),
            Order::TcpServe { bind, bytes } => tcp::serve(*bind, *bytes),
            Order::TcpFetch { to, bytes } => tcp::fetch(*to, *bytes),
            Order::RawServe {
                bind,
                reply,
                count,
                wait,
            } => raw::serve(*bind, *reply, *count, *wait),
            Order::RawHolder(holder) => holder.serve(),
            Order::RawWriter(writer) => writer.write(),
            Order::RawGather { from, count, wait } => raw::gather(from, *count, *wait),
            Order::RawMeet {
                bind,
                others,
                count,
                wait,
            } => raw::meet(*bind, *others, *count, *wait),
            Order::Forge { to, rate } => forged::forge(*to, *rate),
            Order::RawExchange { .. } => raw::exchange(order),
        }
    }

    fn open_with(
        &mut self,
        name: &str,
        pages: u32,
        policy: &str,
        replicas: u8,
    ) -> Result<Vec<u64>> {
        let policy = policy.parse().map_err(anyhow::Error::msg)?;
        let options = Options {
            replicas,
            ..under(policy)
        };
        self.open(name, pages, options)
    }

    fn open_private(&mut self, name: &str, pages: u32, local: u32) -> Result<Vec<u64>> {
        let policy: Policy = "private".parse().map_err(anyhow::Error::msg)?;
        let local = ByteLen(u64::from(local) * 4096);
        let policy = policy.with_local(local).map_err(anyhow::Error::msg)?;
        self.open(name, pages, under(policy))
    }

    fn own(&mut self, pages: u32) -> Vec<u64> {
        let words = u64::from(pages) * WORDS as u64;
        self.own = (0..words).map(AtomicU64::new).collect();
        Vec::new()
    }

    fn open_frames(&mut self, name: &str, pages: u32) -> Result<Vec<u64>> {
        self.frames = Some(files::open(name, pages)?);
        Ok(Vec::new())
    }

    /// Each lock once.
    fn take_locks(&self, count: u32) -> Result<Vec<u64>> {
        let segment = self.segment()?;
        let locks: Vec<_> = (1..=u64::from(count)).map(|at| segment.lock(at)).collect();
        let mut locks = locks.iter();
        timed(count, || {
            let lock = locks.next().context("as many as are timed")?;
            lock.lock().map(drop).map_err(Into::into)
        })
    }

    fn segment(&self) -> Result<&Segment> {
        Ok(&self.testbed.as_ref().context("no segment is open")?.0)
    }

    fn mapping(&self) -> Result<&Mapping> {
        Ok(&self.testbed.as_ref().context("no segment is open")?.1)
    }

    fn open(&mut self, name: &str, pages: u32, options: Options) -> Result<Vec<u64>> {
        let mesh = Mesh::connect()?;
        let size = u64::from(pages) * 4096;
        let segment = mesh
            .create(name, size, options)
            .or_else(|_| mesh.open(name, Access::Writable))?;
        let mapping = segment.map()?;
        self.testbed = Some((segment, mapping));
        Ok(Vec::new())
    }

    fn fill(&self, pages: u32, kind: &str) -> Result<Vec<u64>> {
        let contents = compress::of_kind(kind).context("no such contents")?;
        let mapping = self.mapping()?;
        for (page, bytes) in (0..pages as usize).zip(contents.iter().cycle()) {
            mapping.write(page * 4096, bytes)?;
        }
        Ok(Vec::new())
    }

    fn touch_own(&self, pages: &[u32], write: bool) -> Vec<u64> {
        let mut times = Vec::with_capacity(pages.len());
        for page in pages {
            let start = Instant::now();
            if let Some(word) = self.own.get(*page as usize * WORDS) {
                match write {
                    true => word.store(u64::from(*page), Relaxed),
                    false => drop(std::hint::black_box(word.load(Relaxed))),
                }
            }
            times.push(start.elapsed().as_nanos() as u64);
        }
        times
    }

    fn change(&self, number: u64, pages: u32) -> Result<Vec<u64>> {
        let guard = self.segment()?.lock(number).lock()?;
        for page in 0..pages as usize {
            let word = self.mapping()?.atomic_u64(page * 4096)?;
            word.store(word.load(Relaxed) + 1, Relaxed);
        }
        guard.unlock();
        Ok(Vec::new())
    }

    fn touch(&self, pages: &[u32], write: bool) -> Result<Vec<u64>> {
        self.each(pages, |word| {
            if write {
                word.store(1, Relaxed);
            } else {
                std::hint::black_box(word.load(Relaxed));
            }
        })
    }

    fn load_store(&self, pages: &[u32]) -> Result<Vec<u64>> {
        let mapping = self.mapping()?;
        let mut times = Vec::with_capacity(pages.len() * 3);
        for page in pages {
            let word = mapping.atomic_u64(*page as usize * 4096)?;
            times.push(monotonic());
            let found = std::hint::black_box(word.load(Relaxed));
            times.push(monotonic());
            word.store(found + 1, Relaxed);
            times.push(monotonic());
        }
        Ok(times)
    }

    fn words(&self, pages: &[u32]) -> Result<Vec<u64>> {
        let mapping = self.mapping()?;
        let word = |page: &u32| Ok(mapping.atomic_u64(*page as usize * 4096)?.load(Relaxed));
        pages.iter().map(word).collect()
    }

    /// Does something to the first word of each page; returns the time of each.
    fn each(&self, pages: &[u32], mut work: impl FnMut(&AtomicU64)) -> Result<Vec<u64>> {
        let mapping = self.mapping()?;
        let mut times = Vec::with_capacity(pages.len());
        for page in pages {
            let word = mapping.atomic_u64(*page as usize * 4096)?;
            let start = Instant::now();
            work(word);
            times.push(start.elapsed().as_nanos() as u64);
        }
        Ok(times)
    }

    fn contend(&self, millis: u64, pause_nanos: u64) -> Result<Vec<u64>> {
        let word = self.mapping()?.atomic_u64(0)?;
        walk::contend(millis, pause_nanos, || {
            word.fetch_add(1, Relaxed);
            Ok(())
        })
    }

    fn contend_lock(&self, number: u64, millis: u64, pause_nanos: u64) -> Result<Vec<u64>> {
        let lock = self.segment()?.lock(number);
        walk::contend(millis, pause_nanos, || {
            lock.lock().map(drop).map_err(Into::into)
        })
    }

    fn guarded(&self, number: u64, page: u32, write: bool) -> Result<Vec<u64>> {
        let lock = self.segment()?.lock(number);
        timed(1, || {
            let _guard = lock.lock()?;
            self.touch(&[page], write).map(drop)
        })
    }
}

fn counters() -> Result<Vec<u64>> {
    let counted = Mesh::connect()?.counters()?;
    let of = |name: &&str| counted.iter().find(|(known, _)| known == name);
    let of = |name| of(name).map_or(0, |(_, count)| *count);
    Ok(COUNTED.iter().map(of).collect())
}

/// A segment of this policy, otherwise as by default.
fn under(policy: Policy) -> Options {
    Options {
        policy,
        ..Options::default()
    }
}

fn timed(count: u32, mut work: impl FnMut() -> Result<()>) -> Result<Vec<u64>> {
    let mut times = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let start = Instant::now();
        work()?;
        times.push(start.elapsed().as_nanos() as u64);
    }
    Ok(times)
}
