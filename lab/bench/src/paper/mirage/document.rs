//! The measurements: a section for each table or figure of the paper.

use super::super::super::report::Machine;
use super::super::claims;
use super::super::origin::{Note, Origin, by_hand};
use super::super::write;
use super::claims::claims;
use anyhow::Result;
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
    /// The origin of what was measured at each date.
    #[serde(default)]
    pub(super) sessions: BTreeMap<String, Origin>,
    /// By the number of their code, MR1 and following.
    pub(super) sections: BTreeMap<u8, Section>,
    /// Figures that other sections need: microseconds, unless the name says else.
    pub(super) values: BTreeMap<String, f64>,
    /// The same figures beside a companion that takes a tenth of each processor in bursts.
    #[serde(default)]
    pub(super) busy: BTreeMap<String, f64>,
    /// When that was measured last, in UTC.
    #[serde(default)]
    busy_measured: Option<String>,
    /// What a person wrote into the file.
    #[serde(default)]
    pub(super) notes: Vec<Note>,
}

/// A table of the paper, ours beside theirs.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Section {
    title: String,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    /// When, in UTC.
    #[serde(default)]
    measured: String,
    /// Notes for the reader; also the parts that could not be measured, and why.
    pub(super) notes: Vec<String>,
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
        let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        Self {
            bench: "paper mirage".to_owned(),
            machine: Machine::this().to_string(),
            sessions: BTreeMap::from([(date.clone(), Origin::now())]),
            date,
            sections: BTreeMap::new(),
            values: BTreeMap::new(),
            busy: BTreeMap::new(),
            busy_measured: None,
            notes: Vec::new(),
        }
    }

    /// A section that was measured now, in the place of one that was measured before.
    pub(super) fn put(&mut self, code: u8, section: Section) {
        let measured = self.date.clone();
        self.sections.insert(
            code,
            Section {
                measured,
                ..section
            },
        );
    }

    /// The kept document, for further measurements now: its sections keep their dates.
    pub(super) fn renewed(mut self) -> Self {
        let sections = self.sections.values_mut();
        for section in sections.filter(|section| section.measured.is_empty()) {
            section.measured.clone_from(&self.date);
        }
        let new = Self::new();
        self.sessions.extend(new.sessions);
        Self {
            date: new.date,
            ..self
        }
    }

    /// The measurements have ended.
    pub(super) fn end(&mut self) {
        if let Some(origin) = self.sessions.get_mut(&self.date) {
            origin.end();
        }
        let used: Vec<_> = (self.sections.values().map(|section| &section.measured))
            .chain([&self.date])
            .chain(&self.busy_measured)
            .cloned()
            .collect();
        self.sessions.retain(|date, _| used.contains(date));
    }

    /// The figures of another document were measured now, beside a companion.
    pub(super) fn beside_companion(&mut self, other: Self) {
        self.busy.extend(other.values);
        self.busy_measured = Some(self.date.clone());
    }

    /// A section that is made of figures which were measured before: it is as old as they are.
    pub(super) fn derive(&mut self, code: u8, section: Section) {
        let former = self.sections.remove(&code);
        let measured = former.map(|former| former.measured).unwrap_or_default();
        self.sections.insert(
            code,
            Section {
                measured,
                ..section
            },
        );
    }

    /// The figures of these sections were measured now.
    pub(super) fn dated(&mut self, codes: impl IntoIterator<Item = u8>) {
        for code in codes {
            self.put(code, Section::default());
        }
    }

    /// A figure that was noted for other sections.
    pub(super) fn known(&self, name: &str) -> Option<f64> {
        self.values.get(name).copied()
    }

    /// The number at the beginning of a cell: of the first row that begins with these cells, in the
    /// first column of this name.
    pub(super) fn cell(&self, code: u8, row: &[&str], column: &str) -> Option<f64> {
        let section = self.sections.get(&code)?;
        let place = section.head.iter().position(|name| name == column)?;
        let is_it = |cells: &&Vec<String>| row.iter().zip(*cells).all(|(one, cell)| one == cell);
        number_in(section.rows.iter().find(is_it)?.get(place)?)
    }

    /// All rows of a section.
    pub(super) fn rows(&self, code: u8) -> &[Vec<String>] {
        self.sections
            .get(&code)
            .map_or(&[], |section| &section.rows)
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
            lines.push(format!("{}{}", label(*code, " "), section.title));
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
        for (name, svg) in self.figures(&stem) {
            let file = path.with_file_name(name);
            write(&file, svg)?;
        }
        write(path, &self.markdown(&stem))
    }

    /// The figures, by the names of their files.
    pub(super) fn figures(&self, stem: &str) -> Vec<(String, &str)> {
        let plots = self.sections.values().flat_map(|section| &section.plots);
        plots.map(|plot| (plot.file(stem), &*plot.svg)).collect()
    }

    /// The report.
    pub(super) fn markdown(&self, stem: &str) -> String {
        let mut text = format!("{HEAD}\nMachine: {}.\n\n", self.machine);
        for (date, origin) in &self.sessions {
            let _ = writeln!(text, "- Measured {date}: {}.", origin.words());
        }
        text += &claims::section(claims(self));
        for (code, section) in &self.sections {
            section.markdown(*code, stem, &mut text);
            if section.measured != self.date && !section.measured.is_empty() {
                let _ = write!(text, "\nMeasured {}.\n", section.measured);
            }
        }
        text += &by_hand(&self.notes);
        text
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
        let _ = write!(text, "\n## {}{}\n\n", label(code, ": "), self.title);
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

/// The names of the paper's tables and figures; sections that are not the paper's have no code.
fn label(code: u8, then: &str) -> String {
    if code <= PAPER {
        format!("MR{code}{then}")
    } else {
        String::new()
    }
}

/// The last of the paper's codes.
const PAPER: u8 = 17;

/// A number of three digits or so.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// The number at the beginning of a cell.
fn number_in(cell: &str) -> Option<f64> {
    let end = cell.find(|c: char| !(c.is_ascii_digit() || "+-.".contains(c)));
    cell[..end.unwrap_or(cell.len())].parse().ok()
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
programs of `lab/apps/mirage`. S: what comes in is handed to another thread; I: the thread that received it handles it. H: each packet of 1 KiB is
acknowledged; B: packets are blasted, one acknowledgement for the page. C: compression. Ratios are ours to theirs.
`--keep docs/papers/mirage.json` keeps what was measured, so that parts can be measured again without the others (`--parts`);
`--from docs/papers/mirage.json` in its place writes the report again from the kept figures, on any machine.
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
        document.put(3, section);
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

    #[test]
    fn numbers_are_found_in_cells() {
        assert_eq!(number_in("-86.2 %"), Some(-86.2));
        assert_eq!(number_in("0.0680 (0.5 ms)"), Some(0.068));
        assert_eq!(number_in("-"), None);
        let mut document = Document::new();
        let mut section = Section::new("", &["A", "B", "C"]);
        section.row(["x".to_owned(), "2".to_owned(), "30".to_owned()]);
        document.put(9, section);
        assert_eq!(document.cell(9, &["x", "2"], "C"), Some(30.0));
        assert_eq!(document.cell(9, &["x", "3"], "C"), None);
    }

    /// The shipped report and its figures are what the command makes of the shipped JSON.
    #[test]
    fn the_report_of_mirage_is_made_of_its_json() {
        use crate::paper::tests::{is_shipped, papers};
        let document = super::super::kept(&papers().join("mirage.json")).unwrap();
        is_shipped("mirage.md", &document.markdown("mirage"));
        for (file, svg) in document.figures("mirage") {
            is_shipped(&file, svg);
        }
    }

    #[test]
    fn what_was_measured_before_says_when() {
        let mut document = Document::new();
        document.date = "2001-02-03T04:05:06Z".to_owned();
        document.put(3, Section::new("Old", &["A"]));
        let mut document = document.renewed();
        document.put(4, Section::new("New", &["A"]));
        assert_eq!(document.sections[&3].measured, "2001-02-03T04:05:06Z");
        assert_eq!(document.sections[&4].measured, document.date);
        // Kept before sections knew.
        document.sections.get_mut(&4).unwrap().measured.clear();
        let before = document.date.clone();
        assert_eq!(document.renewed().sections[&4].measured, before);
    }
}
