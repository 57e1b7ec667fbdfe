//! Running the programs, and finding out what they did.

use super::super::super::stage::pin_process;
use super::document::{Run, Shares};
use super::program::Program;
use super::quota::Quota;
use crate::sandbox::{Plan, Sandbox};
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// No run may take longer.
const PATIENCE: Duration = Duration::from_secs(300);

/// What the library says at the end, behind this word.
const TOLD: &str = "Tmk: ";

/// Where programs and data are, and how large the problems.
pub(super) struct Place<'p> {
    pub(super) programs: &'p Path,
    pub(super) data: &'p Path,
    pub(super) large: bool,
}

/// A cluster to run programs on.
pub(super) struct Stand<'q> {
    sandbox: Sandbox,
    quota: Option<&'q Quota>,
}

/// What a process says of itself.
#[derive(Clone, Copy, Deserialize)]
struct Told {
    seconds: f64,
    user: f64,
    system: f64,
    barriers: u64,
    locks: u64,
}

/// What daemons have counted, all together.
#[derive(Clone, Copy, Default)]
struct Counted {
    messages: u64,
    bytes: u64,
    pages: u64,
    diffs: Option<u64>,
    user: f64,
    system: f64,
}

impl<'q> Stand<'q> {
    /// Nodes have a processor each, as long as there are enough and no quota.
    pub(super) fn start(plan: &Plan, quota: Option<&'q Quota>) -> Result<Self> {
        let sandbox = Sandbox::start(plan).context("cannot set the stage")?;
        let stand = Self { sandbox, quota };
        for node in 0..stand.size() {
            stand.pin(node, stand.sandbox.node(node).pid())?;
        }
        Ok(stand)
    }

    fn size(&self) -> usize {
        self.sandbox.nodes().len()
    }

    fn pin(&self, node: usize, process: u32) -> Result<()> {
        let enough = self.size() <= pagemesh_os::cpu::available();
        if enough && self.quota.is_none() {
            pin_process(process, node).context("cannot pin a process")?;
        }
        Ok(())
    }

    fn counted(&self) -> Result<Counted> {
        let mut all = Counted::default();
        for node in self.sandbox.nodes() {
            for (name, value) in node.control()?.counters()? {
                match name.as_str() {
                    "datagrams_out" => all.messages += value,
                    "bytes_out" => all.bytes += value,
                    "pages_out" => all.pages += value,
                    "diffs_made" => *all.diffs.get_or_insert(0) += value,
                    _ => {}
                }
            }
            let [user, system] = processor_seconds(node.pid())?;
            all.user += user;
            all.system += system;
        }
        Ok(all)
    }
}

impl Place<'_> {
    /// Seconds of a program alone.
    pub(super) fn alone(&self, program: &Program, quota: Option<&Quota>) -> Result<f64> {
        let path = self.programs.join(program.name);
        let mut command = match quota {
            None => Command::new(&path),
            Some(quota) => {
                let (shell, words) = quota.wrap(0, &path);
                let mut command = Command::new(shell);
                command.args(words);
                command
            }
        };
        command.args(self.arguments(program)).arg("--sequential");
        let copy = start(&mut command, &path)?;
        if quota.is_none() {
            // As the first node's will be.
            pin_process(copy.id(), 0).context("cannot pin a process")?;
        }
        let output = finish(vec![copy])?.remove(0);
        reported(program, &String::from_utf8_lossy(&output.stdout))
    }

    /// A program on all nodes.
    pub(super) fn together(
        &self,
        stand: &Stand<'_>,
        program: &'static Program,
        policy: &str,
        alone: f64,
    ) -> Result<Run> {
        /// A job of its own for each run.
        static JOB: AtomicU64 = AtomicU64::new(0);
        let job = JOB.fetch_add(1, Ordering::Relaxed).to_string();
        let path = self.programs.join(program.name);
        let before = stand.counted()?;
        let mut copies = Vec::new();
        for (number, node) in stand.sandbox.nodes().iter().enumerate() {
            let mut command = match stand.quota {
                None => node.command(&path),
                Some(quota) => {
                    let (shell, words) = quota.wrap(number, &path);
                    let mut command = node.command(shell);
                    command.args(words);
                    command
                }
            };
            command
                .args(self.arguments(program))
                .args(["--", "--stats", "--policy", policy])
                .env("PAGEMESH_JOB", &job);
            let copy = start(&mut command, &path)?;
            stand.pin(number, copy.id())?;
            copies.push(copy);
        }
        let outputs = finish(copies)?;
        let after = stand.counted()?;
        let seconds = reported(program, &String::from_utf8_lossy(&outputs[0].stdout))?;
        let told: Result<Vec<Told>> = outputs.iter().map(told).collect();
        Ok(put_together(
            program, policy, seconds, alone, &told?, before, after,
        ))
    }

    fn arguments(&self, program: &Program) -> Vec<String> {
        program.arguments(self.large, &self.data.to_string_lossy())
    }
}

fn put_together(
    program: &Program,
    policy: &str,
    seconds: f64,
    alone: f64,
    told: &[Told],
    before: Counted,
    after: Counted,
) -> Run {
    let sum = |of: fn(&Told) -> f64| told.iter().map(of).sum::<f64>();
    let whole = told.iter().map(|one| one.seconds).fold(0.0, f64::max);
    let time = (whole * told.len() as f64).max(f64::MIN_POSITIVE);
    let computation = sum(|one| one.user) / time;
    let kernel = (sum(|one| one.system) + after.system - before.system) / time;
    let pagemesh = (after.user - before.user) / time;
    Run {
        program: program.name,
        policy: policy.to_owned(),
        nodes: told.len(),
        seconds,
        speedup: alone / seconds,
        paper_speedup: program.speedup,
        whole_seconds: whole,
        barriers: told.iter().map(|one| one.barriers).max().unwrap_or(0),
        locks: told.iter().map(|one| one.locks).sum(),
        messages: after.messages - before.messages,
        bytes: after.bytes - before.bytes,
        pages: after.pages - before.pages,
        diffs: after.diffs.map(|now| now - before.diffs.unwrap_or(0)),
        shares: Shares {
            computation,
            kernel,
            pagemesh,
            idle: (1.0 - computation - kernel - pagemesh).max(0.0),
        },
    }
}

fn start(command: &mut Command, path: &Path) -> Result<Child> {
    ensure!(
        path.exists(),
        "no program {}; build it with `make -C apps`, or say where with --programs",
        path.display()
    );
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    pagemesh_os::netns::die_with_parent(command);
    command
        .spawn()
        .with_context(|| format!("cannot start {}", path.display()))
}

/// Waits for all; if one fails, or all take too long, none is left.
fn finish(mut copies: Vec<Child>) -> Result<Vec<Output>> {
    let deadline = Instant::now() + PATIENCE;
    let mut failed = None;
    while failed.is_none() {
        let mut running = false;
        for (number, copy) in copies.iter_mut().enumerate() {
            match copy.try_wait()? {
                Some(status) if !status.success() => failed = Some(number),
                Some(_) => {}
                None => running = true,
            }
        }
        if !running {
            break;
        }
        if Instant::now() > deadline {
            failed = Some(0);
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
    Ok(outputs)
}

/// The seconds of a report: `NAME processes=N seconds=S RESULT`.
fn reported(program: &Program, text: &str) -> Result<f64> {
    let line = text.lines().find(|line| line.starts_with(program.name));
    let seconds = line.and_then(|line| line.split(" seconds=").nth(1)?.split(' ').next());
    let seconds = seconds.with_context(|| format!("{} says no time", program.name))?;
    Ok(seconds.parse()?)
}

fn told(output: &Output) -> Result<Told> {
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find_map(|line| line.strip_prefix(TOLD));
    let line = line.context("a program does not say what it did")?;
    Ok(serde_json::from_str(line)?)
}

/// Seconds of a process, as user and as system.
fn processor_seconds(process: u32) -> Result<[f64; 2]> {
    let path = format!("/proc/{process}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    // The name, in parentheses, may contain anything.
    let rest = text.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let seconds = |field: usize| {
        let field = fields.get(field).and_then(|text| text.parse::<f64>().ok());
        field
            .map(|count| count / ticks)
            .with_context(|| path.clone())
    };
    Ok([seconds(11)?, seconds(12)?])
}

#[cfg(test)]
mod tests {
    use super::super::program::PROGRAMS;
    use super::*;

    #[test]
    fn reports_are_read() {
        let text = "jacobi processes=2 seconds=0.250000 sum=1.5\n";
        assert_eq!(reported(&PROGRAMS[0], text).unwrap(), 0.25);
        assert!(reported(&PROGRAMS[0], "tsp processes=2 seconds=1 x").is_err());
        assert!(reported(&PROGRAMS[0], "").is_err());
    }

    #[test]
    fn time_is_divided_without_rest() {
        let told = Told {
            seconds: 2.0,
            user: 1.0,
            system: 0.2,
            barriers: 5,
            locks: 7,
        };
        let after = Counted {
            messages: 100,
            diffs: Some(3),
            user: 0.2,
            system: 0.2,
            ..Counted::default()
        };
        let (program, told) = (&PROGRAMS[0], [told, told]);
        let run = put_together(
            program,
            "release",
            1.5,
            3.0,
            &told,
            Counted::default(),
            after,
        );
        assert_eq!((run.speedup, run.barriers, run.locks), (2.0, 5, 14));
        assert_eq!(run.diffs, Some(3));
        let shares = run.shares;
        let all = shares.computation + shares.kernel + shares.pagemesh + shares.idle;
        assert!((all - 1.0).abs() < 1e-9, "{all}");
        assert!((shares.kernel - 0.15).abs() < 1e-9);
    }

    #[test]
    fn this_process_has_used_a_processor() {
        let [user, system] = processor_seconds(std::process::id()).unwrap();
        assert!(user >= 0.0 && system >= 0.0);
    }
}
