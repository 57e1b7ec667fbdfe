//! A sandbox with one agent process per node, pinned, that takes orders.

use super::agent::{Answer, Order};
use super::cpu_slots::{CpuSlots, pin_process};
use super::report::Samples;
use super::{Effort, Waiting, raw};
use anyhow::{Context, Result, bail};
use pagemesh_cli::control::unexpected;
use pagemesh_cli::sandbox::{Node, Plan, Sandbox};
use pagemesh_wire::local::{Reply, Request, Stamp};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

/// Where raw exchanges are served.
const RAW_PORT: u16 = 7999;

/// The raw exchange is run by programs of the nodes, and keeps their processors busy. For so long
/// the daemons may believe that their programs compute, and sleep.
const FORGOTTEN: Duration = Duration::from_millis(20);

/// Nodes and their agents. An agent runs where its daemon runs.
pub(super) struct Testbed {
    agents: Vec<Agent>,
    waiting: Waiting,
    addresses: Vec<SocketAddr>,
    // Last: the agents end before their nodes go.
    sandbox: Sandbox,
}

/// Processor time of a process's first thread so far, in nanoseconds.
fn processor_time(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/schedstat");
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    let first = text.split_whitespace().next();
    let nanos: Option<u64> = first.and_then(|word| word.parse().ok());
    nanos.with_context(|| format!("no time in {path}"))
}

/// The plan as `effort` wants it.
fn planned(mut plan: Plan, effort: &Effort, waiting: Waiting) -> Plan {
    plan.waiting = Some(waiting.name().to_owned());
    plan.latency = effort.latency;
    plan.mtu = effort.mtu;
    plan
}

/// A process that does as it is told.
struct Agent {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Testbed {
    pub(super) fn new(nodes: usize, effort: &Effort, waiting: Waiting) -> Result<Self> {
        Self::set(Plan::new(nodes), effort, waiting)
    }

    /// With further arguments for every daemon.
    pub(super) fn with(
        nodes: usize,
        effort: &Effort,
        waiting: Waiting,
        daemon: &[&str],
    ) -> Result<Self> {
        let mut plan = Plan::new(nodes);
        plan.daemon_args = daemon.iter().map(|&argument| argument.to_owned()).collect();
        Self::set(plan, effort, waiting)
    }

    /// Nodes that seal their datagrams.
    pub(super) fn sealed(nodes: usize, effort: &Effort, waiting: Waiting) -> Result<Self> {
        let mut plan = Plan::new(nodes);
        plan.sealed = true;
        Self::set(plan, effort, waiting)
    }

    fn set(plan: Plan, effort: &Effort, waiting: Waiting) -> Result<Self> {
        Self::raise(&planned(plan, effort, waiting), waiting)
    }

    /// Nodes that all do the same, dealt to the processors.
    pub(super) fn dealt(nodes: usize, effort: &Effort, waiting: Waiting) -> Result<Self> {
        let plan = planned(Plan::new(nodes), effort, waiting);
        Self::seated(&plan, waiting, CpuSlots::Dealt)
    }

    /// A stage of this plan.
    pub(super) fn raise(plan: &Plan, waiting: Waiting) -> Result<Self> {
        Self::seated(plan, waiting, CpuSlots::Apart)
    }

    /// A stage of this plan, its processes seated so.
    pub(super) fn seated(plan: &Plan, waiting: Waiting, cpu_slots: CpuSlots) -> Result<Self> {
        let mut plan = plan.clone();
        plan.waiting = Some(waiting.name().to_owned());
        let sandbox = Sandbox::start(&plan).context("cannot set the stage")?;
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut agents = Vec::new();
        for (index, node) in sandbox.nodes().iter().enumerate() {
            let mut command = node.command(&program);
            command.arg("agent");
            if let Some(cpu) = cpu_slots.processor(index) {
                pin_process(node.pid(), cpu).context("cannot pin a daemon")?;
                command.args(["--cpu", &cpu.to_string()]);
            }
            agents.push(Agent::start(command)?);
        }
        let addresses = sandbox.nodes().iter().map(|node| node.address()).collect();
        Ok(Self {
            agents,
            waiting,
            addresses,
            sandbox,
        })
    }

    /// Stops all daemons, or lets them go on, so that others have the processors.
    pub(super) fn stand_still(&self, still: bool) -> Result<()> {
        let signal = if still { Signal::STOP } else { Signal::CONT };
        (0..self.agents.len()).try_for_each(|node| self.sandbox.signal(node, signal))
    }

    /// Tells one agent to do something, and waits for its answer.
    pub(super) fn ask(&mut self, agent: usize, order: &Order) -> Result<Vec<u64>> {
        self.tell(agent, order)?;
        self.hear(agent)
    }

    /// Tells one agent to do something.
    pub(super) fn tell(&mut self, agent: usize, order: &Order) -> Result<()> {
        let line = serde_json::to_string(order)?;
        writeln!(self.agents[agent].orders, "{line}").context("an agent is gone")
    }

    /// Waits for an agent's answer.
    pub(super) fn hear(&mut self, agent: usize) -> Result<Vec<u64>> {
        let mut line = String::new();
        self.agents[agent].answers.read_line(&mut line)?;
        match serde_json::from_str(&line).context("an agent ended without an answer")? {
            Answer::Times(times) => Ok(times),
            Answer::Failed(why) => bail!("node {agent}: {why}"),
        }
    }

    /// The first agents reach a barrier, so often. Returns the times of the first one.
    pub(super) fn meet(&mut self, number: u64, parties: usize, count: u32) -> Result<Vec<u64>> {
        let order = Order::Barrier {
            number,
            parties: parties as u32,
            count,
        };
        (0..parties).try_for_each(|agent| self.tell(agent, &order))?;
        let heard: Result<Vec<_>> = (0..parties).map(|agent| self.hear(agent)).collect();
        Ok(heard?.swap_remove(0))
    }

    /// The program `pagemesh` of its daemons.
    pub(super) fn program(&self) -> &std::path::Path {
        self.sandbox.program()
    }

    /// Processor time that a node's daemon has used so far, in nanoseconds.
    pub(super) fn time_of(&self, node: usize) -> Result<u64> {
        processor_time(self.daemon(node))
    }

    /// Processor time of an agent so far, in nanoseconds.
    pub(super) fn time_of_agent(&self, agent: usize) -> Result<u64> {
        processor_time(self.agent(agent))
    }

    /// The process of an agent.
    pub(super) fn agent(&self, agent: usize) -> u32 {
        self.agents[agent].child.id()
    }

    /// One more agent, started by this command, which ends in `agent`. Returns its number.
    pub(super) fn add(&mut self, command: std::process::Command) -> Result<usize> {
        self.agents.push(Agent::start(command)?);
        Ok(self.agents.len() - 1)
    }

    /// Ends the agent that was added last.
    pub(super) fn take_away(&mut self) {
        self.agents.pop();
    }

    /// Bytes of private memory of a node's daemon: its state. Pages of segments,
    /// the stash and the flight recorder are shared memory and not among them.
    pub(super) fn daemon_memory(&self, node: usize) -> Result<u64> {
        let path = format!("/proc/{}/status", self.sandbox.node(node).pid());
        let status = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        Ok(kilobytes(line).with_context(|| format!("no RssAnon in {path}"))? * 1024)
    }

    /// Bytes of the flight recorder of a node's daemon: its history.
    pub(super) fn daemon_history(&self, node: usize) -> Result<u64> {
        let path = format!("/proc/{}/smaps", self.sandbox.node(node).pid());
        let maps = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        let journal = maps.split_once("pagemesh-journal").map(|(_, rest)| rest);
        let line = journal.and_then(|rest| rest.lines().find_map(|line| line.strip_prefix("Rss:")));
        Ok(kilobytes(line).with_context(|| format!("no journal in {path}"))? * 1024)
    }

    /// Where a node listens for other nodes.
    pub(super) fn address(&self, node: usize) -> SocketAddr {
        self.addresses[node]
    }

    /// The process of a node's daemon.
    pub(super) fn daemon(&self, node: usize) -> u32 {
        self.sandbox.node(node).pid()
    }

    /// A directory of this stage, removed with it.
    pub(super) fn directory(&self) -> &std::path::Path {
        self.sandbox.directory()
    }

    /// Whether nodes have namespaces of their own.
    pub(super) fn isolated(&self) -> bool {
        self.sandbox.isolated()
    }

    /// How its daemons wait.
    pub(super) fn waiting(&self) -> &'static str {
        self.waiting.name()
    }

    /// How many nodes it has.
    pub(super) fn nodes(&self) -> usize {
        self.sandbox.nodes().len()
    }

    /// How many agents it has.
    pub(super) fn size(&self) -> usize {
        self.agents.len()
    }

    /// Processor time all daemons have used so far, in nanoseconds.
    pub(super) fn daemon_time(&self) -> Result<u64> {
        let nodes = self.sandbox.nodes().iter();
        nodes.map(|node| processor_time(node.pid())).sum()
    }

    /// Processor time all daemons and agents have used so far, in nanoseconds.
    pub(super) fn busy_time(&self) -> Result<u64> {
        let agents = self.agents.iter();
        let agents: Result<u64> = agents.map(|agent| processor_time(agent.child.id())).sum();
        Ok(self.daemon_time()? + agents?)
    }

    /// Every agent opens the segment; node 0 is its home.
    pub(super) fn open(&mut self, name: &str, pages: u32, window_nanos: Option<u64>) -> Result<()> {
        for agent in 0..self.agents.len() {
            let order = Order::Open {
                name: name.to_owned(),
                pages,
                window_nanos,
            };
            self.ask(agent, &order)?;
        }
        Ok(())
    }

    /// As [`Testbed::open`], with a policy by its name.
    pub(super) fn open_with(&mut self, name: &str, pages: u32, policy: &str) -> Result<()> {
        self.open_replicated(name, pages, policy, 0)
    }

    /// As [`Testbed::open_with`], with so many replicas.
    pub(super) fn open_replicated(
        &mut self,
        name: &str,
        pages: u32,
        policy: &str,
        replicas: u8,
    ) -> Result<()> {
        let order = Order::OpenWith {
            name: name.to_owned(),
            pages,
            policy: policy.to_owned(),
            replicas,
        };
        (0..self.agents.len()).try_for_each(|agent| self.ask(agent, &order).map(drop))
    }

    pub(super) fn touch(&mut self, agent: usize, pages: &[u32], write: bool) -> Result<Vec<u64>> {
        self.ask(
            agent,
            &Order::Touch {
                pages: pages.to_vec(),
                write,
            },
        )
    }

    /// Removes the segment, so that its memory is free when no process has it open.
    pub(super) fn remove(&mut self, name: &str) -> Result<()> {
        for agent in 0..self.agents.len() {
            let name = name.to_owned();
            self.ask(agent, &Order::Remove { name })?;
        }
        Ok(())
    }

    /// A program where a node is.
    pub(super) fn command(&self, node: usize, program: &str) -> std::process::Command {
        self.sandbox.node(node).command(program)
    }

    /// The counters of a node's daemon.
    pub(super) fn counters(&mut self, node: usize) -> Result<Counted> {
        Ok(Counted(self.ask(node, &Order::Counters)?))
    }

    /// All time stamps that a node's daemon still has.
    pub(super) fn stamps(&self, node: usize) -> Result<Vec<Stamp>> {
        stamps_of(self.sandbox.node(node))
    }

    /// The time stamps from this number on.
    pub(super) fn stamps_since(&self, node: usize, from: u64) -> Result<Vec<Stamp>> {
        stamps_from(self.sandbox.node(node), from)
    }

    /// Round trips from this process through node 0 to node 1, through all layers.
    pub(super) fn probe(&self, count: u32) -> Result<Samples> {
        let mut control = self.sandbox.node(0).control()?;
        let node = self.sandbox.node(1).control()?.node;
        let mut samples = Samples::default();
        for _ in 0..count {
            let start = Instant::now();
            control.ask(Request::Probe { node })?;
            samples.extend(vec![start.elapsed().as_nanos() as u64]);
        }
        Ok(samples)
    }

    /// Sends bytes from node 1 to node 0 by TCP.
    pub(super) fn tcp(&mut self, bytes: u64) -> Result<Vec<u64>> {
        let mut to = self.addresses[1];
        to.set_port(RAW_PORT);
        self.tell(1, &Order::TcpServe { bind: to, bytes })?;
        std::thread::sleep(std::time::Duration::from_millis(20));
        let took = self.ask(0, &Order::TcpFetch { to, bytes })?;
        self.hear(1)?;
        Ok(took)
    }

    /// Requests of node 0 to node 1 that are answered with a page, by TCP.
    pub(super) fn tcp_exchange(&mut self, count: u32) -> Result<Vec<u64>> {
        let mut to = self.addresses[1];
        to.set_port(RAW_PORT);
        let spin = self.waiting == Waiting::Spin;
        let bind = to;
        self.tell(1, &Order::TcpAnswer { bind, count, spin })?;
        std::thread::sleep(std::time::Duration::from_millis(20));
        let took = self.ask(0, &Order::TcpExchange { to, count, spin })?;
        self.hear(1)?;
        Ok(took)
    }

    /// The raw exchange between nodes 0 and 1, `reply` bytes back, and a pause.
    pub(super) fn raw(&mut self, reply: usize, count: u32, samples: &mut Samples) -> Result<()> {
        let mut to = self.addresses[1];
        to.set_port(RAW_PORT);
        let wait = match self.waiting {
            Waiting::Spin => raw::Wait::Spin,
            Waiting::Block => raw::Wait::Block,
        };
        self.tell(
            1,
            &Order::RawServe {
                bind: to,
                reply,
                count,
                wait,
            },
        )?;
        // Its answer comes after the last exchange.
        samples.extend(self.ask(
            0,
            &Order::RawExchange {
                to,
                reply,
                count,
                wait,
            },
        )?);
        self.hear(1)?;
        std::thread::sleep(FORGOTTEN);
        Ok(())
    }

    /// Node 0 asks so many others at once, again and again, without any PageMesh.
    pub(super) fn raw_gather(
        &mut self,
        others: usize,
        count: u32,
        samples: &mut Samples,
    ) -> Result<()> {
        let wait = self.raw_sharing();
        let from: Vec<_> = (1..=others).map(|node| self.raw_address(node)).collect();
        for (node, bind) in (1..).zip(&from) {
            let order = Order::RawServe {
                bind: *bind,
                reply: raw::REQUEST,
                count,
                wait,
            };
            self.tell(node, &order)?;
        }
        samples.extend(self.ask(0, &Order::RawGather { from, count, wait })?);
        (1..=others).try_for_each(|node| self.hear(node).map(drop))
    }

    /// Nodes meet at node 0 again and again, without any PageMesh.
    pub(super) fn raw_meet(
        &mut self,
        parties: usize,
        count: u32,
        samples: &mut Samples,
    ) -> Result<()> {
        let (wait, bind) = (self.raw_sharing(), self.raw_address(0));
        let others = parties as u32 - 1;
        let order = Order::RawMeet {
            bind,
            others,
            count,
            wait,
        };
        self.tell(0, &order)?;
        for node in 1..parties {
            let order = Order::RawExchange {
                to: bind,
                reply: raw::REQUEST,
                count,
                wait,
            };
            self.tell(node, &order)?;
        }
        samples.extend(self.hear(0)?);
        (1..parties).try_for_each(|node| self.hear(node).map(drop))
    }

    /// Node 0 takes back the copies of nodes 1 to `copies`, the first of which is the owner, again
    /// and again, without any PageMesh. `members` others, copies or not, are asked by the writer; if
    /// none the owner asks the holders.
    pub(super) fn raw_take_back(
        &mut self,
        copies: usize,
        members: Option<usize>,
        count: u32,
        samples: &mut Samples,
    ) -> Result<()> {
        let wait = self.raw_sharing();
        let bind = self.raw_address(0);
        let addresses = |last: usize| (1..=last).map(|node| self.raw_address(node)).collect();
        let all: Vec<SocketAddr> = addresses(members.unwrap_or(copies));
        let asked = match members {
            Some(_) => all.clone(),
            None => all[..1].to_vec(),
        };
        for (node, address) in (1..).zip(&all) {
            let holder = raw::Holder {
                bind: *address,
                writer: (node <= copies).then_some(bind),
                others: match (node, members) {
                    (1, None) => all[1..].to_vec(),
                    _ => Vec::new(),
                },
                count,
                wait,
            };
            self.tell(node, &Order::RawHolder(holder))?;
        }
        let nodes = all.len();
        let writer = raw::Writer {
            bind,
            members: all,
            asked,
            answers: copies as u32,
            count,
            wait,
        };
        samples.extend(self.ask(0, &Order::RawWriter(writer))?);
        (1..=nodes).try_for_each(|node| self.hear(node).map(drop))
    }

    fn raw_address(&self, node: usize) -> SocketAddr {
        let mut address = self.addresses[node];
        address.set_port(RAW_PORT);
        address
    }

    /// How processes wait that may share a processor.
    fn raw_sharing(&self) -> raw::Wait {
        match self.waiting {
            Waiting::Spin => raw::Wait::Share,
            Waiting::Block => raw::Wait::Block,
        }
    }

    /// The reply that carries a page.
    pub(super) const PAGE_REPLY: usize = 4096 + raw::REQUEST;
}

/// The counters of a daemon, in the order of [`agent::COUNTED`](super::agent::COUNTED).
pub(super) struct Counted(Vec<u64>);

impl Counted {
    pub(super) fn of(&self, name: &str) -> u64 {
        let at = super::agent::COUNTED
            .iter()
            .position(|known| *known == name);
        at.and_then(|at| self.0.get(at)).copied().unwrap_or(0)
    }
}

impl Agent {
    fn start(mut command: std::process::Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start an agent")?;
        let orders = child.stdin.take().context("no pipe to the agent")?;
        let answers = BufReader::new(child.stdout.take().context("no pipe from the agent")?);
        Ok(Self {
            child,
            orders,
            answers,
        })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The number at the beginning.
fn kilobytes(line: Option<&str>) -> Option<u64> {
    line?.split_whitespace().next()?.parse().ok()
}

/// The time stamps that a node's daemon still has, in their order.
pub(super) fn stamps_of(node: &Node) -> Result<Vec<Stamp>> {
    stamps_from(node, 0)
}

fn stamps_from(node: &Node, first: u64) -> Result<Vec<Stamp>> {
    let mut control = node.control()?;
    let mut all: Vec<Stamp> = Vec::new();
    loop {
        let from = all.last().map_or(first, |last| last.number + 1);
        match control.ask(Request::Stamps { from })? {
            Reply::Stamps(some) if some.is_empty() => return Ok(all),
            Reply::Stamps(some) => all.extend(some),
            other => return unexpected(&other),
        }
    }
}
