//! What was measured: numbers by name, and when each part was; and the same beside a companion.

use super::super::boards::Running;
use super::super::report::Machine;
use super::origin::Origin;
use super::write;
use anyhow::{Context, Result, ensure};
use pagemesh_cli::{Exit, Format, output};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

/// One run of a whole benchmark, or several put together.
#[derive(Serialize, Deserialize)]
pub(super) struct Figures {
    bench: String,
    pub(super) machine: String,
    /// Parts that were measured.
    pub(super) parts: BTreeMap<String, Measured>,
    values: BTreeMap<String, f64>,
    /// The same beside a companion that takes a tenth of each processor.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) busy_parts: BTreeMap<String, Measured>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    busy_values: BTreeMap<String, f64>,
}

/// When a part was measured, and of which sources.
#[derive(Serialize, Deserialize)]
pub(super) struct Measured {
    /// In UTC.
    pub(super) date: String,
    pub(super) origin: Origin,
}

impl Measured {
    /// The measurement ends now.
    pub(super) fn ended(mut origin: Origin) -> Self {
        origin.end();
        let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        Self { date, origin }
    }
}

impl Figures {
    /// None yet, of this benchmark.
    pub(super) fn new(bench: &str) -> Self {
        Self {
            bench: bench.to_owned(),
            machine: Machine::this().to_string(),
            parts: BTreeMap::new(),
            values: BTreeMap::new(),
            busy_parts: BTreeMap::new(),
            busy_values: BTreeMap::new(),
        }
    }

    /// The kept figures of this benchmark, if they are of this machine.
    pub(super) fn kept(bench: &str, path: Option<&Path>) -> Result<Self> {
        let new = Self::new(bench);
        let Some(path) = path.filter(|path| path.exists()) else {
            return Ok(new);
        };
        let kept = Self::read(bench, path)?;
        Ok(if kept.machine == new.machine {
            kept
        } else {
            new
        })
    }

    /// A file that `--keep` wrote on any machine.
    pub(super) fn read(bench: &str, path: &Path) -> Result<Self> {
        let name = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        let read: Self = serde_json::from_str(&text)
            .with_context(|| format!("{name} is no file that --keep wrote"))?;
        let other = &read.bench;
        ensure!(other == bench, "{name} is of `{other}`, not of `{bench}`");
        Ok(read)
    }

    pub(super) fn keep(&self, path: &Path) -> Result<()> {
        write(path, &(serde_json::to_string_pretty(self)? + "\n"))
    }

    /// A part is measured anew: forgets its numbers, which have its name in front.
    pub(super) fn begin(&mut self, part: &str) {
        let begin = format!("{part} ");
        self.values.retain(|name, _| !name.starts_with(&begin));
    }

    /// A part was measured.
    pub(super) fn end(&mut self, part: &str, origin: Origin) {
        self.parts.insert(part.to_owned(), Measured::ended(origin));
    }

    /// Measures parts, which have names, one after the other. They are kept in a file, if so, which has
    /// those that are not measured now.
    pub(super) fn measured<W: FnOnce(&mut Self) -> Result<()>>(
        bench: &str,
        keep: Option<&Path>,
        busy: bool,
        parts: impl IntoIterator<Item = (&'static str, W)>,
    ) -> Result<Self> {
        let mut figures = Self::kept(bench, keep)?;
        let _companion = busy.then(Running::start).transpose()?;
        for (part, work) in parts {
            figures.measure(part, busy, work)?;
            // What comes next may fail.
            if let Some(path) = keep {
                figures.keep(path)?;
            }
        }
        Ok(figures)
    }

    /// Writes their report, if so, and prints it, or the figures.
    pub(super) fn show(&self, text: &str, report: Option<&Path>, format: Format) -> Result<Exit> {
        if let Some(path) = report {
            write(path, text)?;
        }
        match format {
            Format::Json => output::json(serde_json::to_value(self)?)?,
            Format::Table | Format::Wide => output::lines(text.lines())?,
        }
        Ok(Exit::OK)
    }

    /// Measures a part. Beside a companion its numbers replace those of such a run before.
    pub(super) fn measure(
        &mut self,
        part: &str,
        busy: bool,
        work: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let origin = Origin::now();
        if !busy {
            self.begin(part);
            work(self)?;
            self.end(part, origin);
            return Ok(());
        }
        let mut beside = Self::new(&self.bench);
        work(&mut beside)?;
        beside.end(part, origin);
        let begin = format!("{part} ");
        self.busy_values.retain(|name, _| !name.starts_with(&begin));
        self.busy_values.extend(beside.values);
        self.busy_parts.extend(beside.parts);
        Ok(())
    }

    pub(super) fn put(&mut self, name: impl Into<String>, value: f64) {
        self.values.insert(name.into(), value);
    }

    pub(super) fn get(&self, name: &str) -> Option<f64> {
        self.values.get(name).copied()
    }

    /// The number beside a companion.
    pub(super) fn busy(&self, name: &str) -> Option<f64> {
        self.busy_values.get(name).copied()
    }

    /// One number over another.
    pub(super) fn ratio(&self, name: &str, to: &str) -> Option<f64> {
        Some(self.get(name)? / self.get(to)?)
    }

    /// Lines that say when each part was measured, of which sources, at which load.
    pub(super) fn origins(&self) -> String {
        let mut text = String::new();
        for (kind, parts) in [("", &self.parts), (" beside a companion", &self.busy_parts)] {
            for (part, measured) in parts {
                let (date, origin) = (&measured.date, measured.origin.words());
                text += &format!("- Part `{part}`{kind}: {date}, {origin}.\n");
            }
        }
        text
    }

    /// The section of numbers that were measured in both ways; nothing if none was.
    pub(super) fn beside_companion<'a>(
        &self,
        shown: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> String {
        let rows: Vec<_> = shown
            .into_iter()
            .filter_map(|(title, name)| {
                let (quiet, busy) = (self.get(name)?, self.busy(name)?);
                Some(format!(
                    "| {title} | {} | {} | {:.2} |\n",
                    number(quiet),
                    number(busy),
                    busy / quiet
                ))
            })
            .collect();
        if rows.is_empty() {
            return String::new();
        }
        format!(
            "\n## Beside a companion\n\nThe companion takes a tenth of each processor in bursts.\n\n\
             | FIGURE | WITHOUT IT | BESIDE IT | RATIO |\n|---|---|---|---|\n{}",
            rows.concat()
        )
    }
}

/// A section with one table.
pub(super) fn table(title: &str, head: &[&str], rows: impl AsRef<[Vec<String>]>) -> String {
    let mut text = format!(
        "\n## {title}\n\n| {} |\n|{}\n",
        head.join(" | "),
        "---|".repeat(head.len())
    );
    for row in rows.as_ref() {
        text += &format!("| {} |\n", row.join(" | "));
    }
    text
}

/// A number of three digits or so.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 || size == 0.0 => format!("{value:.2}"),
        size if size >= 0.001 => format!("{value:.4}"),
        _ => format!("{value:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_beside_a_companion_stands_beside_the_rest() {
        let mut figures = Figures::new("paper test");
        let measure = |figures: &mut Figures, busy, value| {
            let put = |figures: &mut Figures| {
                figures.put("part a us", value);
                Ok(())
            };
            figures.measure("part", busy, put).unwrap();
        };
        measure(&mut figures, false, 10.0);
        assert_eq!(figures.beside_companion([("a", "part a us")]), "");
        measure(&mut figures, true, 15.0);
        let section = figures.beside_companion([("a", "part a us"), ("b", "part b us")]);
        assert!(
            section.ends_with("| a | 10.0 | 15.0 | 1.50 |\n"),
            "{section}"
        );
        assert_eq!(figures.origins().lines().count(), 2);
        measure(&mut figures, false, 30.0);
        assert_eq!(figures.busy("part a us"), Some(15.0));
        assert_eq!(figures.get("part a us"), Some(30.0));
    }

    #[test]
    fn figures_of_another_paper_are_refused() {
        let path = std::env::temp_dir().join(format!("figures-{}.json", std::process::id()));
        Figures::new("paper one").keep(&path).unwrap();
        let other = Figures::read("paper two", &path).err().unwrap();
        assert!(other.to_string().contains("is of `paper one`"), "{other}");
        assert!(Figures::read("paper one", &path).is_ok());
        std::fs::write(&path, "{}").unwrap();
        assert!(Figures::read("paper one", &path).is_err());
        std::fs::remove_file(&path).unwrap();
    }
}
