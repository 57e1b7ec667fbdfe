//! `bench ages`: how well replacement finds the pages that programs use, without an accessed bit. Four
//! unmodified programs run once with a recorder in place of malloc (`lab/apps/trace/pages.c`), which
//! writes down the pages of their heaps in the order in which they touch them. The traces are given
//! to a real node whose private segment has less memory than that, with a donor, and to true LRU.
//!
//! Ages come from faults at pages that were taken out of their frames and are still in memory (the
//! stage). What such a fault takes is measured here, too, so the table says what the ages cost: the program's
//! time is an upper bound of the processor's.

mod lru;
mod replay;
mod trace;
mod workload;

use super::Waiting;
use super::agent::Order;
use super::fault::shuffled;
use super::nodes_with_idle_memory;
use super::report::{Report, Samples};
use super::testbed::Testbed;
use anyhow::Result;
use clap::Args;
use replay::Faults;
use std::path::{Path, PathBuf};
use trace::Trace;
use workload::Workload;

/// How well replacement finds the pages that programs use, beside true LRU
#[derive(Args, Clone, Debug)]
pub(crate) struct Ages {
    /// Only programs whose names contain this: sqlite, numpy, cc1, sort
    #[arg(long)]
    only: Option<String>,
    /// The part of their usual work that the programs do, in percent
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(5..=1000))]
    work: u32,
    /// Where libpagetrace.so.0 is, which `make -C lab/apps` builds
    #[arg(long, default_value = "lab/apps/build", value_name = "DIRECTORY")]
    programs: PathBuf,
}

/// The memory that is here, to the pages that a program touches.
const HERE: [(&str, u32); 3] = [("eighth_less", 875), ("half", 500), ("quarter", 250)];

/// Pages of the segment for the costs, and those of them that are here.
const PAGES: u32 = 8192;
const LOCAL: u32 = 1024;

/// Touches for the costs.
const TOUCHES: u32 = 3000;

/// What a fault takes, in microseconds.
struct Costs {
    soft: f64,
    miss: f64,
}

impl Ages {
    pub(super) fn measure(&self) -> Result<Report> {
        let mut report = Report::new("ages");
        let costs = costs(&mut report)?;
        for workload in workload::all(self.work)? {
            let name = workload.name;
            if self.only.as_ref().is_some_and(|only| !name.contains(only)) {
                continue;
            }
            let (trace, native) = match record(&workload, &self.programs) {
                Ok(recorded) => recorded,
                Err(why) => {
                    report.skip(name.to_owned(), &why);
                    continue;
                }
            };
            let touches = trace.touches.len();
            report.value(
                &format!("{name}/pages"),
                "pages",
                trace.pages.into(),
                touches,
            );
            report.value(&format!("{name}/alone"), "s", native, 1);
            for (part, permille) in HERE {
                let local = local_of(&trace, permille);
                let faults = replay::replay(&trace, local)?;
                let lru = lru::fetched(&trace, local);
                tell(
                    &mut report,
                    &format!("{name}/{part}"),
                    touches,
                    (lru, &faults),
                );
                tell_costs(
                    &mut report,
                    &format!("{name}/{part}"),
                    (native, &faults),
                    &costs,
                );
            }
        }
        Ok(report)
    }
}

fn local_of(trace: &Trace, permille: u32) -> u32 {
    (u64::from(trace.pages) * u64::from(permille) / 1000) as u32
}

/// The pages that a program touches, and the seconds that it takes when nobody looks.
fn record(workload: &Workload, programs: &Path) -> Result<(Trace, f64)> {
    let native = (0..3).map(|_| workload.run_alone());
    let native = native.collect::<Result<Vec<_>>>()?;
    let best = native.into_iter().fold(f64::MAX, f64::min);
    Ok((workload.record(programs)?, best))
}

fn tell(report: &mut Report, name: &str, touches: usize, (lru, faults): (u64, &Faults)) {
    let hits = |fetched: u64| 100.0 * (1.0 - fetched as f64 / touches.max(1) as f64);
    report.value(&format!("{name}/lru_hits"), "%", hits(lru), touches);
    report.value(&format!("{name}/hits"), "%", hits(faults.fetched), touches);
    let ratio = faults.fetched as f64 / lru.max(1) as f64;
    report.value(&format!("{name}/fetched_to_lru"), "", ratio, lru as usize);
    report.value(
        &format!("{name}/waited_for"),
        "pages",
        faults.missed as f64,
        touches,
    );
}

/// What the faults at staged pages cost: to the other faults, and of the time that the program takes
/// with so little memory.
fn tell_costs(report: &mut Report, name: &str, (native, faults): (f64, &Faults), costs: &Costs) {
    let soft = faults.soft as f64;
    let others = (faults.all - faults.soft) as f64;
    let more = 100.0 * soft / others.max(1.0);
    report.value(
        &format!("{name}/more_faults"),
        "%",
        more,
        faults.soft as usize,
    );
    let sampling = soft * costs.soft / 1e6;
    let runs = native + faults.missed as f64 * costs.miss / 1e6 + sampling;
    report.value(
        &format!("{name}/of_its_time"),
        "%",
        100.0 * sampling / runs,
        faults.soft as usize,
    );
}

/// What a fault at a staged page takes, and one that waits for a donor: one touch at a time, sorted by
/// what the daemon counted meanwhile.
fn costs(report: &mut Report) -> Result<Costs> {
    let mut testbed = Testbed::raise(&nodes_with_idle_memory(2 * PAGES), Waiting::Block)?;
    let (pages, local) = (PAGES, LOCAL);
    let name = "bench.ages".to_owned();
    testbed.ask(0, &Order::OpenPrivate { name, pages, local })?;
    testbed.ask(0, &Order::Walk { pages, write: true })?;
    // A little more than fits, so that some pages are in the stage whenever they are touched.
    let near = LOCAL + LOCAL / 8;
    let (mut soft, mut missed) = (Samples::default(), Samples::default());
    let counted = |testbed: &mut Testbed| -> Result<[u64; 2]> {
        let counters = testbed.counters(0)?;
        Ok(["faults_soft", "pages_in"].map(|name| counters.of(name)))
    };
    let mut before = counted(&mut testbed)?;
    for round in 0..TOUCHES.div_ceil(near) {
        for page in shuffled(0..near, round) {
            let took = testbed.touch(0, &[page], false)?;
            let after = counted(&mut testbed)?;
            match [after[0] - before[0], after[1] - before[1]] {
                [1, 0] => soft.extend(took),
                [0, came] if came > 0 => missed.extend(took),
                _ => {}
            }
            before = after;
        }
    }
    report.row("fault/staged", "block", &soft, None);
    report.row("fault/from_donor", "block", &missed, None);
    Ok(Costs {
        soft: soft.median() / 1e3,
        miss: missed.median() / 1e3,
    })
}

#[cfg(test)]
mod tests;
