//! `pagemesh status`: is all well, and what to do if not.

use crate::exit::Exit;
use crate::global::{Format, Global};
use crate::output;
use crate::units::nanos;
use anyhow::Result;
use clap::Args;
use pagemesh_wire::local::NodeStatus;
use pagemesh_wire::peer::Health::{Alive, Dead};
use pagemesh_wire::peer::Member;
use serde_json::json;
use std::time::Duration;

/// Say whether all is well, and what to do if not
#[derive(Args)]
pub(crate) struct Status {}

impl Status {
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        let mut control = super::connect(global)?;
        let status = control.status()?;
        let (_, members) = control.members()?;
        let problems = problems(&status, &members);
        let health = Health::of(&members, &problems);
        if global.quiet {
            return Ok(health.exit());
        }
        match global.output {
            Format::Json => output::json(document(&status, health, &problems))?,
            Format::Table | Format::Wide => output::lines(lines(&status, health, &problems))?,
        }
        Ok(health.exit())
    }
}

/// The first word of the first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Healthy,
    /// Nothing is lost, but this node could do better.
    Hampered,
    /// A member died.
    Degraded,
}

impl Health {
    fn of(members: &[Member], problems: &[String]) -> Self {
        if missing(members).next().is_some() {
            Self::Degraded
        } else if problems.is_empty() {
            Self::Healthy
        } else {
            Self::Hampered
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Hampered => "hampered",
            Self::Degraded => "degraded",
        }
    }

    fn exit(self) -> Exit {
        match self {
            Self::Healthy | Self::Hampered => Exit::OK,
            Self::Degraded => Exit::DEGRADED,
        }
    }
}

/// The dead, except those whose hosts came back as new nodes of the same name.
fn missing(members: &[Member]) -> impl Iterator<Item = &Member> {
    let back = |dead: &Member| {
        members
            .iter()
            .any(|other| other.name == dead.name && other.health == Alive)
    };
    members
        .iter()
        .filter(move |member| member.health == Dead && !back(member))
}

/// The daemon's own, and one for every missing member; each with its next step.
fn problems(status: &NodeStatus, members: &[Member]) -> Vec<String> {
    let mut problems = status.problems.clone();
    for member in members.iter().filter(|member| member.health == Dead) {
        problems.push(format!(
            "{} ({}, {}) is dead, and what only it held is lost: start its daemon again; \
             it joins as a new node",
            member.id, member.name, member.address
        ));
    }
    problems
}

fn lines(status: &NodeStatus, health: Health, problems: &[String]) -> Vec<String> {
    let nodes = if status.alive == 1 { "node" } else { "nodes" };
    let mut lines = vec![
        format!(
            "{}: {} {nodes} alive, {} dead",
            health.name(),
            status.alive,
            status.dead
        ),
        format!(
            "this node: {} ({}) at {}, up {}",
            status.node,
            status.name,
            status.address,
            humantime::format_duration(Duration::from_secs(status.uptime as u64))
        ),
        format!(
            "here: {} processes, {} segments, {} pages known",
            status.clients, status.segments, status.pages
        ),
    ];
    lines.push(match (status.keeper, status.takeovers) {
        (0, _) => "keeper: none; programs would not survive this daemon".to_owned(),
        (process, 0) => format!("keeper: process {process}"),
        (process, times) => format!("keeper: process {process}; taken over {times} times"),
    });
    if status.fault_p50 > 0 {
        lines.push(format!(
            "remote faults: p50 {}, p99 {}",
            nanos(status.fault_p50),
            nanos(status.fault_p99)
        ));
    }
    lines.extend(problems.iter().map(|problem| format!("problem: {problem}")));
    lines
}

fn document(status: &NodeStatus, health: Health, problems: &[String]) -> serde_json::Value {
    json!({
        "health": health.name(),
        "node": status.node.0,
        "name": status.name,
        "address": status.address,
        "alive": status.alive,
        "dead": status.dead,
        "processes": status.clients,
        "segments": status.segments,
        "pages": status.pages,
        "uptime_seconds": status.uptime,
        "fault_p50_ns": status.fault_p50,
        "fault_p99_ns": status.fault_p99,
        "problems": problems,
        "keeper": status.keeper,
        "takeovers": status.takeovers,
    })
}
