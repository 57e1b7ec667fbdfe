//! What was measured: a section for each table or figure of the paper.

use super::super::super::report::Machine;
use super::cannot_write;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::SystemTime;

/// One run of the whole benchmark, or several put together.
#[derive(Serialize, Deserialize)]
pub(super) struct Document {
    pub(super) bench: String,
    pub(super) machine: String,
    /// When it was measured last, in UTC.
    pub(super) date: String,
    /// By the number of their code, MR1 and following.
    pub(super) sections: BTreeMap<u8, Section>,
    /// Figures that other sections need: microseconds, unless the name says else.
    pub(super) values: BTreeMap<String, f64>,
}

/// A table of the paper, ours beside theirs.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Section {
    title: String,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    /// What to know when reading it; also what could not be measured, and why.
    notes: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    plots: Vec<Plot>,
}

/// A figure.
#[derive(Serialize, Deserialize)]
struct Plot {
    name: String,
    svg: String,
}

impl Document {
    /// Nothing yet.
    pub(super) fn new() -> Self {
        let machine = Machine::this();
        Self {
            bench: "paper mirage".to_owned(),
            machine: format!(
                "{} ({} processors, Linux {})",
                machine.processor(),
                machine.cores(),
                machine.kernel()
            ),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            sections: BTreeMap::new(),
            values: BTreeMap::new(),
        }
    }

    /// Notes a figure for other sections, and returns it.
    pub(super) fn value(&mut self, name: impl Into<String>, value: f64) -> f64 {
        self.values.insert(name.into(), value);
        value
    }

    /// For people, without figures.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (code, section) in &self.sections {
            lines.push(format!("MR{code} {}", section.title));
            lines.push(format!("  {}", section.head.join(" | ")));
            lines.extend(
                section
                    .rows
                    .iter()
                    .map(|row| format!("  {}", row.join(" | "))),
            );
            lines.extend(section.notes.iter().map(|note| format!("  {note}")));
        }
        lines
    }

    /// Writes the report, and figures beside it.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let mut text = format!("{HEAD}\nMeasured {} on {}.\n", self.date, self.machine);
        for (code, section) in &self.sections {
            section.markdown(*code, &stem, &mut text);
            for plot in &section.plots {
                let file = path.with_file_name(plot.file(&stem));
                std::fs::write(&file, &plot.svg).with_context(|| cannot_write(&file))?;
            }
        }
        text.push_str(TAIL);
        std::fs::write(path, text).with_context(|| cannot_write(path))
    }
}

impl Section {
    /// An empty table.
    pub(super) fn new(title: &str, head: &[&str]) -> Self {
        Self {
            title: title.to_owned(),
            head: head.iter().map(|&word| word.to_owned()).collect(),
            ..Self::default()
        }
    }

    pub(super) fn row<const N: usize>(&mut self, row: [String; N]) {
        self.rows.push(row.into());
    }

    pub(super) fn cells(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    pub(super) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    pub(super) fn plot(&mut self, name: &str, svg: String) {
        self.plots.push(Plot {
            name: name.to_owned(),
            svg,
        });
    }

    fn markdown(&self, code: u8, stem: &str, text: &mut String) {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let _ = write!(text, "\n## MR{code}: {}\n\n", self.title);
        if !self.rows.is_empty() {
            text.push_str(&line(&self.head));
            text.push_str(&format!("|{}\n", "---|".repeat(self.head.len())));
            self.rows.iter().for_each(|row| text.push_str(&line(row)));
        }
        for plot in &self.plots {
            let _ = write!(text, "\n![{}]({})\n", plot.name, plot.file(stem));
        }
        for note in &self.notes {
            let _ = write!(text, "\n{note}\n");
        }
    }
}

impl Plot {
    fn file(&self, stem: &str) -> String {
        format!("{stem}-{}.svg", self.name)
    }
}

/// A number of three digits or so.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// Ours in microseconds to theirs in milliseconds.
pub(super) fn ratio(ours: f64, paper: f64) -> String {
    format!("{:.4}", ours / 1000.0 / paper)
}

/// A change, as the paper gives them.
pub(super) fn percent(from: f64, to: f64) -> String {
    format!("{:+.1} %", 100.0 * (to - from) / from)
}

const HEAD: &str = "# MIRAGE+, measured here

`pagemesh bench paper mirage --report FILE` writes this file: what Fleisch, Hyde and Juul measured in 1994 (i486 at 25 MHz, 10 Mbit/s
Ethernet, packets of 1 KiB), measured with the same switches ([decision 0022](../decisions/0022-switches-sit-at-the-edge.md)) and the
programs of `apps/mirage`. S: what comes in is handed to another thread; I: it is handled by whoever received it. H: each packet of 1 KiB is
acknowledged; B: packets are blasted, one acknowledgement for the page. C: compression. Ratios are ours to theirs.
";

const TAIL: &str = "
## What reproduces, and what does not

- *Handshake against blasting* (MR3, MR4) reproduces in direction: a page in four acknowledged packets costs several round trips, blasted it
  costs one. Our gain is larger or smaller than their 37 % by how much of a fault is spent between hosts at all: see the tables.
- *Server against interrupt level* (MR6) is the change of a thread here, which a processor that has both in its caches does in microseconds.
- *Invalidation* (MR7) is linear in the readers, as theirs is: both send one after the other and then collect.
- *Network against disk* (MR8): the claim that a fault from another host's memory beats one from disk holds by more than then.
- *Compression* (MR9 to MR11, MR14) pays by what it saves on the wire. On their wire (10 Mbit/s) our ratios are near or beyond theirs, for our
  codec costs a thousandth of theirs and the wire is the same; on a link as fast as memory it does not pay, which is why `auto` measures the
  link. The break-even of Fig. 2 has moved accordingly.
- *The time window* (MR13): 20 ms are an eternity now. What their explicit locks gained over Δ our guard (a page is used before it leaves)
  and Δ = `auto` gain without a changed line.
- *Matrix multiply* (MR15, MR16): large problems speed up as theirs did, small ones do not: a processor a thousand times faster beside a
  network a hundred times faster leaves less to compute for each page. Nodes have a fifth of a processor here, so the network looks five
  times as fast as it is; speedups are to be read beside the ceiling.

Not shown: the strict-minimum `timesleep` (our timers have no ticks), Δ = 0 without the guard (it cannot be turned off), MR5's split of
Mirage's VAX figures, and figures of the simulator for more nodes than processors (not built; nodes with a part of a processor stand in).
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_its_tables_and_figures() {
        let directory = std::env::temp_dir().join(format!("mirage-report-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let mut document = Document::new();
        let mut section = Section::new("Nothing", &["A", "B"]);
        section.row(["1".to_owned(), "2".to_owned()]);
        section.note("so it is");
        section.plot("mr3", "<svg/>".to_owned());
        document.sections.insert(3, section);
        document.write(&directory.join("mirage.md")).unwrap();
        let text = std::fs::read_to_string(directory.join("mirage.md")).unwrap();
        assert!(text.contains("## MR3: Nothing\n\n| A | B |\n|---|---|\n| 1 | 2 |\n"));
        assert!(text.contains("![mr3](mirage-mr3.svg)\n\nso it is\n"));
        assert!(directory.join("mirage-mr3.svg").exists());
        std::fs::remove_dir_all(&directory).unwrap();
        let again: Document =
            serde_json::from_value(serde_json::to_value(&document).unwrap()).unwrap();
        assert_eq!(again.lines(), document.lines());
    }
}
