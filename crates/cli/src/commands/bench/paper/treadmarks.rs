//! `bench paper treadmarks`: the tables TR1 to TR8, as far as they can be
//! measured, beside those of Keleher, Cox, Dwarkadas and Zwaenepoel, 1994.

mod basics;
mod document;
mod literature;
mod program;
pub(super) mod quota;
mod run;
mod tables;

use crate::cli::{Format, Global};
use crate::exit::Exit;
use crate::output;
use crate::sandbox::Plan;
use anyhow::{Context, Result, ensure};
use clap::Args;
use document::{Document, Limited, Substrate};
use pagemesh::Policy;
use program::{PROGRAMS, Program};
use quota::Quota;
use run::{Place, Stand};
use std::path::PathBuf;
use std::time::Duration;

/// Policies to compare, ours and those that are to come.
const POLICIES: [&str; 3] = ["sequential", "release", "eager"];

/// How the nodes of the last part are slowed down.
const SHARE: f64 = 0.2;

/// Measure TreadMarks' programs
#[derive(Args)]
#[command(
    after_help = "The programs are those of apps/, built by `make build` or `make -C apps`. Nodes that \
                  run at full speed have a processor each; as many as there are processors make \
                  sense. Slow nodes need root and control groups for processors."
)]
pub(super) struct Treadmarks {
    /// Where the programs are
    #[arg(long, value_name = "DIRECTORY", default_value = "apps/build")]
    programs: PathBuf,
    /// Where their data is
    #[arg(long, value_name = "DIRECTORY", default_value = "apps/data")]
    data: PathBuf,
    /// Only these programs
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Only these policies; what is not built is left out in any case
    #[arg(long, value_delimiter = ',', default_values = POLICIES, value_name = "NAME")]
    policies: Vec<String>,
    /// Numbers of nodes at full speed
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2], value_name = "N")]
    nodes: Vec<usize>,
    /// Numbers of nodes with a fifth of a processor each; 0 for none
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8], value_name = "N")]
    slow: Vec<usize>,
    /// Larger problems, as suit processors of today; the paper's by default
    #[arg(long)]
    large: bool,
    /// Times each run is repeated; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Leave the basic operations out
    #[arg(long)]
    no_basics: bool,
    /// Write a report in Markdown
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

impl Treadmarks {
    pub(super) fn run(self, global: &Global) -> Result<Exit> {
        let mut document = Document::new(self.large);
        if !self.no_basics {
            document.basics = basics::measure()?;
        }
        let policies = self.policies(&mut document)?;
        self.full_speed(&policies, &mut document)?;
        self.substrates(&policies, &mut document)?;
        self.slow_nodes(&policies, &mut document)?;
        if let Some(path) = &self.report {
            let written = std::fs::write(path, tables::markdown(&document));
            written.with_context(|| format!("cannot write {}", path.display()))?;
        }
        match global.output {
            Format::Json => output::json(serde_json::to_value(&document)?)?,
            Format::Table | Format::Wide => output::lines(tables::plain(&document))?,
        }
        Ok(Exit::OK)
    }

    /// The policies that this version has.
    fn policies(&self, document: &mut Document) -> Result<Vec<String>> {
        let built = |name: &String| name.parse::<Policy>().is_ok();
        let (built, missing): (Vec<_>, Vec<_>) = self.policies.iter().cloned().partition(built);
        ensure!(!built.is_empty(), "none of these policies is built");
        for name in missing {
            document.missing.push(format!("policy `{name}`: not built"));
        }
        Ok(built)
    }

    fn programs(&self) -> impl Iterator<Item = &'static Program> {
        let wanted = |program: &&Program| {
            self.only.is_empty() || self.only.iter().any(|name| name == program.name)
        };
        PROGRAMS.iter().filter(wanted)
    }

    fn place(&self) -> Place<'_> {
        Place {
            programs: &self.programs,
            data: &self.data,
            large: self.large,
        }
    }

    /// TR2, TR3, TR4, TR8: nodes with a processor each.
    fn full_speed(&self, policies: &[String], document: &mut Document) -> Result<()> {
        for program in self.programs() {
            let alone = self.median(|| self.place().alone(program, None))?;
            document.alone.push((program.name, alone));
            for nodes in &self.nodes {
                let stand = Stand::start(&Plan::new(*nodes), None)?;
                for policy in policies {
                    let mut runs = Vec::new();
                    for _ in 0..self.rounds {
                        runs.push(self.place().together(&stand, program, policy, alone)?);
                    }
                    runs.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
                    document.runs.push(runs.swap_remove(runs.len() / 2));
                }
            }
        }
        Ok(())
    }

    /// TR7: Water on different networks.
    fn substrates(&self, policies: &[String], document: &mut Document) -> Result<()> {
        let Some(water) = self.programs().find(|program| program.name == "water") else {
            return Ok(());
        };
        let Some(nodes) = self.nodes.iter().max().copied().filter(|nodes| *nodes > 1) else {
            return Ok(());
        };
        let plain = Plan::new(nodes);
        let mut sealed = plain.clone();
        sealed.sealed = true;
        let mut far = plain.clone();
        far.impair.delay = Duration::from_micros(200);
        for (name, plan) in [
            ("plain", plain),
            ("sealed", sealed),
            ("200 us further", far),
        ] {
            let stand = Stand::start(&plan, None)?;
            for policy in policies {
                let run = self.place().together(&stand, water, policy, 0.0)?;
                document.substrates.push(Substrate { name, run });
            }
        }
        Ok(())
    }

    /// TR2 for more nodes than there are processors.
    fn slow_nodes(&self, policies: &[String], document: &mut Document) -> Result<()> {
        let counts: Vec<_> = self
            .slow
            .iter()
            .copied()
            .filter(|count| *count > 0)
            .collect();
        let Some(most) = counts.iter().max().copied() else {
            return Ok(());
        };
        let quota = match Quota::new(most, SHARE) {
            Ok(quota) => quota,
            Err(error) => {
                document.missing.push(format!("slow nodes: {error:#}"));
                return Ok(());
            }
        };
        let one = self.median(|| quota.burn(1))?;
        let mut ceilings = Vec::new();
        for nodes in &counts {
            ceilings.push(one / self.median(|| quota.burn(*nodes))?);
        }
        for program in self.programs().filter(|program| program.speedup.is_some()) {
            let alone = self.place().alone(program, Some(&quota))?;
            for (nodes, ceiling) in counts.iter().zip(&ceilings) {
                let mut plan = Plan::new(*nodes);
                plan.waiting = Some("block".to_owned());
                let stand = Stand::start(&plan, Some(&quota))?;
                for policy in policies {
                    let run = self.place().together(&stand, program, policy, alone)?;
                    document.limited.push(Limited::new(run, *ceiling));
                }
            }
        }
        Ok(())
    }

    /// The median of some measurements.
    fn median(&self, mut measure: impl FnMut() -> Result<f64>) -> Result<f64> {
        let mut all = Vec::new();
        for _ in 0..self.rounds {
            all.push(measure()?);
        }
        all.sort_by(f64::total_cmp);
        Ok(all[all.len() / 2])
    }
}
