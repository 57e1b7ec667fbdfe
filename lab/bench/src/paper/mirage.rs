//! `bench paper mirage`: the tables and figures MR1 to MR17 of Fleisch, Hyde and Juul,
//! 1994, as far as they can be measured, beside theirs.

mod basics;
mod battleship;
mod codec;
mod document;
mod faults;
mod forecast;
mod literature;
mod matrix;
mod plot;
mod programs;
mod summary;

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
    /// Keep what was measured in this file, and take from it what is not measured now
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// Write a report in Markdown, and its figures beside it
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
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
        let mut document = self.before()?;
        for part in &self.parts {
            match part {
                Part::Faults => basics::measure(&mut document)?,
                Part::Codec => codec::measure(&mut document)?,
                Part::Battleship => {
                    battleship::measure(&self.programs, self.rounds, &mut document)?;
                }
                Part::Matrix => matrix::measure(&self.programs, &mut document)?,
                Part::Forecast => {
                    forecast::measure(&self.programs, self.rounds, &mut document)?;
                }
            }
        }
        summary::add(&mut document);
        if let Some(path) = &self.keep {
            let text = serde_json::to_string_pretty(&document)?;
            std::fs::write(path, text).with_context(|| cannot_write(path))?;
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

    /// The kept document, if it is of this machine.
    fn before(&self) -> Result<Document> {
        let Some(path) = self.keep.as_ref().filter(|path| path.exists()) else {
            return Ok(Document::new());
        };
        let text = std::fs::read_to_string(path)?;
        let kept: Document = serde_json::from_str(&text)
            .with_context(|| format!("{} is no file that --keep wrote", path.display()))?;
        let new = Document::new();
        Ok(if kept.machine == new.machine {
            kept.renewed()
        } else {
            new
        })
    }
}

fn cannot_write(path: &std::path::Path) -> String {
    format!("cannot write {}", path.display())
}
