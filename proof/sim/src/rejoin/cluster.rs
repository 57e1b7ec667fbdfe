//! Hosts, programs and the network between them, in one queue of events.

use super::churn::Churn;
use super::memory::{Key, Memory, Newest};
use super::programs::{Doing, Program};
use super::{RejoinMistake, RejoinRun, RejoinSeen};
use crate::dice::Dice;
use crate::network::{Network, kind, legible};
use crate::plan::{pace, weather};
use crate::small::{self, Check, Log, Queue, address, host_at};
use pagemesh_core::{Config, Event, Input, Node, Pace, Time};
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::Message;
use pagemesh_wire::{ClusterId, NodeId, PublicKey};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// One daemon with its program.
pub(super) struct Host {
    pub(super) node: Node,
    pub(super) memory: Memory,
    pub(super) program: Program,
    deadline: Option<Time>,
    /// The daemon handles nothing before this time; its program goes on.
    pub(super) stopped_until: Time,
    /// After a pause, it first handles what waits for it.
    listens_until: Time,
    /// Its number in the cluster.
    pub(super) id: Option<NodeId>,
    /// When the coordinator declared it dead, until it is admitted again.
    pub(super) died: Option<Time>,
    /// When this life began.
    pub(super) since: Time,
}

/// The events, in order of time and then of scheduling.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Happening {
    Arrival {
        to: usize,
        source: SocketAddr,
        bytes: Vec<u8>,
    },
    Deadline(usize),
    /// The program goes on.
    Run(usize),
    /// The host is cut off from these others.
    Cut(usize, Vec<usize>, Time),
    /// Its daemon stands still.
    Stop(usize, Time),
    /// A life may end, or stumble.
    Churn,
    /// The next life of a host begins.
    Begin(usize),
}

/// All of it.
pub(super) struct Cluster {
    queue: Queue<Happening>,
    pub(super) hosts: Vec<Host>,
    pub(super) newest: BTreeMap<Key, Newest>,
    pub(super) network: Network,
    pub(super) dice: Dice,
    options: RejoinRun,
    cluster: ClusterId,
    pub(super) pace: Pace,
    pub(super) last: u64,
    log: Log,
    pub(super) seen: RejoinSeen,
    pub(super) churn: Option<Churn>,
}

/// Far more than any run needs: nodes send the same again and again.
const STORM: u64 = 3_000_000;
/// When all that was begun has ended, without churn.
const CALM: Time = Time(60_000_000_000);

impl Cluster {
    /// A run of which so many steps are remembered.
    pub(super) fn new(options: RejoinRun, lines: usize) -> Self {
        let mut dice = Dice::stream(options.seed, "rejoin");
        let weather = weather(&mut dice, options.profile);
        let count = match options.churn {
            None => dice.between(3, 4) as usize,
            Some(_) => dice.between(4, 7) as usize,
        };
        let pace = pace(&mut dice);
        let mut cluster = Self {
            queue: Queue::new(),
            hosts: Vec::new(),
            newest: BTreeMap::new(),
            network: Network::new(options.seed, weather, None),
            cluster: ClusterId(dice.number() | 1),
            pace,
            dice,
            options,
            last: 0,
            log: Log::new(lines),
            seen: RejoinSeen::default(),
            churn: options.churn.map(Churn::new),
        };
        for host in 0..count {
            let new = cluster.new_host(host);
            cluster.hosts.push(new);
            let joins = 1_000 + 1_000_000 * host as u64;
            cluster.schedule(Time(joins), Happening::Deadline(host));
            cluster.schedule(Time(joins + 100_000_000), Happening::Run(host));
        }
        match options.churn {
            None => cluster.plan_misfortune(count),
            Some(_) => cluster.schedule(Time(200_000_000), Happening::Churn),
        }
        cluster
    }

    /// Hosts are cut off or stand still, for longer than it takes to be declared dead, mostly.
    fn plan_misfortune(&mut self, hosts: usize) {
        let mut at = 1_000_000_000;
        for _ in 0..self.dice.between(1, 3) {
            at += self.dice.between(0, 3_000_000_000);
            let host = 1 + self.dice.index(hosts - 1);
            let end = at + self.dice.between(2_000_000_000, 6_000_000_000);
            let others = (0..hosts).filter(|other| *other != host);
            let happening = match self.dice.below(4) {
                0 => Happening::Stop(host, Time(end)),
                // From the coordinator alone: others go on talking to it.
                1 => Happening::Cut(host, vec![0], Time(end)),
                _ => Happening::Cut(host, others.collect(), Time(end)),
            };
            self.schedule(Time(at), happening);
            at = end;
        }
    }

    pub(super) fn new_host(&mut self, host: usize) -> Host {
        let incarnation = self.dice.number() | 1;
        let config = Config {
            rejoin: true,
            ..small::config(host, self.cluster, incarnation, self.pace)
        };
        Host {
            node: Node::new(config),
            memory: Memory::default(),
            program: self.new_program(host as u32 + 1),
            deadline: None,
            stopped_until: Time::ZERO,
            listens_until: Time::ZERO,
            id: None,
            died: None,
            since: self.queue.now(),
        }
    }

    pub(super) fn schedule(&mut self, at: Time, event: Happening) {
        self.queue.schedule(at, event);
    }

    pub(super) fn time(&self) -> Time {
        self.queue.now()
    }

    pub(super) fn note(&mut self, host: usize, what: impl FnOnce() -> String) {
        self.log.note(self.queue.now(), host, what);
    }

    pub(super) fn plants(&self, mistake: RejoinMistake) -> bool {
        self.options.planted == Some(mistake)
    }

    pub(super) fn memory(&mut self, host: usize) -> &mut Memory {
        &mut self.hosts[host].memory
    }

    pub(super) fn run(mut self) -> Result<RejoinSeen, String> {
        while let Some(event) = self.queue.next() {
            if self.time() > self.calm() {
                break;
            }
            let mut result = self.happen(event);
            if self.queue.scheduled() > self.storm() {
                result = Err("INV-progress: a storm".into());
            }
            if let Err(why) = result {
                return Err(self.report(&why));
            }
        }
        let waits = |host: &Host| host.program.doing != Doing::Nothing;
        if let Some(host) = self.hosts.iter().position(waits) {
            let doing = self.hosts[host].program.doing;
            let why = format!(
                "INV-progress: the program of h{} still waits: {doing:?}",
                host + 1
            );
            return Err(self.report(&why));
        }
        Ok(self.seen)
    }

    /// When all that was begun has ended.
    fn calm(&self) -> Time {
        self.churn.as_ref().map_or(CALM, Churn::calm)
    }

    /// More events than the run can need.
    fn storm(&self) -> u64 {
        self.churn.as_ref().map_or(STORM, Churn::storm)
    }

    fn report(&self, why: &str) -> String {
        format!("{}\n{why}", self.log.lines())
    }

    fn happen(&mut self, event: Happening) -> Check {
        match event {
            Happening::Arrival { to, source, bytes } => {
                if self.time() < self.hosts[to].stopped_until {
                    let later = self.hosts[to].stopped_until;
                    self.schedule(later, Happening::Arrival { to, source, bytes });
                    return Ok(());
                }
                self.arrive(to, source, &bytes)
            }
            // Another one was scheduled since.
            Happening::Deadline(host)
                if self.hosts[host]
                    .deadline
                    .is_some_and(|at| at != self.time()) =>
            {
                Ok(())
            }
            Happening::Deadline(host) => {
                let waits = self.hosts[host].listens_until;
                if self.time() < waits {
                    self.hosts[host].deadline = Some(waits);
                    self.schedule(waits, Happening::Deadline(host));
                    return Ok(());
                }
                self.hosts[host].deadline = None;
                small::input(self, host, Input::Deadline)
            }
            Happening::Run(host) => self.step(host),
            Happening::Churn => self.stir(),
            Happening::Begin(host) => self.begin_life(host),
            Happening::Cut(host, others, end) => {
                self.note(host, || format!("is cut off from {others:?}"));
                for other in others {
                    self.network.cut(host, other, end);
                    self.network.cut(other, host, end);
                }
                Ok(())
            }
            Happening::Stop(host, end) => {
                self.note(host, || "has its daemon stopped".into());
                self.hosts[host].stopped_until = end;
                let hears = self.pace.heartbeat * 12 / 5;
                self.hosts[host].listens_until = end + hears;
                Ok(())
            }
        }
    }

    fn arrive(&mut self, host: usize, source: SocketAddr, bytes: &[u8]) -> Check {
        let Ok((_, message, _)) = Message::decode(bytes) else {
            return Ok(());
        };
        self.note(host, || {
            format!("<- h{} {}", host_at(source) + 1, legible(&message))
        });
        let input = Input::Datagram {
            source,
            key: PublicKey::NONE,
            bytes,
        };
        small::input(self, host, input)
    }

    /// The node is to be called then.
    pub(super) fn call_at(&mut self, host: usize, due: Time) {
        let state = &mut self.hosts[host];
        if state.deadline.is_none_or(|at| due < at) {
            let at = due.max(Time(self.queue.now().0 + 1));
            state.deadline = Some(at);
            self.schedule(at, Happening::Deadline(host));
        }
    }

    pub(super) fn transmit(
        &mut self,
        host: usize,
        (to, header): (usize, Header),
        message: &Message,
        behind: &[u8],
    ) {
        let mut bytes = Vec::new();
        message.encode(header, &mut bytes);
        bytes.extend_from_slice(behind);
        self.seen.datagrams += 1;
        let now = self.time();
        let fate = self.network.fate(now, host, to, kind(message));
        for at in fate.arrivals(now) {
            let arrival = Happening::Arrival {
                to,
                source: address(host),
                bytes: bytes.clone(),
            };
            self.schedule(at, arrival);
        }
    }

    /// A node tells what happened to it.
    pub(super) fn told(&mut self, host: usize, event: Event) -> Check {
        match event {
            Event::Admitted { node } => {
                self.hosts[host].id = Some(node);
                self.hosts[host].died = None;
                self.seen.joined += 1;
            }
            Event::NumbersFreed { .. } => self.seen.freed += 1,
            Event::Died { node } if host == 0 => {
                let now = self.time();
                let dead = self.hosts.iter_mut().find(|host| host.id == Some(node));
                if let Some(dead) = dead {
                    dead.died = Some(now);
                }
            }
            Event::Rejoined { .. } => return self.rejoined(host),
            _ => {}
        }
        Ok(())
    }

    /// A node has joined again: what its program relies on is there, or is lost.
    fn rejoined(&mut self, host: usize) -> Check {
        self.seen.rejoined += 1;
        let state = &mut self.hosts[host];
        let lost = state.node.rejoin().lost;
        let program = &mut state.program;
        program.must_fail |= core::mem::take(&mut program.saw_later);
        if program.segments.is_empty() {
            return Ok(());
        }
        match (lost.is_empty(), program.reads_only) {
            (true, reads) => {
                self.seen.kept += 1;
                self.seen.readers_kept += u64::from(reads);
            }
            (false, reads) => {
                self.seen.lost += 1;
                self.seen.readers_lost += u64::from(reads);
            }
        }
        if let Some((key, _)) = program.holds
            && lost.is_empty()
        {
            return Err(format!(
                "INV-mutual-exclusion: h{} goes on holding {key} after its death",
                host + 1
            ));
        }
        Ok(())
    }
}
