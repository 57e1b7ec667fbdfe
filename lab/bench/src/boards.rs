//! `bench boards`: state that one process writes and many watch, each system beside plain UDP
//! multicast by a C program, in turn in the same run (EB3).

mod companion;
mod install;
mod outcome;
mod process;
mod stage;
mod systems;
mod table;

pub(super) use companion::{Companion, Running};

use super::Waiting;
use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use outcome::Outcome;
use serde::Serialize;
use stage::Stage;
use std::collections::BTreeMap;
use std::path::PathBuf;
use systems::System;
use table::Table;

/// How old state is that one process writes and many watch, beside plain UDP multicast
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "The floor and `sequential` are C programs of lab/apps/boards, compiled here; peers are driven from \
                  Python, which adds 100 to 150 us. Everything at once takes about an hour: choose by --readers, \
                  --sizes, --scenarios and --systems."
)]
pub(super) struct Boards {
    /// How many processes watch, each on a node of its own
    #[arg(long, value_delimiter = ',', default_values_t = [3, 7, 31], value_parser = clap::value_parser!(u16).range(1..=60))]
    readers: Vec<u16>,
    /// Bytes of a state: multiples of 8, at least 32
    #[arg(long, value_delimiter = ',', default_values_t = [32, 4096, 65536, 1 << 20])]
    sizes: Vec<usize>,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Rounds, all systems in turn
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Only these situations
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Scenario::ALL)]
    scenarios: Vec<Scenario>,
    /// Only these systems; the floor always
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = System::ALL)]
    systems: Vec<System>,
    /// Only with nothing else on the machine, or only beside a process that takes a tenth of each processor
    #[arg(long, value_enum)]
    load: Option<Load>,
    /// How daemons wait; as they like by default
    #[arg(long, value_enum)]
    waiting: Option<Waiting>,
    /// A directory with a virtual environment of Python that has the peers
    #[arg(long, value_name = "DIRECTORY")]
    venv: Option<PathBuf>,
    /// Install what is missing: by apt-get, and by pip into the virtual environment, which is made
    #[arg(long)]
    install: bool,
}

/// The situation that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum Scenario {
    /// 100 states a second
    #[value(name = "100hz")]
    #[serde(rename = "100hz")]
    Paced,
    /// States as fast as possible
    Flat,
    /// A state is answered with a state
    Ping,
    /// 100 states a second; one reader is stopped for the middle third
    Stopped,
    /// Somebody comes after the last state
    Late,
    /// 100 states a second; every node loses 5 % of the packets that come in
    Loss,
}

impl Scenario {
    const ALL: [Self; 6] = [
        Self::Paced,
        Self::Flat,
        Self::Ping,
        Self::Stopped,
        Self::Late,
        Self::Loss,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Paced => "100hz",
            Self::Flat => "flat",
            Self::Ping => "ping",
            Self::Stopped => "stopped",
            Self::Late => "late",
            Self::Loss => "loss",
        }
    }

    /// States a second; 0 is as fast as possible.
    fn rate(self) -> u32 {
        if self == Self::Flat { 0 } else { 100 }
    }

    /// Whether it is measured with any number of readers, and beside a companion.
    fn is_swept(self) -> bool {
        matches!(self, Self::Paced | Self::Flat)
    }
}

/// What else the machine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum Load {
    /// Nothing of ours.
    Quiet,
    /// A tenth of each processor is taken in bursts.
    Companion,
}

impl Load {
    const ALL: [Self; 2] = [Self::Quiet, Self::Companion];

    fn name(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Companion => "companion",
        }
    }
}

/// One measurement of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Case {
    readers: u16,
    scenario: Scenario,
    size: usize,
    load: Load,
}

impl Boards {
    pub(super) fn measure(&self) -> Result<Table> {
        for size in &self.sizes {
            ensure!(
                *size >= 32 && size % 8 == 0 && *size <= 16 << 20,
                "a state has 32 bytes to 16 MiB, a multiple of 8, not {size}"
            );
        }
        ensure!(
            self.seconds > 0.0 && self.seconds <= 600.0,
            "a measurement takes up to 600 seconds, not {}",
            self.seconds
        );
        let venv = self.venv.clone().map_or_else(install::home, Ok)?;
        if self.install {
            install::all(&venv)?;
        }
        let mut table = Table::default();
        let fewest = self.readers.iter().copied().min();
        for &readers in &self.readers {
            let cases = self.cases(readers, Some(readers) == fewest);
            if !cases.is_empty() {
                self.beside(readers, &cases, &venv, &mut table)?;
            }
        }
        Ok(table)
    }

    /// What is measured with so many readers.
    fn cases(&self, readers: u16, fewest: bool) -> Vec<Case> {
        let mut cases = Vec::new();
        for &size in &self.sizes {
            for &scenario in &self.scenarios {
                for load in Load::ALL {
                    let swept = scenario.is_swept();
                    let wanted = self
                        .load
                        .map_or(swept || load == Load::Quiet, |one| one == load);
                    if wanted && (swept || fewest) {
                        cases.push(Case {
                            readers,
                            scenario,
                            size,
                            load,
                        });
                    }
                }
            }
        }
        cases
    }

    /// Every system in turn, in each case and round.
    fn beside(
        &self,
        readers: u16,
        cases: &[Case],
        venv: &std::path::Path,
        table: &mut Table,
    ) -> Result<()> {
        let mut stage = Stage::raise(usize::from(readers), self.waiting, venv)?;
        let mut systems = vec![System::Floor];
        for &system in self.systems.iter().filter(|&&one| one != System::Floor) {
            match stage.prepare(system) {
                Ok(()) => systems.push(system),
                Err(why) => table.skip(format!("{}/{readers}", system.name()), &why),
            }
        }
        stage.prepare(System::Floor)?;
        let mut found: BTreeMap<(Case, System), Outcome> = BTreeMap::new();
        for _ in 0..self.rounds {
            for &case in cases {
                for &system in &systems {
                    match stage.run(system, case, self.seconds) {
                        Ok(outcome) => found.entry((case, system)).or_default().add(outcome),
                        Err(why) => {
                            let name = format!("{}/{}", system.name(), case.name());
                            table.skip(name, &why);
                        }
                    }
                }
            }
        }
        table.tell(&found);
        Ok(())
    }
}

impl Case {
    fn name(&self) -> String {
        let (scenario, load) = (self.scenario.name(), self.load.name());
        format!("{scenario}/{}/{}/{load}", self.size, self.readers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        boards: Boards,
    }

    #[test]
    fn what_is_not_swept_is_measured_once_and_quietly() {
        let boards = Alone::parse_from(["boards", "--sizes", "32"]).boards;
        let count = |cases: &[Case], scenario| {
            cases
                .iter()
                .filter(|case| case.scenario == scenario)
                .count()
        };
        let (few, many) = (boards.cases(3, true), boards.cases(7, false));
        assert_eq!(
            (count(&few, Scenario::Paced), count(&many, Scenario::Paced)),
            (2, 2)
        );
        assert_eq!(
            (count(&few, Scenario::Loss), count(&many, Scenario::Loss)),
            (1, 0)
        );
    }

    #[test]
    fn states_have_sizes_that_can_be_marked() {
        let boards = Alone::parse_from(["boards", "--sizes", "36"]).boards;
        let why = boards.measure().err().unwrap().to_string();
        assert!(why.contains("multiple of 8, not 36"), "{why}");
    }
}
