//! `bench paper mirage`: the tables and figures MR1 to MR17 of Fleisch, Hyde and Juul,
//! 1994, as far as they can be measured, beside theirs.

mod basics;
mod battleship;
mod busy;
mod claims;
mod codec;
mod document;
mod faults;
mod forecast;
mod literature;
mod matrix;
mod parts;
mod plot;
mod programs;
mod summary;
mod trace;

use super::super::boards::Running;
use super::write;
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use document::Document;
use pagemesh_cli::Exit;
use pagemesh_cli::output;
use pagemesh_cli::{Format, Global};
use std::path::PathBuf;

/// Measure MIRAGE+'s tables
#[derive(Args)]
#[command(
    after_help = "The programs are those of lab/apps/mirage, built by `make build` or `make -C lab/apps`. All parts \
                  together take some minutes; with --keep they can be measured one after the other. \
                  Matrix multiply on more nodes than there are processors needs root and control groups."
)]
pub(super) struct Mirage {
    /// Where the programs are
    #[arg(
        long,
        value_name = "DIRECTORY",
        default_value = "lab/apps/build/mirage"
    )]
    programs: PathBuf,
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::ALL)]
    parts: Vec<Part>,
    /// Times each run of a program is repeated; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Turns of each player of Battleship; the paper's are 789, and fewer are for a quick look
    #[arg(long, default_value_t = battleship::TURNS, value_parser = clap::value_parser!(u32).range(10..=789))]
    turns: u32,
    /// Measure beside a companion that takes a tenth of each processor in bursts: figures for a table
    /// of their own, beside those of quiet processors
    #[arg(long)]
    busy: bool,
    /// Keep what was measured in this file, and take from it what is not measured now
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// Write a report in Markdown, and its figures beside it
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Measure nothing: tables and report are of this file, which --keep wrote on any machine
    #[arg(long, value_name = "FILE", conflicts_with_all = ["keep", "parts"])]
    from: Option<PathBuf>,
}

/// Parts of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// MR1 to MR8: messages, faults, invalidations
    Faults,
    /// MR9 to MR11: compression
    Codec,
    /// MR12 to MR14: Battleship, and the time window
    Battleship,
    /// MR15 and MR16: matrix multiply
    Matrix,
    /// What a simulator makes of measured costs, beside real runs and beyond them
    Forecast,
}

impl Part {
    const ALL: [Self; 5] = [
        Self::Faults,
        Self::Codec,
        Self::Battleship,
        Self::Matrix,
        Self::Forecast,
    ];
}

impl Mirage {
    pub(super) fn run(self, global: &Global) -> Result<Exit> {
        let document = match &self.from {
            Some(path) => kept(path)?,
            None => self.measure()?,
        };
        if let Some(path) = &self.keep {
            write(path, &serde_json::to_string_pretty(&document)?)?;
        }
        if let Some(path) = &self.report {
            document.write(path)?;
        }
        match global.output {
            Format::Json => output::json(serde_json::to_value(&document)?)?,
            Format::Table | Format::Wide => output::lines(document.lines())?,
        }
        Ok(Exit::OK)
    }

    /// What was kept, and all parts measured.
    fn measure(&self) -> Result<Document> {
        let mut document = self.before()?;
        if self.busy {
            let _companion = Running::start()?;
            let mut beside = Document::new();
            self.measure_parts(&mut beside)?;
            document.beside_companion(beside);
        } else {
            self.measure_parts(&mut document)?;
        }
        document.end();
        derive(&mut document);
        Ok(document)
    }

    fn measure_parts(&self, document: &mut Document) -> Result<()> {
        for part in &self.parts {
            match part {
                Part::Faults => basics::measure(document)?,
                Part::Codec => codec::measure(document)?,
                Part::Battleship => {
                    battleship::measure(&self.programs, self.turns, self.rounds, document)?;
                }
                Part::Matrix => matrix::measure(&self.programs, document)?,
                Part::Forecast => forecast::measure(&self.programs, self.rounds, document)?,
            }
        }
        Ok(())
    }

    /// The kept document, if it is of this machine.
    fn before(&self) -> Result<Document> {
        let Some(path) = self.keep.as_ref().filter(|path| path.exists()) else {
            return Ok(Document::new());
        };
        let kept = kept(path)?;
        let new = Document::new();
        Ok(if kept.machine == new.machine {
            kept.renewed()
        } else {
            new
        })
    }
}

/// A file that `--keep` wrote, and the sections that are made of its figures.
fn kept(path: &std::path::Path) -> Result<Document> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut document = serde_json::from_str(&text)
        .with_context(|| format!("{} is no file that --keep wrote", path.display()))?;
    derive(&mut document);
    Ok(document)
}

/// The sections that are made of figures of others.
fn derive(document: &mut Document) {
    parts::add(document);
    matrix::add(document);
    codec::add_notes(document);
    summary::add(document);
    busy::add(document);
}

/// The claims beside the shipped figures.
#[cfg(test)]
pub(super) fn shipped_claims() -> Vec<super::claims::Claim> {
    let path = super::tests::papers().join("mirage.json");
    claims::claims(&kept(&path).unwrap())
}
