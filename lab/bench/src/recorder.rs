//! `bench recorder`: the time that the flight recorder adds to a fault.

use super::report::{Report, Samples};
use super::testbed::Testbed;
use super::{Effort, Waiting, fault};
use anyhow::Result;

/// Pairs of clusters, one after the other: the place of a daemon's memory, which differs each time,
/// makes more of a difference than the recorder.
const PAIRS: u32 = 4;

/// Faults of one kind with the recorder on, and off.
type Beside = [Samples; 2];

/// Two clusters on the same processors, one that records and one that does not.
/// They take turns in every round, and stand still while it is the other's.
pub(super) fn measure(effort: &Effort, waiting: Waiting, report: &mut Report) -> Result<()> {
    let mut kinds: [(&str, Beside); 3] =
        ["read_fault", "write_fault", "upgrade"].map(|name| (name, Beside::default()));
    for _ in 0..PAIRS {
        let mut stages = [
            Testbed::with(2, effort, waiting, &["--recorder=on"])?,
            Testbed::with(2, effort, waiting, &["--recorder=off"])?,
        ];
        stages
            .iter()
            .try_for_each(|testbed| testbed.stand_still(true))?;
        for round in effort.rounds() {
            let first = round as usize % 2;
            for which in [first, 1 - first] {
                let times = turn(&mut stages[which], effort, round)?;
                if round == Effort::WARM_UP {
                    continue;
                }
                for ((_, beside), times) in kinds.iter_mut().zip(times) {
                    beside[which].extend(times);
                }
            }
        }
        stages
            .iter()
            .try_for_each(|testbed| testbed.stand_still(false))?;
    }
    for (name, [on, off]) in &kinds {
        report.row(*name, waiting.name(), on, Some(("recorder_off", off)));
    }
    Ok(())
}

/// Reads, writes and upgrades of one cluster.
fn turn(testbed: &mut Testbed, effort: &Effort, round: u32) -> Result<[Vec<u64>; 3]> {
    testbed.stand_still(false)?;
    testbed.open(
        &format!("bench.recorder.{round}"),
        effort.count * 2,
        fault::WINDOW,
    )?;
    let one = fault::shuffled(0..effort.count, round);
    let two = fault::shuffled(effort.count..effort.count * 2, round);
    testbed.touch(1, &one, true)?;
    testbed.touch(1, &two, true)?;
    let read = testbed.touch(0, &one, false)?;
    let upgrade = testbed.touch(0, &one, true)?;
    let write = testbed.touch(0, &two, true)?;
    testbed.stand_still(true)?;
    Ok([read, write, upgrade])
}
