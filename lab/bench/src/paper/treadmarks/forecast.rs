//! TR2 on nodes there are no processors for: a program's own traces, replayed under
//! measured costs.
//!
//! As many processes as there shall be nodes run on this host, on real memory, and write down what they do
//! (`lab/apps/trace`). What stopping them at each page costs is taken out as well as may be;
//! what of it is left is known from one process that is traced and one that is not, and
//! all computing is shortened by as much. Costs are those of single operations with daemons awake, times
//! what makes processes of the replay wait for a lock, a barrier or a page as long as they did in a
//! real run. Beside the forecast of as many nodes as were measured stands that run. There processors
//! lose by each other what copies that share nothing lose; on more nodes each has a core.

use super::super::super::copies;
use super::super::super::cpu_slots::pin_process;
use super::document::{Forecast, Run, Typical};
use super::program::{Program, Size};
use super::run::Place;
use anyhow::{Context, Result, ensure};
use pagemesh_forecast::{Fit, ReleaseCosts, Replayed, Trace, Wait, Waited, fit, replay};
use pagemesh_wire::peer::Spread;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What stands in for the library, beside the programs.
const LIBRARY: &str = "libtmktrace.so.0";

/// A traced program stops at each page, and all share this host's processors.
const PATIENCE: Duration = Duration::from_secs(1200);

/// Nodes of the real run.
pub(super) const MEASURED: usize = 2;

/// Policy `release`.
const SPREAD: Spread = Spread::Lazy;

/// What was measured at the same time, each as it was least disturbed.
pub(super) struct Beside {
    /// Seconds of the program alone.
    pub(super) alone: f64,
    /// And of copies that share nothing, one on each processor.
    pub(super) crowd: f64,
    /// The program on as many nodes.
    pub(super) run: Run,
    /// Microseconds of single operations.
    pub(super) costs: [f64; 3],
}

/// What forecasts of one program are made of.
struct Basis {
    alone: f64,
    costs: [f64; 3],
    fit: Fit,
}

/// A directory of traces, which goes with it.
struct Traces(PathBuf);

impl Drop for Traces {
    fn drop(&mut self) {
        // Left over in a temporary directory at worst.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Traces a program, and replays that.
struct Tracer<'a> {
    place: &'a Place<'a>,
    program: &'static Program,
    rounds: u32,
    /// What tracing adds to computing, as a factor.
    excess: f64,
}

/// Forecasts of one program, on each number of nodes: that of as many as were measured first.
pub(super) fn of(
    place: &Place<'_>,
    program: &'static Program,
    beside: &Beside,
    (nodes, rounds): (&[usize], u32),
) -> Result<Vec<Forecast>> {
    let tracer = Tracer::new(place, program, rounds)?;
    let run = &beside.run;
    let slower = (beside.crowd / beside.alone).max(1.0);
    let traces = tracer.traces(run.nodes, slower)?;
    let costs = of_loops(beside.costs);
    let basis = Basis {
        alone: beside.alone,
        costs: beside.costs,
        fit: fit(&costs, SPREAD, &traces[0], &run.waited())?,
    };
    let took = middle(&costs, basis.fit, &traces)?;
    let mut forecasts = vec![Forecast {
        measured: Some(run.seconds),
        measured_messages: Some(run.messages),
        ..basis.forecast(place, program, run.nodes, &took)
    }];
    forecasts.extend(tracer.more(&basis, run.nodes, nodes)?);
    Ok(forecasts)
}

/// Forecasts of more nodes, of what was found when two were measured. A problem for 64 is
/// measured alone; what things cost is as with the smaller one.
pub(super) fn from_kept(
    place: &Place<'_>,
    program: &'static Program,
    kept: &Forecast,
    (nodes, rounds): (&[usize], u32),
) -> Result<Vec<Forecast>> {
    let alone = match place.size {
        Size::Huge => place.alone(program, None)?,
        _ => kept
            .alone
            .context("the kept forecast has no sequential program beside it")?,
    };
    let basis = Basis {
        alone,
        costs: kept.costs,
        fit: Fit {
            all: kept.slower,
            cold: kept.cold,
        },
    };
    Tracer::new(place, program, rounds)?.more(&basis, kept.nodes, nodes)
}

impl Basis {
    fn forecast(
        &self,
        place: &Place<'_>,
        program: &Program,
        nodes: usize,
        took: &Replayed,
    ) -> Forecast {
        let seconds = took.part.as_secs_f64();
        Forecast {
            program: program.name.to_owned(),
            large: place.size.is_large(),
            huge: place.size == Size::Huge,
            nodes,
            seconds,
            alone: Some(self.alone),
            measured_at: String::new(),
            costs: self.costs,
            slower: self.fit.all,
            cold: self.fit.cold,
            measured: None,
            messages: took.messages,
            measured_messages: None,
            shares: took.spent.shares(),
        }
    }
}

/// The replay that takes neither longest nor shortest: a program that deals out work as it
/// goes has more of it in one run than in another.
fn middle(costs: &ReleaseCosts, fit: Fit, runs: &[Vec<Trace>]) -> Result<Replayed> {
    let took: Result<Vec<_>, _> = runs
        .iter()
        .map(|traces| replay(costs, fit, SPREAD, traces))
        .collect();
    let mut took = took?;
    took.sort_by_key(|one| one.part);
    let middle = took.len() / 2;
    Ok(took.swap_remove(middle))
}

fn of_loops(micros: [f64; 3]) -> ReleaseCosts {
    let nanos = |micros: f64| Duration::from_nanos((micros * 1000.0) as u64);
    let [round_trip, lock, fault] = micros.map(nanos);
    ReleaseCosts::of(round_trip, lock, fault)
}

impl Run {
    /// What its processes waited for.
    fn waited(&self) -> Waited {
        let wait = |typical: Typical| Wait {
            typical: Duration::from_secs_f64(typical.micros / 1e6),
            count: typical.count,
        };
        Waited {
            locks: self.lock_wait.map(wait),
            barriers: self.barrier_wait.map(wait),
            faults: self.fault_wait.map(wait),
        }
    }
}

impl<'a> Tracer<'a> {
    fn new(place: &'a Place<'a>, program: &'static Program, rounds: u32) -> Result<Self> {
        let tracer = Self {
            place,
            program,
            rounds,
            excess: 1.0,
        };
        let computes = |plain| -> Result<f64> {
            let mut least = f64::INFINITY;
            for _ in 0..rounds {
                let trace = tracer.traced(1, plain)?.swap_remove(0);
                least = least.min(trace.computes_in_part().as_secs_f64());
            }
            Ok(least)
        };
        let excess = computes(false)? / computes(true)?;
        ensure!(
            excess > 0.5 && excess < 20.0,
            "a traced process computes {excess:.2} times as long as one that is not"
        );
        Ok(Self { excess, ..tracer })
    }

    /// Forecasts of all these numbers of nodes but that one, each node with a processor.
    fn more(&self, basis: &Basis, but: usize, nodes: &[usize]) -> Result<Vec<Forecast>> {
        let costs = of_loops(basis.costs);
        let forecast = |nodes: &usize| {
            let traces = self.traces(*nodes, 1.0)?;
            let took = middle(&costs, basis.fit, &traces)?;
            Ok(basis.forecast(self.place, self.program, *nodes, &took))
        };
        let others = nodes.iter().filter(|nodes| **nodes != but);
        others.map(forecast).collect()
    }

    /// What so many processes do, in each of some runs, where everything that they compute
    /// takes so many times as long as on this host.
    fn traces(&self, nodes: usize, slower: f64) -> Result<Vec<Vec<Trace>>> {
        let factor = slower / self.excess;
        let run = |_| {
            let traces = self.traced(nodes, false)?;
            Ok(traces.iter().map(|trace| trace.slowed(factor)).collect())
        };
        (0..self.rounds).map(run).collect()
    }

    /// Runs the program with so many processes on this host, and reads what they did.
    fn traced(&self, nodes: usize, plain: bool) -> Result<Vec<Trace>> {
        let (place, program) = (self.place, self.program);
        let path = place.programs.join(program.file());
        let library = std::path::absolute(place.programs.join(LIBRARY))?;
        ensure!(
            library.exists(),
            "no {}; `make -C lab/apps` builds it",
            library.display()
        );
        let unique = format!(
            "pagemesh-traces-{}-{}-{nodes}",
            std::process::id(),
            program.name
        );
        let traces = Traces(std::env::temp_dir().join(unique));
        std::fs::create_dir_all(&traces.0)?;
        let mut command = copies::command(None, None, &path);
        command
            .args(place.arguments(program))
            .env("LD_PRELOAD", &library)
            .env("TMK_TRACE", &traces.0)
            .env("TMK_TRACE_NODES", nodes.to_string());
        if plain {
            command.env("TMK_TRACE_PLAIN", "1");
        }
        let copy = copies::start(&mut command, &path)?;
        // Its processes, too: at a time they would slow each other down.
        pin_process(copy.id(), 0).context("cannot pin a process")?;
        copies::finish(vec![copy], PATIENCE)?;
        (0..nodes).map(|rank| read(&traces.0, rank)).collect()
    }
}

fn read(directory: &Path, rank: usize) -> Result<Trace> {
    let path = directory.join(format!("{rank}.trace"));
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Trace::parse(&text).with_context(|| path.display().to_string())
}
