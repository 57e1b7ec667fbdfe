//! Faults that move pages of one kind, with and without compression.

use crate::commands::bench::agent::Order;
use crate::commands::bench::report::{Report, Samples};
use crate::commands::bench::stage::Stage;
use crate::commands::bench::{Effort, Waiting, fault, stream};
use crate::sandbox::Plan;
use anyhow::Result;

/// What pages hold.
const KINDS: [&str; 4] = ["zeros", "doubles", "text", "noise"];

/// What is measured beside `off`.
const MODES: [&str; 3] = ["auto", "runs", "lz4"];

/// Pages of a round on the slow link, where more has no more to tell; and rounds.
const SLOW_PAGES: u32 = 200;
const SLOW_ROUNDS: u32 = 3;

/// What lies between the nodes.
struct Link {
    name: &'static str,
    bucket: &'static [&'static str],
}

const LINKS: [Link; 2] = [
    Link {
        name: "unshaped",
        bucket: &[],
    },
    Link {
        name: "100mbit",
        bucket: &["rate", "100mbit", "burst", "32kb", "latency", "50ms"],
    },
];

/// A cluster that compresses in one way; it stands still while another is measured.
struct Side {
    mode: &'static str,
    stage: Stage,
    samples: Samples,
}

pub(super) fn measure(effort: &Effort, report: &mut Report) -> Result<()> {
    for link in &LINKS {
        let modes = MODES.into_iter();
        let modes: Vec<_> = modes
            .filter(|mode| effort.wants(&[&row(link, mode)]))
            // Nobody would choose a codec for a link without knowing it.
            .filter(|mode| *mode == "auto" || !link.bucket.is_empty())
            .collect();
        if modes.is_empty() {
            continue;
        }
        let sides = ["off"].into_iter().chain(modes);
        let sides = sides.map(|mode| Side::raise(mode, link));
        match sides.collect::<Result<Vec<_>>>() {
            Ok(mut sides) => on_link(link, &mut sides, effort, report)?,
            Err(why) => report.skip(format!("fault_{}", link.name), &why),
        }
    }
    Ok(())
}

fn row(link: &Link, mode: &str) -> String {
    format!("fault_{}_{mode}", link.name)
}

fn on_link(link: &Link, sides: &mut [Side], effort: &Effort, report: &mut Report) -> Result<()> {
    let slow = !link.bucket.is_empty();
    let (pages, rounds) = if slow {
        (effort.count.min(SLOW_PAGES), effort.rounds.min(SLOW_ROUNDS))
    } else {
        (effort.count, effort.rounds)
    };
    for kind in KINDS {
        for round in 0..=rounds {
            for side in &mut *sides {
                side.round(kind, round, pages)?;
                if round == Effort::WARM_UP {
                    side.samples = Samples::default();
                }
            }
        }
        let (off, others) = sides.split_first().expect("there is one that is off");
        for side in others {
            let name = format!("{}_{kind}", row(link, side.mode));
            report.row(name, "spin", &side.samples, Some(("off", &off.samples)));
        }
    }
    Ok(())
}

impl Side {
    fn raise(mode: &'static str, link: &Link) -> Result<Self> {
        let mut plan = Plan::new(2);
        plan.compress = Some(mode.to_owned());
        let stage = Stage::raise(&plan, Waiting::Spin)?;
        if !link.bucket.is_empty() {
            stream::shape_to(&stage, link.bucket)?;
        }
        stage.stand_still(true)?;
        Ok(Self {
            mode,
            stage,
            samples: Samples::default(),
        })
    }

    /// One node has such pages, the other reads them here and there.
    fn round(&mut self, kind: &str, round: u32, pages: u32) -> Result<()> {
        let stage = &mut self.stage;
        stage.stand_still(false)?;
        let name = format!("bench.compress.{kind}.{round}");
        stage.open(&name, pages, Some(0))?;
        let kind = kind.to_owned();
        stage.ask(1, &Order::Fill { pages, kind })?;
        stage.ask(0, &Order::Random)?;
        let order = fault::shuffled(0..pages, round);
        self.samples.extend(stage.touch(0, &order, false)?);
        stage.remove(&name)?;
        stage.stand_still(true)
    }
}
