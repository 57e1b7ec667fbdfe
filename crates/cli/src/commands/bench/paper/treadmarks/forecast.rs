//! TR2 on nodes there are no processors for: a program's own traces, replayed under
//! measured costs.
//!
//! As many processes as there shall be nodes run on this host, on real memory, and write down what they do
//! (`apps/trace`). What stopping them at each page costs is taken out as well as may be;
//! what of it is left is known from a trace of one process beside the program alone, and
//! all computing is shortened by as much. Beside it stands the real run on as many nodes,
//! if one was measured. Nodes have a core each here, and lose nothing by each other.

use super::super::copies;
use super::document::{Document, Forecast};
use super::program::Program;
use super::run::Place;
use anyhow::{Context, Result, ensure};
use pagemesh_forecast::{ReleaseCosts, Trace, replay};
use pagemesh_wire::peer::Spread;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What stands in for the library, beside the programs.
const LIBRARY: &str = "libtmktrace.so.0";

/// A traced program stops at each page, and all share this host's processors.
const PATIENCE: Duration = Duration::from_secs(600);

/// How much longer everything takes than in the basic operations, which repeat the same few
/// steps with warm caches, where a program computes in between. Not measured: it was found to
/// fit Water on two nodes once, and on a quiet machine it fits Jacobi, Quicksort and ILINK but
/// not Water (docs/papers/treadmarks.md). All programs are forecast with it.
const COLD: f64 = 2.8;

/// A directory of traces, which goes with it.
struct Traces(PathBuf);

impl Drop for Traces {
    fn drop(&mut self) {
        // Left over in a temporary directory at worst.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Forecasts of one program.
pub(super) fn of(
    place: &Place<'_>,
    program: &'static Program,
    (costs, nodes): (&ReleaseCosts, &[usize]),
    document: &mut Document,
) -> Result<()> {
    let alone = document
        .alone(program.name, place.large)
        .context("how long it takes alone was not measured; --parts programs measures it")?;
    let one = traced(place, program, 1)?;
    let excess = one[0].computes_in_part().as_secs_f64() / alone;
    ensure!(
        excess > 0.5,
        "a trace says that nearly nothing was computed"
    );
    for nodes in nodes {
        let measured = document.runs.iter().find(|run| {
            let same = run.program == program.name && run.large == place.large;
            same && run.policy == "release" && run.nodes == *nodes
        });
        let traces = traced(place, program, *nodes)?;
        let traces: Vec<_> = traces
            .iter()
            .map(|trace| trace.slowed(1.0 / excess))
            .collect();
        let took = replay(costs, Spread::Lazy, &traces)?;
        let seconds = took.part.as_secs_f64();
        let forecast = Forecast {
            program: program.name.to_owned(),
            large: place.large,
            nodes: *nodes,
            seconds,
            speedup: alone / seconds,
            measured: measured.map(|run| run.seconds),
            messages: took.messages,
            measured_messages: measured.map(|run| run.messages),
        };
        document.add_forecast(forecast);
    }
    Ok(())
}

/// What everything takes, from basic operations with daemons awake.
pub(super) fn costs(document: &mut Document) -> Result<ReleaseCosts> {
    let measured = super::basics::awake()?;
    document.forecast_costs = Some(measured);
    let [round_trip, lock, fault] =
        measured.map(|micros| Duration::from_nanos((micros * 1000.0) as u64));
    Ok(ReleaseCosts::of(round_trip, lock, fault).times(COLD))
}

/// Runs the program with so many processes on this host, and reads what they did.
fn traced(place: &Place<'_>, program: &Program, nodes: usize) -> Result<Vec<Trace>> {
    let path = place.programs.join(program.name);
    let library = std::path::absolute(place.programs.join(LIBRARY))?;
    ensure!(
        library.exists(),
        "no {}; `make -C apps` builds it",
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
    let copy = copies::start(&mut command, &path)?;
    copies::finish(vec![copy], PATIENCE)?;
    (0..nodes).map(|rank| read(&traces.0, rank)).collect()
}

fn read(directory: &Path, rank: usize) -> Result<Trace> {
    let path = directory.join(format!("{rank}.trace"));
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Trace::parse(&text).with_context(|| path.display().to_string())
}
