//! Comparisons for barriers: the time of processors and network alone, and barriers of nodes that
//! have many clean pages.

use super::super::report::{Report, Samples};
use super::super::testbed::Testbed;
use super::super::{Effort, Waiting};
use super::PARTIES;
use anyhow::Result;

const RAW: &str = "raw_barrier_8";

/// A barrier of two nodes that have clean copies of so many pages.
const CLEAN: &str = "barrier_2_with_clean_pages";
const CLEAN_PAGES: u32 = 16_384;

pub(super) fn measure(effort: &Effort, waiting: Waiting, report: &mut Report) -> Result<()> {
    if effort.wants(&[RAW]) {
        raw_barrier(effort, waiting, report)?;
    }
    if effort.wants(&[CLEAN]) {
        clean_pages(effort, waiting, report)?;
    }
    Ok(())
}

/// Eight processes meet, beside two: no daemons, no protocol.
fn raw_barrier(effort: &Effort, waiting: Waiting, report: &mut Report) -> Result<()> {
    let mut testbed = Testbed::dealt(*PARTIES.end(), effort, waiting)?;
    let (mut two, mut eight) = <(Samples, Samples)>::default();
    for round in effort.rounds() {
        testbed.raw_meet(*PARTIES.start(), effort.count, &mut two)?;
        testbed.raw_meet(*PARTIES.end(), effort.count, &mut eight)?;
        if round == Effort::WARM_UP {
            (two, eight) = Default::default();
        }
    }
    let beside = Some(("raw_barrier_2", &two));
    report.row(RAW, testbed.waiting(), &eight, beside);
    Ok(())
}

/// A barrier costs the same however many clean pages its nodes have.
fn clean_pages(effort: &Effort, waiting: Waiting, report: &mut Report) -> Result<()> {
    let mut testbed = Testbed::new(2, effort, waiting)?;
    let (mut without, mut with) = <(Samples, Samples)>::default();
    let pages: Vec<u32> = (0..CLEAN_PAGES).collect();
    for round in effort.rounds() {
        testbed.open(&format!("bench.dirty.{round}"), 1, None)?;
        without.extend(testbed.meet(2, 2, effort.count)?);
        let name = format!("bench.clean.{round}");
        testbed.open(&name, CLEAN_PAGES, None)?;
        testbed.touch(1, &pages, true)?;
        testbed.touch(0, &pages, false)?;
        with.extend(testbed.meet(2, 2, effort.count)?);
        testbed.remove(&name)?;
        if round == Effort::WARM_UP {
            (without, with) = Default::default();
        }
    }
    let beside = Some(("barrier_2_without", &without));
    report.row(CLEAN, waiting.name(), &with, beside);
    Ok(())
}
