//! Hosts, processes and the network between them, in one queue of events.

mod endings;
mod life;
mod traffic;

use super::home::{Cause, Home, Key};
use super::keys::Keys;
use super::program::{ROOM, Team};
use super::{SystemV, Tried};
use crate::dice::Dice;
use crate::network::Network;
use crate::plan::{Profile, pace, weather};
use pagemesh_core::{Config, Input, Node, Start, Time};
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::Credentials;
use pagemesh_wire::sysv::{Ask, Id, Limits, Op, Who};
use pagemesh_wire::{ClientId, ClusterId, Incarnation, SegmentId, Ticket};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

struct Host {
    node: Node,
    gone: bool,
    deadline: Option<Time>,
    /// It stands still until then.
    still: Time,
    /// All processes it ever had.
    clients: Vec<ClientId>,
}

struct Process {
    host: usize,
    /// The team whose objects it uses; none if it calls nonsense.
    team: Option<usize>,
    /// Its call under way.
    call: Option<(Ticket, Op)>,
    attached: Vec<(Id, SegmentId)>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival {
        to: usize,
        source: SocketAddr,
        bytes: Vec<u8>,
    },
    Deadline(usize),
    Act(ClientId),
    Signal(ClientId, Ticket),
    Crash(usize),
    Pause(usize, u64),
}

pub(super) struct Cluster {
    options: SystemV,
    now: Time,
    queue: BinaryHeap<Reverse<(Time, u64, Event)>>,
    sequence: u64,
    hosts: Vec<Host>,
    processes: SortedMap<ClientId, Process>,
    /// The caller of each request, and its home, if that is certain.
    tickets: SortedMap<Ticket, (ClientId, Option<usize>)>,
    clients: u32,
    /// The processes that call nonsense, dead or alive.
    fools: BTreeSet<ClientId>,
    /// Of every host that there is.
    homes: SortedMap<usize, Home>,
    teams: Vec<Team>,
    keys: Keys,
    /// Processes that are dead, and of which their own host does not know all yet.
    mourned: BTreeSet<ClientId>,
    network: Network,
    dice: Dice,
    /// No process begins anything any more.
    winding_up: bool,
    log: VecDeque<String>,
    tried: Tried,
}

type Check<T = ()> = Result<T, String>;

/// Falls into the bucket of 7.
const NEIGHBOUR: i32 = 384;

/// Living processes at most.
const CROWD: usize = 14;

fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8 + 1], 7300))
}

const MILLI: u64 = 1_000_000;

impl Cluster {
    pub(super) fn new(options: SystemV) -> Self {
        let mut dice = Dice::stream(options.seed, "system v");
        let weather = weather(&mut dice, options.profile);
        let pace = pace(&mut dice);
        let hosts = dice.between(2, 4) as usize;
        let mut cluster = Self {
            options,
            now: Time(1_000),
            queue: BinaryHeap::new(),
            sequence: 0,
            hosts: Vec::new(),
            processes: SortedMap::new(),
            tickets: SortedMap::new(),
            clients: 0,
            fools: BTreeSet::new(),
            homes: SortedMap::new(),
            teams: Vec::new(),
            keys: Keys::default(),
            mourned: BTreeSet::new(),
            network: Network::new(options.seed, weather, None),
            dice,
            winding_up: false,
            log: VecDeque::new(),
            tried: Tried::default(),
        };
        let id = ClusterId(cluster.dice.number() | 1);
        for host in 0..hosts {
            let start = match host {
                0 => Start::Found(id),
                _ => Start::Join(address(0)),
            };
            cluster.hosts.push(Host {
                node: Node::new(Config {
                    pace,
                    ..Config::plain(
                        format!("host{host}"),
                        address(host),
                        Incarnation(cluster.dice.number() | 1),
                        start,
                    )
                }),
                gone: false,
                deadline: None,
                still: Time(0),
                clients: Vec::new(),
            });
            cluster.schedule(Time(1_000 + host as u64), Event::Deadline(host));
            let judge = Home::new(u64::from(ROOM), options.mistake);
            cluster.homes.insert(host, judge);
        }
        cluster.populate();
        cluster.add_fool();
        cluster.trouble();
        cluster
    }

    /// The processes that share objects with keys, and perhaps private ones.
    fn populate(&mut self) {
        let private = self.dice.chance(400);
        // Two keys of one bucket, and one of another.
        let keys: [Option<&[i32]>; 2] = [Some(&[7, 7, NEIGHBOUR, 9]), private.then_some(&[0])];
        for keys in keys.into_iter().flatten() {
            let team = self.teams.len();
            self.teams.push(Team {
                keys,
                ..Team::default()
            });
            for host in 0..self.hosts.len() {
                for _ in 0..self.dice.between(0, 2) {
                    self.spawn(host, Some(team));
                }
            }
        }
    }

    /// A process that calls nonsense, as long as that names no object in use.
    fn add_fool(&mut self) {
        if self.dice.chance(400) {
            let host = self.dice.index(self.hosts.len());
            self.spawn(host, None);
        }
    }

    /// Hosts stand still, and one vanishes.
    fn trouble(&mut self) {
        if self.options.profile == Profile::Calm {
            return;
        }
        for _ in 0..self.dice.below(4) {
            let at = Time(self.dice.between(400, 2500) * MILLI);
            let host = self.dice.index(self.hosts.len());
            let length = self.dice.between(1, 300) * MILLI;
            self.schedule(at, Event::Pause(host, length));
        }
        if self.hosts.len() > 2 && self.dice.chance(500) {
            let host = self.dice.between(1, self.hosts.len() as u64 - 1) as usize;
            let at = Time(self.dice.between(500, 2500) * MILLI);
            self.schedule(at, Event::Crash(host));
        }
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.sequence += 1;
        self.queue.push(Reverse((at, self.sequence, event)));
    }

    fn later(&mut self, nanos: u64, event: Event) {
        self.schedule(Time(self.now.0 + nanos), event);
    }

    fn note(&mut self, host: usize, what: impl FnOnce() -> String) {
        if self.log.len() == 300 {
            self.log.pop_front();
        }
        let line = format!("{:>12} h{} {}", self.now.0, host + 1, what());
        self.log.push_back(line);
    }

    pub(super) fn run(mut self) -> Result<Tried, String> {
        match self.phases() {
            Ok(()) => {
                let judges = self.homes.values().map(|home| &home.model);
                for model in judges {
                    self.tried.orphaned += model.orphaned;
                    self.tried.undone += model.undone;
                }
                Ok(self.tried)
            }
            Err(why) => {
                let log: Vec<_> = self.log.into_iter().collect();
                Err(format!("{}\n{why}", log.join("\n")))
            }
        }
    }

    /// Trouble, calm, the end of all processes.
    fn phases(&mut self) -> Check {
        self.run_for(Duration::from_secs(3))?;
        self.network.heal();
        self.winding_up = true;
        // Deaths are noticed, and calls end or wait.
        self.run_for(Duration::from_secs(12))?;
        let waiting: Vec<_> = self
            .processes
            .iter()
            .filter_map(|(client, process)| Some((*client, process.call.as_ref()?.0)))
            .collect();
        for (client, ticket) in waiting {
            self.later(1, Event::Signal(client, ticket));
        }
        self.run_for(Duration::from_secs(5))?;
        self.nobody_waits()?;
        self.count_attachments()?;
        for client in self.processes.keys().copied().collect::<Vec<_>>() {
            self.die(client)?;
        }
        self.run_for(Duration::from_secs(5))?;
        for home in self.homes.values() {
            if let Some(why) = home.model.left_behind(|_| false) {
                return Err(why);
            }
        }
        self.count_attachments()
    }

    fn run_for(&mut self, length: Duration) -> Check {
        let end = self.now + length;
        while self
            .queue
            .peek()
            .is_some_and(|Reverse((at, ..))| *at <= end)
        {
            let Some(Reverse((at, _, event))) = self.queue.pop() else {
                break;
            };
            self.now = at;
            self.happen(event)?;
        }
        self.now = end;
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Check {
        self.keys.step();
        let host = match &event {
            Event::Arrival { to, .. } => *to,
            Event::Deadline(host) | Event::Crash(host) | Event::Pause(host, _) => *host,
            Event::Act(client) | Event::Signal(client, _) => match self.processes.get(client) {
                Some(process) => process.host,
                None => return Ok(()),
            },
        };
        if self.hosts[host].gone {
            return Ok(());
        }
        if self.hosts[host].still > self.now {
            let at = self.hosts[host].still;
            self.schedule(at, event);
            return Ok(());
        }
        match event {
            Event::Pause(host, length) => {
                self.note(host, || format!("stands still for {length} ns"));
                self.tried.paused += 1;
                self.hosts[host].still = Time(self.now.0 + length);
                Ok(())
            }
            Event::Crash(host) => {
                self.crash(host);
                Ok(())
            }
            Event::Arrival { to, source, bytes } => self.arrives(to, source, &bytes),
            Event::Deadline(host) => {
                self.hosts[host].deadline = None;
                self.input(host, Input::Deadline, Vec::new())
            }
            Event::Act(client) => self.act(client),
            Event::Signal(client, ticket) => {
                self.note(host, || format!("a signal for {client}"));
                let here = self.tickets.get(&ticket) == Some(&(client, Some(host)));
                let cause = here.then_some(Cause::Withdrawal(Key::Here(ticket)));
                self.input(host, Input::Cancel { ticket }, cause.into_iter().collect())
            }
        }
    }
}

fn ask(client: ClientId, now: Time, op: Op) -> Ask {
    Ask {
        who: Who {
            client,
            pid: client.0 as i32,
            credentials: Credentials::root(),
        },
        wall: now.0 / 1_000_000_000,
        limits: Limits {
            msgmnb: ROOM,
            ..Limits::default()
        },
        op,
    }
}
