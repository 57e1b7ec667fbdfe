//! `bench fault`: reading, writing, upgrading, invalidating (MR1, MR7, FR1, FR3).

use super::report::{Report, Samples};
use super::testbed::Testbed;
use super::{Effort, Waiting};
use anyhow::Result;
use std::time::{Duration, Instant};

/// Readers whose copies are invalidated.
const READERS: std::ops::RangeInclusive<usize> = 1..=7;

/// Readers where invalidations leave together.
const SEVERAL: [usize; 2] = [4, 7];

/// For use at one site; the nodes have a network of their own.
const GROUP: &str = "239.77.7.7:7451";

/// Daemons measure the multicast reach every second.
const TRIALS: Duration = Duration::from_millis(1500);

/// How long idle daemons are watched.
const IDLE: Duration = Duration::from_secs(1);

/// Δ is off, so that only the protocol is measured.
pub(super) const WINDOW: Option<u64> = Some(0);

/// Rows that two nodes measure, also with sealed datagrams.
const PLAIN: [&str; 5] = [
    "read_fault",
    "write_fault",
    "upgrade",
    "local_second_process",
    "idle",
];
const SEALED: [&str; 3] = [
    "read_fault_encrypted",
    "write_fault_encrypted",
    "upgrade_encrypted",
];

pub(super) fn measure(effort: &Effort, waiting: Waiting, report: &mut Report) -> Result<()> {
    if effort.wants(&PLAIN) {
        let mut testbed = Testbed::new(2, effort, waiting)?;
        let [read, write, upgrade, local, idle] = PLAIN;
        let page = two_nodes(&mut testbed, effort, [read, write, upgrade], report)?;
        second_process(&mut testbed, effort, local, report, &page)?;
        idle_nodes(&testbed, idle, report)?;
    }
    if effort.wants(&SEALED) {
        let mut testbed = Testbed::sealed(2, effort, waiting)?;
        two_nodes(&mut testbed, effort, SEALED, report)?;
    }
    invalidations(effort, waiting, report)?;
    multicast_batches(effort, waiting, report)
}

/// Faults between two nodes. Returns the raw exchanges beside them.
fn two_nodes(
    testbed: &mut Testbed,
    effort: &Effort,
    names: [&'static str; 3],
    report: &mut Report,
) -> Result<Samples> {
    let (mut read, mut write, mut upgrade) = <(Samples, Samples, Samples)>::default();
    let (mut page, mut short) = <(Samples, Samples)>::default();
    let mut time = 0;
    for round in effort.rounds() {
        let name = format!("bench.fault.{round}");
        testbed.open(&name, effort.count * 2, WINDOW)?;
        let one = shuffled(0..effort.count, round);
        let two = shuffled(effort.count..effort.count * 2, round);
        // The other node is the last writer of every page.
        testbed.touch(1, &one, true)?;
        testbed.touch(1, &two, true)?;
        testbed.raw(Testbed::PAGE_REPLY, effort.count, &mut page)?;
        let before = testbed.daemon_time()?;
        read.extend(testbed.touch(0, &one, false)?);
        time += testbed.daemon_time()? - before;
        upgrade.extend(testbed.touch(0, &one, true)?);
        testbed.raw(super::raw::REQUEST, effort.count, &mut short)?;
        write.extend(testbed.touch(0, &two, true)?);
        if round == Effort::WARM_UP {
            (read, write, upgrade, page, short) = Default::default();
            time = 0;
        }
    }
    let waiting = testbed.waiting();
    let long = Some(("raw_exchange_page", &page));
    report.row(names[0], waiting, &read, long);
    report.took(time);
    report.row(names[1], waiting, &write, long);
    let short = Some(("raw_exchange_short", &short));
    report.row(names[2], waiting, &upgrade, short);
    Ok(page)
}

/// A page that another process of the node has already costs no datagram (M4).
fn second_process(
    testbed: &mut Testbed,
    effort: &Effort,
    name: &str,
    report: &mut Report,
    page: &Samples,
) -> Result<()> {
    let mut local = Samples::default();
    let pages = shuffled(0..effort.count, 0);
    for round in effort.rounds() {
        testbed.open(&format!("bench.local.{round}"), effort.count, WINDOW)?;
        testbed.touch(0, &pages, true)?;
        // A second opening is a second mapping, as of another process.
        testbed.open(&format!("bench.local.{round}"), effort.count, WINDOW)?;
        local.extend(testbed.touch(0, &pages, false)?);
        if round == Effort::WARM_UP {
            local = Samples::default();
        }
    }
    let beside = Some(("raw_exchange_page", page));
    report.row(name, testbed.waiting(), &local, beside);
    Ok(())
}

/// The cost of idle daemons.
fn idle_nodes(testbed: &Testbed, name: &str, report: &mut Report) -> Result<()> {
    let start = Instant::now();
    let before = testbed.daemon_time()?;
    std::thread::sleep(IDLE);
    let used = (testbed.daemon_time()? - before) as f64 / testbed.size() as f64;
    let percent = 100.0 * used / start.elapsed().as_nanos() as f64;
    report.value(name, "% cpu", percent, testbed.size());
    report.waited(testbed.waiting());
    Ok(())
}

/// An owner writes a page of which 1 to 7 other nodes hold copies.
fn invalidations(effort: &Effort, waiting: Waiting, report: &mut Report) -> Result<()> {
    let name = |readers| format!("invalidate_{readers}");
    let wanted: Vec<usize> = READERS
        .filter(|readers| effort.wants(&[&name(*readers)]))
        .collect();
    let floor = effort.wants(&["raw_gather_7"]);
    if wanted.is_empty() && !floor {
        return Ok(());
    }
    let mut testbed = Testbed::new(READERS.end() + 1, effort, waiting)?;
    let count = effort.count.min(500);
    if floor {
        raw_gather(&mut testbed, effort, count, report)?;
    }
    let mut medians = Vec::new();
    for readers in wanted {
        let (mut samples, mut short) = <(Samples, Samples)>::default();
        for round in effort.rounds() {
            let pages = read_by(&mut testbed, readers, count, round)?;
            testbed.raw(super::raw::REQUEST, count, &mut short)?;
            samples.extend(testbed.touch(0, &pages, true)?);
            if round == Effort::WARM_UP {
                (samples, short) = Default::default();
            }
        }
        let beside = Some(("raw_exchange_short", &short));
        report.row(name(readers), waiting.name(), &samples, beside);
        medians.push((readers, samples.median()));
    }
    if let [(1, one), .., (7, seven)] = medians[..] {
        report.value("invalidate_7_to_1", "ratio", seven / one, count as usize);
        report.waited(waiting.name());
    }
    Ok(())
}

/// Pages of node 0 that so many others have read.
fn read_by(testbed: &mut Testbed, readers: usize, count: u32, round: u32) -> Result<Vec<u32>> {
    let name = format!("bench.invalidate.{readers}.{round}");
    testbed.open(&name, count, WINDOW)?;
    let pages = shuffled(0..count, round);
    testbed.touch(0, &pages, true)?;
    for reader in 1..=readers {
        testbed.touch(reader, &pages, false)?;
    }
    Ok(pages)
}

/// Invalidations that leave as one datagram, and beside them, in turn, the same by as
/// many as there are readers.
fn multicast_batches(effort: &Effort, waiting: Waiting, report: &mut Report) -> Result<()> {
    let names = SEVERAL.map(|readers| format!("multicast_invalidate_{readers}"));
    let wanted = |name: &String| effort.wants(&[name]);
    if !names.iter().any(wanted) {
        return Ok(());
    }
    let group = format!("--multicast={GROUP}");
    let nodes = READERS.end() + 1;
    let mut with = Testbed::with(nodes, effort, waiting, &[&group])?;
    let mut without = Testbed::new(nodes, effort, waiting)?;
    // Until daemons know the multicast reach.
    std::thread::sleep(TRIALS);
    let count = effort.count.min(500);
    for (readers, name) in SEVERAL.into_iter().zip(&names) {
        let (mut one, mut many) = <(Samples, Samples)>::default();
        let mut sent = [0; 2];
        for round in effort.rounds() {
            let stores = |testbed: &mut Testbed, samples: &mut Samples| -> Result<u64> {
                let pages = read_by(testbed, readers, count, round)?;
                let before = testbed.counters(0)?.of("datagrams_out");
                samples.extend(testbed.touch(0, &pages, true)?);
                Ok(testbed.counters(0)?.of("datagrams_out") - before)
            };
            let [a, b] = [
                stores(&mut with, &mut one)?,
                stores(&mut without, &mut many)?,
            ];
            sent = [sent[0] + a, sent[1] + b];
            if round == Effort::WARM_UP {
                (one, many, sent) = Default::default();
            }
        }
        let beside = Some(("without_multicast", &many));
        report.row(name, waiting.name(), &one, beside);
        let stores = f64::from(count * effort.rounds);
        for (name, sent) in ["", "_without"].into_iter().zip(sent) {
            let name = format!("multicast_datagrams_{readers}{name}");
            report.value(&name, "datagrams", sent as f64 / stores, count as usize);
            report.waited(waiting.name());
        }
    }
    Ok(())
}

/// The time that processors and network alone need to ask seven nodes at once, beside one of them:
/// no protocol can be quicker.
fn raw_gather(
    testbed: &mut Testbed,
    effort: &Effort,
    count: u32,
    report: &mut Report,
) -> Result<()> {
    let (mut one, mut seven) = <(Samples, Samples)>::default();
    for round in effort.rounds() {
        testbed.raw_gather(1, count, &mut one)?;
        testbed.raw_gather(*READERS.end(), count, &mut seven)?;
        if round == Effort::WARM_UP {
            (one, seven) = Default::default();
        }
    }
    let beside = Some(("raw_gather_1", &one));
    report.row("raw_gather_7", testbed.waiting(), &seven, beside);
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
