//! Speedups, measured and forecast (TR2), and the programs that they are of.

use super::super::document::{Busy, Document, Forecast, Limited, Run};
use super::super::program::{PROGRAMS, Program, label, named};
use super::{Sheet, hundredths, thousandths};

/// Nodes of the paper.
const PAPER_NODES: usize = 8;

/// The policy that is TreadMarks'.
const LAZY: &str = "release";

/// What the rows are of.
pub(super) fn programs(document: &Document) -> Sheet {
    let measured = |program: &&Program| {
        let mut runs = document.runs.iter();
        runs.any(|run| run.program == program.name)
    };
    let row = |program: &Program| {
        let arguments = |text: &str| match text {
            "" => "none".to_owned(),
            text => format!("`{}`", text.replace("DATA/", "")),
        };
        let whose = match (program.variant_of, program.speedup) {
            (Some(other), _) => format!("a variant of `{other}`"),
            (None, Some(_)) => "the paper's".to_owned(),
            (None, None) => "none of the paper's".to_owned(),
        };
        let [paper, large] = program.changes.map(|it| it.unwrap_or("-").to_owned());
        vec![
            program.name.to_owned(),
            whose,
            arguments(program.paper),
            paper,
            arguments(program.large),
            large,
        ]
    };
    Sheet {
        title: "Programs".to_owned(),
        header: vec![
            "PROGRAM",
            "WHOSE",
            "ARGUMENTS",
            "CHANGES",
            "LARGER PROBLEM",
            "CHANGES",
        ],
        rows: PROGRAMS.iter().filter(measured).map(row).collect(),
        note: "All are our own, written by the paper's descriptions. A program of the paper comes first, its variants behind it. \
               `ilink` deals out the pairs of all pedigrees between two barriers; the paper does not say how its own does that. A \
               larger problem is to keep one processor busy for a fair part of the time that the paper's took: with the paper's size, \
               a processor of today has nothing to do between two messages."
            .to_owned(),
    }
}

/// The sequential programs, each order of a search.
pub(super) fn alone(document: &Document) -> Sheet {
    let rows = document.alone.iter().map(|one| {
        let base = match &one.order {
            None => "base of speedups".to_owned(),
            Some(order) => format!("no base: searches {order}"),
        };
        vec![
            label(&one.program, one.large),
            if one.slow { "a fifth" } else { "one" }.to_owned(),
            thousandths(Some(one.seconds)),
            base,
        ]
    });
    Sheet {
        title: "Sequential programs, the bases of speedups".to_owned(),
        header: vec!["PROGRAM", "PROCESSOR", "SECONDS", "USED AS"],
        rows: rows.collect(),
        note: "Variants of a program have its base. A base is the sequential program of the same algorithm, which searches in the \
               same order as the parallel one."
            .to_owned(),
    }
}

pub(super) fn speedups(document: &Document) -> Sheet {
    let row = |run: &Run| {
        let of_it = document
            .efficiency(run)
            .zip(document.ceiling(run))
            .map(|(efficiency, ceiling)| efficiency / ceiling);
        vec![
            label(&run.program, run.large),
            run.policy.clone(),
            run.nodes.to_string(),
            run.rounds.to_string(),
            thousandths(document.base(&run.program, run.large, false)),
            thousandths(Some(run.seconds)),
            hundredths(document.speedup(run)),
            hundredths(document.efficiency(run)),
            hundredths(document.ceiling(run)),
            hundredths(of_it),
            hundredths(against_one(document, run)),
            paper_speedup(&run.program),
        ]
    };
    let mut rows: Vec<_> = document.runs.iter().map(row).collect();
    rows.extend(absent(document).map(|program| {
        let mut cells = vec![label(program.name, true), LAZY.to_owned()];
        cells.extend((0..2).map(|_| "-".to_owned()));
        cells.push(thousandths(document.base(program.name, true, false)));
        cells.push("not measured".to_owned());
        cells.extend((0..5).map(|_| "-".to_owned()));
        cells.push(paper_speedup(program.name));
        cells
    }));
    Sheet {
        title: "Speedups (TR2, TR8), a processor for each node".to_owned(),
        header: vec![
            "PROGRAM",
            "POLICY",
            "NODES",
            "RUNS",
            "ALONE s",
            "TOGETHER s",
            "SPEEDUP",
            "EFFICIENCY",
            "CEILING",
            "OF IT",
            "ITSELF ON ONE NODE TO IT",
            "PAPER, 8: ATM / ETHERNET",
        ],
        rows,
        note: "Seconds are the median of as many RUNS. CEILING is the efficiency of copies of the sequential program that share \
               nothing, one on each processor. ITSELF ON ONE NODE TO IT: the parallel program on one node to this row, which is no \
               speedup over the sequential program."
            .to_owned(),
    }
}

/// The same beside a companion.
pub(super) fn busy(document: &Document) -> Sheet {
    let row = |one: &Busy| {
        let quiet = document.runs.iter().find(|quiet| quiet.is_like(&one.run));
        let quiet = quiet.and_then(|run| document.speedup(run));
        vec![
            label(&one.run.program, one.run.large),
            one.run.policy.clone(),
            one.run.nodes.to_string(),
            one.run.rounds.to_string(),
            thousandths(Some(one.alone)),
            thousandths(Some(one.run.seconds)),
            hundredths(Some(one.speedup())),
            hundredths(quiet),
            hundredths(quiet.map(|quiet| one.speedup() / quiet)),
        ]
    };
    Sheet {
        title: "Speedups beside a companion".to_owned(),
        header: vec![
            "PROGRAM", "POLICY", "NODES", "RUNS", "ALONE s", "TOGETHER s", "SPEEDUP", "QUIET", "TO QUIET",
        ],
        rows: document.busy.iter().map(row).collect(),
        note: "A companion takes a tenth of each processor in bursts, from the sequential program as from the nodes. QUIET is the speedup \
               without it, of the table before."
            .to_owned(),
    }
}

/// Programs of the paper whose larger problem was not measured, though those of others were.
fn absent(document: &Document) -> impl Iterator<Item = &'static Program> + use<'_> {
    let large = |name: Option<&str>| {
        let mut runs = document.runs.iter().filter(|run| run.large);
        runs.any(|run| name.is_none_or(|name| run.program == name))
    };
    let any = large(None);
    PROGRAMS.iter().filter(move |program| {
        any && program.speedup.is_some()
            && program.variant_of.is_none()
            && !large(Some(program.name))
    })
}

/// The same program and policy on one node to this.
fn against_one(document: &Document, run: &Run) -> Option<f64> {
    let mut runs = document.runs.iter();
    let one = runs.find(|other| {
        (&other.program, other.large, &other.policy, other.nodes)
            == (&run.program, run.large, &run.policy, 1)
    })?;
    (run.nodes > 1).then(|| one.seconds / run.seconds)
}

/// Programs that have runs and no base.
pub(super) fn without_base(document: &Document) -> impl Iterator<Item = String> + use<'_> {
    let mut names: Vec<(String, bool)> = Vec::new();
    let runs = document.runs.iter().map(|run| (run, false));
    for (run, slow) in runs.chain(document.limited.iter().map(|one| (&one.run, true))) {
        let name = (label(&run.program, run.large), slow);
        if document.base(&run.program, run.large, slow).is_none() && !names.contains(&name) {
            names.push(name);
        }
    }
    names.into_iter().map(|(name, slow)| {
        let whose = if slow { " on slow nodes" } else { "" };
        format!("speedups of {name}{whose}: its sequential program was not measured in the order of the parallel one")
    })
}

/// Eight nodes, as the paper had: slow ones, and a forecast.
pub(super) fn eight_nodes(document: &Document) -> Sheet {
    let mut rows = Vec::new();
    for program in PROGRAMS.iter().filter(|program| program.speedup.is_some()) {
        for large in [false, true] {
            let slow = eight_slow(document, program.name, large, LAZY);
            let under = |policy| {
                let slow = eight_slow(document, program.name, large, policy);
                hundredths(slow.and_then(|one| document.slow_speedup(one)))
            };
            let forecast = document.forecast(program.name, large, PAPER_NODES);
            if slow.is_none() && forecast.is_none() {
                continue;
            }
            let speedup = slow.and_then(|one| document.slow_speedup(one));
            let part = slow
                .zip(speedup)
                .map(|(one, speedup)| speedup / one.ceiling);
            rows.push(vec![
                label(program.name, large),
                paper_speedup(program.name),
                hundredths(speedup),
                hundredths(slow.map(|one| one.ceiling)),
                hundredths(part),
                under("eager"),
                under("sequential"),
                hundredths(forecast.and_then(Forecast::speedup)),
            ]);
        }
    }
    Sheet {
        title: "Eight nodes (TR2), policy `release`".to_owned(),
        header: vec![
            "PROGRAM",
            "PAPER, 8: ATM / ETHERNET",
            "SLOW NODES: SPEEDUP",
            "CEILING",
            "OF IT",
            "UNDER `eager`",
            "UNDER `sequential`",
            "FORECAST: SPEEDUP",
        ],
        rows,
        note: "Slow nodes have a fifth of a processor each, in periods of 10 ms: only phases that are much longer than that say \
               anything, and those of the paper's sizes are shorter. UNDER: the same slow nodes under that policy. CEILING is the speedup of as many processes that share nothing. \
               They have no row beside a companion: the quotas of eight are 1.6 of two processors, and a companion that takes a \
               tenth of each leaves more."
            .to_owned(),
    }
}

/// The run on eight slow nodes under a policy.
pub(in super::super) fn eight_slow<'d>(
    document: &'d Document,
    program: &str,
    large: bool,
    policy: &str,
) -> Option<&'d Limited> {
    let mut all = document.limited.iter();
    all.find(|one| {
        let run = &one.run;
        (&*run.program, run.large, &*run.policy, run.nodes) == (program, large, policy, PAPER_NODES)
    })
}

pub(super) fn paper_speedup(program: &str) -> String {
    named(program)
        .and_then(|program| program.speedup)
        .map_or_else(
            || "-".to_owned(),
            |(atm, ethernet)| format!("{atm} / {ethernet}"),
        )
}

pub(super) fn limited(document: &Document) -> Sheet {
    let row = |one: &Limited| {
        let run = &one.run;
        let speedup = document.slow_speedup(one);
        vec![
            label(&run.program, run.large),
            run.policy.clone(),
            run.nodes.to_string(),
            run.rounds.to_string(),
            thousandths(document.base(&run.program, run.large, true)),
            thousandths(Some(run.seconds)),
            hundredths(speedup),
            hundredths(Some(one.ceiling)),
            hundredths(speedup.map(|speedup| speedup / one.ceiling)),
            paper_speedup(&run.program),
        ]
    };
    Sheet {
        title: "Speedups (TR2) of nodes with a fifth of a processor each".to_owned(),
        header: vec![
            "PROGRAM",
            "POLICY",
            "NODES",
            "RUNS",
            "ALONE s",
            "SECONDS",
            "SPEEDUP",
            "CEILING",
            "RELATIVE",
            "PAPER, 8: ATM / ETHERNET",
        ],
        rows: document.limited.iter().map(row).collect(),
        note: "ALONE is the sequential program with a fifth of a processor. Seconds are the median of as many RUNS."
            .to_owned(),
    }
}

pub(super) fn forecasts(document: &Document) -> Sheet {
    let row = |one: &Forecast| {
        let off = one
            .measured
            .map(|measured| 100.0 * (one.seconds / measured - 1.0));
        let dash = || "-".to_owned();
        vec![
            forecast_of(one),
            one.nodes.to_string(),
            thousandths(Some(one.seconds)),
            hundredths(one.speedup()),
            format!("{:.1} / {:.1}", one.slower, one.slower * one.cold),
            thousandths(one.measured),
            off.map_or_else(dash, |off| format!("{off:+.0}")),
            one.messages.to_string(),
            one.measured_messages
                .map_or_else(dash, |messages| messages.to_string()),
            paper_speedup(&one.program),
        ]
    };
    let off: Vec<f64> = document
        .forecasts
        .iter()
        .filter_map(|one| Some(100.0 * (one.seconds / one.measured? - 1.0)))
        .collect();
    let most = off
        .iter()
        .copied()
        .fold(0.0, |most: f64, off| most.max(off.abs()));
    let within = off.iter().filter(|off| off.abs() <= 15.0).count();
    Sheet {
        title: "Forecasts (TR2) of policy release, from traces of the programs and measured costs"
            .to_owned(),
        header: vec![
            "PROGRAM",
            "NODES",
            "FORECAST s",
            "SPEEDUP",
            "COSTS, TIMES: WARM / COLD",
            "MEASURED s",
            "OFF BY %",
            "MESSAGES",
            "MEASURED",
            "PAPER, 8: ATM / ETHERNET",
        ],
        rows: document.forecasts.iter().map(row).collect(),
        note: format!(
            "Of {} forecasts with a measured run beside them {within} are within 15 %; the worst is off by {most:.0} %. How long \
             the run took is not used for its forecast.",
            off.len()
        ),
    }
}

fn forecast_of(one: &Forecast) -> String {
    match one.huge {
        true => format!("{}, for 64", one.program),
        false => label(&one.program, one.large),
    }
}

pub(super) fn forecast_shares(document: &Document) -> Sheet {
    let row = |one: &Forecast| {
        let mut cells = vec![forecast_of(one), one.nodes.to_string()];
        let shares = one.shares.iter();
        cells.extend(shares.map(|share| format!("{:.1}", 100.0 * share)));
        cells
    };
    Sheet {
        title: "What processes do in forecasts, in percent of their time".to_owned(),
        header: vec![
            "PROGRAM",
            "NODES",
            "COMPUTE",
            "LEAVE THE PROCESSOR TO A DAEMON",
            "WAIT: PAGES",
            "LOCKS",
            "BARRIERS",
            "CONDITIONS",
        ],
        rows: document.forecasts.iter().map(row).collect(),
        note: String::new(),
    }
}
