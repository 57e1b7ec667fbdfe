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
}

impl Readers {
    pub(super) fn measure(&self) -> Result<Report> {
        let mut report = Report::new("readers");
        let mut plan = Plan::new(1 + usize::from(self.readers));
        plan.mtu = self.mtu;
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
        testbed.open(&name, pages, None)?;
        testbed.ask(0, &Order::Walk { pages, write: true })?;
        let before = sent(testbed)?;
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
        let after = sent(testbed)?;
        into.by_writer += after[0] - before[0];
        into.by_all += after.iter().sum::<u64>() - before.iter().sum::<u64>();
        testbed.remove(&name)
    }

    fn tell(&self, report: &mut Report, one: &Reading, many: &Reading) {
        let bytes = f64::from(self.pages()) * 4096.0;
        let rate = &self.rate;
        report.rate(format!("one/{rate}"), bytes, &one.took, None);
        let name = format!("each_of_{}/{rate}", self.readers);
        report.rate(name, bytes, &many.took, Some(("one", &one.took)));
        let all = f64::from(self.pages() * self.rounds);
        for (what, pages) in [
            ("sent_by_writer_for_one", one.by_writer),
            ("sent_by_writer_for_many", many.by_writer),
            ("sent_by_all_for_many", many.by_all),
        ] {
            let times = pages as f64 / all;
            report.value(
                &format!("{what}/{rate}"),
                "of the segment",
                times,
                many.took.len(),
            );
        }
    }
}

/// Pages that each node has sent so far.
fn sent(testbed: &mut Testbed) -> Result<Vec<u64>> {
    let nodes = 0..testbed.size();
    nodes
        .map(|node| Ok(testbed.counters(node)?.of("pages_out")))
        .collect()
}
