//! Faults that move pages of one kind, and walks through many of them, with and without
//! compression.

use crate::agent::Order;
use crate::report::{Report, Samples};
use crate::testbed::Testbed;
use crate::{Effort, Waiting, fault, stream};
use anyhow::Result;
use pagemesh_cli::sandbox::Plan;

/// Kinds of pages that are read here and there.
const KINDS: [&str; 4] = ["zeros", "doubles", "text", "noise"];

/// Kinds of pages that are read from front to back, so that many leave together.
const WALKED: [&str; 4] = ["zeros", "mixed", "text", "noise"];

/// The modes measured beside `off`.
const MODES: [&str; 3] = ["auto", "runs", "lz4"];

/// Pages of a round on the slow link, where more has no more to tell; and rounds.
const SLOW_PAGES: u32 = 200;
const SLOW_ROUNDS: u32 = 3;

/// Pages of a walk, for each that is read here and there: a walk takes less time.
const WALK: u32 = 4;

/// How pages are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Here and there.
    Faults,
    /// From front to back.
    Walk,
}

impl Way {
    const ALL: [Self; 2] = [Self::Faults, Self::Walk];

    fn name(self) -> &'static str {
        match self {
            Self::Faults => "fault",
            Self::Walk => "walk",
        }
    }

    fn kinds(self) -> [&'static str; 4] {
        match self {
            Self::Faults => KINDS,
            Self::Walk => WALKED,
        }
    }
}

/// The link between the nodes.
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
    testbed: Testbed,
    samples: Samples,
}

pub(super) fn measure(effort: &Effort, report: &mut Report) -> Result<()> {
    for link in &LINKS {
        for way in Way::ALL {
            measure_way(link, way, effort, report)?;
        }
    }
    Ok(())
}

fn measure_way(link: &Link, way: Way, effort: &Effort, report: &mut Report) -> Result<()> {
    let modes = MODES.into_iter();
    let modes: Vec<_> = modes
        .filter(|mode| effort.wants(&[&row(link, way, mode)]))
        // Without measuring the link there is no reason to choose a codec.
        .filter(|mode| *mode == "auto" || !link.bucket.is_empty())
        .collect();
    if modes.is_empty() {
        return Ok(());
    }
    let sides = ["off"].into_iter().chain(modes);
    let sides = sides.map(|mode| Side::raise(mode, link));
    match sides.collect::<Result<Vec<_>>>() {
        Ok(mut sides) => on_link(link, way, &mut sides, effort, report),
        Err(why) => {
            report.skip(format!("{}_{}", way.name(), link.name), &why);
            Ok(())
        }
    }
}

fn row(link: &Link, way: Way, mode: &str) -> String {
    format!("{}_{}_{mode}", way.name(), link.name)
}

fn on_link(
    link: &Link,
    way: Way,
    sides: &mut [Side],
    effort: &Effort,
    report: &mut Report,
) -> Result<()> {
    let slow = !link.bucket.is_empty();
    let (pages, rounds) = if slow {
        (effort.count.min(SLOW_PAGES), effort.rounds.min(SLOW_ROUNDS))
    } else {
        (effort.count, effort.rounds)
    };
    for kind in way.kinds() {
        for round in 0..=rounds {
            for side in &mut *sides {
                side.round(way, kind, round, pages)?;
                if round == Effort::WARM_UP {
                    side.samples = Samples::default();
                }
            }
        }
        let (off, others) = sides.split_first().expect("there is one that is off");
        for side in others {
            let name = format!("{}_{kind}", row(link, way, side.mode));
            report.row(name, "spin", &side.samples, Some(("off", &off.samples)));
        }
    }
    Ok(())
}

impl Side {
    fn raise(mode: &'static str, link: &Link) -> Result<Self> {
        let mut plan = Plan::new(2);
        plan.compress = Some(mode.to_owned());
        let testbed = Testbed::raise(&plan, Waiting::Spin)?;
        if !link.bucket.is_empty() {
            stream::shape_to(&testbed, link.bucket)?;
        }
        testbed.stand_still(true)?;
        Ok(Self {
            mode,
            testbed,
            samples: Samples::default(),
        })
    }

    /// One node has such pages, the other reads them.
    fn round(&mut self, way: Way, kind: &str, round: u32, pages: u32) -> Result<()> {
        let pages = if way == Way::Walk {
            pages * WALK
        } else {
            pages
        };
        let testbed = &mut self.testbed;
        testbed.stand_still(false)?;
        let name = format!("bench.compress.{kind}.{round}");
        testbed.open(&name, pages, Some(0))?;
        let kind = kind.to_owned();
        testbed.ask(1, &Order::Fill { pages, kind })?;
        self.samples.extend(match way {
            Way::Faults => {
                testbed.ask(0, &Order::Random)?;
                let order = fault::shuffled(0..pages, round);
                testbed.touch(0, &order, false)?
            }
            Way::Walk => {
                let write = false;
                let took = testbed.ask(0, &Order::Walk { pages, write })?;
                took.iter().map(|nanos| nanos / u64::from(pages)).collect()
            }
        });
        testbed.remove(&name)?;
        testbed.stand_still(true)
    }
}
