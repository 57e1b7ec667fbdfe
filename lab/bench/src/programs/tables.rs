//! What was measured, for people: times, then what was counted on two and more nodes.

use super::{Document, OnNodes, Row};
use anyhow::Result;
use pagemesh_cli::output::{self, Table};

/// Times and speedups, then counts, then what is missing.
pub(super) fn print(document: &Document) -> Result<()> {
    times(document).print()?;
    output::lines([String::new()])?;
    counts(document).print()?;
    for why in &document.missing {
        output::note(format_args!("not measured: {why}"));
    }
    Ok(())
}

fn times(document: &Document) -> Table {
    let mut table = Table::new(&[
        "PROGRAM", "POLICY", "WHERE", "SECONDS", "SPEEDUP", "CEILING",
    ]);
    for row in &document.rows {
        let mut line = |place: String, seconds: f64, speedup: f64, ceiling: String| {
            table.row([
                row.program.to_owned(),
                row.policy.clone(),
                place,
                format!("{seconds:.3}"),
                format!("{speedup:.2}"),
                ceiling,
            ]);
        };
        for native in &row.native {
            let place = format!("native x{}", native.threads);
            line(place, native.seconds, native.speedup, String::new());
        }
        for run in &row.nodes {
            let place = format!("nodes x{}", run.nodes);
            line(place, run.seconds, run.speedup, String::new());
        }
        for limited in &row.limited {
            let (place, run) = (format!("limited x{}", limited.run.nodes), &limited.run);
            let ceiling = format!("{:.2}", limited.ceiling);
            line(place, run.seconds, run.speedup, ceiling);
        }
    }
    table
}

fn counts(document: &Document) -> Table {
    let mut table = Table::new(&[
        "PROGRAM",
        "POLICY",
        "NODES",
        "MESSAGES",
        "RESENT",
        "MB",
        "FAULTS",
        "FAULTS s",
        "BARRIERS s",
        "LOCKS s",
    ]);
    for row in &document.rows {
        for run in runs(row) {
            table.row([
                row.program.to_owned(),
                row.policy.clone(),
                run.nodes.to_string(),
                run.messages.to_string(),
                run.resent.to_string(),
                format!("{:.1}", run.megabytes),
                run.faults.to_string(),
                format!("{:.3}", run.fault_wait),
                format!("{:.3}", run.barrier_wait),
                format!("{:.3}", run.lock_wait),
            ]);
        }
    }
    table
}

/// All runs on nodes, those at full speed first.
fn runs(row: &Row) -> impl Iterator<Item = &OnNodes> {
    let limited = row.limited.iter().map(|limited| &limited.run);
    row.nodes.iter().chain(limited)
}
