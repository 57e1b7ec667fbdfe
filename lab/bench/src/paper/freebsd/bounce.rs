//! FR1, FR2, FR4, FR7: pages that bounce between two nodes, and where the time of a fault goes.

use super::super::super::agent::Order;
use super::super::super::fault::{WINDOW, shuffled};
use super::super::super::report::Samples;
use super::super::super::testbed::Testbed;
use super::super::super::{Waiting, raw};
use super::super::figures::Figures;
use anyhow::{Result, ensure};
use pagemesh_cli::sandbox::Plan;
use pagemesh_wire::local::{Stamp, StampKind};

/// Pages that bounce one after the other, so that the two nodes change turns once for all of them.
const PAGES: u32 = 500;

/// Turns that count for nothing.
const WARM_UP: u32 = 2;

/// Turns whose datagrams are counted.
const COUNTED: u32 = 5;

/// How daemons wait, by the names of its figures.
pub(super) const WAITINGS: [Waiting; 2] = [Waiting::Block, Waiting::Spin];

/// The times of one kind of access, whole and by part.
#[derive(Default)]
struct Parts {
    all: Samples,
    /// From the access to the daemon.
    ipc: Samples,
    /// Until the program goes on. No stamp says when the daemon has answered: it reads its clock
    /// behind the thread that it woke.
    server: Samples,
}

pub(super) fn measure(operations: u32, document: &mut Figures) -> Result<()> {
    document.put("basic operations", f64::from(operations));
    for waiting in WAITINGS {
        let mut testbed = Testbed::raise(&Plan::new(2), waiting)?;
        faults(&mut testbed, operations, document)?;
        datagrams(&mut testbed, document)?;
    }
    Ok(())
}

/// The least, the mean and the median of a kind.
fn put(document: &mut Figures, name: &str, samples: &Samples) {
    for (what, nanos) in [
        ("least", samples.least()),
        ("mean", samples.mean()),
        ("median", samples.median()),
    ] {
        document.put(format!("basic {name} {what} us"), nanos / 1000.0);
    }
}

fn faults(testbed: &mut Testbed, operations: u32, document: &mut Figures) -> Result<()> {
    let waiting = testbed.waiting();
    let pages = PAGES.min(operations);
    testbed.open("freebsd.bounce", pages, WINDOW)?;
    for node in 0..2 {
        testbed.ask(node, &Order::Random)?;
    }
    let (mut read, mut write) = <(Parts, Parts)>::default();
    let (mut short, mut long) = <(Samples, Samples)>::default();
    let mut next = [0; 2];
    testbed.touch(1, &shuffled(0..pages, 0), true)?;
    for turn in 0..WARM_UP + operations.div_ceil(pages) {
        let node = turn as usize % 2;
        let pages = shuffled(0..pages, turn);
        let times = testbed.ask(
            node,
            &Order::LoadStore {
                pages: pages.clone(),
            },
        )?;
        // Those of the other's turn, as of an owner, come first.
        let stamps = testbed.stamps_since(node, next[node])?;
        next[node] = stamps.last().map_or(next[node], |last| last.number + 1);
        if turn < WARM_UP {
            continue;
        }
        for (page, times) in pages.iter().zip(times.chunks_exact(3)) {
            read.add(&stamps, *page, (times[0], times[1]));
            write.add(&stamps, *page, (times[1], times[2]));
        }
        // In turn, so that what else the machine does hits all alike.
        testbed.raw(raw::REQUEST, 50, &mut short)?;
        testbed.raw(Testbed::PAGE_REPLY, 50, &mut long)?;
    }
    for (name, parts) in [("read", &read), ("write", &write)] {
        ensure!(
            parts.server.len() * 10 >= parts.all.len() * 9,
            "only {} of {} faults have time stamps",
            parts.server.len(),
            parts.all.len()
        );
        put(document, &format!("{waiting} {name}"), &parts.all);
        put(document, &format!("{waiting} {name} ipc"), &parts.ipc);
        put(document, &format!("{waiting} {name} server"), &parts.server);
    }
    put(document, &format!("{waiting} raw short"), &short);
    put(document, &format!("{waiting} raw page"), &long);
    testbed.remove("freebsd.bounce")
}

impl Parts {
    /// An access between two times, which was a fault if the daemon has stamped it.
    fn add(&mut self, stamps: &[Stamp], page: u32, (begin, end): (u64, u64)) {
        self.all.extend(vec![end - begin]);
        let within = stamps.partition_point(|stamp| stamp.nanos < begin);
        let within = stamps[within..]
            .iter()
            .take_while(|stamp| stamp.nanos <= end)
            .filter(|stamp| stamp.tag == u64::from(page));
        let mut faults = within.filter(|stamp| stamp.what == StampKind::Fault);
        if let Some(fault) = faults.next() {
            self.ipc.extend(vec![fault.nanos - begin]);
            self.server.extend(vec![end - fault.nanos]);
        }
    }
}

/// Datagrams of both daemons so far, without those that were sent again.
pub(super) fn sent(testbed: &mut Testbed) -> Result<u64> {
    let mut all = 0;
    for node in 0..testbed.size() {
        let counted = testbed.counters(node)?;
        all += counted.of("datagrams_out") - counted.of("resent");
    }
    Ok(all)
}

fn datagrams(testbed: &mut Testbed, document: &mut Figures) -> Result<()> {
    let waiting = testbed.waiting();
    testbed.open("freebsd.datagrams", PAGES, WINDOW)?;
    testbed.ask(0, &Order::Random)?;
    let (mut read, mut write) = (Vec::new(), Vec::new());
    for turn in 0..COUNTED {
        let pages = shuffled(0..PAGES, turn);
        testbed.touch(1, &pages, true)?;
        for (counts, is_store) in [(&mut read, false), (&mut write, true)] {
            let before = sent(testbed)?;
            testbed.touch(0, &pages, is_store)?;
            counts.push((sent(testbed)? - before) as f64 / f64::from(PAGES));
        }
    }
    for (name, mut counts) in [("read", read), ("write", write)] {
        counts.sort_by(f64::total_cmp);
        document.put(
            format!("basic {waiting} {name} datagrams"),
            counts[counts.len() / 2],
        );
    }
    testbed.remove("freebsd.datagrams")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_fault_is_divided_by_the_stamps_of_its_page() {
        let stamp = |nanos, what, tag| Stamp {
            number: 0,
            nanos,
            what,
            tag,
        };
        let stamps = [
            stamp(90, StampKind::Fault, 7),
            stamp(110, StampKind::Fault, 7),
            stamp(115, StampKind::Given, 8),
            stamp(130, StampKind::Fault, 7),
            stamp(160, StampKind::Mapped, 7),
        ];
        let mut parts = Parts::default();
        parts.add(&stamps, 7, (100, 150));
        parts.add(&stamps, 8, (100, 150));
        let [all, ipc, server] =
            [&parts.all, &parts.ipc, &parts.server].map(|samples| (samples.len(), samples.mean()));
        assert_eq!(all, (2, 50.0));
        assert_eq!([ipc, server], [(1, 10.0), (1, 40.0)]);
    }
}
