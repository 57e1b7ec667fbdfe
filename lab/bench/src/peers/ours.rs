//! PageMesh's part of the comparison.

use super::super::agent::Order;
use super::super::fault::{WINDOW, shuffled};
use super::super::testbed::Testbed;
use super::Times;
use anyhow::Result;

/// Hand-overs cost two commands each; this many suffice.
const HANDOVERS: u32 = 200;

/// How long both nodes add to one word.
const COUNTER_MILLIS: u64 = 100;

const LOCK: u64 = 1;
const BARRIER: u64 = 2;

pub(super) fn measure(testbed: &mut Testbed, round: u32, count: u32) -> Result<Times> {
    let name = format!("bench.peers.{round}");
    testbed.open(&name, count * 3, WINDOW)?;
    let mut times = faults(testbed, round, count)?;
    times.extend(locks(testbed, count)?);
    times.push(("barrier", testbed.meet(BARRIER, 2, count)?));
    testbed.remove(&name)?;
    times.push(("counter", counter(testbed, round)?));
    let owned = |(what, times): (&str, Vec<u64>)| (what.to_owned(), times);
    Ok(times.into_iter().map(owned).collect())
}

type Named = Vec<(&'static str, Vec<u64>)>;

/// The other node is the last writer of every page.
fn faults(testbed: &mut Testbed, round: u32, count: u32) -> Result<Named> {
    let [read, write, add] =
        [0, 1, 2].map(|part| shuffled(part * count..(part + 1) * count, round));
    for pages in [&read, &write, &add] {
        testbed.touch(1, pages, true)?;
    }
    Ok(vec![
        ("read_fault", testbed.touch(0, &read, false)?),
        ("read_again", testbed.touch(0, &read, false)?),
        ("write_fault", testbed.touch(0, &write, true)?),
        ("fetch_add", testbed.ask(0, &Order::Add { pages: add })?),
    ])
}

/// The other node had the lock last, and wrote the word that it guards.
fn locks(testbed: &mut Testbed, count: u32) -> Result<Named> {
    let lock = |count| Order::Lock {
        number: LOCK,
        count,
    };
    let guarded = |write| Order::Guarded {
        number: LOCK,
        page: 0,
        write,
    };
    let (mut handover, mut word) = (Vec::new(), Vec::new());
    for _ in 0..count.min(HANDOVERS) {
        testbed.ask(1, &lock(1))?;
        handover.extend(testbed.ask(0, &lock(1))?);
        testbed.ask(1, &guarded(true))?;
        word.extend(testbed.ask(0, &guarded(false))?);
    }
    let again = testbed.ask(0, &lock(count))?;
    Ok(vec![
        ("lock_handover", handover),
        ("locked_word", word),
        ("lock_again", again),
    ])
}

/// Both add to one word for a while; returns the time of each addition.
fn counter(testbed: &mut Testbed, round: u32) -> Result<Vec<u64>> {
    let name = format!("bench.peers.counter.{round}");
    testbed.open(&name, 1, None)?;
    let order = Order::Contend {
        millis: COUNTER_MILLIS,
        pause_nanos: 0,
    };
    testbed.tell(0, &order)?;
    testbed.tell(1, &order)?;
    let adds: u64 = [testbed.hear(0)?, testbed.hear(1)?].iter().flatten().sum();
    testbed.remove(&name)?;
    Ok(vec![COUNTER_MILLIS * 1_000_000 / adds.max(1)])
}
