//! Hosts, threads and the network between them, in one queue of events.

use super::golden::Golden;
use super::memory::{Check, Memory, Tail};
use super::program::{After, NUMBERS, Part, Shape, Step};
use super::{Labelled, Sighted};
use crate::dice::Dice;
use crate::network::{Fate, Network, Weather, kind};
use crate::plan::{Profile, pace, weather};
use pagemesh_core::limits::EARLY;
use pagemesh_core::{
    Afterwards, Config, DiffWork, Effect, Effects, Input, Node, Pace, Reply, Request, Start, Time,
};
use pagemesh_wire::header::Header;
use pagemesh_wire::lockword::LockWord;
use pagemesh_wire::peer::{
    Access, Call, Credentials, Diffs, Kind, Merge, Message, Policy, Reduction, Refusal,
    SegmentSpec, Spread,
};
use pagemesh_wire::{
    ByteLen, ClientId, ClusterId, Incarnation, MappingId, PAGE_SIZE, PageIndex, PublicKey,
    SegmentId, SyncKey, Ticket,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

/// One daemon.
struct Host {
    number: usize,
    node: Node,
    memory: Memory,
    words: BTreeMap<SyncKey, LockWord>,
    segment: Option<SegmentId>,
    /// It has vanished.
    gone: bool,
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
    /// It has passed so many.
    barriers: u64,
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
    /// A host vanishes.
    Crash(usize),
    /// A process dies.
    Die(usize),
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
    spread: Spread,
    /// What all have accumulated, by place.
    numbers: BTreeMap<usize, u64>,
    /// What memory would hold if there were one.
    golden: Golden,
    /// Which host creates the segment.
    home: usize,
    tickets: u64,
    last_value: u8,
    log: VecDeque<String>,
    sighted: Sighted,
    /// Hosts that have left.
    left: Vec<usize>,
    /// Write notices a host may hold.
    notices: u32,
    /// Something hangs if it takes longer.
    patience: Time,
    /// When all is said and done.
    end: Option<Time>,
}

/// Steps that are remembered for who wants to know how it came.
const LINES: usize = 100_000;

/// Far longer than any run needs: something hangs.
const PATIENCE: Time = Time(30_000_000_000);

/// So long after the last thread has ended everything is quiet: longer than a death
/// takes to be noticed.
const QUIET: Duration = Duration::from_secs(8);

fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8 + 1], 7300))
}

/// What is run.
pub(super) struct Plan {
    /// The host of each thread.
    threads: Vec<usize>,
    programs: Vec<Vec<Step>>,
    shape: Shape,
    pace: Pace,
    weather: Weather,
    /// Which host creates the segment.
    home: usize,
    spread: Spread,
    /// Something hangs if it takes longer.
    patience: Time,
}

impl Plan {
    /// Everything drawn.
    pub(super) fn drawn(dice: &mut Dice, profile: Profile) -> Self {
        let hosts = dice.between(2, 5) as usize;
        let threads: Vec<usize> = (0..hosts)
            .flat_map(|host| std::iter::repeat_n(host, dice.between(1, 2) as usize))
            .collect();
        let mut shape = Shape::new(dice, threads.len());
        let mut pace = pace(dice);
        pace.notices = *dice.pick(&[6, 30, 200, 16_384]);
        let weather = weather(dice, profile);
        let home = dice.index(hosts);
        let crashes = profile == Profile::Wild;
        shape.parts = parts(dice, &threads, (shape.phases, home), crashes);
        shape.reduces &= !shape.has_crashes();
        let programs = (0..threads.len()).map(|thread| shape.program(dice, thread));
        Self {
            programs: programs.collect(),
            spread: *dice.pick(&[Spread::Lazy, Spread::Eager, Spread::Hybrid]),
            threads,
            shape,
            pace,
            weather,
            home,
            // With 40 % loss a search for a lost token takes seconds.
            patience: Time(PATIENCE.0 * if crashes { 4 } else { 1 }),
        }
    }

    /// A program of phases: the same threads use the same bytes again and again, and locks
    /// are seldom taken.
    #[cfg(test)]
    pub(super) fn of_phases(dice: &mut Dice, profile: Profile) -> Self {
        let mut plan = Self::drawn(dice, profile);
        plan.spread = Spread::Lazy;
        plan.shape = Shape::new(dice, plan.threads.len());
        plan.shape.reduces = false;
        plan.shape.phases = 40;
        plan.shape.rhythm = dice.between(1, 3) as usize;
        plan.shape.sections = 20;
        let shape = &plan.shape;
        let threads = 0..plan.threads.len();
        plan.programs = threads.map(|thread| shape.program(dice, thread)).collect();
        plan.patience = Time(u64::MAX);
        plan
    }

    /// Two hosts that take turns with a lock every few seconds, for so many days, and
    /// never reach a barrier.
    #[cfg(test)]
    pub(super) fn of_locks(dice: &mut Dice, days: u64) -> Self {
        let mut plan = Self::drawn(dice, Profile::Calm);
        plan.spread = Spread::Lazy;
        plan.threads = vec![0, 1];
        plan.shape = Shape::new(dice, 2);
        plan.shape.locks = 1;
        plan.pace.notices = 100;
        plan.pace.heartbeat = Duration::from_secs(20);
        plan.pace.dead_after = Duration::from_secs(200);
        plan.home = 1;
        let turns = days * 24 * 60 * 60 / 10;
        let shape = &plan.shape;
        let mut programs = Vec::new();
        for _ in &plan.threads {
            let mut steps = Vec::new();
            for _ in 0..turns {
                shape.section(dice, 0, &mut steps);
                steps.push(Step::Think(10_000_000_000));
            }
            programs.push(steps);
        }
        plan.programs = programs;
        plan.patience = Time(u64::MAX);
        plan
    }
}

impl Cluster {
    pub(super) fn new(options: Labelled) -> Self {
        let mut dice = Dice::stream(options.seed, "labelled");
        let plan = Plan::drawn(&mut dice, options.profile);
        Self::of(plan, dice, options)
    }

    pub(super) fn of(plan: Plan, dice: Dice, options: Labelled) -> Self {
        let seed = options.seed;
        let hosts = plan.threads.last().map_or(0, |last| last + 1);
        let mut cluster = Self {
            now: Time(1_000),
            queue: BinaryHeap::new(),
            sequence: 0,
            hosts: Vec::new(),
            threads: Vec::new(),
            network: Network::new(seed, plan.weather, None),
            golden: Golden::new(plan.shape.pages * PAGE_SIZE, hosts),
            home: plan.home,
            numbers: BTreeMap::new(),
            spread: plan.spread,
            shape: plan.shape,
            dice,
            tickets: 0,
            last_value: 0,
            log: VecDeque::new(),
            sighted: Sighted::default(),
            left: Vec::new(),
            notices: plan.pace.notices,
            patience: plan.patience,
            end: None,
        };
        let cluster_id = ClusterId(cluster.dice.number() | 1);
        for host in 0..hosts {
            let start = match host {
                0 => Start::Found(cluster_id),
                _ => Start::Join(address(0)),
            };
            cluster.add_host(host, start, plan.pace, options);
        }
        for (number, (host, steps)) in plan.threads.into_iter().zip(plan.programs).enumerate() {
            cluster.add_thread(number, host, steps);
        }
        cluster
    }

    fn add_host(&mut self, host: usize, start: Start, pace: Pace, options: Labelled) {
        let config = Config {
            name: format!("host{host}"),
            address: address(host),
            incarnation: Incarnation(self.dice.number() | 1),
            key: PublicKey::NONE,
            start,
            pace,
            // None of these programs has one.
            check_races: options.seed.is_multiple_of(2),
        };
        self.hosts.push(Host {
            number: host,
            node: Node::new(config),
            memory: Memory::new(options.planted),
            words: BTreeMap::new(),
            segment: None,
            gone: false,
            deadline: None,
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
            waits: None,
            barriers: 0,
            opened: false,
            scheduled: false,
        });
        let at = self.dice.between(10_000_000, 30_000_000);
        self.run_at(Time(at), number);
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
        if self.log.len() == LINES {
            self.log.pop_front();
        }
        let line = format!("{:>12} h{} {}", self.now.0, host + 1, what());
        self.log.push_back(line);
    }

    pub(super) fn run(mut self) -> Result<Sighted, String> {
        while let Some(Reverse((at, _, event))) = self.queue.pop() {
            self.now = at;
            let result = if at > self.patience && self.end.is_none() {
                Err(self.who_hangs())
            } else {
                self.happen(event)
            };
            if let Err(why) = result {
                let log: Vec<_> = self.log.into_iter().collect();
                return Err(format!("{}\n{why}", log.join("\n")));
            }
            if self.threads.iter().any(|thread| !thread.steps.is_empty()) {
                continue;
            }
            let end = *self.end.get_or_insert(at + QUIET);
            if at > end {
                self.sighted.most = self.most_held();
                return self.is_quiet().map(|()| self.sighted);
            }
        }
        // Who is left alone waits for nothing.
        if self.threads.iter().all(|thread| thread.steps.is_empty()) {
            self.sighted.most = self.most_held();
            return self.is_quiet().map(|()| self.sighted);
        }
        Err("nothing will ever happen again".into())
    }

    /// Nobody has wanted anything for a while: nobody holds more than the bound.
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
            Event::Deadline(host) | Event::Crash(host) => *host,
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
            Effect::Reply { ticket, reply } => self.replied(ticket, *reply)?,
            Effect::Fail {
                page, why, mapping, ..
            } => self.fails(host, mapping, page, &why)?,
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
                self.sighted.pushed += u64::from(request.0 == 0);
                let lazy = self.spread == Spread::Lazy;
                self.sighted.regular += u64::from(request.0 == 0 && lazy);
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
            DiffWork::Update { .. } => self.sighted.updated += 1,
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

    /// A host vanishes, with its threads; nobody is told.
    fn crash(&mut self, host: usize) {
        self.note(host, || "vanishes".into());
        self.hosts[host].gone = true;
        self.golden.host_died(host);
        self.sighted.crashed += 1;
        for thread in self.threads.iter_mut().filter(|thread| thread.host == host) {
            thread.steps.clear();
        }
    }

    /// A process dies; its daemon hears of it, and takes back what it held.
    fn die(&mut self, thread: usize) -> Check {
        let state = &mut self.threads[thread];
        let (host, client, mapping) = (state.host, state.client, state.mapping);
        state.steps.clear();
        (state.waits, state.faulted) = (None, None);
        self.sighted.died += 1;
        self.note(host, || format!("{client} dies"));
        self.input(host, Input::Unmapped { mapping }, &[])?;
        self.input(host, Input::ClientGone { client }, &[])?;
        let words = self.hosts[host].words.iter();
        let holds = |word: &LockWord| matches!(word, LockWord::Held { by, .. } if *by == client);
        let held: Vec<_> = words
            .filter(|(_, word)| holds(word))
            .map(|(key, _)| *key)
            .collect();
        for key in held {
            self.golden.release(key.number, host);
            self.hosts[host].words.insert(key, LockWord::Absent);
            let recovered = true;
            self.input(host, Input::LockReturned { key, recovered }, &[])?;
        }
        Ok(())
    }

    /// An access can never be served. That may be if its page was lost with a host
    /// that vanished; the thread goes on without it.
    fn fails(&mut self, host: usize, mapping: MappingId, page: PageIndex, why: &Refusal) -> Check {
        if !self.golden.somebody_died() {
            return Err(format!("{page} fails: {why}"));
        }
        self.sighted.failed += 1;
        for thread in 0..self.threads.len() {
            let state = &mut self.threads[thread];
            if (state.host, state.mapping, state.faulted) == (host, mapping, Some(page)) {
                state.faulted = None;
                state.steps.pop_front();
                self.run_soon(thread);
            }
        }
        Ok(())
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
            // Its process has died meanwhile.
            if self.sighted.died > 0 {
                return Ok(());
            }
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
            Reply::Locked { recovered } => {
                if let Some(Step::Lock(lock)) = state.steps.pop_front() {
                    self.golden.acquire(lock, state.host, recovered);
                }
            }
            Reply::Done => {
                let done = state.steps.pop_front();
                if done == Some(Step::Leave) {
                    self.left.push(state.host);
                }
                if let Some(Step::Barrier(_)) = done {
                    self.golden.depart(state.barriers, state.host, self.home);
                    state.barriers += 1;
                }
            }
            // Who keeps the barriers is gone, and nobody can say who has arrived: such a
            // program ends.
            Reply::Refused(Refusal::NodeGone(_))
                if matches!(state.steps.front(), Some(Step::Barrier(_)))
                    && self.golden.is_dead(self.home) =>
            {
                state.steps.clear();
                self.sighted.refused += 1;
                return Ok(());
            }
            // Not admitted yet, or the segment does not exist yet.
            Reply::Refused(_) if !state.opened => {
                self.run_at(Time(self.now.0 + 500_000), thread);
                return Ok(());
            }
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
        if let Request::Call {
            call: Call::Barrier { key, .. },
            ..
        } = &request
        {
            self.look_at_resting(host, key.segment)?;
        }
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

    /// As the daemon does before a barrier is reached: mostly, since nothing rests on it.
    fn look_at_resting(&mut self, host: usize, segment: SegmentId) -> Check {
        let mut pages = self.hosts[host].node.resting(segment);
        let looks = !self.tickets.is_multiple_of(8);
        let memory = &self.hosts[host].memory;
        pages.retain(|page| looks && memory.is_untouched(*page));
        self.sighted.rested += pages.len() as u64;
        if pages.is_empty() {
            return Ok(());
        }
        self.input(host, Input::Untouched { segment, pages }, &[])
    }

    fn open(&mut self, thread: usize) -> Check {
        let spec = SegmentSpec {
            size: ByteLen((self.shape.pages * PAGE_SIZE) as u64),
            mode: 0o600,
            policy: Policy::Release {
                spread: self.spread,
            },
        };
        let creates = self.threads[thread].host == self.home;
        let request = Request::Open {
            name: "memory".into(),
            create: creates.then_some(spec),
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
            Some(Step::Store(_) | Step::Add(..)) => Access::Write,
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
                if let Err(wanted) = self.golden.load(byte, host, value) {
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
                self.golden.store(byte, host, value);
            }
            Step::Declare(at) => return self.declare(thread, at),
            Step::Add(at, with) => {
                let Some(()) = self.add(thread, at, with)? else {
                    return self.fault(thread, PageIndex((at / NUMBERS.len()) as u32));
                };
            }
            Step::Check(at) => {
                let (page, spot) = (at / NUMBERS.len(), &NUMBERS[at % NUMBERS.len()]);
                let page = PageIndex(page as u32);
                let Some(found) = self.number(thread, page, spot) else {
                    return self.fault(thread, page);
                };
                let wanted = self.numbers.get(&at).copied().unwrap_or_default();
                if found != wanted {
                    let h = host + 1;
                    return Err(format!(
                        "h{h} finds {found} at {page}, {spot:?}, where {wanted} is"
                    ));
                }
            }
            Step::Lock(number) => return self.lock(thread, number),
            Step::Unlock(number) => self.unlock(thread, number)?,
            Step::Barrier(parties) => {
                let passed = self.threads[thread].barriers;
                self.golden.arrive(passed, host);
                let key = self.key(host, 1000);
                let call = Call::Barrier { key, parties };
                return self.ask(thread, Request::Call { to: None, call });
            }
            Step::Leave => {
                let busy = |other: &Thread| other.host == host && !other.steps.is_empty();
                if self.threads.iter().filter(|other| busy(other)).count() > 1 {
                    self.run_at(Time(self.now.0 + 1_000_000), thread);
                    return Ok(());
                }
                self.sighted.left += 1;
                return self.ask(thread, Request::Leave);
            }
            Step::Crash(nanos) => {
                self.schedule(Time(self.now.0 + nanos), Event::Crash(host));
            }
            Step::Die(nanos) => {
                self.schedule(Time(self.now.0 + nanos), Event::Die(thread));
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

    /// A thread says how a number is accumulated.
    fn declare(&mut self, thread: usize, at: usize) -> Check {
        let host = self.threads[thread].host;
        let spot = NUMBERS[at % NUMBERS.len()];
        let page = (at / NUMBERS.len()) as u64;
        let call = Call::Declare {
            segment: self.hosts[host].segment.unwrap_or_default(),
            reduction: Reduction {
                offset: page * PAGE_SIZE as u64 + spot.offset,
                ..spot
            },
        };
        self.ask(thread, Request::Call { to: None, call })
    }

    /// What an element holds, as a number of its kind.
    fn number(&self, thread: usize, page: PageIndex, spot: &Reduction) -> Option<u64> {
        let state = &self.threads[thread];
        let memory = &self.hosts[state.host].memory;
        let mut bytes = [0; 8];
        for (place, byte) in bytes.iter_mut().take(spot.kind.size()).enumerate() {
            *byte = memory.load(state.mapping, page, spot.offset as usize + place)?;
        }
        Some(u64::from_le_bytes(bytes))
    }

    /// Accumulates into a number, as a program does: what it finds, and more.
    fn add(&mut self, thread: usize, at: usize, with: u64) -> Check<Option<()>> {
        let (page, spot) = (at / NUMBERS.len(), &NUMBERS[at % NUMBERS.len()]);
        let page = PageIndex(page as u32);
        let Some(old) = self.number(thread, page, spot) else {
            return Ok(None);
        };
        let made = accumulated(spot, old, with);
        let state = &self.threads[thread];
        let (host, mapping) = (state.host, state.mapping);
        for (place, byte) in made.to_le_bytes().iter().take(spot.kind.size()).enumerate() {
            let place = spot.offset as usize + place;
            let memory = &mut self.hosts[host].memory;
            if !memory.store(mapping, page, place, *byte) {
                return Ok(None);
            }
        }
        let whole = self.numbers.get(&at).copied().unwrap_or_default();
        self.numbers.insert(at, accumulated(spot, whole, with));
        self.sighted.added += 1;
        Ok(Some(()))
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
        self.golden.release(number, host);
        if !wanted {
            self.hosts[host].words.insert(key, LockWord::Free);
            return Ok(());
        }
        self.hosts[host].words.insert(key, LockWord::Absent);
        let recovered = false;
        self.input(host, Input::LockReturned { key, recovered }, &[])
    }
}

/// What a thread makes of a number. Sums of fractions are exact here.
fn accumulated(spot: &Reduction, old: u64, with: u64) -> u64 {
    match (spot.merge, spot.kind) {
        (Merge::Sum, Kind::F32) => {
            let sum = f32::from_bits(old as u32) + with as f32;
            u64::from(sum.to_bits())
        }
        (Merge::Sum, _) => old.wrapping_add(with << 30),
        (Merge::Min, _) => u64::from((old as i32).min(500 - with as i32).cast_unsigned()),
        _ => old | 1 << (with % 16),
    }
}

/// Which hosts leave or vanish when, and which processes die. The first keeps the
/// cluster together; without the home nobody passes a barrier.
fn parts(
    dice: &mut Dice,
    threads: &[usize],
    (phases, home): (usize, usize),
    crashes: bool,
) -> Vec<Part> {
    let hosts = threads.last().map_or(0, |last| last + 1);
    let lasts: Vec<_> = (0..hosts)
        .map(|host| (host > 0 && dice.chance(250)).then(|| dice.index(phases)))
        .collect();
    let crashes = (crashes && dice.chance(500)).then(|| dice.index(hosts - 1) + 1);
    let part = |(number, host): (usize, &usize)| {
        let first = !threads[..number].contains(host);
        if crashes == Some(*host) {
            let last = if *host == home {
                phases - 1
            } else {
                lasts[*host].unwrap_or(0)
            };
            let then = if first { After::Crashes } else { After::GoesOn };
            let last = Some(last);
            return Part { last, then };
        }
        let last = lasts[*host];
        let then = match last {
            Some(_) if first => After::Leaves,
            // A process dies, its node goes on.
            None if !first && dice.chance(200) => {
                let last = Some(dice.index(phases));
                let then = After::Dies;
                return Part { last, then };
            }
            _ => After::Ends,
        };
        Part { last, then }
    };
    threads.iter().enumerate().map(part).collect()
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
