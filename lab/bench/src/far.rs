//! `bench far`: what a page costs that is not in memory. A private segment's pages come from a donor,
//! beside a read fault in shared memory and the raw exchange of the same bytes; the pages of a process
//! in a memory control group come from swap space: a file, memory of the cluster by `pagemesh swap`,
//! zram, and memory of another host by NBD. One after the other in each round, with quiet processors
//! and beside a companion.
//!
//! Two programs besides look things up in memory of which half is here: numpy takes items of an array
//! by their numbers, sqlite rows of a database in memory by their keys.
//!
//! Of the other memories a sixteenth is here, so that nearly every touch is a miss, and the median is one.
//! That no more is resident is asserted by what the kernel counts.

mod group;
mod nbd;
mod programs;
mod space;

use super::agent::Order;
use super::boards::Running;
use super::fault::{WINDOW, shuffled};
use super::report::{Report, Samples};
use super::testbed::Testbed;
use super::{Waiting, nodes_with_idle_memory};
use anyhow::{Context, Result, ensure};
use clap::Args;
use group::Group;
use programs::{Lookups, Rest};
use space::Space;
use std::collections::BTreeMap;

/// What a page costs that does not fit into memory
#[derive(Args, Clone, Debug)]
pub(crate) struct Far {
    /// MiB of each memory; a sixteenth of it is here
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(32..=4096))]
    size: u32,
    /// Pages touched at random in each round
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    count: u32,
    /// Lookups of a program in each round
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    lookups: u32,
    /// Rounds, everything in turn, after one to warm up
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

/// The part of each memory that is here.
const HERE: u32 = 16;

/// The program of a process that swaps takes so much besides.
const PROGRAM: u64 = 12 << 20;

/// Names of the two surroundings.
const SURROUNDINGS: [&str; 2] = ["quiet", "companion"];

/// Processor time of a program that sends pages, and the number of those.
#[derive(Clone, Copy, Debug, Default)]
struct SenderCost {
    nanos: u64,
    pages: u64,
}

impl SenderCost {
    fn add(&mut self, nanos: u64, pages: u64) {
        self.nanos += nanos;
        self.pages += pages;
    }

    fn micros_a_page(self) -> f64 {
        self.nanos as f64 / 1e3 / (self.pages.max(1) as f64)
    }
}

/// What was measured in one surrounding.
#[derive(Default)]
struct Measured {
    raw: Samples,
    tcp: Samples,
    read_fault: Samples,
    random: Samples,
    walk: Samples,
    /// The raw exchange's answering program, and the donor, at random pages and in a walk.
    raw_cost: SenderCost,
    random_cost: SenderCost,
    walk_cost: SenderCost,
    /// Pages that came from the disk instead.
    disk: u64,
    swapped: BTreeMap<Space, Samples>,
    lookups: BTreeMap<(Lookups, Rest), Samples>,
}

impl Far {
    pub(super) fn measure(&self) -> Result<Report> {
        let mut report = Report::new("far");
        let plan = nodes_with_idle_memory(2 * self.pages());
        let mut testbed = Testbed::raise(&plan, Waiting::Block)?;
        let spaces = self.spaces(&testbed, &mut report);
        let mut lookups = lookups(&spaces, &mut report);
        let mut all: [Measured; 2] = Default::default();
        for round in 0..=self.rounds {
            for (beside, measured) in all.iter_mut().enumerate() {
                let _companion = (beside == 1).then(Running::start).transpose()?;
                self.round(&mut testbed, &spaces, round, measured)?;
                self.look_up(&testbed, &mut lookups, measured, &mut report)?;
                if round == 0 {
                    *measured = Measured::default();
                }
            }
        }
        for (surrounding, measured) in SURROUNDINGS.into_iter().zip(&all) {
            self.tell(&mut report, surrounding, measured);
        }
        Ok(report)
    }

    fn pages(&self) -> u32 {
        self.size * 256
    }

    /// The swap spaces that this host can have; why not is noted of the others.
    fn spaces(&self, testbed: &Testbed, report: &mut Report) -> Vec<Space> {
        let mut there = Vec::new();
        for space in Space::ALL {
            let tried = space.try_out(testbed, self.size).and_then(|()| {
                Group::make(PROGRAM).context("no memory control group can be made here")
            });
            match tried {
                Ok(_) => there.push(space),
                Err(why) => report.skip(format!("random/{}", space.name()), &why),
            }
        }
        there
    }

    fn round(
        &self,
        testbed: &mut Testbed,
        spaces: &[Space],
        round: u32,
        measured: &mut Measured,
    ) -> Result<()> {
        let before = testbed.time_of_agent(1)?;
        testbed.raw(Testbed::PAGE_REPLY, self.count, &mut measured.raw)?;
        let nanos = testbed.time_of_agent(1)? - before;
        measured.raw_cost.add(nanos, self.count.into());
        let bytes = u64::from(self.pages()) * 4096;
        measured.tcp.extend(testbed.tcp(bytes)?);
        self.shared(testbed, round, measured)?;
        self.private(testbed, round, measured)?;
        for space in spaces {
            let times = self.swapped(testbed, *space, round)?;
            measured.swapped.entry(*space).or_default().extend(times);
        }
        Ok(())
    }

    /// Runs each of the programs once. One that the kernel ends, because it does not get its pages
    /// swapped out in time, is not run again.
    fn look_up(
        &self,
        testbed: &Testbed,
        programs: &mut Vec<(Lookups, Rest)>,
        measured: &mut Measured,
        report: &mut Report,
    ) -> Result<()> {
        for (lookups, rest) in programs.clone() {
            let name = format!("{}/{}", lookups.name(), rest.name());
            match lookups.run(testbed, (self.size, self.lookups), rest) {
                Ok(nanos) => {
                    let samples = measured.lookups.entry((lookups, rest)).or_default();
                    samples.extend(vec![nanos]);
                }
                Err(why) if matches!(rest, Rest::Swapped(_)) => {
                    report.skip(name, &why);
                    programs.retain(|known| *known != (lookups, rest));
                }
                Err(why) => return Err(why.context(name)),
            }
        }
        Ok(())
    }

    /// Read faults at what the other node stored to last.
    fn shared(&self, testbed: &mut Testbed, round: u32, measured: &mut Measured) -> Result<()> {
        let name = format!("bench.far.shared.{round}");
        testbed.open(&name, self.count, WINDOW)?;
        let order = shuffled(0..self.count, round);
        testbed.touch(1, &order, true)?;
        measured.read_fault.extend(testbed.touch(0, &order, false)?);
        testbed.remove(&name)
    }

    /// Random misses of a private segment, and a walk through all of it.
    fn private(&self, testbed: &mut Testbed, round: u32, measured: &mut Measured) -> Result<()> {
        let (pages, name) = (self.pages(), format!("bench.far.{round}"));
        let local = pages / HERE;
        let order = Order::OpenPrivate {
            name: name.clone(),
            pages,
            local,
        };
        testbed.ask(0, &order)?;
        testbed.ask(0, &Order::Walk { pages, write: true })?;
        let owner = testbed.counters(0)?;
        let order = shuffled(0..pages, round);
        let touched = &order[..(self.count as usize).min(order.len())];
        let times = donated(testbed, &mut measured.random_cost, |testbed| {
            testbed.touch(0, touched, false)
        })?;
        measured.random.extend(times);
        measured.disk += testbed.counters(0)?.of("pages_from_disk") - owner.of("pages_from_disk");
        let walk = Order::Walk {
            pages,
            write: false,
        };
        let times = donated(testbed, &mut measured.walk_cost, |testbed| {
            testbed.ask(0, &walk)
        })?;
        measured.walk.extend(times);
        let resident = status(testbed.agent(0), "RssShmem:")?;
        let most = u64::from(local) * 4096 + PROGRAM;
        ensure!(
            resident <= most,
            "{resident} bytes of shared memory are resident, where {most} may be"
        );
        testbed.ask(0, &Order::Remove { name }).map(drop)
    }

    /// Random misses of a process whose memory is swapped out.
    fn swapped(&self, testbed: &mut Testbed, space: Space, round: u32) -> Result<Vec<u64>> {
        let used = space.on(testbed, self.size)?;
        let pages = self.pages();
        let limit = u64::from(pages / HERE) * 4096 + PROGRAM;
        let group = Group::make(limit).context("no memory control group can be made")?;
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = group.command(&program);
        command.arg("agent");
        let agent = testbed.add(command)?;
        let times = (|| {
            testbed.ask(agent, &Order::Own { pages })?;
            let order = shuffled(0..pages, round);
            let pages = order[..(self.count as usize).min(order.len())].to_vec();
            let write = false;
            let times = testbed.ask(agent, &Order::TouchOwn { pages, write })?;
            let resident = status(testbed.agent(agent), "RssAnon:")?;
            ensure!(
                resident <= limit,
                "{resident} bytes are resident, where {limit} may be"
            );
            Ok(times)
        })();
        testbed.take_away();
        drop(group);
        used.off()?;
        times
    }

    fn tell(&self, report: &mut Report, surrounding: &str, measured: &Measured) {
        for (name, samples, beside) in [
            (
                "shared",
                &measured.read_fault,
                ("raw_exchange_page", &measured.raw),
            ),
            (
                "private",
                &measured.random,
                ("read_fault", &measured.read_fault),
            ),
        ] {
            let name = format!("random/{name}/{surrounding}");
            report.row(name, "block", samples, Some(beside));
        }
        for (space, samples) in &measured.swapped {
            let name = format!("random/{}/{surrounding}", space.name());
            report.row(name, "block", samples, Some(("private", &measured.random)));
        }
        for ((lookups, rest), samples) in &measured.lookups {
            let beside = Rest::Swapped(Space::File);
            let beside = measured.lookups.get(&(*lookups, beside));
            let name = format!("{}/{}/{surrounding}", lookups.name(), rest.name());
            let beside = beside.map(|samples| ("swap_file", samples));
            report.row(name, "block", samples, beside);
        }
        let bytes = f64::from(self.pages()) * 4096.0;
        let name = format!("walk/private/{surrounding}");
        report.rate(name, bytes, &measured.walk, Some(("tcp", &measured.tcp)));
        report.waited("block");
        for (what, cost) in [
            ("raw_cpu", measured.raw_cost),
            ("donor_cpu/random", measured.random_cost),
            ("donor_cpu/walk", measured.walk_cost),
        ] {
            let name = format!("{what}/{surrounding}");
            report.value(&name, "us/page", cost.micros_a_page(), cost.pages as usize);
        }
        let name = format!("from_disk/{surrounding}");
        report.value(&name, "pages", measured.disk as f64, measured.random.len());
    }
}

/// The programs that can run here, and where the rest of their memory can be.
fn lookups(spaces: &[Space], report: &mut Report) -> Vec<(Lookups, Rest)> {
    let swapped = spaces.iter().map(|space| Rest::Swapped(*space));
    let rests = [Rest::None, Rest::Array, Rest::Borrowed].into_iter();
    let rests: Vec<_> = rests.chain(swapped).collect();
    let mut there = Vec::new();
    for lookups in Lookups::ALL {
        for rest in &rests {
            match lookups.need(*rest) {
                Ok(()) => there.push((lookups, *rest)),
                Err(why) => report.skip(format!("{}/{}", lookups.name(), rest.name()), &why),
            }
        }
    }
    there
}

/// Has the owner's program fetch pages, and adds what that costs the donor.
fn donated(
    testbed: &mut Testbed,
    cost: &mut SenderCost,
    fetch: impl FnOnce(&mut Testbed) -> Result<Vec<u64>>,
) -> Result<Vec<u64>> {
    let returned = testbed.counters(1)?.of("pages_returned");
    let time = testbed.time_of(1)?;
    let times = fetch(testbed)?;
    let nanos = testbed.time_of(1)? - time;
    cost.add(nanos, testbed.counters(1)?.of("pages_returned") - returned);
    Ok(times)
}

/// Bytes that the kernel counts of a process.
fn status(process: u32, name: &str) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let field = line.and_then(|line| line.split_whitespace().next());
    let kib: u64 = field
        .with_context(|| format!("no {name} in {path}"))?
        .parse()?;
    Ok(kib * 1024)
}
