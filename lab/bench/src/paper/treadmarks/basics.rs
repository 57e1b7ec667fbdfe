//! TR1: the cost of the basic operations.

use super::super::super::agent::Order;
use super::super::super::report::{Report, Samples};
use super::super::super::testbed::Testbed;
use super::super::super::{ETHERNET_JUMBO, Effort, Waiting, fault, sync};
use super::document::Basic;
use super::literature;
use anyhow::{Result, bail};

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

/// All of them, daemons asleep while nothing arrives, as the paper's were.
pub(super) fn measure() -> Result<Vec<Basic>> {
    let waiting = Waiting::Block;
    let mut report = Report::new("basics");
    for row in ["lock_handover_alone", "barrier_8"] {
        sync::measure(&effort(row), waiting, &mut report)?;
    }
    fault::measure(&effort("read_fault"), waiting, &mut report)?;
    third_node(waiting, &mut report)?;
    let mut basics = Vec::new();
    let mut add = |name: &str, ours: Option<f64>, paper| {
        if let Some(ours) = ours {
            let name = name.to_owned();
            basics.push(Basic { name, ours, paper });
        }
    };
    let round_trip = report.baseline("lock_handover_alone");
    add(
        "round trip of a small message",
        round_trip,
        literature::ROUND_TRIP,
    );
    let handover = report.median("lock_handover_alone");
    add(
        "lock, from the node that had it last",
        handover,
        literature::LOCK_FROM_MANAGER,
    );
    let third = report.median("lock_from_third");
    add(
        "lock, that a third node had last",
        third,
        literature::LOCK_FROM_THIRD,
    );
    add(
        "barrier of 8",
        report.median("barrier_8"),
        literature::BARRIER_8,
    );
    let page = report.median("read_fault");
    add(
        "remote page fault, 4096 bytes",
        page,
        literature::PAGE_FAULT,
    );
    Ok(basics)
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

/// Three nodes take a lock in turn: each asks where it saw the lock go, and that
/// node had to send the request on.
fn third_node(waiting: Waiting, report: &mut Report) -> Result<()> {
    let effort = effort("lock");
    let mut testbed = Testbed::new(3, &effort, waiting)?;
    testbed.open("bench.third", 1, None)?;
    let order = Order::Lock {
        number: 1,
        count: 1,
    };
    let mut samples = Samples::default();
    for turn in 0..effort.count as usize {
        let times = testbed.ask(turn % 3, &order)?;
        if turn >= 6 {
            samples.extend(times);
        }
    }
    report.row("lock_from_third", waiting.name(), &samples, None);
    Ok(())
}
