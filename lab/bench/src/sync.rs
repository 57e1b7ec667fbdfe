//! `bench sync`: locks and barriers (TR1), also of segments of policy `release`, where write
//! notices travel with them.

use super::agent::Order;
use super::report::{Report, Samples};
use super::testbed::Testbed;
use super::{Effort, Waiting, raw};
use anyhow::{Result, anyhow};
use pagemesh::Policy;

mod floor;

/// The policy of the segments whose rows say so.
const RELEASE: &str = "release";

/// Pages written by who had the lock before.
const NOTICES: [u32; 3] = [0, 10, 1000];

/// Clean pages that every node of a barrier has, or not.
const CLEAN: [u32; 2] = [0, 4096];

/// Sizes of barriers.
const PARTIES: std::ops::RangeInclusive<usize> = 2..=8;

pub(super) fn measure(effort: &Effort, waiting: Waiting, report: &mut Report) -> Result<()> {
    if effort.wants(&["lock_handover", "lock_handover_alone", "lock_reacquire"]) {
        locks(effort, waiting, report)?;
    }
    barriers(effort, waiting, report)?;
    floor::measure(effort, waiting, report)?;
    if let Err(why) = RELEASE.parse::<Policy>() {
        report.skip(RELEASE.into(), &anyhow!(why));
        return Ok(());
    }
    notices(effort, waiting, report)?;
    cached(effort, waiting, report)
}

fn locks(effort: &Effort, waiting: Waiting, report: &mut Report) -> Result<()> {
    let mut testbed = Testbed::new(2, effort, waiting)?;
    testbed.open("bench.locks", 1, None)?;
    let (mut handover, mut alone, mut again, mut short) =
        <(Samples, Samples, Samples, Samples)>::default();
    let count = effort.count.min(300);
    let lock = |count| Order::Lock { number: 1, count };
    for round in effort.rounds() {
        testbed.raw(raw::REQUEST, effort.count, &mut short)?;
        // Each token comes from the other node, where it was last used: one behind the
        // other, as the raw exchange, and each after a pause in which others ran.
        testbed.ask(1, &Order::Locks { count })?;
        handover.extend(testbed.ask(0, &Order::Locks { count })?);
        for _ in 0..count {
            testbed.ask(1, &lock(1))?;
            alone.extend(testbed.ask(0, &lock(1))?);
        }
        again.extend(testbed.ask(0, &lock(effort.count))?);
        if round == Effort::WARM_UP {
            (handover, alone, again, short) = Default::default();
        }
    }
    let beside = Some(("raw_exchange_short", &short));
    report.row("lock_handover", waiting.name(), &handover, beside);
    report.row("lock_handover_alone", waiting.name(), &alone, beside);
    report.row("lock_reacquire", waiting.name(), &again, beside);
    Ok(())
}

fn barriers(effort: &Effort, waiting: Waiting, report: &mut Report) -> Result<()> {
    let name = |parties| format!("barrier_{parties}");
    let wanted: Vec<usize> = PARTIES
        .filter(|parties| effort.wants(&[&name(*parties)]))
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let mut testbed = Testbed::dealt(*PARTIES.end(), effort, waiting)?;
    testbed.open("bench.barriers", 1, None)?;
    for parties in wanted {
        meet(&mut testbed, effort, parties, &name(parties), report)?;
    }
    Ok(())
}

/// The first nodes of a stage meet, again and again.
fn meet(
    testbed: &mut Testbed,
    effort: &Effort,
    parties: usize,
    name: &str,
    report: &mut Report,
) -> Result<()> {
    let (mut samples, mut short) = <(Samples, Samples)>::default();
    for round in effort.rounds() {
        testbed.raw(raw::REQUEST, effort.count, &mut short)?;
        samples.extend(testbed.meet(parties as u64, parties, effort.count)?);
        if round == Effort::WARM_UP {
            (samples, short) = Default::default();
        }
    }
    let beside = Some(("raw_exchange_short", &short));
    report.row(name, testbed.waiting(), &samples, beside);
    Ok(())
}

/// A lock comes from the other node, with a notice for each page written there.
fn notices(effort: &Effort, waiting: Waiting, report: &mut Report) -> Result<()> {
    let name = |pages| format!("lock_notices_{pages}");
    if !effort.wants(&NOTICES.map(name).each_ref().map(String::as_str)) {
        return Ok(());
    }
    let mut testbed = Testbed::new(2, effort, waiting)?;
    testbed.open_with("bench.notices", 1000, RELEASE)?;
    let count = effort.count.min(100);
    for pages in NOTICES {
        let (mut samples, mut short) = <(Samples, Samples)>::default();
        for round in effort.rounds() {
            testbed.raw(raw::REQUEST, effort.count, &mut short)?;
            for _ in 0..count {
                testbed.ask(1, &Order::Change { number: 1, pages })?;
                let take = Order::Lock {
                    number: 1,
                    count: 1,
                };
                samples.extend(testbed.ask(0, &take)?);
            }
            if round == Effort::WARM_UP {
                (samples, short) = Default::default();
            }
        }
        let beside = Some(("raw_exchange_short", &short));
        report.row(name(pages), waiting.name(), &samples, beside);
    }
    Ok(())
}

/// Barriers of nodes that have read many pages, which are not written.
fn cached(effort: &Effort, waiting: Waiting, report: &mut Report) -> Result<()> {
    for clean in CLEAN {
        let name = |parties| format!("barrier_release_{parties}_clean_{clean}");
        let wanted: Vec<usize> = PARTIES
            .filter(|parties| effort.wants(&[&name(*parties)]))
            .collect();
        if wanted.is_empty() {
            continue;
        }
        let mut testbed = Testbed::dealt(*PARTIES.end(), effort, waiting)?;
        testbed.open_with("bench.clean", CLEAN[1], RELEASE)?;
        let pages: Vec<u32> = (0..clean).collect();
        for agent in 0..*PARTIES.end() {
            testbed.touch(agent, &pages, false)?;
        }
        for parties in wanted {
            meet(&mut testbed, effort, parties, &name(parties), report)?;
        }
    }
    Ok(())
}
