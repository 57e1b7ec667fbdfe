//! `pagemesh status`: the health of the cluster, with problems and cures.

use crate::exit::Exit;
use crate::global::{Format, Global};
use crate::output;
use crate::units::nanos;
use anyhow::Result;
use clap::Args;
use pagemesh_wire::NodeId;
use pagemesh_wire::local::{DiskState, NodeStatus, Trouble};
use pagemesh_wire::peer::Health::{Alive, Dead};
use pagemesh_wire::peer::Member;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// Say whether all is well, and what to do if not
#[derive(Args)]
pub(crate) struct Status {}

impl Status {
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        let mut control = super::connect(global)?;
        let status = control.status()?;
        let (_, spoken, members) = control.everyone()?;
        let problems = problems(&status, &members);
        let health = Health::of(&status, &members, &problems);
        if global.quiet {
            return Ok(health.exit());
        }
        match global.output {
            Format::Json => {
                output::json(document(&status, (spoken, &members), health, &problems))?;
            }
            Format::Table | Format::Wide => {
                output::lines(lines(&status, (spoken, &members), health, &problems))?;
            }
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
    /// A member died, the coordinator is silent, or its disk is full or broken.
    Degraded,
    /// This node is no member: nothing works here.
    Out,
}

impl Health {
    fn of(status: &NodeStatus, members: &[Member], problems: &[String]) -> Self {
        if status.alive == 0 {
            Self::Out
        } else if missing(members).next().is_some()
            || is_headless(status)
            || status.control.disk == DiskState::Failing
        {
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
            Self::Out => "out",
        }
    }

    fn exit(self) -> Exit {
        match self {
            Self::Healthy | Self::Hampered => Exit::OK,
            Self::Degraded | Self::Out => Exit::DEGRADED,
        }
    }
}

/// Whether the coordinator has been silent for so long that any other member would be declared
/// dead.
fn is_headless(status: &NodeStatus) -> bool {
    status.control.silent > 5.0
}

/// The dead members that were not replaced. A host may have any name, but a daemon that listens
/// where another one did has taken its place.
fn missing(members: &[Member]) -> impl Iterator<Item = &Member> {
    let dead = members.iter().filter(|member| member.health == Dead);
    dead.filter(|member| successor(member, members).is_none())
}

/// The node that has taken the place of a dead one.
fn successor<'a>(dead: &Member, members: &'a [Member]) -> Option<&'a Member> {
    // Members are in the order of their admission, and numbers are not.
    let later = members.iter().skip_while(|other| other.id != dead.id);
    later
        .skip(1)
        .find(|other| other.health == Alive && other.address == dead.address)
}

/// The daemon's own, and one for every missing member; each with its next step.
fn problems(status: &NodeStatus, members: &[Member]) -> Vec<String> {
    let mut problems = status.problems.clone();
    if status.alive == 0 {
        // Its knowledge of the others is old.
        return problems;
    }
    for member in missing(members) {
        problems.push(Trouble::MemberDead.line(format_args!(
            "{} ({}, {}) is dead, and what only it held is lost: start its daemon again, which \
             joins as a new node, or do without it (`pagemesh members forget {}`)",
            member.id, member.name, member.address, member.id
        )));
    }
    if status.unreplicated > 0 && status.alive == 1 {
        let lacking = status.unreplicated;
        problems.push(Trouble::NoSecondNode.line(format_args!(
            "{lacking} pages have no replica, since this is the only node: start a second one, \
             which gets them by itself"
        )));
    }
    problems
}

fn lines(
    status: &NodeStatus,
    (spoken, members): (u8, &[Member]),
    health: Health,
    problems: &[String],
) -> Vec<String> {
    let dead = missing(members).count();
    let nodes = if status.alive == 1 { "node" } else { "nodes" };
    let mut lines = vec![
        match health {
            Health::Out => "out: this node is no member of the cluster".to_owned(),
            _ => format!(
                "{}: {} {nodes} alive, {dead} dead",
                health.name(),
                status.alive
            ),
        },
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
    if health != Health::Out {
        lines.extend([control(status), protocol(spoken, members)]);
    }
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
    if status.unreplicated > 0 {
        lines.push(format!(
            "replicas: {} pages are on no second node yet",
            status.unreplicated
        ));
    }
    lines.extend(problems.iter().map(|problem| format!("problem: {problem}")));
    lines
}

/// Which version of the protocol is spoken, and which members speak no newer one, if others do.
fn protocol(spoken: u8, members: &[Member]) -> String {
    let behind: Vec<String> = behind(spoken, members)
        .map(|member| member.id.to_string())
        .collect();
    if behind.is_empty() {
        return format!("protocol: {spoken}");
    }
    let behind = behind.join(", ");
    format!(
        "protocol: {spoken}, which is the newest that {behind} can speak; others speak newer ones"
    )
}

fn protocol_document(spoken: u8, members: &[Member]) -> serde_json::Value {
    let behind = behind(spoken, members).map(|member| member.id.0);
    json!({"spoken": spoken, "behind": behind.collect::<Vec<_>>()})
}

/// The members that keep the others from speaking a newer version.
fn behind(spoken: u8, members: &[Member]) -> impl Iterator<Item = &Member> {
    let living = || members.iter().filter(|member| member.health == Alive);
    let newest = move |member: &&Member| member.program.speaks.newest <= spoken;
    let some_speak_newer = !living().all(|member| newest(&member));
    living().filter(move |member| some_speak_newer && newest(member))
}

/// The line of `status` that names the coordinator, its term and the standby.
fn control(status: &NodeStatus) -> String {
    let control = &status.control;
    let (node, term) = (control.coordinator, control.term);
    let coordinator = format!("coordinator: {node} (term {term})");
    let behind = match control.behind {
        0 => "knows all that it knows".to_owned(),
        entries => format!("is {entries} entries behind"),
    };
    match (control.standby, control.copying) {
        (NodeId::NONE, NodeId::NONE) => format!("{coordinator}; no standby"),
        (NodeId::NONE, next) => format!("{coordinator}; {next} will be the standby, and {behind}"),
        (standby, _) if node == status.node => {
            format!("{coordinator}; standby: {standby}, which {behind}")
        }
        (standby, _) => format!("{coordinator}; standby: {standby}"),
    }
}

fn control_document(status: &NodeStatus) -> serde_json::Value {
    let control = &status.control;
    let some = |node: NodeId| (node != NodeId::NONE).then_some(node.0);
    let coordinates = control.coordinator == status.node;
    json!({
        "coordinator": some(control.coordinator),
        "term": control.term,
        "standby": some(control.standby),
        "copying": some(control.copying),
        "behind": coordinates.then_some(control.behind),
        "silent_seconds": control.silent,
        "disk": match control.disk {
            DiskState::None => None,
            DiskState::Good => Some("good"),
            DiskState::Failing => Some("failing"),
        },
    })
}

/// The names of the states that the problems are of, each once.
fn states(problems: &[String]) -> BTreeSet<&'static str> {
    let troubles = problems.iter().filter_map(|line| Trouble::of_line(line));
    troubles.map(Trouble::name).collect()
}

fn document(
    status: &NodeStatus,
    (spoken, members): (u8, &[Member]),
    health: Health,
    problems: &[String],
) -> serde_json::Value {
    let ids = |members: Vec<&Member>| members.iter().map(|member| member.id.0).collect::<Vec<_>>();
    json!({
        "health": health.name(),
        "node": status.node.0,
        "name": status.name,
        "address": status.address,
        "alive": status.alive,
        "dead": status.dead,
        "missing": ids(missing(members).collect()),
        "member": status.alive > 0,
        "processes": status.clients,
        "segments": status.segments,
        "pages": status.pages,
        "uptime_seconds": status.uptime,
        "fault_p50_ns": status.fault_p50,
        "fault_p99_ns": status.fault_p99,
        "problems": problems,
        "states": states(problems),
        "keeper": status.keeper,
        "takeovers": status.takeovers,
        "unreplicated": status.unreplicated,
        "control": control_document(status),
        "protocol": protocol_document(spoken, members),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::local::ControlStatus;
    use pagemesh_wire::peer::Health as Of;
    use pagemesh_wire::{Incarnation, Program, PublicKey, Versions};

    fn member(id: u16, name: &str, host: u8, health: Of) -> Member {
        Member {
            id: NodeId(id),
            name: name.into(),
            address: ([10, 0, 0, host], 7450).into(),
            incarnation: Incarnation(u64::from(id)),
            key: PublicKey::NONE,
            health,
            program: Program::of(Versions::SPOKEN),
        }
    }

    fn status(alive: u32, problems: &[&str]) -> NodeStatus {
        NodeStatus {
            node: NodeId(1),
            name: "host".into(),
            address: "10.0.0.1:7450".into(),
            alive,
            dead: 0,
            clients: 0,
            segments: 0,
            pages: 0,
            uptime: 0.0,
            fault_p50: 0,
            fault_p99: 0,
            problems: problems.iter().map(ToString::to_string).collect(),
            keeper: 0,
            takeovers: 0,
            unreplicated: 0,
            control: ControlStatus {
                coordinator: NodeId(1),
                term: 1,
                standby: NodeId(2),
                copying: NodeId::NONE,
                behind: 0,
                silent: 0.0,
                disk: DiskState::None,
            },
        }
    }

    fn judge(members: &[Member]) -> (Health, usize) {
        let status = status(3, &[]);
        let problems = problems(&status, members);
        (Health::of(&status, members, &problems), problems.len())
    }

    #[test]
    fn the_dead_are_counted_by_number_whatever_their_hosts_are_called() {
        let mut members = vec![
            member(1, "host", 1, Of::Alive),
            member(2, "host", 2, Of::Dead),
            member(3, "host", 3, Of::Dead),
        ];
        assert_eq!(judge(&members), (Health::Degraded, 2));
        members.push(member(4, "other", 2, Of::Alive));
        assert_eq!(
            judge(&members),
            (Health::Degraded, 1),
            "n4 took the place of n2"
        );
        members[2].health = Of::Forgotten;
        assert_eq!(judge(&members), (Health::Healthy, 0));
        members[3].health = Of::Dead;
        assert_eq!(judge(&members), (Health::Degraded, 2), "n2 and n4");
        members.push(member(5, "host", 2, Of::Alive));
        assert_eq!(judge(&members), (Health::Healthy, 0), "n5 for both");
    }

    #[test]
    fn it_says_who_coordinates_and_who_could() {
        let mut status = status(3, &[]);
        let said = |status: &NodeStatus| control(status);
        let all = "coordinator: n1 (term 1); standby: n2, which knows all that it knows";
        assert_eq!(said(&status), all);
        status.control.behind = 7;
        assert!(said(&status).ends_with("n2, which is 7 entries behind"));
        status.node = NodeId(3);
        assert!(said(&status).ends_with("standby: n2"), "only n1 knows more");
        status.control.standby = NodeId::NONE;
        assert!(said(&status).ends_with("; no standby"));
        status.control.copying = NodeId(3);
        assert!(said(&status).contains("n3 will be the standby, and is 7"));
        assert_eq!(
            control_document(&status)["standby"],
            serde_json::Value::Null
        );
        status.control.disk = DiskState::Failing;
        assert_eq!(Health::of(&status, &[], &[]), Health::Degraded);
        assert_eq!(control_document(&status)["disk"], "failing");
        status.control.disk = DiskState::Good;
        assert_eq!(Health::of(&status, &[], &[]), Health::Healthy);
        status.control.silent = 6.0;
        assert_eq!(Health::of(&status, &[], &[]), Health::Degraded);
    }

    #[test]
    fn it_says_who_keeps_the_others_from_a_newer_protocol() {
        let mut members = [
            member(1, "a", 1, Of::Alive),
            member(2, "b", 2, Of::Alive),
            member(3, "c", 3, Of::Dead),
        ];
        for member in &mut members {
            member.program.speaks = Versions {
                oldest: 4,
                newest: 5,
            };
        }
        assert_eq!(protocol(5, &members), "protocol: 5");
        members[2].program = Program::SILENT;
        assert_eq!(protocol(5, &members), "protocol: 5", "it is dead");
        members[1].program = Program::SILENT;
        let said = protocol(4, &members);
        assert!(
            said.starts_with("protocol: 4, which is the newest that n2 "),
            "{said}"
        );
        assert_eq!(protocol_document(4, &members)["behind"], json!([2]));
        let status = status(2, &[]);
        let lines = lines(&status, (4, &members), Health::Healthy, &[]);
        assert!(lines.contains(&said), "{lines:?}");
    }

    #[test]
    fn a_node_that_is_out_says_so_first_and_fails() {
        let members = [member(1, "a", 1, Of::Alive), member(2, "b", 2, Of::Dead)];
        let status = status(0, &["this node is not a member"]);
        let problems = problems(&status, &members);
        assert_eq!(problems, ["this node is not a member"]);
        let health = Health::of(&status, &members, &problems);
        assert_ne!(health.exit(), Exit::OK);
        let lines = lines(&status, (5, &members), health, &problems);
        assert!(lines[0].starts_with("out:"), "{lines:?}");
        assert!(!lines[0].contains("alive"));
    }
}
