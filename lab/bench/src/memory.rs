//! `bench memory`: a daemon's memory for each page.

use super::report::Report;
use super::testbed::Testbed;
use super::{ETHERNET_JUMBO, Effort, Waiting};
use anyhow::Result;
use clap::Args;

/// What a daemon needs to remember of a page
#[derive(Args, Clone, Debug)]
pub(crate) struct Memory {
    /// Pages that two nodes come to know
    #[arg(long, default_value_t = 131_072, value_parser = clap::value_parser!(u32).range(4096..))]
    pages: u32,
}

/// Pages of the segment that are not touched: 64 GiB.
const UNTOUCHED: u32 = 1 << 24;

/// Pages in one order.
const BATCH: usize = 4096;

/// Pages after which the daemon's records of the last faults are full: these cost the same however
/// many pages are known.
const WARM: u32 = 1 << 14;

impl Memory {
    /// Node 1 writes every page, then node 0, the home, reads it: the one knows
    /// each as its owner with a copyset, the other as a reader with a hint.
    pub(super) fn measure(&self) -> Result<Report> {
        let effort = Effort {
            count: 10,
            rounds: 1,
            waiting: None,
            latency: false,
            mtu: ETHERNET_JUMBO,
            only: None,
        };
        let mut report = Report::new("memory");
        let mut testbed = Testbed::new(2, &effort, Waiting::Block)?;
        testbed.open("bench.memory.warm", WARM, None)?;
        touch_all(&mut testbed, WARM)?;
        let before = each(&testbed, Testbed::daemon_memory)?;
        testbed.open("bench.memory.untouched", UNTOUCHED, None)?;
        let opened = each(&testbed, Testbed::daemon_memory)?;
        report_growth(&mut report, "untouched", before, opened, UNTOUCHED);
        let history = each(&testbed, Testbed::daemon_history)?;
        testbed.open("bench.memory.known", self.pages, None)?;
        touch_all(&mut testbed, self.pages)?;
        let known = each(&testbed, Testbed::daemon_memory)?;
        report_growth(&mut report, "known", opened, known, self.pages);
        let recorded = each(&testbed, Testbed::daemon_history)?;
        report_growth(&mut report, "recorder", history, recorded, self.pages);
        Ok(report)
    }
}

/// Node 1 writes, node 0 reads.
fn touch_all(testbed: &mut Testbed, pages: u32) -> Result<()> {
    let pages: Vec<u32> = (0..pages).collect();
    for (node, write) in [(1, true), (0, false)] {
        for batch in pages.chunks(BATCH) {
            testbed.touch(node, batch, write)?;
        }
    }
    Ok(())
}

fn each(testbed: &Testbed, what: fn(&Testbed, usize) -> Result<u64>) -> Result<[u64; 2]> {
    Ok([what(testbed, 0)?, what(testbed, 1)?])
}

fn report_growth(report: &mut Report, what: &str, before: [u64; 2], after: [u64; 2], pages: u32) {
    for (node, role) in [(0, "reader"), (1, "owner")] {
        let growth = after[node].saturating_sub(before[node]) as f64;
        let name = format!("{what}_{role}");
        report.value(&name, "B/page", growth / f64::from(pages), pages as usize);
    }
}
