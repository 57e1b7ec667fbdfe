//! Hosts, threads and the network between them, in one queue of events.

use super::memory::{Check, Memory, Tail};
use super::program::{Shape, Step};
use super::{Labelled, Sighted};
use crate::dice::Dice;
use crate::network::{Fate, Network, kind};
use crate::plan::{pace, weather};
use pagemesh_core::{
    Afterwards, Config, DiffWork, Effect, Effects, Input, Node, Reply, Request, Start, Time,
};
use pagemesh_wire::header::Header;
use pagemesh_wire::lockword::LockWord;
use pagemesh_wire::peer::{Access, Call, Credentials, Diffs, Message, Policy, SegmentSpec, Spread};
use pagemesh_wire::{
    ByteLen, ClientId, ClusterId, Incarnation, MappingId, PAGE_SIZE, PageIndex, PublicKey,
    SegmentId, SyncKey, Ticket,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::SocketAddr;

/// One daemon.
struct Host {
    node: Node,
    memory: Memory,
    words: BTreeMap<SyncKey, LockWord>,
    segment: Option<SegmentId>,
    deadline: Option<Time>,
}

/// One thread, alone in its process.
struct Thread {
    host: usize,
    client: ClientId,
    mapping: MappingId,
    steps: VecDeque<Step>,
    /// Stopped at a page.
    faulted: Option<PageIndex>,
    /// Waits for an answer.
    waits: Option<Ticket>,
    opened: bool,
    scheduled: bool,
}

/// What can happen, in order of time and then of scheduling.
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
}

/// All of it.
pub(super) struct Cluster {
    now: Time,
    queue: BinaryHeap<Reverse<(Time, u64, Event)>>,
    sequence: u64,
    hosts: Vec<Host>,
    threads: Vec<Thread>,
    network: Network,
    dice: Dice,
    shape: Shape,
    /// What memory would hold if there were one.
    golden: Vec<u8>,
    tickets: u64,
    last_value: u8,
    log: VecDeque<String>,
    sighted: Sighted,
}

/// Far longer than any run needs: something hangs.
const PATIENCE: Time = Time(120_000_000_000);

fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8 + 1], 7300))
}

impl Cluster {
    pub(super) fn new(options: Labelled) -> Self {
        let Labelled {
            seed,
            profile,
            planted,
        } = options;
        let mut dice = Dice::stream(seed, "labelled");
        let hosts = dice.between(2, 5) as usize;
        let threads: Vec<usize> = (0..hosts)
            .flat_map(|host| std::iter::repeat_n(host, dice.between(1, 2) as usize))
            .collect();
        let shape = Shape::new(&mut dice, threads.len());
        let mut pace = pace(&mut dice);
        pace.notices = *dice.pick(&[6, 30, 200, 16_384]);
        let weather = weather(&mut dice, profile);
        let mut cluster = Self {
            now: Time(1_000),
            queue: BinaryHeap::new(),
            sequence: 0,
            hosts: Vec::new(),
            threads: Vec::new(),
            network: Network::new(seed, weather, None),
            golden: vec![0; shape.pages * PAGE_SIZE],
            shape,
            dice,
            tickets: 0,
            last_value: 0,
            log: VecDeque::new(),
            sighted: Sighted::default(),
        };
        for host in 0..hosts {
            let cluster_id = ClusterId(cluster.dice.number() | 1);
            cluster.hosts.push(Host {
                node: Node::new(Config {
                    name: format!("host{host}"),
                    address: address(host),
                    incarnation: Incarnation(cluster.dice.number() | 1),
                    key: PublicKey::NONE,
                    start: if host == 0 {
                        Start::Found(cluster_id)
                    } else {
                        Start::Join(address(0))
                    },
                    pace,
                    // None of these programs has one.
                    check_races: seed.is_multiple_of(2),
                }),
                memory: Memory::new(planted),
                words: BTreeMap::new(),
                segment: None,
                deadline: None,
            });
            cluster.schedule(Time(1_000 + host as u64), Event::Deadline(host));
        }
        for (number, host) in threads.into_iter().enumerate() {
            let steps = cluster.shape.program(&mut cluster.dice, number);
            cluster.threads.push(Thread {
                host,
                client: ClientId(number as u32 + 1),
                mapping: MappingId(number as u64 + 1),
                steps: steps.into(),
                faulted: None,
                waits: None,
                opened: false,
                scheduled: false,
            });
            let at = cluster.dice.between(10_000_000, 30_000_000);
            cluster.run_at(Time(at), number);
        }
        cluster
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.sequence += 1;
        self.queue.push(Reverse((at, self.sequence, event)));
    }

    fn run_at(&mut self, at: Time, thread: usize) {
        if !std::mem::replace(&mut self.threads[thread].scheduled, true) {
            self.schedule(at, Event::Run(thread));
        }
    }

    fn run_soon(&mut self, thread: usize) {
        let at = Time(self.now.0 + self.dice.between(200, 20_000));
        self.run_at(at, thread);
    }

    fn note(&mut self, host: usize, what: impl FnOnce() -> String) {
        if self.log.len() == 400 {
            self.log.pop_front();
        }
        let line = format!("{:>12} h{} {}", self.now.0, host + 1, what());
        self.log.push_back(line);
    }

    pub(super) fn run(mut self) -> Result<Sighted, String> {
        while let Some(Reverse((at, _, event))) = self.queue.pop() {
            self.now = at;
            let result = if at > PATIENCE {
                Err(self.who_hangs())
            } else {
                self.happen(event)
            };
            if let Err(why) = result {
                let log: Vec<_> = self.log.into_iter().collect();
                return Err(format!("{}\n{why}", log.join("\n")));
            }
            if self.threads.iter().all(|thread| thread.steps.is_empty()) {
                return Ok(self.sighted);
            }
        }
        Err("nothing will ever happen again".into())
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
        match event {
            Event::Arrival { to, source, bytes } => {
                let input = Input::Datagram {
                    source,
                    key: PublicKey::NONE,
                    bytes: &bytes,
                };
                let decoded = Message::decode(&bytes).map_err(|why| why.to_string())?;
                self.note(to, || format!("<- {:?}", decoded.1));
                self.input(to, input, &bytes)
            }
            Event::Deadline(host) => {
                self.hosts[host].deadline = None;
                self.input(host, Input::Deadline, &[])
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

    /// A node handles one input, and what follows from it at once.
    fn input(&mut self, host: usize, input: Input<'_>, bytes: &[u8]) -> Check {
        let decoded = Message::decode(bytes).ok();
        let tail = match &decoded {
            Some((_, Message::Diffs(diffs), bytes)) => Tail {
                bytes,
                diffs: Some(diffs),
            },
            Some((_, _, bytes)) => Tail { bytes, diffs: None },
            None => Tail::default(),
        };
        let mut effects = Effects::default();
        let now = self.now;
        self.hosts[host].node.handle(now, input, &mut effects);
        let mut follow = VecDeque::new();
        for effect in effects.drain().collect::<Vec<_>>() {
            self.carry_out(host, effect, tail, &mut follow)?;
        }
        for next in follow {
            self.input(host, next, &[])?;
        }
        let due = self.hosts[host].node.next_deadline();
        if let Some(due) = due.filter(|due| self.hosts[host].deadline.is_none_or(|at| *due < at)) {
            let at = due.max(Time(now.0 + 1));
            self.hosts[host].deadline = Some(at);
            self.schedule(at, Event::Deadline(host));
        }
        Ok(())
    }

    fn carry_out(
        &mut self,
        host: usize,
        effect: Effect,
        tail: Tail<'_>,
        follow: &mut VecDeque<Input<'static>>,
    ) -> Check {
        if !matches!(effect, Effect::Emit(_) | Effect::Send { .. }) {
            self.note(host, || format!("{effect:?}"));
        }
        self.hosts[host].memory.carry_out(&effect, tail)?;
        match effect {
            Effect::Send {
                address,
                header,
                message,
                page,
            } => {
                let behind = match page {
                    Some((_, page, source)) => {
                        self.hosts[host].memory.page_of(page, source)?.to_vec()
                    }
                    None => Vec::new(),
                };
                self.send(host, address, header, &message, &behind);
            }
            Effect::Diffs(work) => self.diff_work(host, work, follow)?,
            Effect::ConfirmUse { segment, page } => follow.push_back(Input::UseConfirmed {
                segment,
                page,
                used: true,
            }),
            Effect::LendLock {
                key,
                client,
                wanted,
            } => {
                let by = client;
                let word = LockWord::Held { by, wanted };
                self.hosts[host].words.insert(key, word);
            }
            Effect::ReclaimLock { key } => self.reclaim(host, key, follow)?,
            Effect::Reply { ticket, reply } => self.replied(ticket, reply)?,
            Effect::Fail { page, why, .. } => return Err(format!("{page} fails: {why}")),
            _ => {}
        }
        self.wake(host);
        Ok(())
    }

    fn diff_work(
        &mut self,
        host: usize,
        work: DiffWork,
        follow: &mut VecDeque<Input<'static>>,
    ) -> Check {
        match work {
            DiffWork::Send {
                address,
                header,
                segment,
                request,
                names,
                at_most,
            } => {
                let template = Diffs {
                    segment,
                    request,
                    diffs: Vec::new(),
                };
                for (message, tail) in self.hosts[host].memory.pack(&names, at_most, &template)? {
                    self.send(host, address, header, &Message::Diffs(message), &tail);
                }
            }
            DiffWork::Diff { segment, then, .. } => {
                self.sighted.made += 1;
                self.sighted.refreshed += u64::from(then == Afterwards::Refresh);
                let unchanged = std::mem::take(&mut self.hosts[host].memory.unchanged);
                follow.extend(
                    unchanged
                        .into_iter()
                        .map(|page| Input::Unchanged { segment, page }),
                );
            }
            DiffWork::Merge { names, .. } => self.sighted.merged += names.len() as u64,
            DiffWork::Compare { pairs, .. } => self.sighted.compared += pairs.len() as u64,
            DiffWork::Forget { .. } => self.sighted.collected += 1,
            _ => {}
        }
        Ok(())
    }

    fn send(
        &mut self,
        host: usize,
        address: SocketAddr,
        header: Header,
        message: &Message,
        behind: &[u8],
    ) {
        let mut bytes = Vec::new();
        message.encode(header, &mut bytes);
        bytes.extend_from_slice(behind);
        self.sighted.datagrams += 1;
        let to = usize::from(address_host(address));
        self.note(host, || format!("-> h{} {message:?}", to + 1));
        let source = self::address(host);
        if let Fate::Arrives(first, second) = self.network.fate(self.now, host, to, kind(message)) {
            for delay in [Some(first), second].into_iter().flatten() {
                let bytes = bytes.clone();
                let at = Time(self.now.0 + delay.max(1));
                self.schedule(at, Event::Arrival { to, source, bytes });
            }
        }
    }

    fn reclaim(
        &mut self,
        host: usize,
        key: SyncKey,
        follow: &mut VecDeque<Input<'static>>,
    ) -> Check {
        match self.hosts[host].words.get_mut(&key) {
            Some(word @ LockWord::Free) => {
                *word = LockWord::Absent;
                let recovered = false;
                follow.push_back(Input::LockReturned { key, recovered });
            }
            Some(LockWord::Held { wanted, .. }) => *wanted = true,
            Some(LockWord::Absent) | None => {
                return Err(format!("{key} is reclaimed, but not lent"));
            }
        }
        Ok(())
    }

    fn wake(&mut self, host: usize) {
        for (mapping, page) in std::mem::take(&mut self.hosts[host].memory.woken) {
            for thread in 0..self.threads.len() {
                let state = &mut self.threads[thread];
                let here = state.host == host && state.faulted == Some(page);
                if here && mapping.is_none_or(|mapping| mapping == state.mapping) {
                    state.faulted = None;
                    self.run_soon(thread);
                }
            }
        }
    }

    fn replied(&mut self, ticket: Ticket, reply: Reply) -> Check {
        let waits = |thread: &Thread| thread.waits == Some(ticket);
        let Some(thread) = self.threads.iter().position(waits) else {
            return Err(format!("nobody waits for {ticket}: {reply:?}"));
        };
        let state = &mut self.threads[thread];
        state.waits = None;
        match reply {
            Reply::Segment(info) => {
                state.opened = true;
                let (mapping, client, host) = (state.mapping, state.client, state.host);
                self.hosts[host].segment = Some(info.id);
                self.run_soon(thread);
                let segment = info.id;
                return self.input(
                    host,
                    Input::Mapped {
                        mapping,
                        segment,
                        client,
                    },
                    &[],
                );
            }
            Reply::Locked { .. } | Reply::Done => {
                state.steps.pop_front();
            }
            // Not admitted yet, perhaps.
            Reply::Refused(_) if !state.opened => {}
            other => return Err(format!("{} is told {other:?}", state.client)),
        }
        self.run_soon(thread);
        Ok(())
    }

    fn ask(&mut self, thread: usize, request: Request) -> Check {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let state = &mut self.threads[thread];
        state.waits = Some(ticket);
        let (host, client) = (state.host, state.client);
        self.input(
            host,
            Input::Request {
                ticket,
                client,
                request,
            },
            &[],
        )
    }

    fn open(&mut self, thread: usize) -> Check {
        let spec = SegmentSpec {
            size: ByteLen((self.shape.pages * PAGE_SIZE) as u64),
            mode: 0o600,
            policy: Policy::Release {
                spread: Spread::Lazy,
            },
        };
        let request = Request::Open {
            name: "memory".into(),
            create: Some(spec),
            exclusive: false,
            write: true,
            credentials: Credentials {
                uid: 0,
                gid: 0,
                groups: vec![],
            },
        };
        self.ask(thread, request)
    }

    fn fault(&mut self, thread: usize, page: PageIndex) -> Check {
        let state = &mut self.threads[thread];
        state.faulted = Some(page);
        let access = match state.steps.front() {
            Some(Step::Store(_)) => Access::Write,
            _ => Access::Read,
        };
        let (host, mapping) = (state.host, state.mapping);
        if self.dice.chance(100) {
            let at = Time(self.now.0 + self.dice.between(100, 100_000));
            self.schedule(at, Event::FaultAgain(thread, page));
        }
        self.input(
            host,
            Input::Fault {
                mapping,
                page,
                access,
            },
            &[],
        )
    }

    /// A thread takes its next step.
    fn step(&mut self, thread: usize) -> Check {
        let state = &self.threads[thread];
        if state.waits.is_some() || state.faulted.is_some() {
            return Ok(());
        }
        if !state.opened {
            return self.open(thread);
        }
        let (host, mapping) = (state.host, state.mapping);
        let Some(step) = state.steps.front().copied() else {
            return Ok(());
        };
        match step {
            Step::Load(byte) => {
                let (page, at) = place(byte);
                let Some(value) = self.hosts[host].memory.load(mapping, page, at) else {
                    return self.fault(thread, page);
                };
                self.sighted.loads += 1;
                let wanted = self.golden[byte];
                if value != wanted {
                    let client = self.threads[thread].client;
                    let h = host + 1;
                    return Err(format!(
                        "{client} on h{h} loads {value} at {page}+{at}, where {wanted} is"
                    ));
                }
            }
            Step::Store(byte) => {
                let (page, at) = place(byte);
                // Sometimes what is there already, or what was there before.
                let fresh = self.dice.chance(800);
                let value = if fresh {
                    self.last_value.wrapping_add(1)
                } else {
                    self.last_value
                };
                if !self.hosts[host].memory.store(mapping, page, at, value) {
                    return self.fault(thread, page);
                }
                self.note(host, || format!("stores {value} at {page}+{at}"));
                self.last_value = value;
                self.sighted.stores += 1;
                self.golden[byte] = value;
            }
            Step::Lock(number) => return self.lock(thread, number),
            Step::Unlock(number) => self.unlock(thread, number)?,
            Step::Barrier => {
                let key = self.key(host, 1000);
                let parties = self.threads.len() as u32;
                let call = Call::Barrier { key, parties };
                return self.ask(thread, Request::Call { to: None, call });
            }
            Step::Think(nanos) => {
                self.threads[thread].steps.pop_front();
                self.run_at(Time(self.now.0 + nanos), thread);
                return Ok(());
            }
        }
        self.threads[thread].steps.pop_front();
        self.run_soon(thread);
        Ok(())
    }

    fn key(&self, host: usize, number: u64) -> SyncKey {
        let segment = self.hosts[host].segment.unwrap_or_default();
        SyncKey { segment, number }
    }

    fn lock(&mut self, thread: usize, number: u64) -> Check {
        let (host, by) = (self.threads[thread].host, self.threads[thread].client);
        let key = self.key(host, number);
        if let Some(word @ LockWord::Free) = self.hosts[host].words.get_mut(&key) {
            let wanted = false;
            *word = LockWord::Held { by, wanted };
            self.threads[thread].steps.pop_front();
            self.run_soon(thread);
            return Ok(());
        }
        self.ask(thread, Request::Lock { key })
    }

    fn unlock(&mut self, thread: usize, number: u64) -> Check {
        let (host, client) = (self.threads[thread].host, self.threads[thread].client);
        let key = self.key(host, number);
        let word = self.hosts[host].words.get(&key).copied();
        let Some(LockWord::Held { by, wanted }) = word else {
            return Err(format!("{key} is released, but {word:?}"));
        };
        if by != client {
            return Err(format!("{key} is held by {by} and {client}"));
        }
        if !wanted {
            self.hosts[host].words.insert(key, LockWord::Free);
            return Ok(());
        }
        self.hosts[host].words.insert(key, LockWord::Absent);
        let recovered = false;
        self.input(host, Input::LockReturned { key, recovered }, &[])
    }
}

fn place(byte: usize) -> (PageIndex, usize) {
    (PageIndex((byte / PAGE_SIZE) as u32), byte % PAGE_SIZE)
}

fn address_host(address: SocketAddr) -> u8 {
    match address {
        SocketAddr::V4(address) => address.ip().octets()[3] - 1,
        SocketAddr::V6(_) => unreachable!("hosts here have short addresses"),
    }
}
