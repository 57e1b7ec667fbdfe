//! `bench readers`: one node writes a segment, and several read it from front to back at once, beside
//! one that reads it alone.

use super::Waiting;
use super::agent::Order;
use super::cpu_slots::CpuSlots;
use super::report::{Report, Samples};
use super::stream::shape_to;
use super::testbed::Testbed;
use anyhow::Result;
use clap::Args;
use pagemesh_cli::sandbox::Plan;

/// How long many nodes take to read what one wrote, beside one node
#[derive(Args, Clone, Debug)]
pub(crate) struct Readers {
    /// MiB that each of them reads
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    size: u32,
    /// How many nodes read at once
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(2..=31))]
    readers: u8,
    /// Rate of each node's link, as `tc` has it
    #[arg(long, default_value = "1gbit")]
    rate: String,
    /// Rounds, one reader and many in turn, after one to warm up
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Policy of the segment
    #[arg(long, default_value = "sequential", value_parser = ["sequential", "release"])]
    policy: String,
    /// Largest packet between the nodes
    #[arg(long, default_value_t = super::ETHERNET_JUMBO, value_parser = clap::value_parser!(u32).range(576..=65535))]
    mtu: u32,
}

/// The times of readers that read at once, and the pages that were sent.
#[derive(Default)]
struct Reading {
    took: Samples,
    /// Pages that the writer sent.
    by_writer: u64,
    /// Pages that all nodes sent.
    by_all: u64,
    /// Bytes of all datagrams that each node sent; the writer comes first.
    bytes: Vec<u64>,
    /// Pages that readers asked for again.
    again: u64,
    /// Processor time of all daemons and readers, in nanoseconds.
    busy: u64,
}

/// The counters of all nodes at one moment.
struct Counted {
    /// Pages that each node sent.
    pages: Vec<u64>,
    bytes: Vec<u64>,
    again: u64,
    busy: u64,
}

impl Readers {
    pub(super) fn measure(&self) -> Result<Report> {
        let mut report = Report::new("readers");
        let mut plan = Plan::new(1 + usize::from(self.readers));
        plan.mtu = self.mtu;
        // Bytes are to say how often pages were sent, on slow links, too.
        plan.daemon_args = vec!["--compress".to_owned(), "off".to_owned()];
        let mut testbed = Testbed::seated(&plan, Waiting::Block, CpuSlots::Dealt)?;
        let bucket = ["rate", &self.rate, "burst", "128kb", "latency", "20ms"];
        if let Err(why) = shape_to(&testbed, &bucket) {
            report.skip(format!("readers/{}", self.rate), &why);
            return Ok(report);
        }
        let (mut one, mut many) = <(Reading, Reading)>::default();
        for round in 0..=self.rounds {
            self.read(&mut testbed, round, 1, &mut one)?;
            self.read(&mut testbed, round, self.readers, &mut many)?;
            if round == 0 {
                (one, many) = Default::default();
            }
        }
        self.tell(&mut report, &one, &many);
        Ok(report)
    }

    fn pages(&self) -> u32 {
        self.size * 256
    }

    /// Node 0 stores to every page of a new segment, then so many others load all of them.
    fn read(
        &self,
        testbed: &mut Testbed,
        round: u32,
        readers: u8,
        into: &mut Reading,
    ) -> Result<()> {
        let (pages, readers) = (self.pages(), 1..=usize::from(readers));
        let name = format!("bench.readers.{}.{round}", readers.end());
        testbed.open_with(&name, pages, &self.policy)?;
        testbed.ask(0, &Order::Walk { pages, write: true })?;
        // All nodes hear of what the writer stored.
        testbed.meet(1, testbed.size(), 1)?;
        let before = Counted::now(testbed)?;
        for reader in readers.clone() {
            testbed.tell(
                reader,
                &Order::Walk {
                    pages,
                    write: false,
                },
            )?;
        }
        let mut longest = 0;
        for reader in readers {
            longest = longest.max(testbed.hear(reader)?.into_iter().sum());
        }
        into.took.extend(vec![longest]);
        into.add(&before, &Counted::now(testbed)?);
        testbed.remove(&name)
    }

    fn tell(&self, report: &mut Report, one: &Reading, many: &Reading) {
        let bytes = f64::from(self.pages()) * 4096.0;
        let rate = &self.rate;
        report.rate(format!("one/{rate}"), bytes, &one.took, None);
        let name = format!("each_of_{}/{rate}", self.readers);
        report.rate(name, bytes, &many.took, Some(("one", &one.took)));
        let rounds = f64::from(self.rounds);
        let all = f64::from(self.pages()) * rounds;
        for (what, reading, readers) in [("one", one, 1), ("many", many, self.readers)] {
            let mut tell = |name: &str, unit, value: f64| {
                let name = format!("{name}_for_{what}/{rate}");
                report.value(&name, unit, value, reading.took.len());
            };
            let times = "of the segment";
            tell("sent_by_writer", times, reading.by_writer as f64 / all);
            let busiest = reading.bytes.iter().max();
            for (name, sent) in [("writer", reading.bytes.first()), ("busiest", busiest)] {
                let sent = sent.copied().unwrap_or_default() as f64 / (bytes * rounds);
                tell(&format!("bytes_by_{name}"), times, sent);
            }
            tell("sent_by_all", times, reading.by_all as f64 / all);
            tell("asked_again", times, reading.again as f64 / all);
            let received = all * f64::from(readers);
            tell(
                "processor_time",
                "us/page",
                reading.busy as f64 / 1e3 / received,
            );
        }
    }
}

impl Reading {
    fn add(&mut self, before: &Counted, after: &Counted) {
        self.by_writer += after.pages[0] - before.pages[0];
        self.by_all += after.pages.iter().sum::<u64>() - before.pages.iter().sum::<u64>();
        self.bytes.resize(after.bytes.len(), 0);
        let sent = before.bytes.iter().zip(&after.bytes);
        for (sum, (before, after)) in self.bytes.iter_mut().zip(sent) {
            *sum += after - before;
        }
        self.again += after.again - before.again;
        self.busy += after.busy - before.busy;
    }
}

impl Counted {
    fn now(testbed: &mut Testbed) -> Result<Self> {
        let nodes = 0..testbed.size();
        let nodes: Result<Vec<_>> = nodes.map(|node| testbed.counters(node)).collect();
        let nodes = nodes?;
        Ok(Self {
            pages: nodes.iter().map(|node| node.of("pages_out")).collect(),
            bytes: nodes.iter().map(|node| node.of("bytes_out")).collect(),
            again: nodes.iter().map(|node| node.of("repaired")).sum(),
            busy: testbed.busy_time()?,
        })
    }
}
