//! `bench paper mether`: the figures ER0 to ER8 of Minnich and Farber, 1993, as far as they can be
//! measured, beside theirs.

mod claims;
mod document;
mod literature;
mod protocol;
mod run;
mod tables;

use super::super::boards::Running;
use super::figures::Measured;
use super::origin::Origin;
use super::write;
use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use document::Document;
use pagemesh_cli::Exit;
use pagemesh_cli::output;
use pagemesh_cli::sandbox::{Plan, Sandbox};
use pagemesh_cli::{Format, Global};
use protocol::PROTOCOLS;
use std::path::PathBuf;

/// Measure Mether's protocols
#[derive(Args)]
#[command(
    after_help = "The programs are those of lab/apps/mether, built by `make build` or `make -C lab/apps`. Both parts \
                  together take a minute or two; with --keep they can be measured one after the other."
)]
pub(super) struct Mether {
    /// Where the programs are
    #[arg(
        long,
        value_name = "DIRECTORY",
        default_value = "lab/apps/build/mether"
    )]
    programs: PathBuf,
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::ALL)]
    parts: Vec<Part>,
    /// Times each run is repeated; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Count up to here
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    to: u32,
    /// Stop counting after so many seconds: one of the protocols never finished
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    bound: u32,
    /// Rows and columns of the solver's grid
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(8..=16384))]
    grid: u32,
    /// Steps of the solver
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    iterations: u32,
    /// Measure beside a companion that takes a tenth of each processor in bursts: figures for a table
    /// of their own, beside those of quiet processors
    #[arg(long)]
    busy: bool,
    /// Numbers of nodes for the solver
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 3, 4], value_name = "N")]
    nodes: Vec<usize>,
    /// Keep what was measured in this file, and take from it what is not measured now
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// Write a report in Markdown
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Measure nothing: tables and report are of this file, which --keep wrote on any machine
    #[arg(long, value_name = "FILE", conflicts_with_all = ["keep", "parts", "busy"])]
    from: Option<PathBuf>,
}

/// A part of the measurements, which `--parts` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// ER0 to ER5, ER7, ER8: two processes count together
    Count,
    /// ER6: the sparse solver
    Solver,
}

impl Part {
    const ALL: [Self; 2] = [Self::Count, Self::Solver];

    fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Solver => "solver",
        }
    }
}

impl Mether {
    pub(super) fn run(self, global: &Global) -> Result<Exit> {
        ensure!(
            self.nodes.iter().all(|nodes| (1..=64).contains(nodes)),
            "--nodes are 1 to 64"
        );
        let document = match &self.from {
            Some(path) => Document::read(path)?,
            None => self.measure()?,
        };
        if let Some(path) = &self.keep {
            write(path, &(serde_json::to_string_pretty(&document)? + "\n"))?;
        }
        if let Some(path) = &self.report {
            write(path, &tables::markdown(&document))?;
        }
        match global.output {
            Format::Json => output::json(serde_json::to_value(&document)?)?,
            Format::Table | Format::Wide => output::lines(tables::plain(&document))?,
        }
        Ok(Exit::OK)
    }

    fn measure(&self) -> Result<Document> {
        let mut document = Document::kept(self.keep.as_deref())?;
        let _companion = self.busy.then(Running::start).transpose()?;
        for part in &self.parts {
            let origin = Origin::now();
            match part {
                Part::Count => self.count(&mut document)?,
                Part::Solver => self.solve(&mut document)?,
            }
            let parts = &mut document.runs(self.busy).parts;
            parts.insert(part.name().to_owned(), Measured::ended(origin));
        }
        Ok(document)
    }

    /// Every protocol in turn, and again: what else the machine does hits all alike.
    fn count(&self, document: &mut Document) -> Result<()> {
        let program = self.programs.join("count");
        let words = [
            format!("--to={}", self.to),
            format!("--bound={}", self.bound),
        ];
        let sandbox = Sandbox::start(&Plan::new(2)).context("cannot set the stage")?;
        let mut rounds = vec![Vec::new(); PROTOCOLS.len()];
        for _ in 0..self.rounds {
            for (protocol, runs) in PROTOCOLS.iter().zip(&mut rounds) {
                runs.push(run::count(&sandbox, protocol, &program, &words)?);
            }
        }
        if !self.busy {
            document.to = self.to;
            document.bound = self.bound;
            document.rounds = self.rounds;
        }
        document.runs(self.busy).counts = rounds.into_iter().map(run::median).collect();
        Ok(())
    }

    fn solve(&self, document: &mut Document) -> Result<()> {
        let program = self.programs.join("solver");
        let words = [
            format!("--n={}", self.grid),
            format!("--iterations={}", self.iterations),
        ];
        let mut alone = Vec::new();
        let mut solved = Vec::new();
        for nodes in &self.nodes {
            let sandbox = Sandbox::start(&Plan::new(*nodes)).context("cannot set the stage")?;
            let mut runs = Vec::new();
            for _ in 0..self.rounds {
                alone.push(run::solve_alone(&program, &words)?);
                runs.push(run::solve(&sandbox, &program, &words)?);
            }
            solved.push(run::median_solved(runs));
        }
        alone.sort_by(f64::total_cmp);
        if !self.busy {
            document.grid = self.grid;
            document.iterations = self.iterations;
        }
        let runs = document.runs(self.busy);
        runs.solver_alone = alone.get(alone.len() / 2).copied();
        runs.solver = solved;
        Ok(())
    }
}

/// The claims beside the shipped figures.
#[cfg(test)]
pub(super) fn shipped_claims() -> Vec<super::claims::Claim> {
    claims::all(&shipped())
}

#[cfg(test)]
fn shipped() -> Document {
    Document::read(&super::tests::papers().join("mether.json")).unwrap()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{all_have_claims, none_is_judged};
    use super::*;

    #[test]
    fn the_report_of_mether_is_made_of_its_json() {
        super::super::tests::is_shipped("mether.md", &tables::markdown(&shipped()));
    }

    #[test]
    fn every_code_has_a_claim_and_none_is_judged_without_figures() {
        let empty = Document::kept(None).unwrap();
        for document in [&empty, &shipped()] {
            all_have_claims("ER", 0..=8, &claims::all(document));
        }
        none_is_judged(&claims::all(&empty));
    }
}
