//! Hosts, programs and the network between them, in one queue of events.

mod program;

use super::executor::forge;
use super::memory::Memory;
use super::{Private, PrivateMistake, Remote};
use crate::dice::Dice;
use crate::network::{Network, kind, legible};
use crate::plan::{pace, weather};
use crate::small::{self, Check, Log, Queue};
use pagemesh_core::{At, Input, Node, Pace, Placement, Reply, Request, Time};
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Backing, DonorReply, Forward, Got, Message};
use pagemesh_wire::{ClientId, ClusterId, NodeId, PublicKey, SegmentId, Ticket};
use program::Program;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// One daemon with its program.
pub(super) struct Host {
    pub(super) node: Node,
    pub(super) memory: Memory,
    /// Pages of its segment in memory at most, and those it keeps for others.
    pub(super) local: u32,
    pub(super) lend: u32,
    backing: Backing,
    program: Program,
    gone: bool,
    /// It was asked to leave by a request with this ticket.
    leaving: Option<Ticket>,
    /// It changes what it keeps.
    hostile: bool,
    deadline: Option<Time>,
}

/// The events, in order of time and then of scheduling.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Arrival {
        to: usize,
        source: SocketAddr,
        bytes: Vec<u8>,
    },
    Deadline(usize),
    Run(usize),
    FaultAgain(usize),
    Crash(usize),
    Return(usize),
    Disk(usize, bool),
    Leave(usize),
}

/// What a donor was sent of one page, in order.
type Sent = Vec<(Got, Vec<u8>)>;

/// All of it.
pub(super) struct Cluster {
    queue: Queue<Happening>,
    pub(super) hosts: Vec<Host>,
    network: Network,
    dice: Dice,
    options: Private,
    cluster: ClusterId,
    pace: Pace,
    last: u64,
    log: Log,
    pub(super) remote: Remote,
    /// Pages that hostile donors were sent, in order.
    kept: BTreeMap<(usize, At), Sent>,
    arriving: Option<Got>,
    /// Two copies may be lost at once.
    deaths: u32,
    /// Hosts that came back.
    returns: u32,
    /// Segments that were removed.
    removed: Vec<SegmentId>,
    /// All programs have ended.
    over: Option<Time>,
}

/// Versions of a page that a hostile donor writes down.
const KEPT: usize = 2;

/// Far more than any run needs: nodes send the same again and again.
const STORM: u64 = 2_000_000;

/// The end of a run is looked at after this long.
const SETTLED: u64 = 5_000_000_000;

/// By then donors have asked about all that they keep, however often a datagram got lost.
const ASKED: u64 = 600_000_000_000;

/// Far longer than any run needs: something hangs.
const PATIENCE: Time = Time(1_200_000_000_000);

impl Cluster {
    pub(super) fn new(options: Private, lines: usize) -> Self {
        let mut dice = Dice::stream(options.seed, "private");
        let weather = weather(&mut dice, options.profile);
        let hosts = dice.between(2, 5) as usize;
        let pace = pace(&mut dice);
        let mut cluster = Self {
            queue: Queue::new(),
            hosts: Vec::new(),
            network: Network::new(options.seed, weather, None),
            cluster: ClusterId(dice.number() | 1),
            pace,
            dice,
            options,
            last: 0,
            log: Log::new(lines),
            remote: Remote::default(),
            kept: BTreeMap::new(),
            arriving: None,
            deaths: 0,
            returns: 0,
            removed: Vec::new(),
            over: None,
        };
        for host in 0..hosts {
            let new = cluster.new_host(host);
            cluster.hosts.push(new);
            cluster.schedule(Time(1_000 + host as u64), Happening::Deadline(host));
            let at = cluster.dice.between(10_000_000, 60_000_000);
            cluster.schedule(Time(at), Happening::Run(host));
        }
        cluster.plan_misfortune(hosts);
        cluster.plan_leaving(hosts);
        cluster
    }

    /// Hosts vanish and come back, and disks are full for a while.
    fn plan_misfortune(&mut self, hosts: usize) {
        let copies = self
            .hosts
            .iter()
            .any(|host| host.backing == Backing::Copies);
        let crashes = if copies { 1 } else { 3 };
        for _ in 0..self.dice.below(crashes + 1) {
            let host = 1 + self.dice.index(hosts - 1);
            let at = self.dice.between(20_000_000, 3_000_000_000);
            self.schedule(Time(at), Happening::Crash(host));
            if self.dice.chance(700) {
                let back = at + self.dice.between(1_000_000, 30_000_000_000);
                self.schedule(Time(back), Happening::Return(host));
            }
        }
        for _ in 0..self.dice.below(3) {
            let host = self.dice.index(hosts);
            let at = self.dice.between(20_000_000, 2_000_000_000);
            let end = at + self.dice.between(1_000_000, 4_000_000_000);
            self.schedule(Time(at), Happening::Disk(host, true));
            self.schedule(Time(end), Happening::Disk(host, false));
        }
    }

    /// Two hosts leave at almost the same time: they may have the only two copies of a page.
    fn plan_leaving(&mut self, hosts: usize) {
        let mut dice = Dice::stream(self.options.seed, "leaving");
        if hosts < 3 || !dice.chance(400) {
            return;
        }
        let at = dice.between(20_000_000, 600_000_000);
        let first = 1 + dice.index(hosts - 1);
        let second = 1 + first % (hosts - 1);
        for host in [first, second] {
            let at = Time(at + dice.below(5_000_000));
            self.schedule(at, Happening::Leave(host));
        }
    }

    /// A host is asked to leave; its program has ended.
    fn leave(&mut self, host: usize) -> Check {
        self.note(host, || "is to leave".into());
        if self.options.planted == Some(PrivateMistake::LeavesAtOnce) {
            self.hosts[host].gone = true;
            return Ok(());
        }
        self.last += 1;
        let ticket = Ticket(self.last);
        self.hosts[host].program.end();
        self.hosts[host].leaving = Some(ticket);
        let (client, request) = (ClientId(host as u32 + 1), Request::Leave);
        let input = Input::Request {
            ticket,
            client,
            request,
        };
        small::input(self, host, input)
    }

    /// A host has left, or it cannot.
    fn has_left(&mut self, host: usize, reply: &Reply) {
        self.note(host, || format!("is told: {reply:?}"));
        self.hosts[host].leaving = None;
        if matches!(reply, Reply::Done) {
            self.hosts[host].gone = true;
            self.remote.left += 1;
        }
    }

    fn new_host(&mut self, host: usize) -> Host {
        let incarnation = self.dice.number() | 1;
        let config = small::config(host, self.cluster, incarnation, self.pace);
        let pages = self.dice.between(3, 40) as u32;
        let local = self.dice.between(1, u64::from(pages)) as u32;
        let backing = *self
            .dice
            .pick(&[Backing::File, Backing::File, Backing::Copies]);
        Host {
            node: Node::new(config),
            memory: Memory::new(self.options.planted),
            local,
            lend: *self.dice.pick(&[0, 2, 70, 100]),
            backing,
            program: Program::draw(&mut self.dice, pages),
            gone: false,
            leaving: None,
            hostile: self.dice.chance(300),
            deadline: None,
        }
    }

    fn schedule(&mut self, at: Time, event: Happening) {
        self.queue.schedule(at, event);
    }

    pub(super) fn note(&mut self, host: usize, what: impl FnOnce() -> String) {
        self.log.note(self.queue.now(), host, what);
    }

    /// All programs have ended, and what was under way then has come or was given up.
    fn is_over(&mut self) -> bool {
        let idle = |host: &Host| host.gone || (host.program.has_ended() && host.leaving.is_none());
        if !self.hosts.iter().all(idle) {
            self.over = None;
            return false;
        }
        let now = self.queue.now();
        let over = *self.over.get_or_insert(now);
        let all_asked = now.0 >= over.0 + ASKED || self.every_copy_counts().is_ok();
        now.0 >= over.0 + SETTLED && all_asked
    }

    /// INV-no-orphan: a copy that a donor may not drop is one that its owner counts on.
    fn every_copy_counts(&self) -> Check {
        for (index, host) in self.hosts.iter().enumerate() {
            let Some(donor) = host.node.id().filter(|_| !host.gone) else {
                continue;
            };
            if let Some(at) = host.memory.stash.keys().find(|at| self.orphan(donor, **at)) {
                return Err(format!("INV-no-orphan: h{} keeps {at:?}", index + 1));
            }
        }
        Ok(())
    }

    /// Whether no one will ever ask for this copy, nor replace it for a younger page.
    fn orphan(&self, donor: NodeId, (segment, page): At) -> bool {
        let home = segment.home();
        let is_home = |host: &&Host| host.node.id() == Some(home) && !host.gone;
        let Some(owner) = self.hosts.iter().find(is_home) else {
            return false;
        };
        if home == donor || owner.backing != Backing::Copies || owner.node.out().is_some() {
            return false;
        }
        let known = owner.node.inspect(segment, page, 1);
        let line = known.and_then(|known| known.pages.into_iter().next());
        !line.is_some_and(|line| line.page == page && line.copies.contains(donor))
    }

    /// INV-no-leak: of segments that ended donors keep nothing, unless the owner is gone and not yet
    /// known to be.
    fn nothing_is_left(&self) -> Check {
        self.every_copy_counts()?;
        for (index, host) in self.hosts.iter().enumerate() {
            if host.gone || host.node.out().is_some() {
                continue;
            }
            let ended = |at: &&At| self.removed.contains(&at.0);
            if let Some(at) = host.memory.stash.keys().find(ended) {
                return Err(format!("INV-no-leak: h{} keeps {at:?}", index + 1));
            }
        }
        Ok(())
    }

    /// Its log, and what happened or broke.
    pub(super) fn run(mut self) -> (String, Result<Remote, String>) {
        let result = self.run_all();
        (self.log.lines(), result.map(|()| self.remote))
    }

    fn run_all(&mut self) -> Check {
        while let Some(event) = self.queue.next() {
            self.happen(event)?;
            if self.queue.now() > PATIENCE {
                return Err("a program hangs".into());
            }
            if self.queue.scheduled() > STORM {
                return Err("INV-progress: a storm".into());
            }
            if self.is_over() {
                return self.nothing_is_left();
            }
        }
        // A host that is alone has nothing more to do.
        if self.over.is_some() {
            return self.nothing_is_left();
        }
        Err("nothing will ever happen again".into())
    }

    fn happen(&mut self, event: Happening) -> Check {
        let (Happening::Arrival { to: host, .. }
        | Happening::Deadline(host)
        | Happening::Run(host)
        | Happening::FaultAgain(host)
        | Happening::Crash(host)
        | Happening::Return(host)
        | Happening::Leave(host)
        | Happening::Disk(host, _)) = event;
        if self.hosts[host].gone && !matches!(event, Happening::Return(_)) {
            return Ok(());
        }
        match event {
            Happening::Arrival { source, bytes, .. } => self.arrive(host, source, bytes),
            // Another one was scheduled since.
            Happening::Deadline(_)
                if self.hosts[host]
                    .deadline
                    .is_some_and(|at| at != self.queue.now()) =>
            {
                Ok(())
            }
            Happening::Deadline(_) => {
                self.hosts[host].deadline = None;
                small::input(self, host, Input::Deadline)
            }
            Happening::Run(_) => self.step(host),
            Happening::FaultAgain(_) => {
                let again = self.hosts[host].program.has_faulted();
                if again { self.fault(host) } else { Ok(()) }
            }
            Happening::Crash(_) => {
                self.note(host, || "vanishes".into());
                self.hosts[host].gone = true;
                self.remote.crashed += 1;
                self.deaths += 1;
                Ok(())
            }
            Happening::Return(_) => {
                if self.hosts[host].gone {
                    self.note(host, || "is back, without memory".into());
                    self.returns += 1;
                    self.hosts[host] = self.new_host(host);
                    self.schedule(self.queue.now(), Happening::Deadline(host));
                    let soon = Time(self.queue.now().0 + 50_000_000);
                    self.schedule(soon, Happening::Run(host));
                }
                Ok(())
            }
            Happening::Leave(_) => self.leave(host),
            Happening::Disk(_, full) => {
                self.hosts[host].memory.disk_is_full = full;
                Ok(())
            }
        }
    }

    /// A datagram arrives: the driver opens a page that comes back.
    fn arrive(&mut self, host: usize, source: SocketAddr, mut bytes: Vec<u8>) -> Check {
        let (header, message, behind) = Message::decode(&bytes).map_err(|why| why.to_string())?;
        let start = bytes.len() - behind.len();
        self.note(host, || format!("<- {}", legible(&message)));
        self.arriving = None;
        match &message {
            Message::Got(got) => {
                let memory = &mut self.hosts[host].memory;
                if !memory.open(got.lent, got.seal, &mut bytes[start..]) {
                    self.remote.forged += 1;
                    self.note(host, || "it is not what was sealed".into());
                    bytes.clear();
                    let spoiled = DonorReply::Spoiled(got.lent);
                    Message::DonorReply(spoiled).encode(header, &mut bytes);
                }
            }
            Message::Put(put) => {
                let (lent, seal) = (put.lent, put.seal);
                self.arriving = Some(Got { lent, seal });
            }
            Message::Forward(on) => {
                let (lent, seal) = (on.put.lent, on.put.seal);
                self.arriving = Some(Got { lent, seal });
            }
            _ => {}
        }
        let input = Input::Datagram {
            source,
            key: PublicKey::NONE,
            bytes: &bytes,
        };
        small::input(self, host, input)
    }

    pub(super) fn time(&self) -> Time {
        self.queue.now()
    }

    /// The node wants to be called then.
    pub(super) fn call_at(&mut self, host: usize, due: Time) {
        let now = self.queue.now();
        let deadline = &mut self.hosts[host].deadline;
        if deadline.is_none_or(|at| due < at) {
            let at = due.max(Time(now.0 + 1));
            *deadline = Some(at);
            self.schedule(at, Happening::Deadline(host));
        }
    }

    /// INV-budget. A page on its way from the stash to its frame is in both for a moment.
    pub(super) fn budgets_hold(&self, host: usize) -> Check {
        let host = &self.hosts[host];
        let Some(me) = host.node.id() else {
            return Ok(());
        };
        let (own, others) = host.memory.count(me);
        let (local, lend) = (host.local as usize, host.lend as usize);
        if own > local {
            return Err(format!(
                "INV-budget: {own} pages in memory, {local} allowed"
            ));
        }
        if others > lend {
            return Err(format!(
                "INV-budget: {others} pages kept for others, {lend} lent"
            ));
        }
        Ok(())
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
        self.remote.datagrams += 1;
        self.note(host, || format!("-> h{} {}", to + 1, legible(message)));
        let source = small::address(host);
        let now = self.queue.now();
        let fate = self.network.fate(now, host, to, kind(message));
        for at in fate.arrivals(now) {
            let bytes = bytes.clone();
            self.schedule(at, Happening::Arrival { to, source, bytes });
        }
    }

    /// A hostile donor writes down what it keeps.
    pub(super) fn record(&mut self, host: usize, at: At, bytes: &[u8]) {
        if let Some(got) = self.arriving.filter(|_| self.hosts[host].hostile) {
            let kept = self.kept.entry((host, at)).or_default();
            kept.truncate(KEPT);
            kept.push((got, bytes.to_vec()));
        }
    }

    /// A hostile donor changes what it sends back.
    pub(super) fn tamper(&mut self, host: usize, got: &mut Got, bytes: &mut Vec<u8>) {
        if self.hosts[host].hostile && self.dice.chance(500) {
            let at = (got.lent.segment, got.lent.page);
            let kept = self.kept.get(&(host, at));
            let older = kept.and_then(|kept| {
                kept.iter()
                    .find(|(older, _)| older.lent.version < got.lent.version)
            });
            forge(got, bytes, self.dice.below(5), older);
        }
    }

    /// INV-rounds: a page is sent on by fewer nodes than may keep it. A hostile donor changes what it
    /// sends on, and says that it is newer than all that the owner has sent.
    pub(super) fn tamper_on(&mut self, host: usize, on: &mut Forward, bytes: &mut [u8]) -> Check {
        if !(1..Placement::ROUNDS).contains(&on.rounds) {
            return Err(format!("INV-rounds: {on:?} is sent on"));
        }
        if self.hosts[host].hostile && self.dice.chance(500) {
            bytes[0] ^= 1;
            on.put.lent.version.0 += self.dice.below(3);
        }
        Ok(())
    }
}
