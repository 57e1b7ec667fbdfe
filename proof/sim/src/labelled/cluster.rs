//! Hosts, threads and the network between them, in one queue of events.

mod executor;
mod plan;
mod stage;
mod threads;

use super::golden::Golden;
use super::memory::Memory;
use super::program::{Shape, Step};
use super::{Labelled, Planted, Sighted};
use crate::dice::Dice;
use crate::instants::Instants;
#[cfg(test)]
use crate::network::Link;
use crate::network::{Network, legible};
use crate::small::{self, Check, Log, Queue};
use pagemesh_core::limits::EARLY;
use pagemesh_core::{Budgets, Config, Input, Node, Time};
use pagemesh_sorted::SortedMap;
use pagemesh_wire::lockword::LockWord;
use pagemesh_wire::peer::{Message, Policy};
use pagemesh_wire::{
    ClientId, ClusterId, Incarnation, MappingId, PAGE_SIZE, PageCount, PageIndex, PublicKey,
    SegmentId, SyncKey, Ticket,
};
pub(super) use plan::Plan;
pub(crate) use stage::Stage;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// One daemon.
struct Host {
    number: usize,
    node: Node,
    memory: Memory,
    words: SortedMap<SyncKey, LockWord>,
    segment: Option<SegmentId>,
    /// It has vanished.
    gone: bool,
    deadline: Option<Time>,
    incarnation: Incarnation,
}

/// One thread, alone in its process.
struct Thread {
    host: usize,
    client: ClientId,
    mapping: MappingId,
    steps: VecDeque<Step>,
    /// Stopped at a page.
    faulted: Option<PageIndex>,
    /// Woken at a page, and not run since.
    woken: Option<PageIndex>,
    /// Waits for an answer.
    waits: Option<Ticket>,
    /// It has passed so many.
    barriers: u64,
    opened: bool,
    scheduled: bool,
}

/// The events, in order of time and then of scheduling.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival {
        to: usize,
        source: SocketAddr,
        bytes: Vec<u8>,
    },
    Deadline(usize),
    Run(usize),
    /// The kernel repeats a fault.
    FaultAgain(usize, PageIndex),
    /// A host vanishes.
    Crash(usize),
    /// A process dies.
    Die(usize),
    /// A host learns that it has memory for so many frames only.
    Press(usize, PageCount),
}

/// All of it.
pub(super) struct Cluster {
    queue: Queue<Event>,
    hosts: Vec<Host>,
    threads: Vec<Thread>,
    network: Network,
    dice: Dice,
    shape: Shape,
    policy: Policy,
    /// Of the segment.
    replicas: u8,
    planted: Option<Planted>,
    /// Something that others knew was on one host only when a host vanished.
    may_fail: bool,
    /// The accumulated numbers of all threads, by place.
    numbers: SortedMap<usize, u64>,
    /// The contents of memory if there were only one.
    golden: Golden,
    /// The same under policy `sequential`, where programs may race.
    instants: Option<Instants<usize>>,
    /// Which host creates the segment.
    home: usize,
    tickets: u64,
    last_value: u8,
    log: Log,
    sighted: Sighted,
    /// Hosts that have left.
    left: Vec<usize>,
    /// Write notices a host may hold.
    notices: u32,
    /// A thread hangs if it takes longer.
    patience: Time,
    /// When all is said and done.
    end: Option<Time>,
    /// The datagrams sent, if a scenario wants to see them.
    transcript: Option<stage::Transcript>,
    /// The value of the last load.
    loaded: u8,
}

/// Steps that are remembered for reports.
const LINES: usize = 100_000;

/// Far more than any run sends.
const DATAGRAMS: u64 = 1_000_000;

/// When hosts learn what memory they have.
const FULL: Time = Time(5_000_000);

/// Far longer than any run needs: something hangs.
const PATIENCE: Time = Time(30_000_000_000);

/// The cluster is quiet this long after the last thread has ended: longer than a death takes to be
/// noticed.
const QUIET: Duration = Duration::from_secs(8);

impl Cluster {
    pub(super) fn new(options: Labelled) -> Self {
        let mut dice = Dice::stream(options.seed, "labelled");
        let plan = match options.replicas {
            0 => Plan::drawn(&mut dice, options.profile),
            _ => Plan::of_a_death(&mut dice, options.profile),
        };
        let plan = plan.preferring_copies(options.seed);
        let plan = plan.with_full_hosts(options.seed);
        Self::of(plan, dice, options)
    }

    pub(super) fn of(plan: Plan, dice: Dice, options: Labelled) -> Self {
        let seed = options.seed;
        let hosts = plan.threads.last().map_or(0, |last| last + 1);
        let mut cluster = Self {
            queue: Queue::new(),
            hosts: Vec::new(),
            threads: Vec::new(),
            network: Network::new(seed, plan.weather, None),
            golden: Golden::new(plan.shape.pages * PAGE_SIZE, hosts),
            instants: plan.policy.sequential().map(|_| Instants::default()),
            home: plan.home,
            numbers: SortedMap::new(),
            policy: plan.policy,
            replicas: options.replicas,
            planted: options.planted,
            may_fail: options.replicas == 0,
            shape: plan.shape,
            dice,
            tickets: 0,
            last_value: 0,
            log: Log::new(LINES),
            sighted: Sighted::default(),
            left: Vec::new(),
            notices: plan.pace.notices,
            patience: plan.patience,
            end: None,
            transcript: None,
            loaded: 0,
        };
        if let Some((host, nanos)) = plan.narrow {
            cluster.network.put_narrow(host, nanos);
        }
        let cluster_id = ClusterId(cluster.dice.number() | 1);
        for host in 0..hosts {
            let config = Config {
                traps_late: plan.traps_late,
                // None of these programs has a race.
                check_races: options.seed.is_multiple_of(2),
                ..small::config(host, cluster_id, cluster.dice.number() | 1, plan.pace)
            };
            cluster.add_host(host, config);
            if let Some(frames) = plan.frames {
                cluster.schedule(FULL, Event::Press(host, frames));
            }
        }
        for (number, (host, steps)) in plan.threads.into_iter().zip(plan.programs).enumerate() {
            cluster.add_thread(number, host, steps);
        }
        cluster
    }

    fn add_host(&mut self, host: usize, config: Config) {
        let incarnation = config.incarnation;
        self.hosts.push(Host {
            number: host,
            node: Node::new(config),
            memory: Memory::new(self.planted),
            words: SortedMap::new(),
            segment: None,
            gone: false,
            deadline: None,
            incarnation,
        });
        self.schedule(Time(1_000 + host as u64), Event::Deadline(host));
    }

    fn add_thread(&mut self, number: usize, host: usize, steps: Vec<Step>) {
        self.threads.push(Thread {
            host,
            client: ClientId(number as u32 + 1),
            mapping: MappingId(number as u64 + 1),
            steps: steps.into(),
            faulted: None,
            woken: None,
            waits: None,
            barriers: 0,
            opened: false,
            scheduled: false,
        });
        let at = self.dice.between(10_000_000, 30_000_000);
        self.run_at(Time(at), number);
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.queue.schedule(at, event);
    }

    fn run_at(&mut self, at: Time, thread: usize) {
        if !std::mem::replace(&mut self.threads[thread].scheduled, true) {
            self.schedule(at, Event::Run(thread));
        }
    }

    fn run_soon(&mut self, thread: usize) {
        let at = Time(self.queue.now().0 + self.dice.between(200, 20_000));
        self.run_at(at, thread);
    }

    fn note(&mut self, host: usize, what: impl FnOnce() -> String) {
        self.log.note(self.queue.now(), host, what);
    }

    pub(super) fn run(mut self) -> Result<Sighted, String> {
        self.go_on()
    }

    /// Runs it where each host has such a link. Returns the pages that each has sent, too.
    #[cfg(test)]
    pub(super) fn run_over_links(mut self, link: &Link) -> Result<(Sighted, Vec<u64>), String> {
        let links = self.hosts.iter().map(|_| link.clone());
        self.network.links = links.collect();
        let sighted = self.go_on()?;
        let links = self.network.links.iter();
        Ok((sighted, links.map(|link| link.pages).collect()))
    }

    fn go_on(&mut self) -> Result<Sighted, String> {
        while let Some(event) = self.queue.next() {
            let at = self.queue.now();
            let result = if at > self.patience && self.end.is_none() {
                Err(self.who_hangs())
            } else {
                self.happen(event)
            };
            let result = result.and_then(|()| self.is_bounded());
            if let Err(why) = result {
                return Err(format!("{}\n{why}", self.log.lines()));
            }
            if self.threads.iter().any(|thread| !thread.steps.is_empty()) {
                continue;
            }
            let end = *self.end.get_or_insert(at + QUIET);
            self.sighted.took = end.0 - QUIET.as_nanos() as u64;
            if at > end {
                self.sighted.most = self.most_held();
                return self.is_quiet().map(|()| self.sighted);
            }
        }
        // A single remaining host waits for nothing.
        if self.threads.iter().all(|thread| thread.steps.is_empty()) {
            self.sighted.most = self.most_held();
            return self.is_quiet().map(|()| self.sighted);
        }
        Err("nothing will ever happen again".into())
    }

    /// Nodes that ask one another for the same thing for ever send this many datagrams.
    fn is_bounded(&self) -> Check {
        let sent = self.sighted.datagrams;
        if sent > DATAGRAMS {
            return Err(format!("{sent} datagrams, and no end"));
        }
        Ok(())
    }

    /// After a quiet time no host holds more than the bound.
    fn is_quiet(&self) -> Check {
        let stays = |host: &&Host| !host.gone && !self.left.contains(&host.number);
        for host in self.hosts.iter().filter(stays) {
            let (twins, diffs) = host.memory.held();
            let bound = self.notices as usize + EARLY;
            if twins > self.shape.pages || diffs > bound {
                return Err(format!(
                    "h{} still holds {twins} twins of {} pages, {diffs} diffs, where {bound} is the bound",
                    host.number + 1,
                    self.shape.pages,
                ));
            }
        }
        self.is_on_two_hosts()
    }

    /// Whether all that others know is on two hosts, as far as the hosts know.
    fn is_on_two_hosts(&self) -> Check {
        let lives = |host: &&Host| !host.gone && !self.left.contains(&host.number);
        let living: Vec<_> = self.hosts.iter().filter(lives).collect();
        if self.replicas == 0 || living.len() < 2 {
            return Ok(());
        }
        for host in living {
            let seen = host
                .segment
                .and_then(|id| host.node.inspect(id, PageIndex(0), 0));
            let alone = seen.map_or(0, |seen| seen.unreplicated);
            if alone > 0 {
                return Err(format!(
                    "INV-seen-survives: {alone} pages are on h{} only",
                    host.number + 1
                ));
            }
        }
        Ok(())
    }

    fn most_held(&self) -> u64 {
        let most = self.hosts.iter().map(|host| host.memory.most);
        most.max().unwrap_or(0) as u64
    }

    fn who_hangs(&self) -> String {
        let hangs = self
            .threads
            .iter()
            .filter(|thread| !thread.steps.is_empty());
        let lines = hangs.map(|thread| {
            format!(
                "{} of h{} hangs before {:?}, {} steps left, at {:?}, waits {:?}",
                thread.client,
                thread.host + 1,
                thread.steps.front(),
                thread.steps.len(),
                thread.faulted,
                thread.waits
            )
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    fn happen(&mut self, event: Event) -> Check {
        let host = match &event {
            Event::Arrival { to, .. } => *to,
            Event::Deadline(host) | Event::Crash(host) | Event::Press(host, _) => *host,
            Event::Run(thread) | Event::FaultAgain(thread, _) | Event::Die(thread) => {
                self.threads[*thread].host
            }
        };
        if self.hosts[host].gone {
            return Ok(());
        }
        match event {
            Event::Crash(host) => {
                self.crash(host);
                Ok(())
            }
            Event::Die(thread) => self.die(thread),
            Event::Press(host, frames) => {
                let budgets = Budgets {
                    frames,
                    ..Budgets::default()
                };
                self.input(host, Input::Budgets(budgets))
            }
            Event::Arrival { to, source, bytes } => {
                let input = Input::Datagram {
                    source,
                    key: PublicKey::NONE,
                    bytes: &bytes,
                };
                let decoded = Message::decode(&bytes).map_err(|why| why.to_string())?;
                self.note(to, || format!("<- {}", legible(&decoded.1)));
                self.input(to, input)
            }
            Event::Deadline(host) => {
                self.hosts[host].deadline = None;
                self.input(host, Input::Deadline)
            }
            Event::FaultAgain(thread, page) => {
                if self.threads[thread].faulted == Some(page) {
                    return self.fault(thread, page);
                }
                Ok(())
            }
            Event::Run(thread) => {
                self.threads[thread].scheduled = false;
                self.step(thread)
            }
        }
    }

    /// A node handles one input and its immediate consequences.
    fn input(&mut self, host: usize, input: Input<'_>) -> Check {
        small::input(self, host, input)
    }
}

fn place(byte: usize) -> (PageIndex, usize) {
    (PageIndex((byte / PAGE_SIZE) as u32), byte % PAGE_SIZE)
}
