//! `bench stream`: a segment from front to back, beside a TCP stream between the same namespaces;
//! phases of a producer and a consumer under each policy; a consumer that goes down the columns of a
//! matrix; and the cost of reading ahead for programs that do not walk.

mod orders;

use super::agent::Order;
use super::report::{Report, Samples};
use super::testbed::Testbed;
use super::{ETHERNET_JUMBO, Effort, Waiting};
use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use orders::ORDERS;
use pagemesh_cli::sandbox::Plan;

/// How fast a segment is read and written from front to back
#[derive(Args, Clone, Debug)]
pub(crate) struct Stream {
    /// MiB that are read, and written
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096))]
    size: u32,
    /// Rounds, TCP and PageMesh in turn, after one to warm up
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Only this link
    #[arg(long, value_enum)]
    link: Option<Link>,
    /// Only plain, or only sealed datagrams
    #[arg(long, value_enum)]
    encryption: Option<Encryption>,
    /// Only the phases of a producer and a consumer, under this policy
    #[arg(long, value_parser = POLICIES)]
    policy: Option<String>,
    /// How daemons wait. Those that sleep show best how much processor time a page takes
    #[arg(long, value_enum, default_value = "spin")]
    waiting: Waiting,
    /// Largest packet between the nodes
    #[arg(long, default_value_t = ETHERNET_JUMBO, value_parser = clap::value_parser!(u32).range(576..=65535))]
    mtu: u32,
}

/// The link between the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Link {
    /// A pair of virtual devices, as fast as the processors.
    Unshaped,
    /// Shaped to 10 Gbit/s by a token bucket.
    #[value(name = "10gbit")]
    TenGbit,
    /// Shaped to 1 Gbit/s.
    #[value(name = "1gbit")]
    OneGbit,
}

/// Whether datagrams are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Encryption {
    Plain,
    Sealed,
}

impl Link {
    fn name(self) -> &'static str {
        match self {
            Self::Unshaped => "unshaped",
            Self::TenGbit => "10gbit",
            Self::OneGbit => "1gbit",
        }
    }

    /// The arguments of `tc` for each node's device.
    fn shape(self) -> &'static [&'static str] {
        match self {
            Self::Unshaped => &[],
            Self::TenGbit => &["rate", "10gbit", "burst", "1mb", "latency", "20ms"],
            Self::OneGbit => &["rate", "1gbit", "burst", "128kb", "latency", "20ms"],
        }
    }
}

impl Encryption {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Sealed => "sealed",
        }
    }
}

/// Pages touched here and there.
const RANDOM: u32 = 4000;

/// The policies under which a producer and a consumer are measured.
const POLICIES: [&str; 2] = ["sequential", "release"];

/// The phases of a producer (node 1) and a consumer (node 0): name, agent, and whether it stores.
const PHASES: [(&str, usize, bool); 6] = [
    ("fill", 1, true),
    ("read", 0, false),
    ("refill", 1, true),
    ("reread", 0, false),
    ("refill_later", 1, true),
    ("reread_later", 0, false),
];

/// How often the last two phases are repeated: a program with many phases spends its time there.
const LATER: usize = 3;

impl Stream {
    pub(super) fn measure(&self) -> Result<Report> {
        let mut report = Report::new("stream");
        let links = [Link::Unshaped, Link::TenGbit, Link::OneGbit];
        let kinds = [Encryption::Plain, Encryption::Sealed];
        for kind in kinds
            .into_iter()
            .filter(|kind| self.encryption.is_none_or(|one| one == *kind))
        {
            for link in links
                .into_iter()
                .filter(|link| self.link.is_none_or(|one| one == *link))
            {
                if self.policy.is_none() {
                    self.walk(link, kind, &mut report)?;
                }
                for policy in POLICIES {
                    if self.policy.as_ref().is_none_or(|one| one == policy) {
                        self.phases(link, kind, policy, &mut report)?;
                        self.columns(link, kind, policy, &mut report)?;
                    }
                }
            }
        }
        if self.policy.is_none() && self.link.is_none_or(|link| link == Link::Unshaped) {
            self.alone(&mut report)?;
            random(&mut report)?;
            crowd(&mut report)?;
        }
        Ok(report)
    }

    /// One node reads the pages that the other wrote, and writes over them.
    fn walk(&self, link: Link, kind: Encryption, report: &mut Report) -> Result<()> {
        let mut testbed = testbed(kind, self.waiting, self.mtu)?;
        if let Err(why) = shape(&testbed, link) {
            report.skip(format!("{}/{}", link.name(), kind.name()), &why);
            return Ok(());
        }
        let (mut read, mut write) = <(Walk, Walk)>::default();
        let mut tcp = Samples::default();
        let pages = self.pages(link);
        for round in 0..=self.rounds {
            let name = format!("bench.stream.{round}");
            testbed.open(&name, pages, None)?;
            testbed.ask(1, &Order::Walk { pages, write: true })?;
            tcp.extend(testbed.tcp(u64::from(pages) * 4096)?);
            read.walk(&mut testbed, pages, false)?;
            testbed.ask(1, &Order::Walk { pages, write: true })?;
            write.walk(&mut testbed, pages, true)?;
            testbed.remove(&name)?;
            if round == 0 {
                (read, write, tcp) = Default::default();
            }
        }
        let bytes = f64::from(pages) * 4096.0;
        for (what, walk) in [("read", &read), ("write", &write)] {
            let name = format!("{what}/{}/{}", link.name(), kind.name());
            report.rate(name.clone(), bytes, &walk.took, Some(("tcp", &tcp)));
            report.waited(self.waiting.name());
            let micros = walk.busy as f64 / f64::from(self.rounds * pages) / 1e3;
            report.value(&format!("cpu_{name}"), "us/page", micros, walk.took.len());
            report.waited(self.waiting.name());
        }
        Ok(())
    }
}

impl Stream {
    /// Node 1 stores to every page of a new segment, node 0 loads all of them, and again, with other
    /// values; with a barrier between phases.
    fn phases(
        &self,
        link: Link,
        kind: Encryption,
        policy: &str,
        report: &mut Report,
    ) -> Result<()> {
        let mut testbed = testbed(kind, self.waiting, self.mtu)?;
        // A link that could not be shaped was skipped before.
        if shape(&testbed, link).is_err() {
            return Ok(());
        }
        let pages = self.pages(link);
        let mut took: [Samples; PHASES.len()] = Default::default();
        let (mut tcp, mut memfd) = <(Samples, Samples)>::default();
        for round in 0..self.rounds {
            let name = format!("bench.phases.{round}");
            testbed.open_with(&name, pages, policy)?;
            tcp.extend(testbed.tcp(u64::from(pages) * 4096)?);
            memfd.extend(testbed.ask(1, &Order::FillMemfd { pages })?);
            for phase in turns() {
                let (_, agent, write) = PHASES[phase];
                took[phase].extend(testbed.ask(agent, &Order::Walk { pages, write })?);
                testbed.meet(1, 2, 1)?;
            }
            testbed.remove(&name)?;
        }
        let bytes = f64::from(pages) * 4096.0;
        for ((phase, ..), samples) in PHASES.into_iter().zip(&took) {
            let name = format!("{phase}/{policy}/{}/{}", link.name(), kind.name());
            report.rate(name, bytes, samples, Some(("tcp", &tcp)));
            report.waited(self.waiting.name());
        }
        let name = format!("first_fill/{policy}/{}/{}", link.name(), kind.name());
        report.rate(name, bytes, &took[0], Some(("memfd", &memfd)));
        report.waited(self.waiting.name());
        Ok(())
    }

    /// Node 1 stores to every page of a new segment, node 0 loads one word of each: page after page,
    /// down the columns of a matrix, and from block to block.
    fn columns(
        &self,
        link: Link,
        kind: Encryption,
        policy: &str,
        report: &mut Report,
    ) -> Result<()> {
        let mut testbed = testbed(kind, self.waiting, self.mtu)?;
        if shape(&testbed, link).is_err() {
            return Ok(());
        }
        let count = self.pages(link);
        let mut took: [Samples; ORDERS.len()] = Default::default();
        for round in 0..=self.rounds {
            for ((order, width), samples) in ORDERS.into_iter().zip(&mut took) {
                let name = format!("bench.columns.{order}.{round}");
                testbed.open_with(&name, count, policy)?;
                let write = true;
                testbed.ask(
                    1,
                    &Order::Walk {
                        pages: count,
                        write,
                    },
                )?;
                testbed.meet(1, 2, 1)?;
                let (pages, threads) = (orders::pages(count, width), 1);
                let loads = testbed.ask(0, &Order::Crowd { pages, threads })?;
                if round > 0 {
                    samples.extend(loads);
                }
                testbed.remove(&name)?;
            }
        }
        let bytes = f64::from(count) * 4096.0;
        for ((order, _), samples) in ORDERS.into_iter().zip(&took).skip(1) {
            let name = format!("{order}/{policy}/{}/{}", link.name(), kind.name());
            report.rate(name, bytes, samples, Some((ORDERS[0].0, &took[0])));
            report.waited(self.waiting.name());
        }
        Ok(())
    }

    /// The first phase where no other node has the segment, beside a memfd.
    fn alone(&self, report: &mut Report) -> Result<()> {
        let mut testbed = testbed(Encryption::Plain, self.waiting, self.mtu)?;
        let pages = self.pages(Link::Unshaped);
        for policy in POLICIES.into_iter().chain(["private"]) {
            let (mut fill, mut memfd) = <(Samples, Samples)>::default();
            for round in 0..=self.rounds {
                let name = format!("bench.alone.{policy}.{round}");
                testbed.ask(1, &open(policy, &name, pages))?;
                memfd.extend(testbed.ask(1, &Order::FillMemfd { pages })?);
                fill.extend(testbed.ask(1, &Order::Walk { pages, write: true })?);
                testbed.ask(1, &Order::Remove { name })?;
                if round == 0 {
                    (fill, memfd) = Default::default();
                }
            }
            let bytes = f64::from(pages) * 4096.0;
            let name = format!("first_fill_alone/{policy}");
            report.rate(name, bytes, &fill, Some(("memfd", &memfd)));
            report.waited(self.waiting.name());
        }
        Ok(())
    }

    /// Pages of a segment. Slow links have no more to tell with more bytes.
    fn pages(&self, link: Link) -> u32 {
        let most = if link == Link::OneGbit { 128 } else { u32::MAX };
        self.size.min(most) * 256
    }
}

/// Opens a segment that fits into memory, on one node.
fn open(policy: &str, name: &str, pages: u32) -> Order {
    let name = name.to_owned();
    if policy == "private" {
        let local = 2 * pages;
        return Order::OpenPrivate { name, pages, local };
    }
    Order::OpenWith {
        name,
        pages,
        policy: policy.to_owned(),
        replicas: 0,
    }
}

/// The indexes of all phases of one round, in order.
fn turns() -> impl Iterator<Item = usize> {
    let first = 0..PHASES.len();
    first.chain([PHASES.len() - 2, PHASES.len() - 1].repeat(LATER - 1))
}

/// Walks of node 0 through the whole segment.
#[derive(Default)]
struct Walk {
    took: Samples,
    /// Processor time of all daemons and programs, in nanoseconds.
    busy: u64,
}

impl Walk {
    fn walk(&mut self, testbed: &mut Testbed, pages: u32, write: bool) -> Result<()> {
        let before = testbed.busy_time()?;
        self.took
            .extend(testbed.ask(0, &Order::Walk { pages, write })?);
        self.busy += testbed.busy_time()? - before;
        Ok(())
    }
}

fn testbed(kind: Encryption, waiting: Waiting, mtu: u32) -> Result<Testbed> {
    let mut plan = Plan::new(2);
    plan.mtu = mtu;
    plan.sealed = kind == Encryption::Sealed;
    Testbed::raise(&plan, waiting)
}

/// Shapes both directions, if the tool is there.
fn shape(testbed: &Testbed, link: Link) -> Result<()> {
    if link == Link::Unshaped {
        return Ok(());
    }
    shape_to(testbed, link.shape())
}

/// Shapes what each node sends by a token bucket that is told so.
pub(super) fn shape_to(testbed: &Testbed, bucket: &[&str]) -> Result<()> {
    for node in 0..testbed.nodes() {
        let mut tc = testbed.command(node, "tc");
        tc.args(["qdisc", "replace", "dev", "mesh0", "root", "tbf"]);
        let output = tc.args(bucket).output();
        let output = output.context("no tc (Debian: iproute2)")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "tc: {}", said.trim());
    }
    Ok(())
}

/// Pages here and there, each once, with and without looking for walks.
fn random(report: &mut Report) -> Result<()> {
    let mut testbed = testbed(Encryption::Plain, Waiting::Spin, ETHERNET_JUMBO)?;
    let mut counted = Vec::new();
    for (name, advice) in [("off", true), ("on", false)] {
        let name = format!("bench.random.{name}");
        testbed.open(&name, RANDOM, Some(0))?;
        let order = super::fault::shuffled(0..RANDOM, 7);
        testbed.touch(1, &order, true)?;
        if advice {
            testbed.ask(0, &Order::Random)?;
        }
        let before = testbed.counters(0)?;
        testbed.touch(0, &order, false)?;
        let after = testbed.counters(0)?;
        let more = |name: &str| (after.of(name) - before.of(name)) as f64;
        let faults = more("faults_read") + more("faults_local");
        counted.push((faults, more("bytes_in") + more("bytes_out")));
    }
    let [off, on] = counted[..] else {
        return Ok(());
    };
    let count = RANDOM as usize;
    report.value("random_faults_on_to_off", "ratio", on.0 / off.0, count);
    report.value("random_bytes_on_to_off", "ratio", on.1 / off.1, count);
    Ok(())
}

/// Threads that fault at once on different pages.
fn crowd(report: &mut Report) -> Result<()> {
    const THREADS: [u32; 2] = [1, 16];
    let mut testbed = testbed(Encryption::Plain, Waiting::Spin, ETHERNET_JUMBO)?;
    let mut times = [Samples::default(), Samples::default()];
    for round in 0..=Effort::CROWD_ROUNDS {
        for (threads, samples) in THREADS.iter().zip(&mut times) {
            testbed.open(&format!("bench.crowd.{threads}.{round}"), RANDOM, Some(0))?;
            let order = super::fault::shuffled(0..RANDOM, round);
            testbed.touch(1, &order, true)?;
            testbed.ask(0, &Order::Random)?;
            let crowd = Order::Crowd {
                pages: order,
                threads: *threads,
            };
            let took = testbed.ask(0, &crowd)?;
            if round > 0 {
                samples.extend(took);
            }
        }
    }
    let [one, many] = &times;
    report.rate_of(
        "faults_16_threads",
        "faults/s",
        f64::from(RANDOM),
        many,
        Some(("faults_1_thread", one)),
    );
    Ok(())
}
