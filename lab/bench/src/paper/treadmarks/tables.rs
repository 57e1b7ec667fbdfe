//! The tables, for people and for the report.

use super::document::{Document, Forecast, Run};
use super::literature::{WATER_RATES, WATER_SECONDS};
use pagemesh_cli::output::Table;

/// A table before it has a form.
struct Sheet {
    title: String,
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

/// Lines for a terminal.
pub(super) fn plain(document: &Document) -> Vec<String> {
    let mut lines = Vec::new();
    for sheet in sheets(document) {
        let mut table = Table::new(&sheet.header);
        for row in sheet.rows {
            table.row(row);
        }
        lines.extend([sheet.title, String::new()]);
        lines.extend(table.lines());
        lines.push(String::new());
    }
    lines.extend(
        document
            .missing
            .iter()
            .map(|what| format!("Missing: {what}")),
    );
    lines
}

/// The report.
pub(super) fn markdown(document: &Document) -> String {
    let mut text = String::from(HEAD);
    text += &format!(
        "Measured {} on {} ({} processors, Linux {}).\n",
        document.date,
        document.machine.processor(),
        document.machine.cores(),
        document.machine.kernel(),
    );
    for sheet in sheets(document) {
        text += &format!("\n## {}\n\n", sheet.title);
        text += &format!("| {} |\n", sheet.header.join(" | "));
        text += &format!("|{}\n", "---|".repeat(sheet.header.len()));
        for row in sheet.rows {
            text += &format!("| {} |\n", row.join(" | "));
        }
    }
    text += "\n## Missing\n\n";
    for what in &document.missing {
        text += &format!("- {what}\n");
    }
    text
}

const HEAD: &str = "\
# TreadMarks, measured here

`pagemesh bench paper treadmarks --report FILE` writes this file: what Keleher, Cox, Dwarkadas and Zwaenepoel measured in 1994
(8 DECstation-5000/240, 40 MHz, 100 Mbit/s ATM), measured with the programs of `lab/apps/`. Ratios are ours to theirs.
[How to read it](../treadmarks.md#measuring).

";

fn sheets(document: &Document) -> Vec<Sheet> {
    let all = [
        basics(document),
        speedups(document),
        statistics(document),
        breakdown(document),
        divided(document),
        policies(document),
        substrates(document),
        limited(document),
        forecasts(document),
        forecast_shares(document),
    ];
    all.into_iter()
        .filter(|sheet| !sheet.rows.is_empty())
        .collect()
}

fn basics(document: &Document) -> Sheet {
    let row = |basic: &super::document::Basic| {
        vec![
            basic.name.clone(),
            format!("{:.1}", basic.ours),
            format!("{:.0}", basic.paper),
            format!("{:.4}", basic.ours / basic.paper),
        ]
    };
    Sheet {
        title: "Basic operations (TR1), in microseconds".to_owned(),
        header: vec!["OPERATION", "OURS", "PAPER", "RATIO"],
        rows: document.basics.iter().map(row).collect(),
    }
}

fn speedups(document: &Document) -> Sheet {
    let row = |run: &Run| {
        let alone = document
            .alone
            .iter()
            .find(|one| one.program == run.program && one.large == run.large);
        vec![
            name(run),
            run.policy.clone(),
            run.nodes.to_string(),
            alone.map_or_else(String::new, |one| format!("{:.3}", one.seconds)),
            format!("{:.3}", run.seconds),
            format!("{:.2}", run.speedup),
            format!("{:.2}", run.efficiency()),
            hundredths(run.ceiling()),
            hundredths(run.ceiling().map(|ceiling| run.efficiency() / ceiling)),
            paper_speedup(run),
        ]
    };
    Sheet {
        title: "Speedups (TR2, TR8), a processor for each node".to_owned(),
        header: vec![
            "PROGRAM",
            "POLICY",
            "NODES",
            "ALONE s",
            "TOGETHER s",
            "SPEEDUP",
            "EFFICIENCY",
            "CEILING",
            "OF IT",
            "PAPER, 8: ATM / ETHERNET",
        ],
        rows: document.runs.iter().map(row).collect(),
    }
}

/// Two digits, if there is something to say.
fn hundredths(number: Option<f64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| format!("{number:.2}"))
}

/// The program, and whether its problem is larger than the paper's.
fn name(run: &Run) -> String {
    named(&run.program, run.large)
}

fn forecast_of(one: &Forecast) -> String {
    match one.huge {
        true => format!("{}, for 64", one.program),
        false => named(&one.program, one.large),
    }
}

fn named(program: &str, large: bool) -> String {
    if large {
        format!("{program}, larger")
    } else {
        program.to_owned()
    }
}

fn paper_speedup(run: &Run) -> String {
    run.paper_speedup.map_or_else(
        || "-".to_owned(),
        |(atm, ethernet)| format!("{atm} / {ethernet}"),
    )
}

fn statistics(document: &Document) -> Sheet {
    let row = |run: &Run| {
        let rate = |count: u64| format!("{:.0}", count as f64 / run.whole_seconds);
        vec![
            name(run),
            run.policy.clone(),
            format!("{:.3}", run.whole_seconds),
            run.barriers.to_string(),
            run.locks.to_string(),
            run.messages.to_string(),
            (run.bytes / 1024).to_string(),
            run.pages.to_string(),
            run.diffs.to_string(),
            rate(run.locks),
            rate(run.messages),
            rate(run.bytes / 1024),
        ]
    };
    let several = document.runs.iter().filter(|run| run.nodes > 1);
    let mut rows: Vec<_> = several.map(row).collect();
    if !rows.is_empty() {
        let (locks, messages, kilobytes) = WATER_RATES;
        let unknown = || "-".to_owned();
        let mut paper = vec![
            "water-locks".to_owned(),
            "paper, 8 nodes".to_owned(),
            "15.0".to_owned(),
        ];
        paper.extend((0..6).map(|_| unknown()));
        paper.extend([locks, messages, kilobytes].map(|rate| format!("{rate:.0}")));
        rows.push(paper);
    }
    Sheet {
        title: "What programs did (TR3), from Tmk_startup to Tmk_exit".to_owned(),
        header: vec![
            "PROGRAM",
            "POLICY",
            "SECONDS",
            "BARRIERS",
            "LOCKS",
            "MESSAGES",
            "KB",
            "PAGES",
            "DIFFS",
            "LOCKS/s",
            "MESSAGES/s",
            "KB/s",
        ],
        rows,
    }
}

/// Each policy beside `release`, on the most nodes.
fn policies(document: &Document) -> Sheet {
    const LAZY: &str = "release";
    let most = document.runs.iter().map(|run| run.nodes).max().unwrap_or(0);
    let of = |policy: &str, like: &Run| {
        document.runs.iter().find(|run| {
            let same = run.program == like.program && run.large == like.large;
            same && run.policy == policy && run.nodes == most
        })
    };
    let mut rows = Vec::new();
    for run in &document.runs {
        let Some(lazy) = of(LAZY, run).filter(|_| run.nodes == most && run.policy != LAZY) else {
            continue;
        };
        // As in the paper: both by the mean of the two times.
        let mean = f64::midpoint(run.whole_seconds, lazy.whole_seconds);
        let pair = |what: fn(&Run) -> f64| format!("{:.0} / {:.0}", what(lazy), what(run));
        let rates = |what: fn(&Run) -> u64| {
            let rate = |run: &Run| what(run) as f64 / mean;
            format!("{:.0} / {:.0}", rate(lazy), rate(run))
        };
        rows.push(vec![
            name(run),
            run.policy.clone(),
            format!("{:.2} / {:.2}", lazy.speedup, run.speedup),
            rates(|run| run.messages),
            rates(|run| run.bytes / 1024),
            pair(|run| run.diffs as f64),
            pair(|run| run.pages as f64),
        ]);
    }
    Sheet {
        title: format!(
            "Lazy release consistency beside the others (TR8), {most} nodes: lazy / other"
        ),
        header: vec![
            "PROGRAM",
            "OTHER",
            "SPEEDUP",
            "MESSAGES/s",
            "KB/s",
            "DIFFS",
            "PAGES",
        ],
        rows,
    }
}

fn breakdown(document: &Document) -> Sheet {
    let row = |run: &Run| {
        let percent = |part: f64| format!("{:.1}", 100.0 * part);
        let shares = run.shares;
        let parts = [
            shares.computation,
            shares.kernel,
            shares.pagemesh,
            shares.idle,
        ];
        let mut row = vec![name(run), run.policy.clone(), run.nodes.to_string()];
        row.extend(parts.map(percent));
        row
    };
    Sheet {
        title: "Where the time of the nodes went (TR4), in percent".to_owned(),
        header: vec![
            "PROGRAM",
            "POLICY",
            "NODES",
            "COMPUTATION",
            "KERNEL",
            "PAGEMESH",
            "IDLE",
        ],
        rows: document
            .runs
            .iter()
            .filter(|run| run.nodes > 1)
            .map(row)
            .collect(),
    }
}

fn divided(document: &Document) -> Sheet {
    let row = |one: &super::document::Divided| {
        let name = match one.large {
            true => format!("{}, larger", one.program),
            false => one.program.clone(),
        };
        let kernel = one.kernel_communication + one.kernel_memory + one.kernel_other;
        let mut row = vec![name, one.policy.clone()];
        let parts = [
            one.kernel_communication,
            one.kernel_memory,
            one.kernel_other,
            one.memory,
            one.consistency,
            one.other,
        ];
        row.extend(parts.map(|part| format!("{:.1}", 100.0 * part)));
        row.push(format!("{:.0}", 100.0 * one.kernel_communication / kernel));
        row
    };
    let mut rows: Vec<_> = document.divided.iter().map(row).collect();
    if !rows.is_empty() {
        let unknown = (0..6).map(|_| "-".to_owned());
        let mut paper = vec!["all of them".to_owned(), "paper, 8 nodes".to_owned()];
        paper.extend(unknown);
        paper.push("at least 80".to_owned());
        rows.push(paper);
    }
    Sheet {
        title:
            "The kernel's time (TR5) and PageMesh's (TR6) divided, in percent of the nodes' time"
                .to_owned(),
        header: vec![
            "PROGRAM",
            "POLICY",
            "KERNEL: COMMUNICATION",
            "MEMORY",
            "OTHER",
            "PAGEMESH: MEMORY",
            "CONSISTENCY",
            "OTHER",
            "COMMUNICATION, % OF KERNEL",
        ],
        rows,
    }
}

fn substrates(document: &Document) -> Sheet {
    let mut rows: Vec<_> = document
        .substrates
        .iter()
        .map(|one| {
            let run = &one.run;
            let seconds = format!("{:.3}", run.seconds);
            vec![
                one.name.clone(),
                run.policy.clone(),
                run.nodes.to_string(),
                seconds,
            ]
        })
        .collect();
    if !rows.is_empty() {
        rows.extend(WATER_SECONDS.iter().map(|(name, seconds)| {
            let words = ["paper".to_owned(), "8".to_owned(), format!("{seconds:.1}")];
            std::iter::once((*name).to_owned()).chain(words).collect()
        }));
    }
    Sheet {
        title: "Water on different networks (TR7)".to_owned(),
        header: vec!["NETWORK", "POLICY", "NODES", "SECONDS"],
        rows,
    }
}

fn limited(document: &Document) -> Sheet {
    let row = |one: &super::document::Limited| {
        let run = &one.run;
        vec![
            name(run),
            run.policy.clone(),
            run.nodes.to_string(),
            format!("{:.3}", run.seconds),
            format!("{:.2}", run.speedup),
            format!("{:.2}", one.ceiling),
            format!("{:.2}", one.relative),
            paper_speedup(run),
        ]
    };
    Sheet {
        title: "Speedups (TR2) of nodes with a fifth of a processor each".to_owned(),
        header: vec![
            "PROGRAM",
            "POLICY",
            "NODES",
            "SECONDS",
            "SPEEDUP",
            "CEILING",
            "RELATIVE",
            "PAPER, 8: ATM / ETHERNET",
        ],
        rows: document.limited.iter().map(row).collect(),
    }
}

fn forecasts(document: &Document) -> Sheet {
    let row = |one: &Forecast| {
        let runs = || document.runs.iter();
        let paper = runs().find(|run| run.program == one.program);
        let off = one
            .measured
            .map(|measured| 100.0 * (one.seconds / measured - 1.0));
        let seconds = one.measured.map(|measured| format!("{measured:.3}"));
        let dash = || "-".to_owned();
        vec![
            forecast_of(one),
            one.nodes.to_string(),
            format!("{:.3}", one.seconds),
            format!("{:.2}", one.speedup),
            format!("{:.1} / {:.1}", one.slower, one.slower * one.cold),
            seconds.unwrap_or_else(dash),
            off.map_or_else(dash, |off| format!("{off:+.0}")),
            one.messages.to_string(),
            one.measured_messages
                .map_or_else(dash, |messages| messages.to_string()),
            paper.map_or_else(dash, paper_speedup),
        ]
    };
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
    }
}

fn forecast_shares(document: &Document) -> Sheet {
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
    }
}
