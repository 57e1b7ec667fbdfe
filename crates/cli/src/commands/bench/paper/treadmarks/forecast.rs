//! TR2 on nodes there are no processors for: a program's own traces, replayed under
//! measured costs.
//!
//! As many processes as there shall be nodes run on this host, on real memory, and write down what they do
//! (`apps/trace`). What stopping them at each page costs is taken out as well as may be;
//! what of it is left is known from a trace of one process beside the program alone, and
//! all computing is shortened by as much. Where a real run on as many nodes was measured,
//! the forecast is of that run: processors that lose by each other compute more slowly in it, too.

use super::super::copies;
use super::document::{Document, Forecast, Run};
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

/// How much longer everything takes than in the measured basic operations, which repeat
/// the same few steps with warm caches: a program computes in between.
const COLD: f64 = 3.0;

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
    nodes: &[usize],
    document: &mut Document,
) -> Result<()> {
    let costs = costs(document)?.times(COLD);
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
        let slower = measured.and_then(Run::ceiling).map_or(1.0, f64::recip);
        let traces = traced(place, program, *nodes)?;
        let traces: Vec<_> = traces
            .iter()
            .map(|trace| trace.slowed(slower / excess))
            .collect();
        let took = replay(&costs.times(slower), Spread::Lazy, &traces)?;
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

/// From the basic operations.
fn costs(document: &Document) -> Result<ReleaseCosts> {
    let named = |start: &str| {
        let mut basics = document.basics.iter();
        let basic = basics.find(|basic| basic.name.starts_with(start));
        let basic =
            basic.context("basic operations were not measured; --parts basics measures them")?;
        anyhow::Ok(Duration::from_nanos((basic.ours * 1000.0) as u64))
    };
    Ok(ReleaseCosts::of(
        named("round trip")?,
        named("lock, from")?,
        named("remote page fault")?,
    ))
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
