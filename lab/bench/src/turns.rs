//! `bench turns`: a slow node and a fast one contend for a page, and for a lock; how
//! often each has it (FR5, FB4).

use super::Waiting;
use super::agent::Order;
use super::cpu_slots::{pin_process, processor};
use super::report::Report;
use super::testbed::Testbed;
use anyhow::{Context, Result, ensure};
use clap::Args;
use pagemesh_cli::sandbox::Plan;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Whether a slow node gets its turns
#[derive(Args, Clone, Debug)]
pub(crate) struct Turns {
    /// How long nodes contend, in milliseconds, for each row
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    millis: u64,
}

/// The contending nodes; the fast one is the home of the segment.
const FAST: usize = 0;
pub(super) const SLOW: usize = 1;

const LOCK: u64 = 1;

/// The reason why a node is slow.
#[derive(Clone, Copy, Debug)]
pub(super) enum Slow {
    /// Nothing: both are alike.
    Not,
    /// Its program does something else between two stores.
    Pausing(Duration),
    /// Every datagram that it sends is delayed.
    Far(Duration),
    /// It shares its processor with a program that computes.
    Crowded,
}

impl Slow {
    pub(super) const ALL: [Self; 5] = [
        Self::Not,
        Self::Pausing(Duration::from_micros(50)),
        Self::Far(Duration::from_micros(200)),
        Self::Far(Duration::from_millis(2)),
        Self::Crowded,
    ];

    pub(super) fn name(self) -> String {
        match self {
            Self::Not => "alike".to_owned(),
            Self::Pausing(pause) => format!("pausing_{}us", pause.as_micros()),
            Self::Far(delay) => format!("far_{}us", delay.as_micros()),
            Self::Crowded => "half_a_processor".to_owned(),
        }
    }

    pub(super) fn testbed(self) -> Result<Testbed> {
        let mut plan = Plan::new(2);
        if let Self::Far(delay) = self {
            plan.impair.delay = delay;
            plan.impaired = Some(SLOW);
        }
        Testbed::raise(&plan, Waiting::Spin)
    }

    /// The process that computes on the slow node's processor until it is dropped.
    pub(super) fn crowd(self) -> Result<Option<impl Drop>> {
        let crowded = matches!(self, Self::Crowded);
        crowded.then(Burner::start).transpose()
    }

    /// Nanoseconds between two stores of a node.
    pub(super) fn pause(self, node: usize) -> u64 {
        match self {
            Self::Pausing(pause) if node == SLOW => pause.as_nanos() as u64,
            _ => 0,
        }
    }
}

impl Turns {
    pub(super) fn measure(&self) -> Result<Report> {
        let mut report = Report::new("turns");
        for slow in Slow::ALL {
            let mut testbed = slow.testbed()?;
            testbed.open("bench.turns", 1, None)?;
            let _crowd = slow.crowd()?;
            let millis = self.millis;
            let page = |node| Order::Contend {
                millis,
                pause_nanos: slow.pause(node),
            };
            self.contend(
                &mut testbed,
                "page",
                "ownerships_arrived",
                slow,
                page,
                &mut report,
            )?;
            let lock = |node| Order::ContendLock {
                number: LOCK,
                millis,
                pause_nanos: slow.pause(node),
            };
            self.contend(&mut testbed, "lock", "tokens_in", slow, lock, &mut report)?;
        }
        Ok(report)
    }

    /// Both at once; a turn is an arrival of the page or lock they contend for.
    fn contend(
        &self,
        testbed: &mut Testbed,
        what: &str,
        counter: &str,
        slow: Slow,
        order: impl Fn(usize) -> Order,
        report: &mut Report,
    ) -> Result<()> {
        let count = |testbed: &mut Testbed| -> Result<[u64; 2]> {
            Ok([
                testbed.counters(FAST)?.of(counter),
                testbed.counters(SLOW)?.of(counter),
            ])
        };
        let before = count(testbed)?;
        for node in [SLOW, FAST] {
            testbed.tell(node, &order(node))?;
        }
        let uses: u64 = [testbed.hear(FAST)?, testbed.hear(SLOW)?]
            .iter()
            .flatten()
            .sum();
        let after = count(testbed)?;
        let turns = [0, 1].map(|node| after[node] - before[node]);
        let all = turns[FAST] + turns[SLOW];
        ensure!(all > 0, "nobody had a turn at the {what}");
        let name = |row: &str| format!("{row}/{what}/{}", slow.name());
        let share = turns[SLOW] as f64 / all as f64;
        report.value(&name("share_of_the_slow"), "share", share, all as usize);
        report.waited(Waiting::Spin.name());
        let seconds = self.millis as f64 / 1000.0;
        report.value(&name("turns"), "/s", all as f64 / seconds, all as usize);
        report.waited(Waiting::Spin.name());
        report.value(&name("uses"), "/s", uses as f64 / seconds, uses as usize);
        report.waited(Waiting::Spin.name());
        Ok(())
    }
}

/// A program that computes where the slow node is.
struct Burner(Child);

impl Burner {
    fn start() -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.args(["burn", &u64::MAX.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        pagemesh_os::netns::die_with_parent(&mut command);
        let burner = Self(command.spawn().context("cannot start a burner")?);
        pin_process(burner.0.id(), processor(SLOW)).context("cannot pin a burner")?;
        Ok(burner)
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
