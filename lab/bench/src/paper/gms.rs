//! `bench paper gms`: what Feeley and others measured in 1995 (GR1 to GR13), as far as it can be measured,
//! beside their figures.

mod claims;
mod epochs;
mod literature;
mod model;
mod models;
mod nodes;
mod programs;
mod shared;
mod tables;

use super::figures::Figures;
use anyhow::Result;
use clap::{Args, ValueEnum};
use pagemesh_cli::{Exit, Global};
use std::path::PathBuf;

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
    /// Measure beside a companion that takes a tenth of each processor in bursts: figures for a table
    /// of their own, beside those of quiet processors
    #[arg(long)]
    busy: bool,
    /// Keep what was measured in this file, and take from it what is not measured now
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// Write a report in Markdown
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Measure nothing: tables and report are of this file, which --keep wrote on any machine
    #[arg(long, value_name = "FILE", conflicts_with_all = ["keep", "parts"])]
    from: Option<PathBuf>,
}

const BENCH: &str = "paper gms";

/// A part of the measurements, which `--parts` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// GR1 to GR3: getpage and putpage, reads of private pages beside the disk
    Costs,
    /// GR1, GR2, GR4: pages of files that nodes cache for each other
    Shared,
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
    const ALL: [Self; 7] = [
        Self::Costs,
        Self::Shared,
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
            Self::Shared => "shared",
            Self::Epochs => "epochs",
            Self::Programs => "programs",
            Self::Skew => "skew",
            Self::Clients => "clients",
            Self::Model => "model",
        }
    }

    fn measure(self, document: &mut Figures) -> Result<()> {
        match self {
            Self::Costs => nodes::costs(document),
            Self::Shared => shared::measure(document),
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
        let document = match &self.from {
            Some(path) => Figures::read(BENCH, path)?,
            None => self.measure()?,
        };
        let text = tables::markdown(&document);
        document.show(&text, self.report.as_deref(), global.output)
    }

    fn measure(&self) -> Result<Figures> {
        let parts = self.parts.iter().map(|part| {
            let work = |document: &mut Figures| part.measure(document);
            (part.name(), work)
        });
        Figures::measured(BENCH, self.keep.as_deref(), self.busy, parts)
    }
}

/// The claims of the figures that are kept in `docs/papers`.
#[cfg(test)]
pub(super) fn shipped_claims() -> Vec<super::claims::Claim> {
    claims::all(&shipped())
}

#[cfg(test)]
fn shipped() -> Figures {
    Figures::read(BENCH, &super::tests::papers().join("gms.json")).unwrap()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_report_of_gms_is_made_of_its_json() {
        super::super::tests::is_shipped("gms.md", &super::tables::markdown(&super::shipped()));
    }

    #[test]
    fn every_code_has_a_claim_or_says_why_it_has_none() {
        let empty = super::Figures::new(super::BENCH);
        for document in [&empty, &super::shipped()] {
            let claims = super::claims::all(document);
            super::super::tests::all_have_claims("GR", 1..=13, &claims);
        }
    }
}
