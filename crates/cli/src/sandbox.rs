//! A whole cluster on this machine: one real daemon a node, each in its own
//! network namespace where the kernel lets us, on 127.0.0.x where not.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! use pagemesh_cli::sandbox::{Plan, Sandbox};
//! let sandbox = Sandbox::start(&Plan::new(4))?;
//! let status = sandbox.node(0).command("my-program").status()?;
//! # Ok(()) }
//! ```
//!
//! Dropping the [`Sandbox`] takes everything down. Should the process be killed
//! before, its daemons die with it and the kernel removes their namespaces; the
//! next sandbox sweeps the directory it left.

mod daemon;
mod etcd;
mod network;
mod node;
mod patience;
mod plan;
mod room;
mod spawner;

pub use etcd::{Etcd, is_installed as etcd_is_installed};
pub use network::Netns;
pub use node::Node;
pub use plan::Plan;

use anyhow::{Context, Result, ensure};
use daemon::DaemonProcess;
use network::Network;
use pagemesh_seal::{Ring, Secret, SystemDice};
use patience::Patience;
use plan::impairment_spec;
use room::Room;
use spawner::Spawner;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::commands::key;

/// Names the program `pagemesh` whose daemons a sandbox of another program runs.
pub const PROGRAM_VARIABLE: &str = "PAGEMESH_PROGRAM";

/// Nodes of a cluster.
pub(crate) const MOST: usize = pagemesh_wire::NodeId::NEAR as usize - 1;

/// How long nodes may take to become members.
const PATIENCE: Duration = Duration::from_secs(20);

/// And for each of them: every member hears of every other.
const PATIENCE_EACH: Duration = Duration::from_millis(500);

/// What a daemon of a sandbox is started as.
#[derive(Clone, Copy)]
enum Role {
    /// The first of its cluster, or its coordinator again.
    First,
    /// A member, which asks that node.
    Joins(usize),
    /// The coordinator, from what it knew as the standby.
    Promoted,
}

impl Role {
    fn of(index: usize) -> Self {
        if index == 0 {
            Self::First
        } else {
            Self::Joins(0)
        }
    }
}

/// What a daemon of a sandbox runs.
#[derive(Clone, Copy, Debug)]
pub struct Variant<'a> {
    /// The program `pagemesh`.
    pub program: &'a Path,
    /// Switches, as in [`Plan::experiment`].
    pub experiment: &'a str,
}

/// A running cluster.
pub struct Sandbox {
    nodes: Vec<Node>,
    plan: Plan,
    program: PathBuf,
    job: u64,
    // After the nodes: daemons end before the ground under them goes.
    etcd: Option<Etcd>,
    spawner: Spawner,
    network: Arc<Network>,
    room: Room,
}

impl Sandbox {
    /// Brings up all nodes and waits until each of them knows all the others.
    ///
    /// # Errors
    /// If a daemon ends or is no member in time; the message names it, with the last lines of its
    /// log.
    pub fn start(plan: &Plan) -> Result<Self> {
        ensure!(
            (1..=MOST).contains(&plan.nodes),
            "a sandbox has 1 to {MOST} nodes, as a cluster has, not {}",
            plan.nodes
        );
        let mut sandbox = Self {
            nodes: Vec::new(),
            plan: plan.clone(),
            program: find_program(plan)?,
            job: rand::random(),
            etcd: None,
            spawner: Spawner::start()?,
            network: Arc::new(Network::new(plan)?),
            room: Room::new()?,
        };
        if plan.sealed {
            let secret = Secret::new(&SystemDice::default());
            let ring = Ring::default().rotated(secret, 0);
            key::write_new(&sandbox.key_file(), &ring)?;
        }
        if plan.etcd {
            let Self {
                spawner,
                network,
                room,
                ..
            } = &sandbox;
            sandbox.etcd = Some(Etcd::start(spawner, network, room, plan.nodes)?);
        }
        let mut patience = Patience::of(PATIENCE + PATIENCE_EACH * plan.nodes as u32);
        for _ in 0..plan.nodes {
            sandbox.add_node()?;
            sandbox.wait_for_last(&mut patience)?;
        }
        sandbox.wait_for_all(&mut patience)?;
        Ok(sandbox)
    }

    /// A node, counted from 0. Node *i* is `PAGEMESH_RANK` *i*.
    #[must_use]
    pub fn node(&self, index: usize) -> &Node {
        &self.nodes[index]
    }

    /// All nodes.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Where everything of this sandbox is: sockets and logs.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.room.path()
    }

    /// The etcd that elects the coordinator, if the plan has one.
    #[must_use]
    pub fn etcd(&self) -> Option<&Etcd> {
        self.etcd.as_ref()
    }

    /// Starts a killed member of etcd again.
    ///
    /// # Errors
    /// If it cannot be started, or there is no etcd.
    pub fn restart_etcd(&self, member: usize) -> Result<()> {
        let etcd = self.etcd.as_ref().context("this sandbox has no etcd")?;
        etcd.restart(&self.spawner, &self.room, member)
    }

    /// The key of its nodes, if they have one.
    #[must_use]
    pub fn key_file(&self) -> PathBuf {
        self.room.path().join("cluster.key")
    }

    /// The program `pagemesh` that its daemons run.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Whether every node has a network namespace of its own.
    #[must_use]
    pub fn isolated(&self) -> bool {
        self.network.isolated()
    }

    /// Why there are no namespaces although some were wanted if possible.
    #[must_use]
    pub fn notice(&self) -> Option<&str> {
        self.network.notice()
    }

    /// Number of the job, as in `PAGEMESH_JOB`.
    #[must_use]
    pub fn job(&self) -> u64 {
        self.job
    }

    /// Kills a daemon, without any chance to say good-bye.
    ///
    /// # Errors
    /// If it had ended already, by itself.
    pub fn kill(&self, index: usize) -> Result<()> {
        self.nodes[index].daemon().kill()
    }

    /// Sends a daemon a signal: `SIGTERM` to let it leave, `SIGSTOP` to pause it.
    ///
    /// # Errors
    /// If it has ended.
    pub fn signal(&self, index: usize, signal: rustix::process::Signal) -> Result<()> {
        self.nodes[index].daemon().signal(signal)
    }

    /// Starts a killed daemon again and waits until it is a member: as the node
    /// it was, within the grace, else as a new one.
    ///
    /// # Errors
    /// As [`Sandbox::start`]. After the grace the first node comes back only if it has a directory
    /// for its state: the others join there.
    pub fn restart(&self, index: usize) -> Result<()> {
        let elected = self.plan.etcd || self.plan.control.is_some();
        let lasting = !self.plan.grace.is_zero() || self.plan.state || elected;
        ensure!(
            index > 0 || lasting,
            "the first node of a sandbox cannot join itself"
        );
        self.start_again(index, Role::of(index))
    }

    /// Starts a killed daemon again as the coordinator, from what it knew as the standby.
    ///
    /// # Errors
    /// As [`Sandbox::start`].
    pub fn restart_promoted(&self, index: usize) -> Result<()> {
        self.start_again(index, Role::Promoted)
    }

    /// Starts a killed daemon again, to join the cluster of that node.
    ///
    /// # Errors
    /// As [`Sandbox::start`].
    pub fn restart_joining(&self, index: usize, node: usize) -> Result<()> {
        self.start_again(index, Role::Joins(node))
    }

    fn start_again(&self, index: usize, role: Role) -> Result<()> {
        let daemon = self.start_daemon(index, role, &[], self.variant())?;
        *self.nodes[index].daemon() = daemon;
        self.wait_until_back(index)
    }

    /// Where a node keeps what it decides as the coordinator, if the plan says so.
    #[must_use]
    pub fn state(&self, index: usize) -> PathBuf {
        self.room.path().join(format!("node{index}.state"))
    }

    /// Starts another daemon in the place of one that lives, and waits until it
    /// has taken over.
    ///
    /// # Errors
    /// If it does not.
    pub fn replace(&self, index: usize) -> Result<()> {
        self.replace_by(index, self.variant())
    }

    /// As [`Sandbox::replace`], by a daemon of another program, or with other switches.
    ///
    /// # Errors
    /// If it does not take over.
    pub fn replace_by(&self, index: usize, variant: Variant<'_>) -> Result<()> {
        let daemon = self.start_daemon(index, Role::of(index), &["--replace"], variant)?;
        let mut before = std::mem::replace(&mut *self.nodes[index].daemon(), daemon);
        let mut patience = Patience::of(PATIENCE);
        while before.ended()?.is_none() {
            let pid = self.nodes[index].daemon().pid();
            ensure!(
                patience.lasts(pid),
                "the daemon before does not end{}",
                patience.remark(pid)
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        self.wait_until_back(index)
    }

    fn wait_until_back(&self, index: usize) -> Result<()> {
        self.nodes[index].wait_until(&mut Patience::of(PATIENCE), "became no member", |alive| {
            alive > 0
        })
    }

    fn add_node(&mut self) -> Result<()> {
        let index = self.nodes.len();
        let address = self.network.address(index);
        let daemon = self.start_daemon(index, Role::of(index), &[], self.variant())?;
        self.nodes.push(Node {
            index,
            size: self.plan.nodes,
            job: self.job,
            address,
            socket: self.room.socket(index),
            network: Arc::clone(&self.network),
            daemon: Mutex::new(daemon),
        });
        Ok(())
    }

    /// What daemons run, if nothing else is asked for.
    fn variant(&self) -> Variant<'_> {
        Variant {
            program: &self.program,
            experiment: &self.plan.experiment,
        }
    }

    fn start_daemon(
        &self,
        index: usize,
        role: Role,
        more: &[&str],
        variant: Variant<'_>,
    ) -> Result<DaemonProcess> {
        let address = self.network.address(index);
        let mut command = Command::new(variant.program);
        command
            .arg("daemon")
            .arg(format!("--bind={address}"))
            .arg(format!("--name=node{index}"))
            .arg("--no-config")
            .arg(format!("--grace={}ms", self.plan.grace.as_millis()))
            .arg("--socket")
            .arg(self.room.socket(index))
            .args(more)
            .args(&self.plan.daemon_args)
            .args(self.plan.own_args.get(index).into_iter().flatten());
        let etcd = self.etcd.as_ref().map(Etcd::url);
        match (role, etcd.or(self.plan.control.as_deref())) {
            (_, Some(url)) => {
                command.arg(format!("--control={url}"));
            }
            (Role::First, None) => {}
            (Role::Joins(node), None) => {
                command.arg(format!("--join={}", self.network.address(node)));
            }
            (Role::Promoted, None) => {
                command.arg("--promote");
            }
        }
        if self.plan.state {
            command.arg("--state").arg(self.state(index));
        }
        if let Some(waiting) = &self.plan.waiting {
            command.arg(format!("--wait={waiting}"));
        }
        if let Some(compress) = &self.plan.compress {
            command.arg(format!("--compress={compress}"));
        }
        if !variant.experiment.is_empty() {
            command.arg(format!("--experiment={}", variant.experiment));
        }
        if self.plan.latency {
            command.arg("--latency");
        }
        let concerned = self.plan.impaired.is_none_or(|only| only == index);
        if concerned && let Some(spec) = impairment_spec(&self.plan.impair, index) {
            command.arg(format!("--impair={spec}"));
        }
        if self.plan.sealed {
            command.arg("--key").arg(self.key_file());
        } else if self.network.isolated() {
            // Only the nodes of this sandbox are on that network.
            command.arg("--insecure");
        }
        self.network.confine(index, &mut command)?;
        DaemonProcess::start(&self.spawner, command, index, self.room.log(index))
    }

    fn wait_for_last(&self, patience: &mut Patience) -> Result<()> {
        let wanted = self.nodes.len();
        let last = self.nodes.last().expect("a node was just added");
        last.wait_until(patience, "became no member", |alive| alive >= wanted)
    }

    fn wait_for_all(&self, patience: &mut Patience) -> Result<()> {
        let wanted = self.nodes.len();
        for node in &self.nodes {
            node.wait_until(patience, "does not know all the others", |alive| {
                alive >= wanted
            })?;
        }
        Ok(())
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        for node in self.nodes.drain(..) {
            let socket = node.socket.clone();
            // First the daemon, whose death the keeper would survive.
            drop(node);
            pagemesh_daemon::keeper::dismiss(&socket);
        }
    }
}

/// The program `pagemesh`: this one, or the one built with this test.
fn find_program(plan: &Plan) -> Result<PathBuf> {
    if let Some(program) = &plan.program {
        return Ok(program.clone());
    }
    let this = std::env::current_exe().context("finding this program")?;
    if this.file_stem().is_some_and(|stem| stem == "pagemesh") {
        // Survives the replacement of the file while we run.
        return Ok(PathBuf::from(format!("/proc/{}/exe", std::process::id())));
    }
    if let Some(program) = std::env::var_os(PROGRAM_VARIABLE) {
        return Ok(program.into());
    }
    this.ancestors()
        .skip(1)
        .take(3)
        .map(|directory| directory.join("pagemesh"))
        .find(|candidate| candidate.is_file())
        .context(
            "no program `pagemesh` near this one: build it (cargo build -p pagemesh-cli), \
             or name it in PAGEMESH_PROGRAM",
        )
}
