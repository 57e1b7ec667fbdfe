//! Running MIRAGE+'s programs on the nodes of a sandbox.

use super::super::super::stage::pin_process;
use super::super::treadmarks::quota::Quota;
use crate::sandbox::Sandbox;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// No run may take longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a program on all nodes; the seconds it says.
pub(super) fn together(
    sandbox: &Sandbox,
    quota: Option<&Quota>,
    program: &Path,
    arguments: &[String],
    environment: &[(&str, &str)],
) -> Result<f64> {
    /// A job of its own for each run.
    static JOB: AtomicU64 = AtomicU64::new(0);
    let job = JOB.fetch_add(1, Ordering::Relaxed).to_string();
    let mut copies = Vec::new();
    for (number, node) in sandbox.nodes().iter().enumerate() {
        let mut command = match quota {
            None => node.command(program),
            Some(quota) => {
                let (shell, words) = quota.wrap(number, program);
                let mut command = node.command(shell);
                command.args(words);
                command
            }
        };
        command.args(arguments).env("PAGEMESH_JOB", &job);
        command.envs(environment.iter().copied());
        let copy = start(&mut command, program)?;
        if quota.is_none() {
            pin_process(copy.id(), number).context("cannot pin a process")?;
        }
        copies.push(copy);
    }
    seconds(finish(copies)?)
}

/// Runs a program that needs no daemon.
pub(super) fn alone(quota: Option<&Quota>, program: &Path, arguments: &[String]) -> Result<f64> {
    let mut command = match quota {
        None => Command::new(program),
        Some(quota) => {
            let (shell, words) = quota.wrap(0, program);
            let mut command = Command::new(shell);
            command.args(words);
            command
        }
    };
    let copy = start(command.args(arguments), program)?;
    seconds(finish(vec![copy])?)
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

fn start(command: &mut Command, program: &Path) -> Result<Child> {
    ensure!(
        program.exists(),
        "no program {}; build it with `make -C apps`, or say where with --programs",
        program.display()
    );
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    pagemesh_os::netns::die_with_parent(command);
    let started = command.spawn();
    started.with_context(|| format!("cannot start {}", program.display()))
}

/// Waits for all; what the first said. If one fails, or all take too long, none is left.
fn finish(mut copies: Vec<Child>) -> Result<String> {
    let deadline = Instant::now() + PATIENCE;
    let mut failed = None;
    loop {
        let mut running = false;
        for (number, copy) in copies.iter_mut().enumerate() {
            match copy.try_wait()? {
                Some(status) if !status.success() => failed = failed.or(Some(number)),
                Some(_) => {}
                None => running = true,
            }
        }
        if Instant::now() > deadline {
            failed = failed.or(Some(0));
        }
        if !running || failed.is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    if failed.is_some() {
        for copy in &mut copies {
            // It may have ended already.
            let _ = copy.kill();
        }
    }
    let outputs: std::io::Result<Vec<_>> =
        copies.into_iter().map(Child::wait_with_output).collect();
    let outputs = outputs?;
    if let Some(number) = failed {
        let words = String::from_utf8_lossy(&outputs[number].stderr);
        bail!("copy {number} failed, or took too long: {}", words.trim());
    }
    Ok(String::from_utf8_lossy(&outputs[0].stdout).into_owned())
}

/// The seconds of a report: `NAME processes=N seconds=S RESULT`.
fn seconds(said: String) -> Result<f64> {
    let rest = said.split(" seconds=").nth(1);
    let text = rest.and_then(|rest| rest.split_whitespace().next());
    text.with_context(|| format!("a program says no time: {said}"))?
        .parse()
        .context("a program says no time")
}

/// Words as programs take them.
pub(super) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
