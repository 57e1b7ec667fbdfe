//! `bench memory`: what a daemon needs to remember of a page.

use super::report::Report;
use super::stage::Stage;
use super::{Effort, Waiting};
use anyhow::Result;
use clap::Args;

/// What a daemon needs to remember of a page
#[derive(Args, Clone, Debug)]
pub(crate) struct Memory {
    /// Pages that two nodes come to know
    #[arg(long, default_value_t = 131_072, value_parser = clap::value_parser!(u32).range(4096..))]
    pages: u32,
}

/// Pages of the segment that nobody touches: 64 GiB.
const UNTOUCHED: u32 = 1 << 24;

/// Pages in one order.
const BATCH: usize = 4096;

impl Memory {
    /// Node 1 writes every page, then node 0, the home, reads it: the one knows
    /// each as its owner with a copyset, the other as a reader with a hint.
    pub(super) fn measure(&self) -> Result<Report> {
        let effort = Effort {
            count: 10,
            rounds: 1,
            waiting: None,
            latency: false,
        };
        let mut report = Report::new("memory");
        let mut stage = Stage::new(2, &effort, Waiting::Block)?;
        let warm: Vec<u32> = (0..1024).collect();
        stage.open("bench.memory.warm", 1024, None)?;
        stage.touch(1, &warm, true)?;
        stage.touch(0, &warm, false)?;
        let before = memory(&stage)?;
        stage.open("bench.memory.untouched", UNTOUCHED, None)?;
        let opened = memory(&stage)?;
        report_growth(&mut report, "untouched", before, opened, UNTOUCHED);
        stage.open("bench.memory.known", self.pages, None)?;
        let pages: Vec<u32> = (0..self.pages).collect();
        for (node, write) in [(1, true), (0, false)] {
            for batch in pages.chunks(BATCH) {
                stage.touch(node, batch, write)?;
            }
        }
        report_growth(&mut report, "known", opened, memory(&stage)?, self.pages);
        Ok(report)
    }
}

fn memory(stage: &Stage) -> Result<[u64; 2]> {
    Ok([stage.daemon_memory(0)?, stage.daemon_memory(1)?])
}

fn report_growth(report: &mut Report, what: &str, before: [u64; 2], after: [u64; 2], pages: u32) {
    for (node, role) in [(0, "reader"), (1, "owner")] {
        let growth = after[node].saturating_sub(before[node]) as f64;
        let name = format!("{what}_{role}");
        report.value(&name, "B/page", growth / f64::from(pages), pages as usize);
    }
}
