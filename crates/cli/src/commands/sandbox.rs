//! `pagemesh sandbox`: a cluster on this machine, for a program or for a look.

use super::races::Races;
use crate::exit::Exit;
use crate::global::{Format, Global};
use crate::interrupts::Interrupts;
use crate::output;
use crate::preload;
use crate::ranks::{self, Care, Copy, Event, LocalCopy};
use crate::sandbox::{Netns, Plan, Sandbox};
use crate::units::{parse_duration, parse_share};
use anyhow::Result;
use clap::{Args, ValueEnum};
#[cfg(feature = "experiment")]
use pagemesh_daemon::Experiment;
use pagemesh_os::impair::Impairment;
use serde_json::json;
use std::ffi::OsString;
use std::time::Duration;

/// Bring up N nodes on this machine, for a program or for a look
#[derive(Args)]
#[command(
    after_help = "With CMD, one copy runs on each node, told by PAGEMESH_RANK, PAGEMESH_SIZE, \
                  PAGEMESH_SOCKET and PAGEMESH_JOB; the worst exit code is returned and \
                  everything is taken down. Without, the nodes stay until Ctrl-C."
)]
pub(crate) struct SandboxCommand {
    /// How many nodes
    #[arg(value_parser = clap::value_parser!(u8).range(1..=127))]
    nodes: u8,
    #[command(flatten)]
    shape: Shape,
    #[command(flatten)]
    care: Care,
    /// Let the program's System V calls be for all nodes (docs/sysv.md)
    #[arg(long, requires = "command")]
    sysv: bool,
    /// The program to run on every node, and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// The nodes and their network; other commands share it.
#[derive(Args, Clone, Debug)]
pub(crate) struct Shape {
    /// Share of datagrams lost, for example 1%
    #[arg(long, value_name = "P", default_value = "0", value_parser = parse_share)]
    loss: f64,
    /// Share of datagrams that arrive twice
    #[arg(long, value_name = "P", default_value = "0", value_parser = parse_share)]
    dup: f64,
    /// Share of datagrams that are overtaken
    #[arg(long, value_name = "P", default_value = "0", value_parser = parse_share)]
    reorder: f64,
    /// How long every datagram takes, for example 200us
    #[arg(long, value_name = "D", default_value = "0", value_parser = parse_duration)]
    delay: Duration,
    /// Where the dice of the impairments start
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Seal all datagrams between the nodes
    #[arg(long)]
    sealed: bool,
    /// Look for bytes that two nodes write without synchronizing, and say at the end
    /// which (policy release)
    #[arg(long)]
    check_races: bool,
    /// How daemons wait for datagrams
    #[arg(long, value_enum)]
    wait: Option<Wait>,
    /// Make pages smaller for the wire
    #[arg(long, value_enum)]
    compress: Option<Compress>,
    /// Let the daemons send what goes to several nodes at once to this multicast group
    #[arg(long, value_name = "GROUP[:PORT]")]
    multicast: Option<String>,
    /// Switches for those who measure: packet=1024,acknowledge=packet,receive=worker
    #[cfg(feature = "experiment")]
    #[arg(long, value_name = "SPEC")]
    experiment: Option<Experiment>,
    /// Network namespaces (needs root) or 127.0.0.x
    #[arg(long, value_enum, default_value_t)]
    netns: Netns,
    /// Elect the coordinator by an etcd of three members on the first three nodes
    #[arg(long, value_enum)]
    control: Option<Control>,
    /// Largest packet between network namespaces
    #[arg(long, default_value_t = 9000, value_parser = clap::value_parser!(u32).range(576..=65535))]
    mtu: u32,
}

/// What has the coordinator's decisions, and elects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Control {
    /// Debian's etcd-server, started for the sandbox
    Etcd,
}

/// How a daemon waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wait {
    /// Never sleeps: lowest latency, one CPU
    Spin,
    /// Always sleeps: no CPU, more latency
    Block,
    /// Spins while answers are due, then sleeps
    Auto,
}

impl Wait {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Block => "block",
            Self::Auto => "auto",
        }
    }
}

/// Whether a daemon makes pages smaller for the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Compress {
    /// Never
    Off,
    /// Every page, as runs of equal double words (MIRAGE+)
    Runs,
    /// Every page, by LZ4
    Lz4,
    /// Zero pages are not sent; others are packed where the link is slow enough
    Auto,
}

impl Compress {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Runs => "runs",
            Self::Lz4 => "lz4",
            Self::Auto => "auto",
        }
    }
}

impl Shape {
    /// The plan for so many nodes of this shape.
    pub(crate) fn plan(&self, nodes: usize) -> Plan {
        let mut plan = Plan::new(nodes);
        plan.impair = Impairment {
            loss: self.loss,
            dup: self.dup,
            reorder: self.reorder,
            delay: self.delay,
            seed: self.seed,
        };
        plan.waiting = self.wait.map(|wait| wait.name().to_owned());
        plan.compress = self.compress.map(|compress| compress.name().to_owned());
        #[cfg(feature = "experiment")]
        if let Some(experiment) = self.experiment {
            plan.experiment = experiment.to_string();
        }
        plan.sealed = self.sealed;
        plan.etcd = self.control == Some(Control::Etcd);
        plan.netns = self.netns;
        plan.mtu = self.mtu;
        if self.check_races {
            plan.daemon_args.push("--check-races".to_owned());
        }
        if let Some(group) = &self.multicast {
            plan.daemon_args.push(format!("--multicast={group}"));
        }
        plan
    }
}

impl SandboxCommand {
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        // Before anything is brought up for a program that cannot be run.
        let preloaded = match self.command.first().filter(|_| self.sysv) {
            Some(command) => Some((preload::VARIABLE, preload::preload(preload::SYSV, command)?)),
            None => None,
        };
        let interrupts = Interrupts::catch()?;
        let sandbox = Sandbox::start(&self.shape.plan(self.nodes.into()))?;
        if let Some(notice) = sandbox.notice()
            && !global.quiet
        {
            output::note(format_args!("pagemesh: {notice}"));
        }
        if self.command.is_empty() {
            present(&sandbox, global)?;
            interrupts.wait()?;
            return Ok(Exit::OK);
        }
        run_with(&sandbox, &self.command, preloaded, self.care, &interrupts)
    }
}

/// Runs one copy of the command on every node.
pub(crate) fn run_on_all(
    sandbox: &Sandbox,
    command: &[OsString],
    care: Care,
    interrupts: &Interrupts,
) -> Result<Exit> {
    run_with(sandbox, command, None, care, interrupts)
}

/// The same, with a variable of the environment.
fn run_with(
    sandbox: &Sandbox,
    command: &[OsString],
    variable: Option<(&str, OsString)>,
    care: Care,
    interrupts: &Interrupts,
) -> Result<Exit> {
    let (sender, events) = ranks::events();
    let mut copies: Vec<Box<dyn Copy>> = Vec::new();
    for (rank, node) in sandbox.nodes().iter().enumerate() {
        let mut copy = node.command(&command[0]);
        copy.args(&command[1..]);
        copy.envs(variable.clone());
        copies.push(Box::new(LocalCopy::start(rank, copy, &sender)?));
    }
    interrupts.watch(move |signal| sender.send(Event::Interrupted(signal)).is_ok())?;
    let exit = ranks::supervise(&copies, &events, care);
    let mut races = Races::default();
    for node in sandbox.nodes() {
        // A daemon that was ended tells nothing.
        let told = node
            .control()
            .and_then(|mut control| races.add(&mut control, 0));
        if let Err(error) = told {
            tracing::debug!(%error, "a daemon does not tell of races");
        }
    }
    races.tell();
    exit
}

/// Prints the nodes' places, and suggestions.
fn present(sandbox: &Sandbox, global: &Global) -> Result<()> {
    if global.output == Format::Json {
        let nodes: Vec<_> = sandbox
            .nodes()
            .iter()
            .enumerate()
            .map(|(rank, node)| {
                json!({
                    "rank": rank,
                    "socket": node.socket(),
                    "address": node.address().to_string(),
                    "pid": node.pid(),
                })
            })
            .collect();
        return output::json(json!({
            "nodes": nodes,
            "namespaces": sandbox.isolated(),
            "job": sandbox.job().to_string(),
        }));
    }
    let mut table = output::Table::new(&["RANK", "ADDRESS", "PID", "SOCKET"]);
    for (rank, node) in sandbox.nodes().iter().enumerate() {
        table.row([
            rank.to_string(),
            node.address().to_string(),
            node.pid().to_string(),
            node.socket().display().to_string(),
        ]);
    }
    table.print()?;
    let socket = sandbox.node(0).socket().display();
    output::note(format_args!("\nTry, in another terminal:"));
    output::note(format_args!("  export PAGEMESH_SOCKET={socket}"));
    output::note(format_args!("  pagemesh status"));
    output::note(format_args!(
        "  pagemesh segment create hello 1M && pagemesh segment ls -o wide"
    ));
    if sandbox.isolated() {
        let pid = sandbox.node(1.min(sandbox.nodes().len() - 1)).pid();
        output::note(format_args!(
            "  nsenter --net=/proc/{pid}/ns/net ip address"
        ));
    }
    output::note(format_args!("Ctrl-C takes everything down."));
    Ok(())
}
