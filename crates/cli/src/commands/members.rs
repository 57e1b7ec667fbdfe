//! `pagemesh members`: the members of the cluster.

use crate::exit::Exit;
use crate::global::{Format, Global};
use crate::output::{self, Table};
use anyhow::Result;
use clap::{Args, Subcommand};
use pagemesh_wire::NodeId;
use pagemesh_wire::local::{PathInfo, Request};
use pagemesh_wire::peer::{Health, Member};
use serde_json::{Value, json};

/// List the nodes of the cluster, or forget a dead one
#[derive(Args)]
pub(crate) struct Members {
    /// Those who left and those who died, too
    #[arg(short, long)]
    all: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Miss a dead node no more: `status` and `members` do not show it; what only it held
    /// stays lost. Root and the daemon's user may
    Forget {
        /// Number of the node, as in n3 or 3
        #[arg(value_parser = parse_node)]
        node: NodeId,
    },
}

fn parse_node(text: &str) -> Result<NodeId, String> {
    let number = text.strip_prefix('n').unwrap_or(text).parse().ok();
    let node = number.map(NodeId).filter(|node| node.is_valid());
    node.ok_or_else(|| "a node is named by its number, as in n3".to_owned())
}

impl Members {
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        let mut control = super::connect(global)?;
        if let Some(Command::Forget { node }) = self.command {
            control.ask(Request::ForgetMember { node })?;
            let sentence = format!("{node} is forgotten; what only it held stays lost");
            output::told(global.output, &sentence, json!({"forgotten": node.0}))?;
            return Ok(Exit::OK);
        }
        let here = control.node;
        let (epoch, spoken, mut members) = control.everyone()?;
        let paths = control.paths()?;
        if !self.all {
            let gone = |health| matches!(health, Health::Left | Health::Forgotten);
            members.retain(|member| !gone(member.health));
        }
        match global.output {
            Format::Json => output::json(json!({
                "epoch": epoch,
                "node": here.0,
                "protocol": spoken,
                "members": members.iter().map(|member| document(member, &paths)).collect::<Vec<_>>(),
            }))?,
            format => table(&members, &paths, here, format == Format::Wide).print()?,
        }
        Ok(Exit::OK)
    }
}

fn table(members: &[Member], paths: &[PathInfo], here: NodeId, wide: bool) -> Table {
    let mut header = vec!["NODE", "NAME", "ADDRESS", "HEALTH", "PROGRAM"];
    if wide {
        header.extend(["SPEAKS", "MTU", "INCARNATION"]);
    }
    let mut table = Table::new(&header);
    for member in members {
        let mark = if member.id == here { "*" } else { "" };
        let mut row = vec![
            format!("{}{mark}", member.id),
            member.name.clone(),
            member.address.to_string(),
            health(member.health).to_owned(),
            member.program.release.to_string(),
        ];
        if wide {
            row.push(member.program.speaks.to_string());
            row.push(mtu(member, paths).map_or_else(|| "-".into(), |mtu| mtu.to_string()));
            row.push(format!("{:016x}", member.incarnation.0));
        }
        table.row(row);
    }
    table
}

/// The largest packet from this node to a member; none if it was not found out.
fn mtu(member: &Member, paths: &[PathInfo]) -> Option<u32> {
    let mut found = paths.iter().filter(|path| path.found);
    let path = found.find(|path| path.node == member.id)?;
    Some(path.mtu)
}

fn document(member: &Member, paths: &[PathInfo]) -> Value {
    json!({
        "mtu": mtu(member, paths),
        "node": member.id.0,
        "name": member.name,
        "address": member.address.to_string(),
        "health": health(member.health),
        "program": member.program.release.to_string(),
        "speaks": [member.program.speaks.oldest, member.program.speaks.newest],
        "incarnation": format!("{:016x}", member.incarnation.0),
    })
}

fn health(health: Health) -> &'static str {
    match health {
        Health::Alive => "alive",
        Health::Left => "left",
        Health::Dead => "dead",
        Health::Revoked => "revoked",
        Health::Forgotten => "forgotten",
    }
}
