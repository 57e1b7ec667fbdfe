//! `bench paper gms`: what Feeley and others measured in 1995 (GR1 to GR13), as far as it can be measured,
//! beside their figures.

mod claims;
mod document;
mod epochs;
mod literature;
mod model;
mod models;
mod nodes;
mod programs;
mod tables;

use super::origin::Origin;
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use document::Document;
use pagemesh_cli::output;
use pagemesh_cli::{Exit, Format, Global};
use std::path::{Path, PathBuf};

/// Measure idle memory of the cluster as GMS's authors did
#[derive(Args)]
#[command(
    after_help = "All parts together take some minutes; with --keep they can be measured one after the other. The disk of \
                  private segments is made as much slower than the network as the paper's was, and the disk as it is stands beside it."
)]
pub(super) struct Gms {
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::ALL)]
    parts: Vec<Part>,
    /// Keep what was measured in this file, and take from it what is not measured now
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// Write a report in Markdown
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// A part of the measurements, which `--parts` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// GR1 to GR3: getpage and putpage, reads of private pages beside the disk
    Costs,
    /// GR5: epochs of real nodes in one process
    Epochs,
    /// GR6: programs with more and more idle memory
    Programs,
    /// GR9, GR11: where idle memory is, by placement
    Skew,
    /// GR12, GR13: several clients of one donor
    Clients,
    /// GR7 to GR11: a model of frames, up to 1,000 nodes
    Model,
}

impl Part {
    const ALL: [Self; 6] = [
        Self::Costs,
        Self::Epochs,
        Self::Programs,
        Self::Skew,
        Self::Clients,
        Self::Model,
    ];

    /// As its numbers begin.
    fn name(self) -> &'static str {
        match self {
            Self::Costs => "costs",
            Self::Epochs => "epochs",
            Self::Programs => "programs",
            Self::Skew => "skew",
            Self::Clients => "clients",
            Self::Model => "model",
        }
    }

    fn measure(self, document: &mut Document) -> Result<()> {
        match self {
            Self::Costs => nodes::costs(document),
            Self::Epochs => epochs::measure(document),
            Self::Programs => programs::measure(document),
            Self::Skew => nodes::skew(document),
            Self::Clients => nodes::clients(document),
            Self::Model => {
                models::measure(document);
                Ok(())
            }
        }
    }
}

impl Gms {
    pub(super) fn run(self, global: &Global) -> Result<Exit> {
        let mut document = Document::kept(self.keep.as_deref())?;
        for part in &self.parts {
            let mut origin = Origin::now();
            document.begin(part.name());
            part.measure(&mut document)?;
            origin.end();
            document.end(part.name(), origin);
            // What comes next may fail.
            if let Some(path) = &self.keep {
                write(path, &(serde_json::to_string_pretty(&document)? + "\n"))?;
            }
        }
        let text = tables::markdown(&document);
        if let Some(path) = &self.report {
            write(path, &text)?;
        }
        match global.output {
            Format::Json => output::json(serde_json::to_value(&document)?)?,
            Format::Table | Format::Wide => output::lines(text.lines())?,
        }
        Ok(Exit::OK)
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The claims of the figures that are kept in `docs/papers`.
#[cfg(test)]
pub(super) fn shipped_claims() -> Vec<super::claims::Claim> {
    claims::all(&shipped())
}

#[cfg(test)]
fn shipped() -> Document {
    let path = super::tests::papers().join("gms.json");
    Document::read(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_shipped_report_is_made_of_the_shipped_figures() {
        super::super::tests::is_shipped("gms.md", &super::tables::markdown(&super::shipped()));
    }

    #[test]
    fn every_code_has_a_claim_or_says_why_it_has_none() {
        let empty = super::document::Document::new();
        for document in [&empty, &super::shipped()] {
            let claims = super::claims::all(document);
            for code in 1..=13 {
                let code = format!("GR{code}");
                assert!(claims.iter().any(|claim| claim.code == code), "{code}");
            }
        }
    }
}
