//! `cargo xtask soak`: everything that could show a fault, mixed, for as long as
//! one likes: simulated clusters of all profiles, real clusters under stress, on
//! bad networks and with deaths, litmus tests, hostile bytes.

mod child;
mod plan;
mod summary;

use anyhow::{Context as _, Result, bail};
use child::{End, Programs};
use pagemesh_os::signals::Signals;
use pagemesh_sim::{Campaign, Fuzz, Options, Profile, Target, failure_report};
use plan::{Dice, Part, Plan};
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use summary::{Failure, Summary};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How long
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,
    /// Which dice decide what comes next, and every seed [default: the time]
    #[arg(long)]
    seed: Option<u64>,
    /// Only parts whose names contain this: sim, stress, litmus, bytes, ...
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// What is printed at the end
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// Where logs and dumps of failures are kept [default: target/soak/SEED]
    #[arg(long, value_name = "DIRECTORY")]
    keep: Option<PathBuf>,
}

/// How the summary is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
}

/// A simulated part runs about so long; a real one ends by itself.
const TURN: Duration = Duration::from_secs(10);

/// Hostile inputs between two looks at the clock.
const INPUTS: u32 = 1000;

/// Seeds between two looks at the clock.
const SEEDS: u64 = 32;

/// One soak.
struct Soak {
    plan: Plan,
    programs: Programs,
    dice: Dice,
    signals: Signals,
    start: Instant,
    end: Instant,
    keep: PathBuf,
    summary: Summary,
    interrupted: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let seed = arguments.seed.unwrap_or_else(now);
    let programs = Programs::build()?;
    let plan = Plan::new(&programs, arguments.only.as_deref());
    if plan.is_empty() {
        bail!("no part of the soak is called so");
    }
    let keep = arguments
        .keep
        .clone()
        .unwrap_or_else(|| programs.target().join("soak").join(seed.to_string()));
    let start = Instant::now();
    let mut soak = Soak {
        plan,
        programs,
        dice: Dice(seed),
        signals: Signals::catch(&[2, 15]).context("signals cannot be caught")?,
        start,
        end: start + Duration::from_secs_f64(arguments.minutes * 60.0),
        keep,
        summary: Summary::new(seed, arguments.minutes),
        interrupted: false,
    };
    eprintln!("soak with --seed {seed}; Ctrl-C ends it with its summary");
    while Instant::now() < soak.end && !soak.interrupted {
        soak.next()?;
    }
    soak.summary.close(soak.start.elapsed(), soak.interrupted);
    if std::io::stderr().is_terminal() {
        eprintln!();
    }
    match arguments.output {
        Output::Table => print!("{}", soak.summary.table()),
        Output::Json => println!("{}", soak.summary.json()?),
    }
    if !soak.summary.failures.is_empty() {
        std::process::exit(1);
    }
    Ok(())
}

impl Soak {
    /// Runs one randomly chosen part.
    fn next(&mut self) -> Result<()> {
        let part = self.plan.draw(&mut self.dice);
        self.progress(&part.name());
        match part {
            Part::Sim(profile) => self.simulate(profile),
            Part::Fuzz(target) => self.fuzz(target),
            Part::Test(test) => self.test(&test),
        }
    }

    fn simulate(&mut self, profile: Profile) -> Result<()> {
        let replace = self.dice.next().is_multiple_of(3);
        let until = (Instant::now() + TURN).min(self.end);
        while Instant::now() < until && !self.is_interrupted()? {
            // A seed of the simulator is a small number one can type.
            let from = self.dice.next() % 1_000_000_000;
            let campaign = Campaign {
                from,
                count: SEEDS,
                profile,
                canary: None,
                replace,
                takeover: false,
                resume: false,
                etcd: false,
                upgrade: false,
                large: None,
                stop_at_failure: false,
            };
            let done = campaign.run(|_| {});
            self.summary.simulated(profile, &done);
            for failure in &done.failures {
                let options = Options {
                    seed: failure.seed,
                    profile,
                    replace,
                    ..Options::default()
                };
                let report = failure_report(options, 200).unwrap_or_default();
                let file = format!("sim-{profile}-{}.log", failure.seed);
                self.failed(Failure {
                    part: format!("sim {profile}"),
                    seed: failure.seed,
                    what: failure.violation.to_string(),
                    again: replay_line(&report),
                    kept: Some(self.keep(&file, report.as_bytes())?),
                });
            }
            self.progress(&format!("sim {profile}"));
        }
        Ok(())
    }

    fn fuzz(&mut self, target: Target) -> Result<()> {
        let fuzz = Fuzz::new(target).map_err(anyhow::Error::msg)?;
        let until = (Instant::now() + TURN).min(self.end);
        while Instant::now() < until && !self.is_interrupted()? {
            let seed = self.dice.next() % 1_000_000_000;
            let outcome = fuzz.mutate(seed, INPUTS);
            self.summary.fuzzed(target, INPUTS.into());
            if let Err(breach) = outcome {
                self.failed(Failure {
                    part: format!("fuzz {target}"),
                    seed,
                    what: breach.to_string(),
                    again: format!("add {} to {}", breach.input, target.corpus_file().display()),
                    kept: None,
                });
                break;
            }
            self.progress(&format!("fuzz {target}"));
        }
        Ok(())
    }

    fn test(&mut self, test: &plan::Test) -> Result<()> {
        let seed = self.dice.next() >> 1;
        let directory = self.keep.join(format!("{}-{seed}", test.file_name()));
        let mut child = self.programs.start(test, seed, &directory)?;
        let started = Instant::now();
        let end = loop {
            if self.is_interrupted()? {
                break child.stop();
            }
            if let Some(end) = child.look()? {
                break end;
            }
            let name = format!("{} {} s", test.name, started.elapsed().as_secs());
            self.progress(&name);
            std::thread::sleep(Duration::from_millis(100));
        };
        self.summary.tested(&test.name, started.elapsed(), &end);
        match end {
            End::Good | End::Stopped => drop(std::fs::remove_dir_all(&directory)),
            End::Bad(why) => self.failed(Failure {
                part: test.name.clone(),
                seed,
                what: why,
                again: self.programs.again(test, seed),
                kept: Some(directory),
            }),
        }
        Ok(())
    }

    fn failed(&mut self, failure: Failure) {
        if std::io::stderr().is_terminal() {
            eprintln!();
        }
        eprintln!("FAILED {failure}");
        self.summary.failures.push(failure);
    }

    fn keep(&self, file: &str, bytes: &[u8]) -> Result<PathBuf> {
        let path = self.keep.join(file);
        std::fs::create_dir_all(&self.keep)
            .and_then(|()| std::fs::write(&path, bytes))
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// True if a signal asks it to end.
    fn is_interrupted(&mut self) -> Result<bool> {
        self.interrupted |= self.signals.next()?.is_some();
        Ok(self.interrupted)
    }

    /// One line, over and over, for people who look.
    fn progress(&self, now: &str) {
        let mut output = std::io::stderr().lock();
        if output.is_terminal() {
            let elapsed = self.start.elapsed().as_secs();
            let whole = (self.end - self.start).as_secs();
            let line = format!(
                "{:02}:{:02} of {:02}:{:02}  {}  now {now}",
                elapsed / 60,
                elapsed % 60,
                whole / 60,
                whole % 60,
                self.summary.line()
            );
            let _ = write!(output, "\r{line:<110.110}");
            let _ = output.flush();
        }
    }
}

/// The line of a report that shows the failure again.
fn replay_line(report: &str) -> String {
    let line = report
        .lines()
        .find_map(|line| line.strip_prefix("replay: "));
    line.unwrap_or_default().to_owned()
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}
