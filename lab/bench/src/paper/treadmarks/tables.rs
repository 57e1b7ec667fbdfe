//! The tables, for people and for the report.

mod counts;
mod speedups;

pub(super) use speedups::eight_slow;

use super::super::claims;
use super::super::origin::by_hand;
use super::claims::claims;
use super::document::Document;
use pagemesh_cli::output::Table;

/// A table before it has a form.
struct Sheet {
    title: String,
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// What a reader must know of its columns.
    note: String,
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
    lines.extend(missing(document).map(|what| format!("Missing: {what}")));
    lines
}

/// The report.
pub(super) fn markdown(document: &Document) -> String {
    let mut text = String::from(HEAD);
    text += &measured(document);
    text += &claims::section(claims(document));
    for sheet in sheets(document) {
        text += &format!("\n## {}\n\n", sheet.title);
        text += &format!("| {} |\n", sheet.header.join(" | "));
        text += &format!("|{}\n", "---|".repeat(sheet.header.len()));
        for row in sheet.rows {
            text += &format!("| {} |\n", row.join(" | "));
        }
        if !sheet.note.is_empty() {
            text += &format!("\n{}\n", sheet.note);
        }
    }
    text += "\n## Missing\n\n";
    for what in missing(document) {
        text += &format!("- {what}\n");
    }
    text += &by_hand(&document.notes);
    text
}

const HEAD: &str = "\
# TreadMarks, measured here

What Keleher, Cox, Dwarkadas and Zwaenepoel measured in 1994 (8 DECstation-5000/240, 40 MHz, 100 Mbit/s ATM), measured with the programs of `lab/apps/`.
`pagemesh bench paper treadmarks --keep docs/papers/treadmarks.json --report docs/papers/treadmarks.md` measures and writes this file;
`--from docs/papers/treadmarks.json` in the place of `--keep` writes it again from the kept figures, on any machine. Ratios are ours to theirs.
[How to read it](../treadmarks.md#measuring).

";

/// Where and when.
fn measured(document: &Document) -> String {
    let mut text = format!("Machine: {}.\n\n", document.machine);
    for (date, origin) in &document.sessions {
        text += &format!("- Measured {date}: {}.\n", origin.words());
    }
    text
}

fn sheets(document: &Document) -> Vec<Sheet> {
    let all = [
        speedups::programs(document),
        basics(document),
        speedups::alone(document),
        speedups::speedups(document),
        speedups::busy(document),
        speedups::eight_nodes(document),
        counts::statistics(document),
        counts::breakdown(document),
        counts::divided(document),
        counts::policies(document),
        counts::substrates(document),
        speedups::limited(document),
        speedups::forecasts(document),
        speedups::forecast_shares(document),
    ];
    all.into_iter()
        .filter(|sheet| !sheet.rows.is_empty())
        .collect()
}

/// What could not be measured, and the bases of speedups that are absent.
fn missing(document: &Document) -> impl Iterator<Item = String> {
    document
        .missing
        .iter()
        .cloned()
        .chain(speedups::without_base(document))
}

fn basics(document: &Document) -> Sheet {
    let row = |basic: &super::document::Basic| {
        vec![
            basic.name.clone(),
            basic.policy.clone().unwrap_or_else(|| "-".to_owned()),
            format!("{:.1}", basic.ours),
            basic
                .busy
                .map_or_else(|| "-".to_owned(), |busy| format!("{busy:.1}")),
            format!("{:.0}", basic.paper),
            format!("{:.4}", basic.ours / basic.paper),
        ]
    };
    Sheet {
        title: "Basic operations (TR1), in microseconds".to_owned(),
        header: vec!["OPERATION", "POLICY", "OURS", "BUSY", "PAPER", "RATIO"],
        rows: document.basics.iter().map(row).collect(),
        note: format!(
            "The paper's protocol is that of `release`. Locks and barriers carry no write notices here; a fault is the first load from a page that the other node \
             changed before it gave a lock. Daemons sleep while nothing arrives, as the paper's processes did. BUSY is \
             ours beside a companion that takes a tenth of each processor in bursts. Each is a median of hundreds.{}",
            basics_of(document)
        ),
    }
}

/// Where and when the basic operations were measured, if that is kept.
fn basics_of(document: &Document) -> String {
    document
        .basics_of
        .as_ref()
        .map_or_else(String::new, |place| {
            let (date, origin) = (&place.measured.date, place.measured.origin.words());
            let machine = &place.machine;
            format!("\n\nThis table is of {machine}, {date}, {origin}.")
        })
}

/// Two digits, if there is something to say.
fn hundredths(number: Option<f64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| format!("{number:.2}"))
}

/// Three digits, if there is something to say.
fn thousandths(number: Option<f64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| format!("{number:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::tests::{is_shipped, papers};

    /// The shipped report is what the command makes of the shipped figures.
    #[test]
    fn the_report_of_treadmarks_is_made_of_its_json() {
        let document = Document::read(&papers().join("treadmarks.json")).unwrap();
        is_shipped("treadmarks.md", &markdown(&document));
    }
}
