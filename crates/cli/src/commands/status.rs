//! `pagemesh status`: is all well, and what to do if not.

use crate::cli::{Format, Global};
use crate::exit::Exit;
use crate::output;
use crate::units::nanos;
use anyhow::Result;
use clap::Args;
use pagemesh_wire::local::NodeStatus;
use pagemesh_wire::peer::{Health, Member};
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
        let exit = if problems.is_empty() {
            Exit::OK
        } else {
            Exit::DEGRADED
        };
        if global.quiet {
            return Ok(exit);
        }
        match global.output {
            Format::Json => output::json(document(&status, &problems))?,
            Format::Table | Format::Wide => output::lines(lines(&status, &problems))?,
        }
        Ok(exit)
    }
}

/// The daemon's own, and one for every dead member; each with its next step.
fn problems(status: &NodeStatus, members: &[Member]) -> Vec<String> {
    let mut problems = status.problems.clone();
    for member in members
        .iter()
        .filter(|member| member.health == Health::Dead)
    {
        problems.push(format!(
            "{} ({}, {}) is dead, and what only it held is lost: start its daemon again; \
             it joins as a new node",
            member.id, member.name, member.address
        ));
    }
    problems
}

fn lines(status: &NodeStatus, problems: &[String]) -> Vec<String> {
    let health = if problems.is_empty() {
        "healthy"
    } else {
        "degraded"
    };
    let nodes = if status.alive == 1 { "node" } else { "nodes" };
    let mut lines = vec![
        format!(
            "{health}: {} {nodes} alive, {} dead",
            status.alive, status.dead
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

fn document(status: &NodeStatus, problems: &[String]) -> serde_json::Value {
    json!({
        "healthy": problems.is_empty(),
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
    })
}
