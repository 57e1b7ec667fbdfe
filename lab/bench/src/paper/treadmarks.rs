//! `bench paper treadmarks`: the tables TR1 to TR8, as far as they can be
//! measured, beside those of Keleher, Cox, Dwarkadas and Zwaenepoel, 1994.

mod basics;
mod claims;
mod document;
mod forecast;
mod literature;
mod program;
mod run;
mod samples;
mod tables;

use super::super::boards::Running;
use super::super::job::Stand;
use super::super::quota::Quota;
use super::write;
use anyhow::{Context, Result, anyhow, ensure};
use clap::{Args, ValueEnum};
use document::{Alone, Busy, Document, Forecast, Run};
use pagemesh::Policy;
use pagemesh_cli::Exit;
use pagemesh_cli::output;
use pagemesh_cli::sandbox::Plan;
use pagemesh_cli::{Format, Global};
use program::{PROGRAMS, Program, Size};
use run::Place;
use samples::Samples;
use std::path::PathBuf;
use std::time::Duration;

/// Policies to compare, ours and those that are to come.
const POLICIES: [&str; 4] = ["sequential", "release", "invalidate", "eager"];

/// How the nodes of the last part are slowed down.
const SHARE: f64 = 0.2;

/// Measure TreadMarks' programs
#[derive(Args)]
#[command(
    after_help = "The programs are those of lab/apps/, built by `make build` or `make -C lab/apps`. All parts \
                  together take some minutes; with --keep they can be measured one after the other, \
                  --only some programs at a time. Nodes that run at full speed have a processor \
                  each; as many as there are processors make sense. Slow nodes need root and control \
                  groups for processors."
)]
pub(super) struct Treadmarks {
    /// Where the programs are
    #[arg(long, value_name = "DIRECTORY", default_value = "lab/apps/build")]
    programs: PathBuf,
    /// Where their data is
    #[arg(long, value_name = "DIRECTORY", default_value = "lab/apps/data")]
    data: PathBuf,
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::ALL)]
    parts: Vec<Part>,
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
    /// Numbers of nodes to forecast; without 2 by what a kept forecast of 2 found
    #[arg(long, value_delimiter = ',', default_values_t = [2, 8, 64], value_name = "N")]
    forecast: Vec<usize>,
    /// Larger problems, as suit processors of today, beside the paper's
    #[arg(long)]
    large: bool,
    /// Forecasts of problems for 64 nodes, by what a kept forecast of smaller ones found
    #[arg(long, conflicts_with = "large")]
    huge: bool,
    /// Times each run is repeated; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
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

/// A part of the measurements, which `--parts` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// TR1: locks, barriers, faults
    Basics,
    /// TR2 to TR6, TR8: programs on nodes with a processor each
    Programs,
    /// TR2, TR8: the same beside a companion that takes a tenth of each processor in bursts
    Busy,
    /// TR5, TR6: the kernel's and the daemons' time, as `perf` sees it
    Divided,
    /// TR7: Water on different networks
    Networks,
    /// TR2: programs on nodes with a fifth of a processor each
    Slow,
    /// TR2: what programs would take on more nodes, from their own traces (Linux on x86-64)
    Forecast,
}

impl Part {
    const ALL: [Self; 7] = [
        Self::Basics,
        Self::Programs,
        Self::Busy,
        Self::Divided,
        Self::Networks,
        Self::Slow,
        Self::Forecast,
    ];
}

impl Treadmarks {
    pub(super) fn run(self, global: &Global) -> Result<Exit> {
        let document = match &self.from {
            Some(path) => Document::read(path)?,
            None => self.measure()?,
        };
        if let Some(path) = &self.keep {
            write(path, &serde_json::to_string_pretty(&document)?)?;
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

    /// What was kept, and all parts measured.
    fn measure(&self) -> Result<Document> {
        let measures =
            self.parts != [Part::Forecast] || self.forecast.contains(&forecast::MEASURED);
        ensure!(
            !self.huge || !measures,
            "problems for 64 nodes are only forecast: --parts forecast --forecast 64"
        );
        if self.parts == [Part::Basics] {
            return self.basics();
        }
        let mut document = Document::kept(self.keep.as_deref())?;
        let policies = self.policies(&mut document)?;
        for part in &self.parts {
            match part {
                Part::Basics => document.measure_basics(basics::measure)?,
                Part::Programs => self.full_speed(&policies, &mut document)?,
                Part::Busy => self.beside_companion(&policies, &mut document)?,
                Part::Divided => self.divided(&policies, &mut document)?,
                Part::Networks => self.substrates(&policies, &mut document)?,
                Part::Slow => self.slow_nodes(&policies, &mut document)?,
                Part::Forecast => self.forecasts(&mut document)?,
            }
        }
        let place = |name: &str| PROGRAMS.iter().position(|program| program.name == name);
        document.sort(|name| place(name).unwrap_or(PROGRAMS.len()));
        document.end();
        Ok(document)
    }

    /// TR1 alone. What else was kept stays, of whichever machine it is.
    fn basics(&self) -> Result<Document> {
        let kept = self.keep.as_deref().filter(|path| path.exists());
        let mut document = match kept {
            Some(path) => Document::read(path)?,
            None => Document::new(),
        };
        document.measure_basics(basics::measure)?;
        Ok(document)
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

    fn size(&self) -> Size {
        match (self.huge, self.large) {
            (true, _) => Size::Huge,
            (false, true) => Size::Large,
            (false, false) => Size::Paper,
        }
    }

    fn place(&self) -> Place<'_> {
        Place {
            programs: &self.programs,
            data: &self.data,
            size: self.size(),
        }
    }

    /// TR2, TR3, TR4, TR8: nodes with a processor each.
    fn full_speed(&self, policies: &[String], document: &mut Document) -> Result<()> {
        for program in self.programs() {
            self.alone(program, None, document)?;
            for nodes in &self.nodes {
                let runs = self.on_nodes(program, *nodes, policies)?;
                runs.into_iter().for_each(|run| document.add(run));
            }
        }
        Ok(())
    }

    /// TR2, TR8: the paper's programs on the most nodes, while others use the processors too. The
    /// sequential program has the same company.
    fn beside_companion(&self, policies: &[String], document: &mut Document) -> Result<()> {
        let Some(nodes) = self.nodes.iter().max().copied() else {
            return Ok(());
        };
        let _companion = Running::start()?;
        for program in self.programs().filter(|one| one.speedup.is_some()) {
            let alone = self.median(|| self.place().alone(program, None))?;
            for run in self.on_nodes(program, nodes, policies)? {
                document.add_busy(Busy { alone, run });
            }
        }
        Ok(())
    }

    /// The sequential program, and the same search in another order if there is one.
    fn alone(
        &self,
        program: &'static Program,
        quota: Option<&Quota>,
        document: &mut Document,
    ) -> Result<()> {
        let other = program.other_order;
        for (order, more) in std::iter::once((None, None))
            .chain(other.map(|(order, more)| (Some(order.to_owned()), Some(more))))
        {
            let place = self.place();
            let seconds = self.median(|| place.alone_by(program, quota, more))?;
            document.add_alone(Alone {
                program: program.name.to_owned(),
                large: self.size().is_large(),
                slow: quota.is_some(),
                order,
                seconds,
                measured: String::new(),
            });
        }
        Ok(())
    }

    /// Each policy in turn, and as many copies that share nothing: processors of one
    /// machine may lose by each other, by more in one minute than in the next.
    fn on_nodes(
        &self,
        program: &'static Program,
        nodes: usize,
        policies: &[String],
    ) -> Result<Vec<Run>> {
        let stand = Stand::start(&Plan::new(nodes), None)?;
        let enough = nodes <= pagemesh_os::cpu::available();
        let mut crowds = Vec::new();
        let mut runs: Vec<Vec<Run>> = policies.iter().map(|_| Vec::new()).collect();
        for _ in 0..self.rounds {
            if enough {
                crowds.push(self.place().crowd(program, nodes)?);
            }
            for (policy, runs) in policies.iter().zip(&mut runs) {
                runs.push(self.place().together(&stand, program, policy)?);
            }
        }
        crowds.sort_by(f64::total_cmp);
        let crowd_seconds = crowds.get(crowds.len() / 2).copied();
        let medians = runs.iter_mut().filter_map(median_run);
        Ok(medians
            .map(|run| Run {
                crowd_seconds,
                ..run
            })
            .collect())
    }

    /// TR5, TR6: where the time goes, on the most nodes at full speed.
    fn divided(&self, policies: &[String], document: &mut Document) -> Result<()> {
        let Some(nodes) = self.nodes.iter().max().copied().filter(|nodes| *nodes > 1) else {
            return Ok(());
        };
        for program in self.programs() {
            for policy in policies {
                let stand = Stand::start(&Plan::new(nodes), None)?;
                let samples = match Samples::start() {
                    Ok(samples) => samples,
                    Err(error) => {
                        document.missing.push(format!("TR5, TR6: {error:#}"));
                        return Ok(());
                    }
                };
                let run = self.place().together(&stand, program, policy)?;
                match samples.divide(&stand.daemons(), &run) {
                    Ok(divided) => document.add_divided(divided),
                    Err(error) => {
                        document.missing.push(format!("TR5, TR6: {error:#}"));
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// TR7: Water, as in the paper, on different networks.
    fn substrates(&self, policies: &[String], document: &mut Document) -> Result<()> {
        let Some(water) = self
            .programs()
            .find(|program| program.name == "water-locks")
        else {
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
        let substrates = [
            ("plain", plain),
            ("sealed", sealed),
            ("200 us further", far),
        ];
        for (name, plan) in &substrates {
            self.water_on(name, plan, water, policies, document)?;
        }
        let _companion = Running::start()?;
        for (name, plan) in &substrates {
            let name = format!("{name}, beside a companion");
            self.water_on(&name, plan, water, policies, document)?;
        }
        Ok(())
    }

    /// TR7: a row of each policy.
    fn water_on(
        &self,
        substrate: &str,
        plan: &Plan,
        water: &'static Program,
        policies: &[String],
        document: &mut Document,
    ) -> Result<()> {
        let stand = Stand::start(plan, None)?;
        for policy in policies {
            let runs = (0..self.rounds).map(|_| self.place().together(&stand, water, policy));
            let mut runs = runs.collect::<Result<Vec<_>>>()?;
            if let Some(run) = median_run(&mut runs) {
                document.add_substrate(substrate, run);
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
            self.alone(program, Some(&quota), document)?;
            for (nodes, ceiling) in counts.iter().zip(&ceilings) {
                let mut plan = Plan::new(*nodes);
                plan.waiting = Some("block".to_owned());
                let stand = Stand::start(&plan, Some(&quota))?;
                for policy in policies {
                    let runs =
                        (0..self.rounds).map(|_| self.place().together(&stand, program, policy));
                    let mut runs = runs.collect::<Result<Vec<_>>>()?;
                    if let Some(run) = median_run(&mut runs) {
                        document.add_limited(run, *ceiling);
                    }
                }
            }
        }
        Ok(())
    }

    /// TR2, TR8: what programs would take on nodes there are no processors for.
    fn forecasts(&self, document: &mut Document) -> Result<()> {
        let how = (&self.forecast[..], self.rounds);
        let measures = self.forecast.contains(&forecast::MEASURED);
        let costs = measures.then(basics::awake).transpose()?;
        for program in self.programs().filter(|program| program.speedup.is_some()) {
            let kept = self.kept(program, document);
            let made = match (costs, kept) {
                (Some(costs), _) => self
                    .beside(program, costs)
                    .and_then(|beside| forecast::of(&self.place(), program, &beside, how)),
                (None, Some(kept)) => forecast::from_kept(&self.place(), program, kept, how),
                (None, None) => Err(anyhow!("none of 2 nodes was kept; --forecast 2 makes it")),
            };
            match made {
                Ok(forecasts) => forecasts
                    .into_iter()
                    .for_each(|one| document.add_forecast(one)),
                Err(error) => {
                    let name = program.name;
                    let why = format!("forecast of {name}: {error:#}");
                    document.missing.push(why);
                }
            }
        }
        Ok(())
    }

    /// The forecast of as many nodes as were measured, of a problem of that size, or for
    /// one for 64 nodes of the largest there is.
    fn kept<'d>(&self, program: &Program, document: &'d Document) -> Option<&'d Forecast> {
        let of = |large| document.forecast(program.name, large, forecast::MEASURED);
        match self.size() {
            Size::Huge => of(true).or_else(|| of(false)),
            size => of(size.is_large()),
        }
    }

    /// The real runs that a forecast is made of and compared with: each on a cluster of its
    /// own, in turn with the program alone and with copies that share nothing. What disturbs
    /// them makes them longer, so the shortest counts.
    fn beside(&self, program: &'static Program, costs: [f64; 3]) -> Result<forecast::Beside> {
        let nodes = forecast::MEASURED.min(pagemesh_os::cpu::available());
        let (mut alone, mut crowd) = (f64::INFINITY, f64::INFINITY);
        let mut runs = Vec::new();
        for _ in 0..self.rounds {
            alone = alone.min(self.place().alone(program, None)?);
            crowd = crowd.min(self.place().crowd(program, nodes)?);
            let stand = Stand::start(&Plan::new(nodes), None)?;
            runs.push(self.place().together(&stand, program, "release")?);
        }
        let run = runs
            .into_iter()
            .min_by(|one, other| one.seconds.total_cmp(&other.seconds))
            .context("there is at least one round")?;
        Ok(forecast::Beside {
            alone,
            crowd,
            run,
            costs,
        })
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

/// The run that took neither longest nor shortest, with the number of those that it stands for.
fn median_run(runs: &mut Vec<Run>) -> Option<Run> {
    runs.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
    let rounds = runs.len() as u32;
    let middle = runs.len() / 2;
    (middle < runs.len()).then(|| Run {
        rounds,
        ..runs.swap_remove(middle)
    })
}

/// The claims beside the shipped figures.
#[cfg(test)]
pub(super) fn shipped_claims() -> Vec<super::claims::Claim> {
    let path = super::tests::papers().join("treadmarks.json");
    claims::claims(&Document::read(&path).unwrap())
}
