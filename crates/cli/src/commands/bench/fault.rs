//! `bench fault`: reading, writing, upgrading, invalidating (MR1, MR7, FR1, FR3).

use super::report::{Report, Samples};
use super::stage::Stage;
use super::{Effort, Waiting};
use anyhow::Result;

/// Readers whose copies are invalidated.
const READERS: std::ops::RangeInclusive<usize> = 1..=7;

/// Δ is off: what is measured is the protocol.
pub(super) const WINDOW: Option<u64> = Some(0);

pub(super) fn measure(effort: &Effort, waiting: Waiting, report: &mut Report) -> Result<()> {
    two_nodes(effort, waiting, report)?;
    invalidations(effort, waiting, report)
}

fn two_nodes(effort: &Effort, waiting: Waiting, report: &mut Report) -> Result<()> {
    let mut stage = Stage::new(2, effort, waiting)?;
    let (mut read, mut write, mut upgrade) = <(Samples, Samples, Samples)>::default();
    let (mut page, mut short) = <(Samples, Samples)>::default();
    for round in effort.rounds() {
        let name = format!("bench.fault.{round}");
        stage.open(&name, effort.count * 2, WINDOW)?;
        let one = shuffled(0..effort.count, round);
        let two = shuffled(effort.count..effort.count * 2, round);
        // The other node is the last writer of every page.
        stage.touch(1, &one, true)?;
        stage.touch(1, &two, true)?;
        stage.raw(Stage::PAGE_REPLY, effort.count, &mut page)?;
        read.extend(stage.touch(0, &one, false)?);
        upgrade.extend(stage.touch(0, &one, true)?);
        stage.raw(super::raw::REQUEST, effort.count, &mut short)?;
        write.extend(stage.touch(0, &two, true)?);
        if round == Effort::WARM_UP {
            (read, write, upgrade, page, short) = Default::default();
        }
    }
    let waiting = waiting.name();
    let beside = Some(("raw_exchange_page", &page));
    report.row("read_fault", waiting, &read, beside);
    report.row("write_fault", waiting, &write, beside);
    report.row(
        "upgrade",
        waiting,
        &upgrade,
        Some(("raw_exchange_short", &short)),
    );
    second_process(&mut stage, effort, waiting, report, &page)
}

/// A page that another process of the node has already costs no datagram (M4).
fn second_process(
    stage: &mut Stage,
    effort: &Effort,
    waiting: &'static str,
    report: &mut Report,
    page: &Samples,
) -> Result<()> {
    let mut local = Samples::default();
    let pages = shuffled(0..effort.count, 0);
    for round in effort.rounds() {
        stage.open(&format!("bench.local.{round}"), effort.count, WINDOW)?;
        stage.touch(0, &pages, true)?;
        // A second opening is a second mapping, as of another process.
        stage.open(&format!("bench.local.{round}"), effort.count, WINDOW)?;
        local.extend(stage.touch(0, &pages, false)?);
        if round == Effort::WARM_UP {
            local = Samples::default();
        }
    }
    report.row(
        "local_second_process",
        waiting,
        &local,
        Some(("raw_exchange_page", page)),
    );
    Ok(())
}

/// An owner writes a page of which 1 to 7 other nodes hold copies.
fn invalidations(effort: &Effort, waiting: Waiting, report: &mut Report) -> Result<()> {
    let mut stage = Stage::new(READERS.end() + 1, effort, waiting)?;
    let count = effort.count.min(500);
    for readers in READERS {
        let (mut samples, mut short) = <(Samples, Samples)>::default();
        for round in effort.rounds() {
            stage.open(
                &format!("bench.invalidate.{readers}.{round}"),
                count,
                WINDOW,
            )?;
            let pages = shuffled(0..count, round);
            stage.touch(0, &pages, true)?;
            for reader in 1..=readers {
                stage.touch(reader, &pages, false)?;
            }
            stage.raw(super::raw::REQUEST, count, &mut short)?;
            samples.extend(stage.touch(0, &pages, true)?);
            if round == Effort::WARM_UP {
                (samples, short) = Default::default();
            }
        }
        let name = format!("invalidate_{readers}");
        report.row(
            name,
            waiting.name(),
            &samples,
            Some(("raw_exchange_short", &short)),
        );
    }
    Ok(())
}

/// The pages in an order that no prefetcher guesses, the same in every run.
pub(super) fn shuffled(pages: std::ops::Range<u32>, round: u32) -> Vec<u32> {
    let mut order: Vec<u32> = pages.collect();
    let mut state = u64::from(round)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(0x2545_f491_4f6c_dd1d);
    for last in (1..order.len()).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, (state >> 33) as usize % (last + 1));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_is_a_permutation() {
        let mut order = shuffled(10..60, 3);
        assert_ne!(order, (10..60).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (10..60).collect::<Vec<_>>());
    }
}
