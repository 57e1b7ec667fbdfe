//! Runs of the programs, and what they and their daemons did.

use super::super::super::copies;
use super::document::{Count, Solved};
use super::protocol::{Place, Protocol};
use anyhow::{Context, Result};
use pagemesh_cli::sandbox::Sandbox;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// No run may take longer.
const PATIENCE: Duration = Duration::from_secs(900);

/// What daemons have used and counted, all together.
#[derive(Clone, Copy, Default)]
struct Daemons {
    user: f64,
    system: f64,
    switches: u64,
    bytes: u64,
    packets: u64,
}

impl Daemons {
    fn of(sandbox: &Sandbox) -> Result<Self> {
        let mut all = Self::default();
        for node in sandbox.nodes() {
            for (name, value) in node.control()?.counters()? {
                match name.as_str() {
                    "datagrams_out" => all.packets += value,
                    "bytes_out" => all.bytes += value,
                    _ => {}
                }
            }
            let [user, system] = super::super::super::job::processor_seconds(node.pid())?;
            all.user += user;
            all.system += system;
            all.switches += switches(node.pid())?;
        }
        Ok(all)
    }
}

/// Context switches of all threads of a process so far.
fn switches(process: u32) -> Result<u64> {
    let mut all = 0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let path = thread?.path().join("status");
        // A thread may end meanwhile.
        let status = std::fs::read_to_string(path).unwrap_or_default();
        let lines = status.lines().filter(|line| line.contains("ctxt_switches"));
        let numbers = lines.filter_map(|line| line.split_whitespace().nth(1));
        all += numbers
            .filter_map(|number| number.parse::<u64>().ok())
            .sum::<u64>();
    }
    Ok(all)
}

/// Starts a copy on each of these nodes, as a job of its own, and waits for all.
fn together(
    sandbox: &Sandbox,
    nodes: &[usize],
    program: &Path,
    arguments: &[String],
) -> Result<Vec<Output>> {
    static JOB: AtomicU64 = AtomicU64::new(0);
    let job = format!("paper{}", JOB.fetch_add(1, Ordering::Relaxed));
    let mut started = Vec::new();
    for (rank, node) in nodes.iter().enumerate() {
        let node = &sandbox.nodes()[*node];
        let mut command = copies::command(Some(node), None, program);
        command
            .args(arguments)
            .env("PAGEMESH_JOB", &job)
            .env("PAGEMESH_RANK", rank.to_string())
            .env("PAGEMESH_SIZE", nodes.len().to_string());
        started.push(copies::start(&mut command, program)?);
    }
    copies::finish(started, PATIENCE)
}

fn alone(program: &Path, arguments: &[String]) -> Result<Vec<Output>> {
    let mut command = copies::command(None, None, program);
    let copy = copies::start(command.args(arguments), program)?;
    copies::finish(vec![copy], PATIENCE)
}

/// Lets the program count by a protocol.
pub(super) fn count(
    sandbox: &Sandbox,
    protocol: &Protocol,
    program: &Path,
    words: &[String],
) -> Result<Count> {
    let own = protocol.words.iter().map(|&word| word.to_owned());
    let arguments: Vec<_> = own.chain(words.iter().cloned()).collect();
    let before = Daemons::of(sandbox)?;
    let outputs = match protocol.place {
        Place::Alone => alone(program, &arguments)?,
        Place::OneNode => together(sandbox, &[0, 0], program, &arguments)?,
        Place::TwoNodes => together(sandbox, &[0, 1], program, &arguments)?,
    };
    let after = Daemons::of(sandbox)?;
    let said: Result<Vec<Said>> = outputs.iter().map(Said::of).collect();
    let said = said?;
    let is_alone = protocol.place == Place::Alone;
    let of_daemons = |number: f64| if is_alone { 0.0 } else { number / 2.0 };
    let mean = |name: &str| -> Result<f64> {
        let all: Result<f64> = said.iter().map(|said| said.number(name)).sum();
        Ok(all? / said.len() as f64)
    };
    let sum = |name: &str| -> Result<u64> { Ok((mean(name)? * said.len() as f64).round() as u64) };
    let mut count = Count {
        name: protocol.name.to_owned(),
        value: said
            .iter()
            .map(|said| said.number("value"))
            .sum::<Result<f64>>()? as u64
            / said.len() as u64,
        seconds: mean("seconds")?,
        user: mean("user")?,
        system: mean("system")?,
        daemon_user: of_daemons(after.user - before.user),
        daemon_system: of_daemons(after.system - before.system),
        switches: sum("switches")?,
        losses: sum("losses")?,
        wins: sum("wins")?,
        latency: mean("latency_us")?,
        bytes: 0,
        packets: 0,
    };
    if !is_alone {
        count.switches += after.switches - before.switches;
        count.bytes = after.bytes - before.bytes;
        count.packets = after.packets - before.packets;
    }
    Ok(count)
}

/// Lets the solver solve on all nodes; it compares its solution with that of one process.
pub(super) fn solve(sandbox: &Sandbox, program: &Path, words: &[String]) -> Result<Solved> {
    let nodes: Vec<_> = (0..sandbox.nodes().len()).collect();
    let before = Daemons::of(sandbox)?;
    let arguments: Vec<_> = words
        .iter()
        .cloned()
        .chain(["--check".to_owned()])
        .collect();
    let outputs = together(sandbox, &nodes, program, &arguments)?;
    let after = Daemons::of(sandbox)?;
    let said: Result<Vec<Said>> = outputs.iter().map(Said::of).collect();
    let said = said?;
    let messages: Result<f64> = said.iter().map(|said| said.number("messages")).sum();
    Ok(Solved {
        nodes: nodes.len(),
        seconds: said[0].number("seconds")?,
        messages: messages? as u64,
        bytes: after.bytes - before.bytes,
        packets: after.packets - before.packets,
        residual: said[0].number("residual")?,
    })
}

/// Seconds of the solver as one process.
pub(super) fn solve_alone(program: &Path, words: &[String]) -> Result<f64> {
    let arguments: Vec<_> = words
        .iter()
        .cloned()
        .chain(["--sequential".to_owned()])
        .collect();
    copies::seconds(&alone(program, &arguments)?[0])
}

/// The run of the median time.
pub(super) fn median(mut runs: Vec<Count>) -> Count {
    runs.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
    runs.swap_remove(runs.len() / 2)
}

/// The same for the solver.
pub(super) fn median_solved(mut runs: Vec<Solved>) -> Solved {
    runs.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
    runs.swap_remove(runs.len() / 2)
}

/// What a program says: words with `=`.
struct Said(BTreeMap<String, String>);

impl Said {
    fn of(output: &Output) -> Result<Self> {
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().find(|line| line.contains(" seconds="));
        let line = line.with_context(|| format!("a program says no time: {text}"))?;
        let pairs = line
            .split_whitespace()
            .filter_map(|word| word.split_once('='));
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Ok(Self(pairs.collect()))
    }

    fn number(&self, name: &str) -> Result<f64> {
        let value = self.0.get(name).and_then(|value| value.parse().ok());
        value.with_context(|| format!("a program does not say its {name}"))
    }
}
