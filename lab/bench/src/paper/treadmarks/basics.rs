//! TR1: the cost of the basic operations.

use super::super::super::agent::Order;
use super::super::super::boards::Running;
use super::super::super::report::{Report, Samples};
use super::super::super::testbed::Testbed;
use super::super::super::{ETHERNET_JUMBO, Effort, Waiting, fault, raw, sync};
use super::document::{BARRIER, Basic, FAULT, LOCK_OF_LAST, LOCK_OF_THIRD};
use super::literature;
use anyhow::{Result, bail};
use fault::shuffled;

/// Enough for a median, of one row.
fn effort(only: &str) -> Effort {
    effort_of(only, Waiting::Block)
}

fn effort_of(only: &str, waiting: Waiting) -> Effort {
    Effort {
        count: 200,
        rounds: 2,
        waiting: Some(waiting),
        latency: false,
        mtu: ETHERNET_JUMBO,
        only: Some(only.to_owned()),
    }
}

/// The policies whose locks, barriers and faults are measured: the paper's, and our default.
const POLICIES: [&str; 2] = ["release", "sequential"];

/// Turns of three nodes with a lock that count for nothing.
const WARM_TURNS: usize = 6;

/// All of them, and beside a companion: quiet processors flatter.
pub(super) fn measure() -> Result<Vec<Basic>> {
    let mut basics = once()?;
    let _companion = Running::start()?;
    for (basic, busy) in basics.iter_mut().zip(once()?) {
        basic.busy = Some(busy.ours);
    }
    Ok(basics)
}

/// All of them, daemons asleep while nothing arrives, as the paper's were.
fn once() -> Result<Vec<Basic>> {
    let mut basics = vec![round_trip()?];
    for policy in POLICIES {
        let mut add = |name: &str, ours: f64, paper| {
            basics.push(Basic {
                name: name.to_owned(),
                policy: Some(policy.to_owned()),
                ours,
                busy: None,
                paper,
            });
        };
        let lock = lock_of_two(policy)?;
        add(LOCK_OF_LAST, lock, literature::LOCK_FROM_MANAGER);
        let third = lock_of_three(policy)?;
        add(LOCK_OF_THIRD, third, literature::LOCK_FROM_THIRD);
        add(BARRIER, barrier_of_eight(policy)?, literature::BARRIER_8);
        add(FAULT, page_fault(policy)?, literature::PAGE_FAULT);
    }
    Ok(basics)
}

fn round_trip() -> Result<Basic> {
    let (mut testbed, effort) = testbed(2)?;
    let mut samples = Samples::default();
    for round in effort.rounds() {
        testbed.raw(raw::REQUEST, effort.count, &mut samples)?;
        if round == Effort::WARM_UP {
            samples = Samples::default();
        }
    }
    Ok(Basic {
        name: "round trip of a small message".to_owned(),
        policy: None,
        ours: micros(&samples),
        busy: None,
        paper: literature::ROUND_TRIP,
    })
}

/// Each node takes the lock from the other, after a pause in which the other had it.
fn lock_of_two(policy: &str) -> Result<f64> {
    let (mut testbed, effort) = testbed(2)?;
    testbed.open_with("bench.lock", 1, policy)?;
    let mut samples = Samples::default();
    for _ in 0..effort.count {
        testbed.ask(1, &ONCE)?;
        samples.extend(testbed.ask(0, &ONCE)?);
    }
    Ok(micros(&samples))
}

/// Three nodes take a lock in turn: each asks where it saw the lock go, and that
/// node had to send the request on.
fn lock_of_three(policy: &str) -> Result<f64> {
    let (mut testbed, effort) = testbed(3)?;
    testbed.open_with("bench.third", 1, policy)?;
    let mut samples = Samples::default();
    for turn in 0..effort.count as usize {
        let times = testbed.ask(turn % 3, &ONCE)?;
        if turn >= WARM_TURNS {
            samples.extend(times);
        }
    }
    Ok(micros(&samples))
}

fn barrier_of_eight(policy: &str) -> Result<f64> {
    let effort = effort("barrier");
    let mut testbed = Testbed::dealt(8, &effort, Waiting::Block)?;
    testbed.open_with("bench.barrier", 1, policy)?;
    let mut samples = Samples::default();
    for round in effort.rounds() {
        let times = testbed.meet(1, 8, effort.count)?;
        if round != Effort::WARM_UP {
            samples.extend(times);
        }
    }
    Ok(micros(&samples))
}

/// A node loads from pages that it never had and that the other changed before it gave a lock.
fn page_fault(policy: &str) -> Result<f64> {
    let (mut testbed, effort) = testbed(2)?;
    let mut samples = Samples::default();
    for round in effort.rounds() {
        // Pages that were read before could come unasked in the next round.
        testbed.open_with(&format!("bench.page.{round}"), effort.count, policy)?;
        let change = Order::Change {
            number: 1,
            pages: effort.count,
        };
        testbed.ask(0, &change)?;
        testbed.ask(1, &ONCE)?;
        let times = testbed.touch(1, &shuffled(0..effort.count, round), false)?;
        if round != Effort::WARM_UP {
            samples.extend(times);
        }
    }
    Ok(micros(&samples))
}

/// A lock is taken and given back once.
const ONCE: Order = Order::Lock {
    number: 1,
    count: 1,
};

fn testbed(nodes: usize) -> Result<(Testbed, Effort)> {
    let effort = effort("basics");
    let testbed = Testbed::new(nodes, &effort, Waiting::Block)?;
    Ok((testbed, effort))
}

fn micros(samples: &Samples) -> f64 {
    samples.median() / 1000.0
}

/// Microseconds of a round trip, of a lock from the other node and of a fault, where daemons are
/// awake: the cost of falling asleep and waking differs between machines, and is tens of
/// microseconds on virtual ones.
pub(super) fn awake() -> Result<[f64; 3]> {
    let waiting = Waiting::Spin;
    let mut report = Report::new("awake");
    sync::measure(
        &effort_of("lock_handover_alone", waiting),
        waiting,
        &mut report,
    )?;
    fault::measure(&effort_of("read_fault", waiting), waiting, &mut report)?;
    let told = (
        report.baseline("lock_handover_alone"),
        report.median("lock_handover_alone"),
        report.median("read_fault"),
    );
    let (Some(round_trip), Some(lock), Some(fault)) = told else {
        bail!("a lock or a fault was not measured");
    };
    Ok([round_trip, lock, fault])
}
