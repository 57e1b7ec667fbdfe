//! What programs did and where their time went (TR3 to TR8).

use super::super::document::{Document, Run};
use super::super::literature::{
    MOST_TREADMARKS, WATER_BYTES, WATER_IDLE, WATER_RATES, WATER_SECONDS,
};
use super::super::program::label;
use super::{Sheet, hundredths, thousandths};

/// Runs on several nodes: those on a quiet host, and those beside a companion.
fn on_several(document: &Document) -> impl Iterator<Item = (&'static str, &Run)> {
    let quiet = document.runs.iter().map(|run| ("quiet", run));
    let busy = document.busy.iter().map(|one| ("busy", &one.run));
    quiet.chain(busy).filter(|(_, run)| run.nodes > 1)
}

pub(super) fn statistics(document: &Document) -> Sheet {
    let row = |(host, run): (&str, &Run)| {
        let rate = |count: u64| format!("{:.0}", count as f64 / run.whole_seconds);
        vec![
            label(&run.program, run.large),
            run.policy.clone(),
            host.to_owned(),
            format!("{:.3}", run.whole_seconds),
            run.barriers.to_string(),
            run.locks.to_string(),
            run.messages.to_string(),
            (run.bytes / 1024).to_string(),
            run.pages.to_string(),
            run.diffs.to_string(),
            rate(run.barriers),
            rate(run.locks),
            rate(run.messages),
            rate(run.bytes / 1024),
            (run.bytes / run.messages.max(1)).to_string(),
        ]
    };
    let mut rows: Vec<_> = on_several(document).map(row).collect();
    if !rows.is_empty() {
        let (locks, messages, kilobytes) = WATER_RATES;
        let unknown = || "-".to_owned();
        let mut paper = vec![
            "water-locks".to_owned(),
            "paper, 8 nodes".to_owned(),
            "-".to_owned(),
            "15.0".to_owned(),
        ];
        paper.extend((0..7).map(|_| unknown()));
        paper.extend([locks, messages, kilobytes, WATER_BYTES].map(|rate| format!("{rate:.0}")));
        rows.push(paper);
    }
    Sheet {
        title: "What programs did (TR3), from Tmk_startup to Tmk_exit".to_owned(),
        header: vec![
            "PROGRAM",
            "POLICY",
            "HOST",
            "SECONDS",
            "BARRIERS",
            "LOCKS",
            "MESSAGES",
            "KB",
            "PAGES",
            "DIFFS",
            "BARRIERS/s",
            "LOCKS/s",
            "MESSAGES/s",
            "KB/s",
            "BYTES A MESSAGE",
        ],
        rows,
        note: "Busy: beside a companion that takes a tenth of each processor in bursts. The paper's table is lost but for Water's rates and the mean size of its messages; its program is `water-locks`."
            .to_owned(),
    }
}

/// Each policy beside `release`, on the most nodes.
pub(super) fn policies(document: &Document) -> Sheet {
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
            label(&run.program, run.large),
            run.policy.clone(),
            format!(
                "{} / {}",
                thousandths(Some(lazy.seconds)),
                thousandths(Some(run.seconds))
            ),
            format!(
                "{} / {}",
                hundredths(document.speedup(lazy)),
                hundredths(document.speedup(run))
            ),
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
            "SECONDS",
            "SPEEDUP",
            "MESSAGES/s",
            "KB/s",
            "DIFFS",
            "PAGES",
        ],
        rows,
        note: "Our lazy policy pushes changes to nodes that asked for all of the changes before; the paper's waits for a \
               request. `invalidate` is ours without that, as the paper's. Rates are by the mean of both times, as the paper's. The \
               paper's figures of this comparison are lost; what its text says of them is among the claims above."
            .to_owned(),
    }
}

pub(super) fn breakdown(document: &Document) -> Sheet {
    let row = |(host, run): (&str, &Run)| {
        let percent = |part: f64| format!("{:.1}", 100.0 * part);
        let shares = run.shares;
        let parts = [
            shares.computation,
            shares.kernel,
            shares.pagemesh,
            shares.idle,
        ];
        let mut row = vec![
            label(&run.program, run.large),
            run.policy.clone(),
            host.to_owned(),
            run.nodes.to_string(),
        ];
        row.extend(parts.map(percent));
        row
    };
    let mut rows: Vec<_> = on_several(document).map(row).collect();
    if !rows.is_empty() {
        let dash = || "-".to_owned();
        let paper = ["water-locks", "paper", "-", "8"].map(str::to_owned);
        let most = format!("{MOST_TREADMARKS:.1}");
        rows.push(
            paper
                .into_iter()
                .chain([dash(), dash(), most, dash()])
                .collect(),
        );
    }
    Sheet {
        title: "Where the time of the nodes went (TR4), in percent".to_owned(),
        header: vec![
            "PROGRAM",
            "POLICY",
            "HOST",
            "NODES",
            "COMPUTATION",
            "KERNEL",
            "PAGEMESH",
            "IDLE",
        ],
        rows,
        note: "Busy: beside a companion that takes a tenth of each processor in bursts. Processor time is counted in hundredths of a second: shares of programs that take some hundredths mean little."
            .to_owned(),
    }
}

pub(super) fn divided(document: &Document) -> Sheet {
    let row = |one: &super::super::document::Divided| {
        let name = label(&one.program, one.large);
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
        note: String::new(),
    }
}

pub(super) fn substrates(document: &Document) -> Sheet {
    let mut rows: Vec<_> = document
        .substrates
        .iter()
        .map(|one| {
            let run = &one.run;
            let shares = run.shares;
            let counted = shares.computation + shares.kernel + shares.pagemesh > 0.0;
            vec![
                one.name.clone(),
                run.policy.clone(),
                run.nodes.to_string(),
                run.rounds.to_string(),
                thousandths(Some(run.seconds)),
                thousandths(counted.then_some(shares.idle * run.whole_seconds)),
            ]
        })
        .collect();
    if !rows.is_empty() {
        let paper = WATER_SECONDS.iter().zip(WATER_IDLE);
        rows.extend(paper.map(|((name, seconds), idle)| {
            let words = [*name, "paper", "8", "-"].map(str::to_owned);
            let numbers = [seconds, &idle].map(|number| format!("{number:.1}"));
            words.into_iter().chain(numbers).collect()
        }));
    }
    Sheet {
        title: "Water on different networks (TR7)".to_owned(),
        header: vec!["NETWORK", "POLICY", "NODES", "RUNS", "SECONDS", "IDLE s"],
        rows,
        note: "The program is `water-locks`, the paper's. IDLE is the mean of the nodes."
            .to_owned(),
    }
}
