//! The simulated cluster: hosts, clock and event queue.
//!
//! Events happen in the order of (time, sequence), and only in [`World::step`]. Time passes only
//! between events.

mod disk;
mod etcd;
mod host;
mod losses;
mod queue;
mod reaction;
mod stats;
mod traffic;

use crate::canary::Canary;
use crate::check::{Check, ensure};
use crate::checkers::Checkers;
use crate::dice::Dice;
use crate::hearing::Hearing;
use crate::kernel::{Kernel, PageKey};
use crate::log::{Log, Mark};
use crate::network::{Network, Weather};
use crate::process::{Client, Processes};
use crate::receipts::Receipts;
use crate::recording::Recording;
use crate::sealing::Sealing;
use crate::step::{BarrierPlan, Fault, HostPlan, QueuePlan, SegmentPlan};
use crate::upgrade::NEW;
use crate::ways::Ways;
use pagemesh_core::{Config, Input, Node, Pace, Rights, Start, Time};
use pagemesh_wire::{ClusterId, Incarnation};
use std::collections::VecDeque;
use std::net::SocketAddr;

use disk::Disk;
use etcd::Etcd;
pub(crate) use etcd::{Asked, EtcdStep};
pub(crate) use host::{Host, Life, Pending};
use losses::Losses;
pub(crate) use queue::Happening;
use queue::Queue;
use reaction::Reaction;
pub use stats::Stats;
use traffic::Traffic;

/// The parts of the world; all decisions of a seed except programs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setting {
    /// Bytes that leave a host in one packet, and that all links carry; longer datagrams
    /// get lost. None if links carry everything.
    pub(crate) carried: Option<(usize, usize)>,
    /// Datagrams are sealed.
    pub(crate) sealed: bool,
    pub(crate) seed: u64,
    pub(crate) hosts: Vec<HostPlan>,
    pub(crate) pace: Pace,
    pub(crate) weather: Weather,
    pub(crate) segments: Vec<SegmentPlan>,
    pub(crate) queues: Vec<QueuePlan>,
    pub(crate) barriers: Vec<BarrierPlan>,
    pub(crate) faults: Vec<(Time, Fault)>,
    /// Faults of threads are repeated this often, in a thousand.
    pub(crate) repeats: u32,
    pub(crate) canary: Option<Canary>,
    pub(crate) log: bool,
    /// Nodes have journals.
    pub(crate) recorded: bool,
    /// Daemons are killed again and again, and replaced.
    pub(crate) replace: bool,
    /// Datagrams that wait together are heard together, and receipts wait for each other.
    pub(crate) turns: bool,
    /// Daemons are replaced by ones of other programs.
    pub(crate) upgrades: bool,
    /// The coordinator names a standby.
    pub(crate) standby: bool,
    /// Hosts have disks, on which coordinator and standby put their decisions.
    pub(crate) keeps: bool,
    /// They have no disks: a store that all share keeps that, and elects the coordinator.
    pub(crate) elected: bool,
    /// The coordinator gives far numbers.
    pub(crate) far: bool,
    /// Kernels serve the accesses to segments that only their home has used.
    pub(crate) traps_late: bool,
    /// How often another node, or another life of one, takes over as the coordinator.
    pub(crate) takeovers: u64,
}

/// The simulated cluster.
pub(crate) struct World {
    pub(crate) now: Time,
    queue: Queue,
    pub(crate) hosts: Vec<Host>,
    pub(crate) network: Network,
    pub(crate) traffic: Traffic,
    pub(crate) etcd: Etcd,
    pub(crate) checkers: Checkers,
    pub(crate) losses: Losses,
    pub(crate) reaction: Reaction,
    pub(crate) processes: Processes,
    pub(crate) setting: Setting,
    /// When threads run and how they think.
    pub(crate) dice: Dice,
    pub(crate) log: Log,
    pub(crate) stats: Stats,
}

impl World {
    /// A world in which nothing has happened yet.
    pub(crate) fn new(setting: Setting) -> Self {
        let mut world = Self {
            now: Time(1_000),
            queue: Queue::default(),
            hosts: Vec::new(),
            network: Network::new(setting.seed, setting.weather.clone(), setting.canary),
            traffic: Traffic::default(),
            etcd: Etcd::new(setting.seed),
            checkers: Checkers::default(),
            losses: Losses::default(),
            reaction: Reaction::default(),
            processes: Processes::default(),
            dice: Dice::stream(setting.seed, "threads"),
            log: Log::new(setting.log),
            stats: Stats::default(),
            setting,
        };
        for plan in world.setting.hosts.clone() {
            world.add_host(plan);
        }
        for (at, fault) in world.setting.faults.clone() {
            world.schedule(at, Happening::Misfortune(fault));
        }
        world
    }

    /// One more host, whose daemon starts when its plan says.
    pub(crate) fn add_host(&mut self, plan: HostPlan) {
        let index = self.hosts.len();
        let mut dice = Dice::stream(self.setting.seed, &format!("host {index}"));
        let address = address(plan.successor_of.unwrap_or(index));
        let start = match (index, plan.resumes) {
            (0, _) => Start::Found(ClusterId(dice.number() | 1)),
            (_, Some(host)) => self.life_from_disk(host),
            _ => Start::Join(self.hosts[0].address),
        };
        let (leaves, sealed) = (self.setting.carried, self.setting.sealed);
        let leaves = leaves.map(|(leaves, _)| leaves);
        let ways = Ways::new(leaves, sealed, self.setting.seed, index);
        let guard = Sealing::new(self.setting.sealed, self.setting.seed, index);
        let program = self.first_program(index);
        let config = Config {
            key: guard.key(),
            pace: self.setting.pace,
            standby: self.setting.standby,
            keeps: self.setting.keeps,
            elected: self.setting.elected,
            program,
            far_numbers: self.setting.far,
            // The old program does not know how.
            traps_late: self.setting.traps_late && program == NEW,
            ..Config::plain(
                format!("host{}", index + 1),
                address,
                Incarnation(dice.number() | 1),
                start,
            )
        };
        let mut disk = Disk::new(self.setting.seed, index);
        if let Start::Resume(life) = &config.start {
            disk.goes_on(life);
        }
        let starts_at = Time(plan.starts_at.max(self.now.0));
        let node = Node::new(config);
        let seed = self.setting.seed;
        let recorded = self.setting.recorded;
        self.hosts.push(Host {
            recording: recorded.then(|| Recording::begin(seed, index, &node)),
            remains: None,
            disk,
            client: etcd::Client::default(),
            node,
            kernel: Kernel::new(self.setting.canary),
            plan,
            address,
            life: Life::Unborn,
            buried: false,
            leaves: false,
            id: None,
            guard,
            ways,
            inbox: VecDeque::new(),
            receipts: Receipts::default(),
            answers: 0,
            paused_until: Time(0),
            slow: (1, Time(0)),
            busy_until: Time(0),
            turn_due: None,
            deadline: None,
            deadline_waits: false,
            generation: 0,
            stuck_deadlines: 0,
        });
        self.schedule(starts_at, Happening::Birth(index));
    }

    /// Lets something happen at a time.
    pub(crate) fn schedule(&mut self, at: Time, what: Happening) {
        self.queue.push(at, what);
    }

    /// Lets something happen so many nanoseconds from now.
    pub(crate) fn after(&mut self, nanos: u64, what: Happening) {
        self.schedule(Time(self.now.0 + nanos), what);
    }

    /// When the next thing happens.
    pub(crate) fn next_time(&self) -> Option<Time> {
        self.queue.next_time()
    }

    /// Lets things happen until every host is a member.
    #[cfg(test)]
    pub(crate) fn admit_all(&mut self) {
        while self.hosts.iter().any(|host| host.id.is_none()) {
            self.step().unwrap();
        }
    }

    /// Lets the next thing happen. False if nothing will ever happen again.
    pub(crate) fn step(&mut self) -> Check<bool> {
        let Some((now, what)) = self.queue.pop() else {
            return Ok(false);
        };
        self.now = now;
        self.stats.happenings += 1;
        match what {
            Happening::Birth(host) => self.birth(host)?,
            Happening::Arrival { to, source, bytes } => self.arrival(to, source, bytes),
            Happening::Turn(host) => self.turn(host)?,
            Happening::Deadline { host, generation } => self.deadline(host, generation),
            Happening::Run { thread, generation } => self.run_thread(thread, generation)?,
            Happening::FaultAgain { thread, generation } => self.fault_again(thread, generation),
            Happening::Impatience { thread, ticket } => self.impatience(thread, ticket),
            Happening::Ways(host) => self.tend_ways(host),
            Happening::Receipts(host) => self.send_receipts(host)?,
            Happening::Disk(host) => self.disk_writes(host),
            Happening::Etcd(step) => self.etcd_step(step)?,
            Happening::Misfortune(fault) => self.misfortune(fault)?,
        }
        Ok(true)
    }

    fn birth(&mut self, host: usize) -> Check {
        if let Some(former) = self.hosts[host].plan.successor_of {
            self.crash(former, "makes room for its heir")?;
        }
        if self.hosts[host].life != Life::Unborn {
            return Ok(());
        }
        self.hosts[host].life = Life::Up;
        self.log
            .note(self.now, host, Mark::Hand, [0; 3], || "starts".into());
        self.input(host, Input::Deadline);
        Ok(())
    }

    /// A datagram reaches an address, and the daemon that listens there by now.
    pub(crate) fn arrival(&mut self, to: SocketAddr, source: SocketAddr, bytes: Vec<u8>) {
        if let Some(host) = self.host_at(to)
            && self.hosts[host].life == Life::Up
        {
            self.enqueue(host, Pending::Datagram(source, bytes));
        }
    }

    /// An input of a host from itself.
    pub(crate) fn input(&mut self, host: usize, input: Input<'static>) {
        self.enqueue(host, Pending::Local(input));
    }

    fn enqueue(&mut self, host: usize, pending: Pending) {
        self.hosts[host].inbox.push_back(pending);
        self.plan_turn(host);
    }

    fn plan_turn(&mut self, host: usize) {
        let state = &mut self.hosts[host];
        let idle = state.inbox.is_empty() && state.remains.is_none();
        if state.life != Life::Up || state.turn_due.is_some() || idle {
            return;
        }
        let at = self.now.max(state.busy_until).max(state.paused_until);
        state.turn_due = Some(at);
        self.schedule(at, Happening::Turn(host));
    }

    /// A host's daemon handles one input, and all effects of it.
    fn turn(&mut self, at: usize) -> Check {
        let host = &mut self.hosts[at];
        if host.life != Life::Up || host.turn_due != Some(self.now) {
            return Ok(());
        }
        host.turn_due = None;
        if host.paused_until > self.now {
            self.plan_turn(at);
            return Ok(());
        }
        if let Some(mut remains) = host.remains.take() {
            self.redo(at, &mut remains)?;
            self.settle(at, &remains.hearing)?;
            self.check_deadline(at, remains.hearing.is_deadline())?;
            self.plan_turn(at);
            return Ok(());
        }
        let Some(pending) = host.inbox.pop_front() else {
            return Ok(());
        };
        let (factor, until) = host.slow;
        let cost = host.plan.cost * if self.now < until { factor } else { 1 };
        host.busy_until = Time(self.now.0 + cost);
        let is_deadline = matches!(pending, Pending::Local(Input::Deadline));
        self.handle(at, pending)?;
        self.check_deadline(at, is_deadline)?;
        self.plan_turn(at);
        Ok(())
    }

    /// All effects of an input were carried out.
    pub(crate) fn settle(&mut self, at: usize, hearing: &Hearing) -> Check {
        // Questions of effects are answered at once, before any input that already waits.
        let host = &mut self.hosts[at];
        for answer in self.reaction.answers.drain(..) {
            host.inbox.insert(host.answers, Pending::Local(answer));
            host.answers += 1;
        }
        self.settle_journal(at)?;
        for input in hearing.inputs() {
            if let Pending::Local(Input::ClientGone { client }) = input {
                self.return_locks_of_dead(at, *client);
            }
        }
        for (host, how) in std::mem::take(&mut self.reaction.departing) {
            match how {
                Life::Left => self.depart(host, Life::Left),
                _ => self.crash(host, "is expelled")?,
            }
        }
        Ok(())
    }

    /// Keeps the node's next deadline in the event queue.
    fn check_deadline(&mut self, at: usize, was_deadline: bool) -> Check {
        let host = &mut self.hosts[at];
        if host.deadline_waits {
            return Ok(());
        }
        let offset = host.plan.clock_offset;
        let due = host
            .node
            .next_deadline()
            .map(|due| Time(due.0.saturating_sub(offset)));
        let stuck = was_deadline && due.is_some_and(|due| due <= self.now);
        host.stuck_deadlines = if stuck { host.stuck_deadlines + 1 } else { 0 };
        ensure!(
            host.stuck_deadlines < 100,
            DeadlineMoves,
            "h{} has its deadline still at {:?} after {} handlings",
            at + 1,
            due,
            host.stuck_deadlines
        );
        if due != host.deadline {
            host.deadline = due;
            host.generation += 1;
            let generation = host.generation;
            if let Some(due) = due {
                let at_least = Time(self.now.0 + 1);
                self.schedule(
                    due.max(at_least),
                    Happening::Deadline {
                        host: at,
                        generation,
                    },
                );
            }
        }
        Ok(())
    }

    fn deadline(&mut self, at: usize, generation: u64) {
        let host = &mut self.hosts[at];
        if host.life == Life::Up && host.generation == generation {
            host.deadline = None;
            host.deadline_waits = true;
            self.input(at, Input::Deadline);
        }
    }

    /// Asserts *INV-single-writer* after a host's rights to a page rose.
    pub(crate) fn check_single_writer(&self, at: usize, key: PageKey) -> Check {
        let here = self.hosts[at].kernel.rights(key);
        for (other, host) in self.hosts.iter().enumerate() {
            if other == at || host.life != Life::Up || host.buried {
                continue;
            }
            let there = host.kernel.rights(key);
            let fine = there == Rights::None || (here != Rights::Write && there != Rights::Write);
            ensure!(
                fine,
                SingleWriter,
                "h{} has {here:?} rights to {key} while h{} has {there:?}",
                at + 1,
                other + 1
            );
        }
        Ok(())
    }

    /// A daemon stops handling for a while.
    pub(crate) fn pause(&mut self, host: usize, length: u64) {
        // It may stand still for longer already.
        let until = &mut self.hosts[host].paused_until;
        *until = (*until).max(Time(self.now.0 + length));
    }

    /// A daemon takes longer for everything, for a while.
    pub(crate) fn slow_down(&mut self, host: usize, factor: u64, length: u64) {
        self.hosts[host].slow = (factor, Time(self.now.0 + length));
    }

    /// The network and every host are well from now on.
    pub(crate) fn heal(&mut self) {
        self.log.note(self.now, 0, Mark::Hand, [1; 3], || {
            "all is well from now on".into()
        });
        self.network.heal();
        self.etcd.heal();
        for at in 0..self.hosts.len() {
            let host = &mut self.hosts[at];
            host.slow = (1, Time(0));
            if host.paused_until > self.now {
                host.paused_until = self.now;
                host.turn_due = None;
                self.plan_turn(at);
            }
        }
        self.queue.spare_all();
    }

    /// The hosts whose daemons run and count.
    pub(crate) fn up(&self) -> impl Iterator<Item = usize> {
        let up = |(_, host): &(usize, &Host)| host.life == Life::Up && !host.buried;
        self.hosts.iter().enumerate().filter(up).map(|(at, _)| at)
    }

    /// The host at this address: the one whose daemon runs, else the last one.
    pub(crate) fn host_at(&self, address: SocketAddr) -> Option<usize> {
        let here = |host: &Host| host.address == address;
        let up = self
            .hosts
            .iter()
            .rposition(|host| here(host) && host.life == Life::Up);
        up.or_else(|| self.hosts.iter().rposition(here))
    }

    /// The clients of a host that have not ended.
    pub(crate) fn clients_of(&self, host: usize) -> impl Iterator<Item = &Client> {
        self.processes
            .clients
            .iter()
            .filter(move |client| client.host == host && client.alive)
    }
}

fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, (host / 200) as u8, (host % 200) as u8 + 1], 7300))
}
