//! Hosts, programs and the network between them, in one queue of events.

use super::executor::Executor;
use super::memory::{Key, Memory, Newest, Word};
use super::{RejoinMistake, RejoinRun, RejoinSeen};
use crate::dice::Dice;
use crate::network::{Fate, Network, kind, legible};
use crate::plan::{pace, weather};
use pagemesh_core::{
    Config, EffectExecutor as _, Effects, Event, Input, Mappings, Node, Pace, Reply, Request,
    Rights, Start, Time,
};
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{
    Access, Credentials, Health, Manager, Message, Policy, Refusal, SegmentSpec, Window,
};
use pagemesh_wire::{
    ByteLen, ClientId, ClusterId, Incarnation, MappingId, NodeId, PAGE_SIZE, PageIndex, PublicKey,
    SegmentId, SyncKey, Ticket,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::net::SocketAddr;

/// Something broke the driver's law or an invariant.
pub(super) type Check<T = ()> = Result<T, String>;

/// One daemon with its program.
struct Host {
    node: Node,
    memory: Memory,
    program: Program,
    deadline: Option<Time>,
    /// The daemon handles nothing before this time; its program goes on.
    stopped_until: Time,
    /// After a pause, it first handles what waits for it.
    listens_until: Time,
    /// Its number in the cluster.
    id: Option<NodeId>,
    /// When the coordinator declared it dead, until it is admitted again.
    died: Option<Time>,
}

/// What a program does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Nothing,
    /// It opens the segment of this name.
    Opening(usize),
    /// A thread waits at a page.
    Access(Key, Access),
    WaitsForLock(SyncKey),
}

struct Program {
    client: ClientId,
    segments: Vec<SegmentId>,
    doing: Doing,
    ticket: Ticket,
    /// Pages that are lost.
    broken: BTreeSet<Key>,
    /// The lock that it holds, and how many accesses it still makes under it.
    holds: Option<(SyncKey, u32)>,
    /// It only loads.
    reads_only: bool,
    /// As a program of a dead host it has seen something that happened after the death.
    saw_later: bool,
    /// It must have lost its segments.
    must_fail: bool,
    /// It has noticed that something is lost that it relied on.
    ends: bool,
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
    /// The program goes on.
    Run(usize),
    /// The host is cut off from these others.
    Cut(usize, Vec<usize>, Time),
    /// Its daemon stands still.
    Stop(usize, Time),
}

/// All of it.
pub(super) struct Cluster {
    now: Time,
    queue: BinaryHeap<Reverse<(Time, u64, Happening)>>,
    sequence: u64,
    hosts: Vec<Host>,
    newest: BTreeMap<Key, Newest>,
    network: Network,
    dice: Dice,
    options: RejoinRun,
    cluster: ClusterId,
    pace: Pace,
    last: u64,
    log: VecDeque<String>,
    pub(super) seen: RejoinSeen,
}

/// Steps that are remembered for reports.
const LINES: usize = 4_000;
/// Far more than any run needs: nodes send the same again and again.
const STORM: u64 = 3_000_000;
/// When programs stop.
const END: Time = Time(30_000_000_000);
/// When all that was begun has ended.
const CALM: Time = Time(60_000_000_000);
const PAGES: u32 = 4;
const SEGMENTS: usize = 3;

fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8 + 1], 7300))
}

fn host_at(address: SocketAddr) -> usize {
    match address {
        SocketAddr::V4(address) => usize::from(address.ip().octets()[3] - 1),
        SocketAddr::V6(_) => unreachable!("hosts here have short addresses"),
    }
}

/// The host that makes a segment.
fn maker(segment: usize, hosts: usize) -> usize {
    [0, 0, 1][segment] % hosts
}

impl Cluster {
    pub(super) fn new(options: RejoinRun) -> Self {
        let mut dice = Dice::stream(options.seed, "rejoin");
        let weather = weather(&mut dice, options.profile);
        let count = dice.between(3, 4) as usize;
        let pace = pace(&mut dice);
        let mut cluster = Self {
            now: Time(1_000),
            queue: BinaryHeap::new(),
            sequence: 0,
            hosts: Vec::new(),
            newest: BTreeMap::new(),
            network: Network::new(options.seed, weather, None),
            cluster: ClusterId(dice.number() | 1),
            pace,
            dice,
            options,
            last: 0,
            log: VecDeque::new(),
            seen: RejoinSeen::default(),
        };
        for host in 0..count {
            let new = cluster.new_host(host);
            cluster.hosts.push(new);
            let joins = 1_000 + 1_000_000 * host as u64;
            cluster.schedule(Time(joins), Happening::Deadline(host));
            cluster.schedule(Time(joins + 100_000_000), Happening::Run(host));
        }
        cluster.plan_misfortune(count);
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

    fn new_host(&mut self, host: usize) -> Host {
        let config = Config {
            name: format!("host{host}"),
            address: address(host),
            incarnation: Incarnation(self.dice.number() | 1),
            key: PublicKey::NONE,
            start: match host {
                0 => Start::Found(self.cluster),
                _ => Start::Join(address(0)),
            },
            pace: self.pace,
            check_races: false,
            quotas: pagemesh_core::Quotas::default(),
            standby: false,
            rejoin: true,
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
        }
    }

    fn new_program(&mut self, client: u32) -> Program {
        Program {
            client: ClientId(client),
            segments: Vec::new(),
            doing: Doing::Nothing,
            ticket: Ticket(0),
            broken: BTreeSet::new(),
            holds: None,
            reads_only: self.dice.chance(500),
            saw_later: false,
            must_fail: false,
            ends: false,
        }
    }

    fn schedule(&mut self, at: Time, event: Happening) {
        self.sequence += 1;
        self.queue.push(Reverse((at, self.sequence, event)));
    }

    pub(super) fn note(&mut self, host: usize, what: impl FnOnce() -> String) {
        if self.log.len() == LINES {
            self.log.pop_front();
        }
        let line = format!("{:>12} h{} {}", self.now.0, host + 1, what());
        self.log.push_back(line);
    }

    pub(super) fn plants(&self, mistake: RejoinMistake) -> bool {
        self.options.planted == Some(mistake)
    }

    pub(super) fn memory(&mut self, host: usize) -> &mut Memory {
        &mut self.hosts[host].memory
    }

    pub(super) fn run(mut self) -> Result<RejoinSeen, String> {
        while let Some(Reverse((at, _, event))) = self.queue.pop() {
            self.now = at;
            if at > CALM {
                break;
            }
            let mut result = self.happen(event);
            if self.sequence > STORM {
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

    fn report(&mut self, why: &str) -> String {
        let log: Vec<_> = std::mem::take(&mut self.log).into_iter().collect();
        format!("{}\n{why}", log.join("\n"))
    }

    fn happen(&mut self, event: Happening) -> Check {
        match event {
            Happening::Arrival { to, source, bytes } => {
                if self.now < self.hosts[to].stopped_until {
                    let later = self.hosts[to].stopped_until;
                    self.schedule(later, Happening::Arrival { to, source, bytes });
                    return Ok(());
                }
                self.arrive(to, source, &bytes)
            }
            // Another one was scheduled since.
            Happening::Deadline(host)
                if self.hosts[host].deadline.is_some_and(|at| at != self.now) =>
            {
                Ok(())
            }
            Happening::Deadline(host) => {
                let waits = self.hosts[host].listens_until;
                if self.now < waits {
                    self.hosts[host].deadline = Some(waits);
                    self.schedule(waits, Happening::Deadline(host));
                    return Ok(());
                }
                self.hosts[host].deadline = None;
                self.input(host, Input::Deadline, &[])
            }
            Happening::Run(host) => self.step(host),
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
        let Ok((_, message, behind)) = Message::decode(bytes) else {
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
        self.input(host, input, behind)
    }

    /// A node handles one input and its immediate consequences.
    fn input(&mut self, host: usize, input: Input<'_>, payload: &[u8]) -> Check {
        let mut effects = Effects::default();
        let now = self.now;
        self.hosts[host].node.handle(now, input, &mut effects);
        let mut executor = Executor {
            cluster: self,
            host,
            payload,
            follow: Vec::new(),
        };
        executor.execute_all(&mut effects)?;
        for next in executor.follow {
            self.input(host, next, &[])?;
        }
        let state = &mut self.hosts[host];
        let due = state.node.next_deadline();
        if let Some(due) = due.filter(|due| state.deadline.is_none_or(|at| *due < at)) {
            let at = due.max(Time(now.0 + 1));
            state.deadline = Some(at);
            self.schedule(at, Happening::Deadline(host));
        }
        Ok(())
    }

    pub(super) fn send(
        &mut self,
        host: usize,
        (to, header): (SocketAddr, Header),
        message: &Message,
        behind: &[u8],
    ) {
        let mut bytes = Vec::new();
        message.encode(header, &mut bytes);
        bytes.extend_from_slice(behind);
        self.seen.datagrams += 1;
        let fate = self
            .network
            .fate(self.now, host, host_at(to), kind(message));
        let Fate::Arrives(first, second) = fate else {
            return;
        };
        for after in [Some(first), second].into_iter().flatten() {
            let arrival = Happening::Arrival {
                to: host_at(to),
                source: address(host),
                bytes: bytes.clone(),
            };
            self.schedule(Time(self.now.0 + after), arrival);
        }
    }

    fn soon(&mut self, host: usize) {
        let at = Time(self.now.0 + 1 + self.dice.below(60_000_000));
        self.schedule(at, Happening::Run(host));
    }

    /// A node tells what happened to it.
    pub(super) fn told(&mut self, host: usize, event: Event) -> Check {
        match event {
            Event::Admitted { node } => {
                self.hosts[host].id = Some(node);
                self.hosts[host].died = None;
            }
            Event::Died { node } if host == 0 => {
                let now = self.now;
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

/// Programs.
impl Cluster {
    /// Whether the host is dead for the others and does not know it.
    fn is_unheard(&self, host: usize) -> bool {
        let view = self.hosts[0].node.view();
        let dead = |id: NodeId| {
            let mut members = view.members.iter();
            members.any(|member| member.id == id && member.health != Health::Alive)
        };
        self.hosts[host].id.is_some_and(dead)
    }

    fn ask(&mut self, host: usize, request: Request) -> Check {
        self.last += 1;
        let ticket = Ticket(self.last);
        let program = &mut self.hosts[host].program;
        program.ticket = ticket;
        let client = program.client;
        let input = Input::Request {
            ticket,
            client,
            request,
        };
        self.local(host, input)
    }

    /// An input of a program, which waits while its daemon stands still.
    fn local(&mut self, host: usize, input: Input<'static>) -> Check {
        debug_assert!(self.now >= self.hosts[host].stopped_until);
        self.input(host, input, &[])
    }

    fn open(&mut self, host: usize) -> Check {
        let at = self.hosts[host].program.segments.len();
        let manager = [Manager::Dynamic, Manager::Fixed, Manager::Dynamic][at];
        let spec = SegmentSpec {
            size: ByteLen(u64::from(PAGES) * PAGE_SIZE as u64),
            mode: 0o600,
            policy: Policy::Sequential {
                manager,
                window: Window::Nanos(0),
            },
        };
        self.hosts[host].program.doing = Doing::Opening(at);
        let makes = maker(at, self.hosts.len()) == host;
        let request = Request::Open {
            name: format!("s{at}"),
            create: makes.then_some(spec),
            exclusive: false,
            write: true,
            credentials: Credentials {
                uid: 0,
                gid: 0,
                groups: vec![],
            },
        };
        self.ask(host, request)
    }

    pub(super) fn replied(&mut self, host: usize, ticket: Ticket, reply: Reply) -> Check {
        let program = &mut self.hosts[host].program;
        if ticket != program.ticket {
            return Ok(());
        }
        let doing = core::mem::replace(&mut program.doing, Doing::Nothing);
        match (doing, reply) {
            (Doing::Opening(at), Reply::Segment(info)) => {
                program.segments.push(info.id);
                let client = program.client;
                let mapped = Input::Mapped {
                    mapping: mapping(client, at),
                    segment: info.id,
                    client,
                };
                self.input(host, mapped, &[])?;
            }
            (Doing::Opening(_), Reply::Refused(_)) => {}
            (Doing::WaitsForLock(key), Reply::Locked { .. }) => self.took(host, key)?,
            (Doing::WaitsForLock(_), Reply::Refused(why)) => self.refused(host, &why)?,
            (doing, reply) => return Err(format!("{reply:?} answers {doing:?}")),
        }
        self.soon(host);
        Ok(())
    }

    /// Something that the program relied on is lost: another program takes its place.
    fn refused(&mut self, host: usize, why: &Refusal) -> Check {
        self.note(host, || format!("its program ends: {why}"));
        let broken = self.hosts[host].memory.program_gone();
        for key in broken {
            let recovered = true;
            self.local(host, Input::LockReturned { key, recovered })?;
        }
        let client = self.hosts[host].program.client;
        self.local(host, Input::ClientGone { client })?;
        self.hosts[host].program = self.new_program(client.0 + 100);
        Ok(())
    }

    pub(super) fn failed(&mut self, host: usize, mapping: MappingId, at: Key, why: &Refusal) {
        let id = self.hosts[host].id;
        let program = &mut self.hosts[host].program;
        let mine = program.segments.iter().position(|id| *id == at.0);
        if mine.map(|at| self::mapping(program.client, at)) != Some(mapping) {
            return;
        }
        self.seen.failed += 1;
        program.broken.insert(at);
        if matches!(program.doing, Doing::Access(key, _) if key == at) {
            program.doing = Doing::Nothing;
            let told = matches!(why, Refusal::DeclaredDead { .. } | Refusal::NotMember);
            let gone = Some(why) == id.map(Refusal::NodeGone).as_ref();
            program.ends |= told || gone;
            self.soon(host);
        }
    }

    pub(super) fn map(
        &mut self,
        host: usize,
        mappings: Mappings,
        at: Key,
        rights: Rights,
    ) -> Check {
        let state = &mut self.hosts[host];
        let mine = state.program.segments.iter().position(|id| *id == at.0);
        let mine = mine.map(|index| mapping(state.program.client, index));
        if !mine.is_some_and(|mine| mappings.contains(mine)) {
            return Ok(());
        }
        if !state.memory.frames.contains_key(&at) {
            return Err(format!("INV-fill-before-map: {at:?} is empty"));
        }
        state.memory.rights.insert(at, rights);
        if let Doing::Access(key, access) = state.program.doing
            && key == at
            && (access == Access::Read || rights == Rights::Write)
        {
            state.program.doing = Doing::Nothing;
            self.access(host, at, access)?;
            self.soon(host);
        }
        Ok(())
    }

    /// A program loads or stores, and has the right to.
    fn access(&mut self, host: usize, at: Key, access: Access) -> Check {
        let unheard = self.is_unheard(host);
        let died = self.hosts[host].died;
        self.last += 1;
        let stored = self.last;
        let newest = self.newest.entry(at).or_default();
        let state = &mut self.hosts[host];
        if state.program.must_fail {
            return Err(format!(
                "INV-rejoin-clean: h{} goes on, although it saw at its death what came later",
                host + 1
            ));
        }
        let value = state
            .memory
            .frames
            .get(&at)
            .copied()
            .ok_or("mapped, but empty")?;
        match unheard {
            true => {
                self.seen.unheard += 1;
                let later = value == newest.value && newest.by != host;
                state.program.saw_later |= later && died.is_some_and(|died| newest.at > died);
            }
            false if value != newest.value => {
                return Err(format!(
                    "INV-newest: h{} sees {value} in {at:?}, where h{} stored {} at {}",
                    host + 1,
                    newest.by + 1,
                    newest.value,
                    newest.at.0
                ));
            }
            false => self.seen.accesses += 1,
        }
        if access == Access::Write {
            *newest = Newest {
                value: stored,
                at: self.now,
                by: host,
            };
            state.memory.frames.insert(at, stored);
        }
        Ok(())
    }

    /// The program has the lock.
    fn took(&mut self, host: usize, key: SyncKey) -> Check {
        self.seen.locked += 1;
        for other in 0..self.hosts.len() {
            let holds = self.hosts[other]
                .program
                .holds
                .is_some_and(|(of, _)| of == key);
            let counts = !self.is_unheard(other) && self.hosts[other].node.id().is_some();
            if other != host && holds && counts && !self.is_unheard(host) {
                let lost = self.hosts[other].node.rejoin().lost;
                if lost.is_empty() {
                    return Err(format!(
                        "INV-mutual-exclusion: h{} and h{} hold {key}",
                        host + 1,
                        other + 1
                    ));
                }
            }
        }
        let accesses = self.dice.between(1, 3) as u32;
        self.hosts[host].program.holds = Some((key, accesses));
        Ok(())
    }

    pub(super) fn lend(
        &mut self,
        host: usize,
        key: SyncKey,
        client: ClientId,
        wanted: bool,
    ) -> Check {
        let state = &mut self.hosts[host];
        if state.program.client != client {
            return Err(format!("{key} is lent to {client}, which is gone"));
        }
        state.memory.words.insert(key, Word::Held(wanted));
        Ok(())
    }

    fn unlock(&mut self, host: usize, key: SyncKey) -> Check {
        self.hosts[host].program.holds = None;
        let words = &mut self.hosts[host].memory.words;
        match words.insert(key, Word::Free) {
            Some(Word::Held(false)) => Ok(()),
            Some(Word::Held(true)) => {
                words.remove(&key);
                let recovered = false;
                self.local(host, Input::LockReturned { key, recovered })
            }
            other => Err(format!("{key} is given back, and was {other:?}")),
        }
    }

    /// A program takes its next step.
    fn step(&mut self, host: usize) -> Check {
        let stopped = self.hosts[host].stopped_until;
        let program = &self.hosts[host].program;
        if program.doing != Doing::Nothing {
            return Ok(());
        }
        if program.ends && self.now >= stopped {
            self.refused(host, &Refusal::NotMember)?;
            self.soon(host);
            return Ok(());
        }
        if self.now > END && program.holds.is_none() {
            return Ok(());
        }
        if program.segments.len() < SEGMENTS {
            if self.now < stopped {
                self.soon(host);
                return Ok(());
            }
            return self.open(host);
        }
        self.use_memory(host)
    }

    fn use_memory(&mut self, host: usize) -> Check {
        let stopped = self.now < self.hosts[host].stopped_until;
        let holds = self.hosts[host].program.holds;
        if let Some((key, left)) = holds {
            if left == 0 {
                if stopped {
                    self.soon(host);
                    return Ok(());
                }
                self.unlock(host, key)?;
                self.soon(host);
                return Ok(());
            }
            self.hosts[host].program.holds = Some((key, left - 1));
        } else if self.dice.chance(100) && !stopped {
            return self.lock(host);
        }
        let segment = self.dice.index(SEGMENTS);
        let page = PageIndex(self.dice.below(u64::from(PAGES)) as u32);
        let program = &self.hosts[host].program;
        let at = (program.segments[segment], page);
        let stores = !program.reads_only && self.dice.chance(400);
        let access = if stores { Access::Write } else { Access::Read };
        let program = &mut self.hosts[host].program;
        if program.broken.contains(&at) {
            self.soon(host);
            return Ok(());
        }
        let enough = if stores { Rights::Write } else { Rights::Read };
        if self.hosts[host].memory.rights(at) >= enough {
            self.access(host, at, access)?;
            self.soon(host);
            return Ok(());
        }
        if stopped {
            self.soon(host);
            return Ok(());
        }
        let program = &mut self.hosts[host].program;
        program.doing = Doing::Access(at, access);
        let mapping = mapping(program.client, segment);
        self.local(
            host,
            Input::Fault {
                mapping,
                page,
                access,
            },
        )
    }

    fn lock(&mut self, host: usize) -> Check {
        let program = &mut self.hosts[host].program;
        let key = SyncKey {
            segment: program.segments[0],
            number: 1,
        };
        if self.hosts[host].memory.words.get(&key) == Some(&Word::Free) {
            self.hosts[host].memory.words.insert(key, Word::Held(false));
            self.took(host, key)?;
            self.soon(host);
            return Ok(());
        }
        self.hosts[host].program.doing = Doing::WaitsForLock(key);
        self.ask(host, Request::Lock { key })
    }
}

fn mapping(client: ClientId, segment: usize) -> MappingId {
    MappingId(u64::from(client.0) * 10 + segment as u64)
}
