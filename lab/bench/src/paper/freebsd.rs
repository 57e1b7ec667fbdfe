//! `bench paper freebsd`: what Souto and Stark measured in 1997 (FR1 to FR7), beside their figures,
//! and the messages of the variant of a write that PageMesh refuses (F21, F22).

mod bounce;
mod claims;
mod contention;
mod copies;
mod literature;
mod loss;
mod tables;

use super::figures::Figures;
use anyhow::Result;
use clap::{Args, ValueEnum};
use pagemesh_cli::{Exit, Global};
use std::path::PathBuf;

/// Measure the tables of the FreeBSD DSM
#[derive(Args)]
#[command(
    after_help = "All parts together take some minutes; with --keep they can be measured one after the other. Twelve nodes \
                  share the processors of this host."
)]
pub(super) struct Freebsd {
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::ALL)]
    parts: Vec<Part>,
    /// Reads and writes of FR1; the other parts do as much less, or more
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    operations: u32,
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
    #[arg(long, value_name = "FILE", conflicts_with_all = ["keep", "parts", "operations", "busy"])]
    from: Option<PathBuf>,
}

const BENCH: &str = "paper freebsd";

/// A part of the measurements, which `--parts` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// FR1, FR2, FR4, FR7: pages that bounce between two nodes
    Basic,
    /// FR3, FR4: 2 to 11 copies are taken back
    Copies,
    /// F21, F22: the messages alone of both ways to take them back
    Ways,
    /// FR6: datagrams that are lost, doubled, reordered
    Loss,
    /// FR5: nodes that contend for a page
    Contention,
}

impl Part {
    const ALL: [Self; 5] = [
        Self::Basic,
        Self::Copies,
        Self::Ways,
        Self::Loss,
        Self::Contention,
    ];

    /// As its numbers begin.
    fn name(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::Copies => "copies",
            Self::Ways => "ways",
            Self::Loss => "loss",
            Self::Contention => "contention",
        }
    }

    fn measure(self, operations: u32, document: &mut Figures) -> Result<()> {
        match self {
            Self::Basic => bounce::measure(operations, document),
            Self::Copies => copies::measure(operations, document),
            Self::Ways => copies::ways(operations, document),
            Self::Loss => loss::measure(operations, document),
            Self::Contention => contention::measure(operations, document),
        }
    }
}

impl Freebsd {
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
            let work = |document: &mut Figures| part.measure(self.operations, document);
            (part.name(), work)
        });
        Figures::measured(BENCH, self.keep.as_deref(), self.busy, parts)
    }
}

/// The claims beside the shipped figures.
#[cfg(test)]
pub(super) fn shipped_claims() -> Vec<super::claims::Claim> {
    claims::all(&shipped())
}

#[cfg(test)]
fn shipped() -> Figures {
    Figures::read(BENCH, &super::tests::papers().join("freebsd.json")).unwrap()
}

#[cfg(test)]
mod tests {
    use super::super::claims::Verdict;
    use super::super::tests::{all_have_claims, none_is_judged};
    use super::*;

    #[test]
    fn the_report_of_freebsd_is_made_of_its_json() {
        super::super::tests::is_shipped("freebsd.md", &tables::markdown(&shipped()));
    }

    #[test]
    fn every_code_has_a_claim_and_none_is_judged_without_figures() {
        let empty = Figures::new(BENCH);
        for document in [&empty, &shipped()] {
            all_have_claims("FR", 1..=7, &claims::all(document));
        }
        none_is_judged(&claims::all(&empty));
        assert!(tables::markdown(&empty).contains("0 reproduce"));
    }

    /// The shipped figures, of which all verdicts of a code turn when its figures do.
    #[test]
    fn verdicts_follow_the_figures() {
        let mut document = shipped();
        let verdicts = |document: &Figures, code: &str| -> Vec<Verdict> {
            let claims = claims::all(document).into_iter();
            let of = claims.filter(|claim| claim.code == code);
            of.map(|claim| claim.verdict).collect()
        };
        assert_eq!(verdicts(&document, "FR6"), [Verdict::Reproduced]);
        document.put("loss loss=5% wrong words", 1.0);
        assert_eq!(verdicts(&document, "FR6"), [Verdict::Not]);
        document.put("basic block read datagrams", 3.0);
        assert_eq!(verdicts(&document, "FR4")[0], Verdict::Not);
    }
}
