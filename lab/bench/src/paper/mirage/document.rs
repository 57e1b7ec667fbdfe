//! The measurements: a section for each table or figure of the paper.

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
    /// When, in UTC.
    #[serde(default)]
    measured: String,
    /// Notes for the reader; also the parts that could not be measured, and why.
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
        let date = Self::new().date;
        Self { date, ..self }
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
        let mut text = format!(
            "{HEAD}\nMeasured {} on {}, but for what says so.\n",
            self.date, self.machine
        );
        for (code, section) in &self.sections {
            section.markdown(*code, &stem, &mut text);
            if section.measured != self.date && !section.measured.is_empty() {
                let _ = write!(text, "\nMeasured {}.\n", section.measured);
            }
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
programs of `lab/apps/mirage`. S: what comes in is handed to another thread; I: it is handled by whoever received it. H: each packet of 1 KiB is
acknowledged; B: packets are blasted, one acknowledgement for the page. C: compression. Ratios are ours to theirs.
What was measured is kept in `mirage.json` (`--keep`), so that parts can be measured again without the others (`--parts`).
";

const TAIL: &str = "
## What reproduces, and what does not

- *Handshake against blasting* (MR3, MR4) reproduces, and nearly by the paper's share: what an acknowledgement costs is a round trip through
  the same layers that the page goes through.
- *Server against interrupt level* (MR6) reproduces, and more so: the change of a thread has become cheap more slowly than everything else.
  A page in one datagram, which is what PageMesh does, saves as much again.
- *Invalidation* (MR7) is linear in the readers, as theirs is: both send one after the other and then collect.
- *Network against disk* (MR8): a page from another host's memory comes sooner than one from disk.
- *Compression* (MR9 to MR11) reproduces to the byte where it is a matter of bytes: EachN first packs at N = 11, UptoN below 3 KiB, RandN up to 600
  to 700 writes. On the paper's wire it gains more than theirs, since the codec now takes a thousandth of what it took and the wire is
  the same. Between unshaped nodes it still gains where packets are saved, since packets cost processor time; pages that go in one datagram
  have nothing to save there but zeros, and `auto` leaves them alone.
- *Battleship* (MR12 to MR14): the pattern is theirs, a read fault, a page and an upgrade for each turn. With Δ = 20 ms a turn takes two
  windows: 41.3 ms. Where windows end at clock ticks, here every 10 ms, it takes 30.0 ms if who sleeps is woken early, and 50.1 ms with a strict minimum; theirs took
  51 where 64.6 were expected, woken early, and more than expected with a strict minimum. The clocks of two sites do not tick together: what their two windows lack, or
  have too much, is one tick together. `auto` takes a hundredth of that, and less than Δ = 0 in the median, pinned and not pinned (below MR13). Single games overlap: what a turn
  takes at Δ = 0 differs by a factor of six with how the scheduler lets programs and daemons take turns. In sandboxes of their own for each game, not pinned, in turn, 15 games of
  each, it was 0.129 s with `auto` (0.083 to 0.261) and 0.249 s at 0 (0.176 to 0.812). It took three things: a window that is half of what the page
  took to come, so that two do not teach each other to hold on ever longer; that who loads from this page stores to it next, so that the right
  to store is asked for with the page ([decision 0024](../decisions/0024-auto-learns-that-stores-follow.md)); and windows as short as they are asked to be:
  daemons that sleep rounded theirs up to milliseconds until 22 November, 13:20, so that Δ = 300 µs took as long as 1 ms. Fewer invalidations are counted than turns because a node that gives ownership
  away needs no message to drop its copy. Compression saves fewer packets than theirs (requests and acknowledgements are counted and our
  page packs into two packets), and no time on a link as fast as memory. What `auto` costs there is finding out how fast the
  link is, once for each link of a daemon's life: some 30 pairs of probes in the first game. In eight sandboxes of their own, in turn, a first game took 0.358 s with `auto` and 0.323 s
  without compression (245 packets more to 7,116 of a node); five games in a row took 0.356 s each with `auto`, and 0.359 s without.
- *Matrix multiply* (MR15, MR16) does not reproduce in its speedups: a processor is some thousand times faster than theirs, a fault some
  hundred times, so there is less to compute for each page that moves, and 60 x 60 is slower on any number of sites than on one. 480 x 480
  speeds up, far below the ceiling; single runs differ by a factor of two, for an interrupted share of a processor stalls everybody who waits
  for it. Δ costs nothing there: `auto` is no slower than 0 (below MR13). Padding did not pay here: padded rows are powers of two, so more pages
  move and columns of B share cache sets, which costs more than the one page that two neighbours share.

Not shown: Δ = 0 without the guard (it cannot be turned off), MR5's split of
Mirage's VAX figures. Nodes with a processor each, three and more of them, cannot be had here: nodes with a part of a processor stand in
(MR15, MR16), and forecasts (the last two tables), whose error is known from two: a quarter at most for matrix multiply, where it changes from run to run with
what the machine does beside. For Battleship they are worth nothing: they know no scheduler, on which a turn depends more than on anything else.
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
