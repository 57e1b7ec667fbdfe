//! Running MIRAGE+'s programs on the nodes of a sandbox.

use super::super::super::copies;
use super::super::super::cpu_slots::pin_process;
use super::super::super::quota::Quota;
use anyhow::{Context, Result};
use pagemesh_cli::sandbox::Sandbox;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// No run may take longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where a node's copy of a program runs.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    /// On the processor of its number.
    Own,
    /// Wherever the kernel likes.
    Anywhere,
    /// On a part of a processor.
    Part(&'a Quota),
}

/// Runs a program on all nodes; the seconds it says.
pub(super) fn together(
    sandbox: &Sandbox,
    place: Place<'_>,
    program: &Path,
    arguments: &[String],
    environment: &[(&str, &str)],
) -> Result<f64> {
    /// A job of its own for each run.
    static JOB: AtomicU64 = AtomicU64::new(0);
    let job = JOB.fetch_add(1, Ordering::Relaxed).to_string();
    let mut started = Vec::new();
    for (number, node) in sandbox.nodes().iter().enumerate() {
        let group = match place {
            Place::Part(quota) => Some((quota, number)),
            Place::Own | Place::Anywhere => None,
        };
        let mut command = copies::command(Some(node), group, program);
        command.args(arguments).env("PAGEMESH_JOB", &job);
        command.envs(environment.iter().copied());
        let copy = copies::start(&mut command, program)?;
        if matches!(place, Place::Own) {
            pin_process(copy.id(), number).context("cannot pin a process")?;
        }
        started.push(copy);
    }
    first_says(started)
}

/// Runs a program that needs no daemon.
pub(super) fn alone(quota: Option<&Quota>, program: &Path, arguments: &[String]) -> Result<f64> {
    let mut command = copies::command(None, quota.map(|quota| (quota, 0)), program);
    let copy = copies::start(command.args(arguments), program)?;
    first_says(vec![copy])
}

fn first_says(started: Vec<Child>) -> Result<f64> {
    copies::seconds(&copies::finish(started, PATIENCE)?[0])
}

/// The same, its processes all on one processor.
pub(super) fn on_one_processor(program: &Path, arguments: &[String]) -> Result<f64> {
    // A thread's children run where it does.
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            pagemesh_os::cpu::pin(0)?;
            alone(None, program, arguments)
        });
        run.join().map_err(|_| anyhow::anyhow!("a thread broke"))?
    })
}

/// Counters of all nodes together.
pub(super) fn counters(sandbox: &Sandbox) -> Result<BTreeMap<String, u64>> {
    let mut all = BTreeMap::new();
    for node in sandbox.nodes() {
        for (name, value) in node.control()?.counters()? {
            *all.entry(name).or_default() += value;
        }
    }
    Ok(all)
}

/// Words as programs take them.
pub(super) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
