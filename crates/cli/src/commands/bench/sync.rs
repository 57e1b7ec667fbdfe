//! `bench sync`: locks and barriers (TR1).

use super::agent::Order;
use super::report::{Report, Samples};
use super::stage::Stage;
use super::{Effort, Waiting, raw};
use anyhow::Result;

/// Sizes of barriers.
const PARTIES: std::ops::RangeInclusive<usize> = 2..=8;

pub(super) fn measure(effort: &Effort, waiting: Waiting, report: &mut Report) -> Result<()> {
    if effort.wants(&["lock_handover", "lock_reacquire"]) {
        locks(effort, waiting, report)?;
    }
    barriers(effort, waiting, report)
}

fn locks(effort: &Effort, waiting: Waiting, report: &mut Report) -> Result<()> {
    let mut stage = Stage::new(2, effort, waiting)?;
    stage.open("bench.locks", 1, None)?;
    let (mut handover, mut again, mut short) = <(Samples, Samples, Samples)>::default();
    let count = effort.count.min(300);
    for round in effort.rounds() {
        stage.raw(raw::REQUEST, effort.count, &mut short)?;
        // The token comes from the other node, where it was last used.
        for _ in 0..count {
            stage.ask(
                1,
                &Order::Lock {
                    number: 1,
                    count: 1,
                },
            )?;
            handover.extend(stage.ask(
                0,
                &Order::Lock {
                    number: 1,
                    count: 1,
                },
            )?);
        }
        again.extend(stage.ask(
            0,
            &Order::Lock {
                number: 1,
                count: effort.count,
            },
        )?);
        if round == Effort::WARM_UP {
            (handover, again, short) = Default::default();
        }
    }
    let beside = Some(("raw_exchange_short", &short));
    report.row("lock_handover", waiting.name(), &handover, beside);
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
    let mut stage = Stage::new(*PARTIES.end(), effort, waiting)?;
    stage.open("bench.barriers", 1, None)?;
    for parties in wanted {
        let (mut samples, mut short) = <(Samples, Samples)>::default();
        for round in effort.rounds() {
            stage.raw(raw::REQUEST, effort.count, &mut short)?;
            let order = Order::Barrier {
                number: parties as u64,
                parties: parties as u32,
                count: effort.count,
            };
            for agent in 0..parties {
                stage.tell(agent, &order)?;
            }
            for agent in 0..parties {
                let times = stage.hear(agent)?;
                if agent == 0 {
                    samples.extend(times);
                }
            }
            if round == Effort::WARM_UP {
                (samples, short) = Default::default();
            }
        }
        let beside = Some(("raw_exchange_short", &short));
        report.row(name(parties), waiting.name(), &samples, beside);
    }
    Ok(())
}
