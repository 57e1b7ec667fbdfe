//! MR15 and MR16: matrix multiply on two to seven sites, each with a part of a processor.

use super::super::super::quota::Quota;
use super::super::super::switch;
use super::document::{Document, Section, number};
use super::faults::{INTERRUPT_BLAST, SERVER_BLAST};
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
    document.dated([15, 16]);
    let sequential = programs.join("matrix");
    for (n, ..) in literature::MATRIX {
        for padding in ["padded", "unpadded"] {
            let pad = u32::from(padding == "padded");
            let arguments = words(&format!("--n={n} --padding={pad} --sequential"));
            let seconds = alone(Some(&quota), &sequential, &arguments)?;
            document.value(format!("matrix {n} alone {padding} s"), seconds);
        }
    }
    let one = quota.burn(1)?;
    for sites in SITES {
        let ceiling = one / quota.burn(sites - 1)?;
        document.value(format!("matrix ceiling on {sites}"), ceiling);
    }
    let matrix = Matrix {
        program: &programs.join("matrix-mesh"),
        quota: &quota,
    };
    for sites in SITES {
        for (compress, switches) in [("off", "S+B"), ("runs", "S+B+C")] {
            let sandbox = plan(sites, compress, SERVER_BLAST)?;
            for (n, ..) in literature::MATRIX {
                let times = if n < 200 { 5 } else { 1 };
                let seconds = matrix.run(&sandbox, &format!("--n={n} --times={times}"))?;
                document.value(format!("matrix {n} {switches} on {sites} s"), seconds);
            }
            if compress == "off" {
                let seconds = matrix.run(&sandbox, &format!("--n={UNPADDED} --padding=0"))?;
                document.value(format!("matrix {UNPADDED} unpadded on {sites} s"), seconds);
            }
        }
    }
    for (compress, switches) in [("off", "I+B"), ("runs", "I+B+C")] {
        let sandbox = plan(2, compress, INTERRUPT_BLAST)?;
        let seconds = matrix.run(&sandbox, "--n=60 --times=5")?;
        document.value(format!("matrix 60 {switches} s"), seconds);
    }
    Ok(())
}

fn plan(sites: usize, compress: &str, experiment: &str) -> Result<Sandbox> {
    let mut plan = Plan::new(sites);
    plan.waiting = Some("block".to_owned());
    plan.compress = Some(compress.to_owned());
    switch(&mut plan, experiment)?;
    Sandbox::start(&plan)
}

/// The program on sites with a part of a processor each.
struct Matrix<'a> {
    program: &'a Path,
    quota: &'a Quota,
}

impl Matrix<'_> {
    fn run(&self, sandbox: &Sandbox, arguments: &str) -> Result<f64> {
        let environment = [("PAGEMESH_WINDOW", "0")];
        let place = Place::Part(self.quota);
        together(
            sandbox,
            place,
            self.program,
            &words(arguments),
            &environment,
        )
    }
}

/// Figures of all sites, by a name with `SITES` in it; none if one is missing.
fn row(document: &Document, name: &str) -> Option<Vec<f64>> {
    SITES
        .map(|sites| document.known(&name.replace("SITES", &sites.to_string())))
        .collect()
}

/// Adds MR15 and MR16, if their figures are there.
pub(super) fn add(document: &mut Document) {
    for switches in ["S+B", "S+B+C"] {
        if let Some(row) = row(document, &format!("matrix 60 {switches} on SITES s")) {
            document.value(format!("matrix 60 {switches} s"), row[0]);
        }
    }
    table6(document);
    speedups(document);
}

fn table6(document: &mut Document) {
    let head = ["MATRIX", "C", "WHOSE", "2", "3", "4", "5", "6", "7 SITES"];
    let mut section = Section::new("Table 6, matrix multiply, in seconds (S+B, Δ = 0)", &head);
    for (n, off, runs) in literature::MATRIX {
        for (switches, name, paper) in [("S+B", "off", off), ("S+B+C", "runs", runs)] {
            let Some(ours) = row(document, &format!("matrix {n} {switches} on SITES s")) else {
                return;
            };
            let mut add = |whose: &str, seconds: &[f64]| {
                let names = [format!("{n} x {n}"), name.to_owned(), whose.to_owned()];
                let seconds = seconds.iter().map(|seconds| number(*seconds));
                section.cells(names.into_iter().chain(seconds).collect());
            };
            add("ours", &ours);
            add("paper", &paper);
        }
    }
    section.note(format!(
        "Each site's program has {SHARE} of a processor, its daemon is outside of that (periods of 10 ms); one site \
         loads and collects, the others multiply. Single runs from 240 on, medians of five below. \
         What sites would do that have a processor each cannot be seen here: there are forecasts below."
    ));
    document.derive(15, section);
}

fn speedups(document: &mut Document) {
    let Some(ceilings) = row(document, "matrix ceiling on SITES") else {
        return;
    };
    let head = ["", "2", "3", "4", "5", "6", "7 SITES"];
    let mut section = Section::new("Fig. 7, speedup of matrix multiply", &head);
    let mut lines = Vec::new();
    let mut add = |name: &str, values: &[f64]| {
        let mut row = vec![name.to_owned()];
        row.extend(values.iter().map(|value| number(*value)));
        section.cells(row);
        let points = values
            .iter()
            .zip(SITES)
            .map(|(value, sites)| (sites as f64, *value));
        lines.push((name.to_owned(), points.collect::<Vec<_>>()));
    };
    add("ceiling: no shared memory", &ceilings);
    let mut without = Vec::new();
    for (n, paper, _) in [literature::MATRIX[0], literature::MATRIX[7]] {
        for (switches, name) in [("S+B", ""), ("S+B+C", ", compressed")] {
            let ours = row(document, &format!("matrix {n} {switches} on SITES s"));
            match (ours, base(document, n)) {
                (Some(ours), Some(base)) => {
                    let speedups: Vec<f64> = ours.iter().map(|seconds| base / seconds).collect();
                    add(&format!("{n}{name}"), &speedups);
                }
                _ => without.push(format!("{n}{name}")),
            }
        }
        // Its base is its two sites, of which one multiplies.
        let paper = paper.map(|seconds| paper[0] / seconds);
        add(&format!("{n}, paper, against its two sites"), &paper);
        if let Some(ours) = row(document, &format!("matrix {n} S+B on SITES s")) {
            let ours: Vec<f64> = ours.iter().map(|seconds| ours[0] / seconds).collect();
            add(&format!("{n}, ours, against our two sites"), &ours);
        }
    }
    section.note(
        "Ours against the quicker of the two sequential programs, with rows that are padded and not, in one site's part of a \
         processor; the ceiling is as many processes that share nothing, on as many such parts.",
    );
    if !without.is_empty() {
        section.note(format!(
            "Not shown: {}. Its sequential program was not measured both with padded rows and without.",
            without.join("; ")
        ));
    }
    padding(document, &mut section);
    let figure = Figure {
        title: "Speedup of matrix multiply",
        x: "sites",
        y: "speedup",
        logarithmic: false,
        lines,
    };
    section.plot("mr16", svg(&figure));
    document.derive(16, section);
}

/// The best sequential program. Rows are padded only above 120 x 120.
fn base(document: &Document, n: u32) -> Option<f64> {
    let of = |padding: &str| document.known(&format!("matrix {n} alone {padding} s"));
    let (padded, unpadded) = (of("padded"), of("unpadded"));
    match n {
        0..=120 => padded.or(unpadded),
        _ => Some(padded?.min(unpadded?)),
    }
}

/// Padded rows beside rows that are not.
fn padding(document: &Document, section: &mut Section) {
    let padded = row(document, &format!("matrix {UNPADDED} S+B on SITES s"));
    let unpadded = row(document, &format!("matrix {UNPADDED} unpadded on SITES s"));
    let (Some(padded), Some(unpadded)) = (padded, unpadded) else {
        return;
    };
    let pairs = padded.iter().zip(&unpadded).zip(SITES);
    let pairs = pairs.map(|((padded, unpadded), sites)| {
        format!("{} and {} s on {sites}", number(*padded), number(*unpadded))
    });
    let slower = padded
        .iter()
        .zip(&unpadded)
        .filter(|(one, other)| one > other);
    section.note(format!(
        "{UNPADDED} x {UNPADDED} with padded rows and without: {}. Padded rows are slower on {} of {} numbers of sites.",
        pairs.collect::<Vec<_>>().join(", "),
        slower.count(),
        padded.len()
    ));
}
