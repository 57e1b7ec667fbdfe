//! `pagemesh swap status`: the device, and whether it is safe, by what the kernel says.

use super::host::{self, Process, Residence, SwapSpace};
use super::state::{Places, State};
use crate::commands;
use crate::exit::Exit;
use crate::global::{Format, Global};
use crate::output;
use crate::units::size;
use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use std::path::Path;

#[derive(Args)]
pub(super) struct Status {}

/// The facts.
struct Facts {
    state: State,
    space: Option<SwapSpace>,
    server: Option<Residence>,
    daemon: Option<(u32, Residence)>,
}

impl Status {
    pub(super) fn run(self, global: &Global, directory: &Path) -> Result<Exit> {
        let Some(state) = Places(directory).read()? else {
            output::told(
                global.output,
                "off: no memory of the cluster is swap space of this host",
                json!({ "on": false }),
            )?;
            return Ok(Exit::OK);
        };
        let facts = Facts::gather(global, state);
        let problems = facts.problems();
        if !global.quiet {
            match global.output {
                Format::Json => output::json(facts.document(&problems))?,
                Format::Table | Format::Wide => output::lines(facts.lines(&problems))?,
            }
        }
        Ok(match problems.is_empty() {
            true => Exit::OK,
            false => Exit::DEGRADED,
        })
    }
}

impl Facts {
    fn gather(global: &Global, state: State) -> Self {
        let mut global = global.clone();
        global.socket = global.socket.or_else(|| state.socket.clone());
        let daemon = commands::connect(&global).ok();
        let daemon = daemon
            .and_then(|control| control.process())
            .and_then(|pid| {
                let residence = Process::of(pid)?.residence()?;
                Some((pid, residence))
            });
        Self {
            space: host::swap_space(&state.device),
            server: state.server.residence(),
            daemon,
            state,
        }
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.space.is_none() {
            problems.push("the device is no swap space: pagemesh swap off, then on".to_owned());
        }
        let daemon = self.daemon.map(|(_, residence)| residence);
        for (name, residence) in [("server", self.server), ("daemon", daemon)] {
            let Some(residence) = residence else {
                problems.push(format!(
                    "there is no {name}: what is swapped out cannot come back without it"
                ));
                continue;
            };
            if residence.locked == 0 || residence.swapped > 0 {
                problems.push(format!(
                    "the {name} is not locked in memory ({} swapped out): start it as root, then \
                     pagemesh swap off and on",
                    size(residence.swapped)
                ));
            }
            if residence.oom_weight > -1000 {
                problems.push(format!(
                    "the kernel may end the {name} when memory runs out (oom_score_adj {}): give \
                     it CAP_SYS_RESOURCE",
                    residence.oom_weight
                ));
            }
        }
        problems
    }

    fn lines(&self, problems: &[String]) -> Vec<String> {
        let used = self.space.as_ref().map_or(0, |space| space.used);
        let mut lines = vec![format!(
            "on: {} with {}, {} of them used",
            self.state.device.display(),
            size(self.state.size),
            size(used)
        )];
        lines.push(format!("server: process {}", self.state.server.pid));
        if let Some((pid, _)) = self.daemon {
            lines.push(format!("daemon: process {pid}"));
        }
        lines.extend(problems.iter().map(|problem| format!("problem: {problem}")));
        lines
    }

    fn document(&self, problems: &[String]) -> Value {
        json!({
            "on": self.space.is_some(),
            "device": self.state.device,
            "size": self.state.size,
            "local": self.state.local,
            "used": self.space.as_ref().map(|space| space.used),
            "priority": self.space.as_ref().map(|space| space.priority),
            "server": { "process": self.state.server.pid, "memory": self.server },
            "daemon": self.daemon.map(|(pid, memory)| json!({ "process": pid, "memory": memory })),
            "problems": problems,
        })
    }
}
