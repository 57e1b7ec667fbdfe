//! MR15 and MR16: matrix multiply on two to seven sites, each with a part of a processor.

use super::super::super::quota::Quota;
use super::super::super::switch;
use super::document::{Document, Section, number};
use super::literature;
use super::plot::{Figure, svg};
use super::programs::{Place, alone, together, words};
use anyhow::Result;
use pagemesh_cli::sandbox::{Plan, Sandbox};
use std::path::Path;

const SITES: std::ops::RangeInclusive<usize> = 2..=7;

/// A site's part of a processor: seven of them need less than two.
const SHARE: f64 = 0.2;

/// Rows of the comparison without padding.
const UNPADDED: u32 = 300;

/// Seconds by sites, from two on.
type Row = Vec<f64>;

pub(super) fn measure(programs: &Path, document: &mut Document) -> Result<()> {
    let quota = match Quota::new(*SITES.end(), SHARE) {
        Ok(quota) => quota,
        Err(why) => {
            let mut section = Section::new("Table 6, matrix multiply", &[]);
            section.note(format!(
                "Not measured: {why:#}. Two sites on two processors are in MR13."
            ));
            document.put(15, section);
            return Ok(());
        }
    };
    let matrix = programs.join("matrix-mesh");
    let sequential = programs.join("matrix");
    let mut base = Vec::new();
    for (n, ..) in literature::MATRIX {
        base.push(alone(
            Some(&quota),
            &sequential,
            &words(&format!("--n={n} --sequential")),
        )?);
    }
    let one = quota.burn(1)?;
    let mut ceilings = Vec::new();
    for sites in SITES {
        ceilings.push(one / quota.burn(sites - 1)?);
    }
    let (mut off, mut runs) = (vec![Row::new(); base.len()], vec![Row::new(); base.len()]);
    let mut unpadded = Row::new();
    for sites in SITES {
        for (compress, table) in [("off", &mut off), ("runs", &mut runs)] {
            let mut plan = Plan::new(sites);
            plan.waiting = Some("block".to_owned());
            plan.compress = Some(compress.to_owned());
            switch(&mut plan, "packet=1024,receive=worker")?;
            let sandbox = Sandbox::start(&plan)?;
            let run = |arguments: String| {
                let environment = [("PAGEMESH_WINDOW", "0")];
                together(
                    &sandbox,
                    Place::Part(&quota),
                    &matrix,
                    &words(&arguments),
                    &environment,
                )
            };
            for ((n, ..), row) in literature::MATRIX.iter().zip(table) {
                let times = if *n < 200 { 5 } else { 1 };
                row.push(run(format!("--n={n} --times={times}"))?);
            }
            if compress == "off" {
                unpadded.push(run(format!("--n={UNPADDED} --padding=0"))?);
            }
        }
    }
    table6(document, &off, &runs);
    speedups(document, &base, &off, &runs, &ceilings, &unpadded);
    Ok(())
}

fn table6(document: &mut Document, off: &[Row], runs: &[Row]) {
    let head = [
        "MATRIX", "C", "2", "3", "4", "5", "6", "7 SITES", "PAPER: 2", "7",
    ];
    let mut section = Section::new("Table 6, matrix multiply, in seconds (S+B, Δ = 0)", &head);
    for ((n, paper, packed), (off, runs)) in literature::MATRIX.iter().zip(off.iter().zip(runs)) {
        for (name, ours, paper) in [("off", off, paper), ("runs", runs, packed)] {
            let mut row = vec![format!("{n} x {n}"), name.to_owned()];
            row.extend(ours.iter().map(|seconds| number(*seconds)));
            row.extend([number(paper[0]), number(paper[5])]);
            section.cells(row);
        }
    }
    section.note(format!(
        "Each site's program has {SHARE} of a processor, its daemon is outside of that (periods of 10 ms); one site \
         loads and collects, the others multiply. Single runs from 240 on, medians of five below. \
         What sites would do that have a processor each cannot be seen here: there are forecasts below."
    ));
    document.value("matrix 60 off s", off[0][0]);
    document.value("matrix 60 runs s", runs[0][0]);
    document.put(15, section);
}

fn speedups(
    document: &mut Document,
    base: &[f64],
    off: &[Row],
    runs: &[Row],
    ceilings: &[f64],
    unpadded: &[f64],
) {
    let head = ["", "2", "3", "4", "5", "6", "7 SITES"];
    let mut section = Section::new("Fig. 7, speedup of matrix multiply", &head);
    let mut lines = Vec::new();
    let mut add = |name: &str, values: Vec<f64>| {
        let mut row = vec![name.to_owned()];
        row.extend(values.iter().map(|value| number(*value)));
        section.cells(row);
        let points = values
            .iter()
            .zip(SITES)
            .map(|(value, sites)| (sites as f64, *value));
        lines.push((name.to_owned(), points.collect::<Vec<_>>()));
    };
    add("ceiling: no shared memory", ceilings.to_vec());
    let last = base.len() - 1;
    for (at, name) in [(0, "60"), (last, "480")] {
        let of = |table: &[Row]| table[at].iter().map(|seconds| base[at] / seconds).collect();
        add(name, of(off));
        add(&format!("{name}, compressed"), of(runs));
        let paper = literature::MATRIX[at];
        // Its base is its two sites, of which one multiplies.
        add(
            &format!("{name}, paper"),
            paper.1.iter().map(|seconds| paper.1[0] / seconds).collect(),
        );
    }
    let padded = literature::MATRIX
        .iter()
        .position(|row| row.0 == UNPADDED)
        .unwrap_or(last);
    let to = |row: &[f64]| row.iter().map(|seconds| base[padded] / seconds).collect();
    add("300, padded", to(&off[padded]));
    add("300, not padded", to(unpadded));
    let relative = base[last] / off[last][5] / ceilings[5];
    section.note(format!(
        "Ours against the program alone in one site's part of a processor; the ceiling is as many processes that \
         share nothing, on as many such parts. 480 on seven sites reaches {:.0} % of it. The paper's speedups \
         here are against its own two sites.",
        100.0 * relative
    ));
    let figure = Figure {
        title: "Speedup of matrix multiply",
        x: "sites",
        y: "speedup",
        logarithmic: false,
        lines,
    };
    section.plot("mr16", svg(&figure));
    document.put(16, section);
}
