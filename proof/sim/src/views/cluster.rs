//! Hosts with a thread each, and the network between them, in one queue of events.

use super::host::{Memory, Words};
use super::{ViewsRun, ViewsSeen};
use crate::dice::Dice;
use crate::network::{Network, legible};
use crate::plan::{Profile, pace, weather};
use crate::small::{self, Check, Log, Queue};
use core::net::SocketAddr;
use pagemesh_core::limits::PIN_LEASE;
use pagemesh_core::{Input, Node, Reply, Request, Rights, Time};
use pagemesh_wire::local::{Advice, View};
use pagemesh_wire::peer::{Access, Credentials, Health, Message, Policy, Refusal, SegmentSpec};
use pagemesh_wire::{
    ByteLen, ClientId, ClusterId, MappingId, PAGE_SIZE, PageCount, PageIndex, PublicKey, SegmentId,
    Ticket,
};
use std::collections::BTreeMap;

mod checks;
mod executor;

const CLIENT: ClientId = ClientId(1);

/// Pages that all store to, one by one; behind them lie those that are published as one.
const SINGLE: u32 = 2;
const PAGES: u32 = 5;
const RUN: PageIndex = PageIndex(SINGLE);

/// Mappings of every host, by their numbers.
const VIEWS: [View; 4] = [
    View {
        consistent: true,
        short: false,
        data_driven: false,
    },
    View {
        consistent: false,
        short: false,
        data_driven: false,
    },
    View {
        consistent: false,
        short: true,
        data_driven: false,
    },
    View {
        consistent: false,
        short: true,
        data_driven: true,
    },
];

/// Steps of a thread.
const STEPS: u32 = 60;

/// No access takes so long, whatever gets lost.
const PATIENCE: u64 = 120_000_000_000;
/// A thread waits so long for a page to pass.
const GIVES_UP: u64 = 300_000_000;
/// From the last step on: longer than a death takes to be noticed, and all reminders.
const QUIET: u64 = 20_000_000_000;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival(usize, SocketAddr, Vec<u8>),
    Deadline(usize),
    Run(usize),
    Crash(usize),
}

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Open,
    Access(PageIndex, usize, bool),
    Purge(PageIndex, bool),
    PageOut(PageIndex, bool),
    Lock(PageIndex, bool),
    Unlock(PageIndex),
    Publish(PageIndex, bool, bool),
    PublishRun,
    Leave,
}

struct Host {
    node: Node,
    memory: Memory,
    segment: Option<SegmentId>,
    /// Its program takes zeros for lost pages.
    renews: bool,
    gone: bool,
    left: bool,
    deadline: Option<Time>,
    step: Option<(Step, Time)>,
    waits: Option<Ticket>,
    /// What it publishes and waits for: pages, and their value.
    keeping: Option<(PageIndex, u32, u64)>,
    /// The page that it has locked, and until when.
    locked: Option<(PageIndex, Time)>,
    steps: u32,
    /// The greatest values seen, by page and word.
    seen: BTreeMap<(PageIndex, usize), u64>,
    /// What had been stored to a page when its prefix, or all of it, was last purged here, by the number
    /// of words.
    purged: BTreeMap<(PageIndex, usize), Words>,
}

impl Host {
    /// A death has made older contents the newest that are left.
    fn forget(&mut self) {
        self.seen.clear();
        self.purged.clear();
    }
}

/// All of it.
pub(super) struct Cluster {
    queue: Queue<Event>,
    hosts: Vec<Host>,
    network: Network,
    dice: Dice,
    options: ViewsRun,
    /// The last store to each page, and the last publication of it; none when a death left open
    /// which it is.
    last: BTreeMap<PageIndex, Option<Words>>,
    published: BTreeMap<PageIndex, u64>,
    /// What is on a second node, as its publisher was told.
    kept: BTreeMap<PageIndex, u64>,
    /// When a host vanished, every page was on two nodes.
    sound: bool,
    /// The host that publishes runs.
    publisher: usize,
    /// The greatest value ever stored.
    value: u64,
    tickets: u64,
    log: Log,
    seen: ViewsSeen,
}

impl Cluster {
    pub(super) fn new(options: ViewsRun, lines: usize) -> Self {
        let mut dice = Dice::stream(options.seed, "views");
        let hosts = dice.between(2, 4) as usize;
        let pace = pace(&mut dice);
        let weather = weather(&mut dice, options.profile);
        let cluster_id = ClusterId(dice.number() | 1);
        let mut cluster = Self {
            queue: Queue::new(),
            hosts: Vec::new(),
            network: Network::new(options.seed, weather, None),
            dice,
            options,
            last: BTreeMap::new(),
            published: BTreeMap::new(),
            kept: BTreeMap::new(),
            sound: false,
            publisher: usize::from(options.replicas > 0),
            value: 0,
            tickets: 0,
            log: Log::new(lines),
            seen: ViewsSeen::default(),
        };
        for host in 0..hosts {
            let incarnation = cluster.dice.number() | 1;
            let node = Node::new(small::config(host, cluster_id, incarnation, pace));
            let memory = Memory {
                mistake: options.planted,
                ..Memory::default()
            };
            cluster.hosts.push(Host {
                node,
                memory,
                segment: None,
                renews: (options.seed + host as u64).is_multiple_of(2),
                gone: false,
                left: false,
                deadline: None,
                step: None,
                waits: None,
                keeping: None,
                locked: None,
                steps: 0,
                seen: BTreeMap::new(),
                purged: BTreeMap::new(),
            });
            cluster.schedule(1_000 + host as u64, Event::Deadline(host));
            let begins = cluster.dice.between(10_000_000, 30_000_000);
            cluster.schedule(begins, Event::Run(host));
        }
        let crashes = options.profile != Profile::Calm && hosts > 2 && cluster.dice.index(3) == 0;
        if crashes {
            // Never the first, without which there is no cluster.
            let host = 1 + cluster.dice.index(hosts - 1);
            let at = cluster.dice.between(40_000_000, 400_000_000);
            cluster.schedule(at, Event::Crash(host));
        }
        cluster
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.queue.schedule(Time(at), event);
    }

    fn run_soon(&mut self, host: usize) {
        let wait = self.dice.between(1_000, 3_000_000);
        self.schedule(self.queue.now().0 + wait, Event::Run(host));
    }

    fn note(&mut self, host: usize, what: impl FnOnce() -> String) {
        self.log.note(self.queue.now(), host, what);
    }

    pub(super) fn run(mut self) -> (String, Result<ViewsSeen, String>) {
        let result = self.run_all();
        (self.log.lines(), result.map(|()| self.seen))
    }

    fn run_all(&mut self) -> Check {
        let mut end = None;
        while let Some(event) = self.queue.next() {
            let at = self.queue.now();
            if end.is_some_and(|end| at.0 > end) {
                return self.is_settled();
            }
            self.happen(event)?;
            self.check_runs()?;
            let done = |host: &Host| host.gone || host.left || host.steps >= STEPS;
            if end.is_none() && self.hosts.iter().all(done) {
                end = Some(at.0 + QUIET);
            }
            self.look_who_waits(at)?;
        }
        self.is_settled()
    }

    fn lives(&self, host: usize) -> bool {
        !self.hosts[host].gone && !self.hosts[host].left
    }

    /// Whether what was on two nodes must still be there: one host at most has died.
    fn one_died(&self) -> bool {
        let members = &self.hosts[0].node.view().members;
        let dead = members.iter().filter(|m| m.health == Health::Dead).count();
        let vanished = self.hosts.iter().filter(|host| host.gone).count();
        self.options.replicas > 0 && dead.max(vanished) <= 1
    }

    fn happen(&mut self, event: Event) -> Check {
        match event {
            Event::Arrival(to, source, bytes) if !self.hosts[to].gone => {
                let key = PublicKey::NONE;
                let decoded = Message::decode(&bytes).map_err(|why| why.to_string())?;
                self.note(to, || format!("<- {}", legible(&decoded.1)));
                let input = Input::Datagram {
                    source,
                    key,
                    bytes: &bytes,
                };
                small::input(self, to, input)
            }
            Event::Deadline(host) if !self.hosts[host].gone => {
                self.hosts[host].deadline = None;
                small::input(self, host, Input::Deadline)
            }
            Event::Run(host) if !self.hosts[host].gone => self.step(host),
            Event::Crash(host) if self.hosts[host].segment.is_some() => {
                self.note(host, || "vanishes".into());
                self.sound = (0..self.hosts.len()).all(|host| self.lacking(host) == 0);
                if host == self.publisher {
                    self.publisher = 0;
                }
                self.hosts[host].gone = true;
                self.seen.crashed += 1;
                // What only it had is lost.
                for page in (0..PAGES).map(PageIndex) {
                    self.last.insert(page, None);
                }
                for host in &mut self.hosts {
                    host.forget();
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn draw(&mut self, host: usize) -> Step {
        let page = PageIndex(self.dice.index(SINGLE as usize) as u32);
        if let Some((locked, _)) = self.hosts[host].locked
            && self.dice.index(3) == 0
        {
            return Step::Unlock(locked);
        }
        let leaves = self.options.profile != Profile::Calm && host > self.publisher;
        match self.dice.index(100) {
            0..30 => Step::Access(page, 0, true),
            30..40 => Step::Access(page, 0, false),
            40..55 => Step::Access(page, 1, false),
            55..65 => Step::Access(page, 2, false),
            65..68 => Step::Access(page, 3, false),
            68..74 => Step::Purge(page, self.dice.index(2) == 0),
            74..76 => Step::PageOut(page, self.dice.index(2) == 0),
            76..78 => Step::Lock(page, self.dice.index(2) == 0),
            78..90 => {
                let waits = self.options.replicas > 0 && self.dice.index(2) == 0;
                Step::Publish(page, self.dice.index(2) == 0, waits)
            }
            90 if leaves => Step::Leave,
            _ if host == self.publisher => Step::PublishRun,
            _ => Step::Access(page, 1, false),
        }
    }

    /// A thread takes its next step, or repeats the one that faulted.
    fn step(&mut self, host: usize) -> Check {
        let now = self.queue.now();
        let state = &mut self.hosts[host];
        if state.waits.is_some() || state.left {
            return Ok(());
        }
        let step = match state.step {
            Some((step, _)) => step,
            None if state.steps >= STEPS => return Ok(()),
            None if state.segment.is_none() => Step::Open,
            None => self.draw(host),
        };
        let state = &mut self.hosts[host];
        state.step.get_or_insert((step, now));
        if matches!(step, Step::Unlock(_) | Step::Leave) {
            state.locked = None;
        }
        let request = match (step, state.segment) {
            (Step::Access(page, mapping, write), Some(_)) => {
                return self.access(host, page, mapping, write);
            }
            (Step::PublishRun, Some(segment)) => {
                return self.publish_run(host, segment);
            }
            (Step::Purge(first, short), Some(segment)) => Request::Purge {
                segment,
                first,
                count: PageCount(1),
                short,
            },
            (Step::PageOut(first, short), Some(segment)) => Request::Advise {
                segment,
                first,
                count: PageCount(1),
                advice: match short {
                    true => Advice::DontNeedShort,
                    false => Advice::DontNeed,
                },
            },
            (Step::Lock(first, true), Some(segment)) => Request::PinShort {
                segment,
                first,
                count: PageCount(1),
            },
            (Step::Lock(first, false), Some(segment)) => Request::Pin {
                segment,
                first,
                count: PageCount(1),
            },
            (Step::Unlock(first), Some(segment)) => Request::Unpin {
                segment,
                first,
                count: PageCount(1),
            },
            (Step::Publish(first, short, waits), Some(segment)) => {
                let holds = self.hosts[host].memory.is_writable(first);
                let value = self.hosts[host].memory.frame(first).filter(|_| holds);
                let value = value.filter(|_| waits).map(|frame| frame[0]);
                self.hosts[host].keeping = value.map(|value| (first, 1, value));
                Request::Publish {
                    segment,
                    first,
                    count: PageCount(1),
                    short,
                    waits,
                }
            }
            (Step::Leave, Some(_)) => Request::Leave,
            _ => Request::Open {
                name: "a".into(),
                create: Some(SegmentSpec {
                    size: ByteLen(u64::from(PAGES) * PAGE_SIZE as u64),
                    mode: 0o600,
                    policy: Policy::Views { prefix: 32 },
                    replicas: self.options.replicas,
                }),
                exclusive: false,
                write: true,
                credentials: Credentials::root(),
            },
        };
        self.ask(host, request)
    }

    /// The program takes zeros for lost pages.
    fn announce(&mut self, host: usize, segment: SegmentId) -> Check {
        let request = Request::Advise {
            segment,
            first: PageIndex(0),
            count: PageCount(PAGES),
            advice: Advice::Renew,
        };
        let (ticket, client) = (Ticket(0), CLIENT);
        let input = Input::Request {
            ticket,
            client,
            request,
        };
        small::input(self, host, input)
    }

    fn ask(&mut self, host: usize, request: Request) -> Check {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.hosts[host].waits = Some(ticket);
        self.note(host, || format!("asks {request:?}"));
        let client = CLIENT;
        let input = Input::Request {
            ticket,
            client,
            request,
        };
        small::input(self, host, input)
    }

    fn done(&mut self, host: usize) {
        self.hosts[host].step = None;
        self.hosts[host].steps += 1;
        self.run_soon(host);
    }

    fn fault(&mut self, host: usize, page: PageIndex, mapping: MappingId, write: bool) -> Check {
        let access = if write { Access::Write } else { Access::Read };
        let input = Input::Fault {
            mapping,
            page,
            access,
        };
        small::input(self, host, input)
    }

    fn access(&mut self, host: usize, page: PageIndex, view: usize, write: bool) -> Check {
        let mapping = MappingId(view as u64 + 1);
        let rights = self.hosts[host].memory.rights(mapping, page);
        let needed = if write { Rights::Write } else { Rights::Read };
        if rights < needed {
            self.note(host, || format!("faults at {page} through {mapping}"));
            return self.fault(host, page, mapping, write);
        }
        if view == 0 {
            self.check_latest(host, page)?;
        }
        if write {
            self.check_locks(host, page)?;
            self.value += 1;
            self.hosts[host].memory.store(page, self.value);
            self.last.insert(page, Some([self.value; 2]));
            self.seen.stores += 1;
        } else {
            let frame = self.hosts[host].memory.frame(page);
            let frame = frame.ok_or_else(|| format!("{page} is mapped and empty"))?;
            self.note(host, || format!("loads {frame:?} of {page}"));
            let words = if VIEWS[view].short { 1 } else { 2 };
            for (word, value) in frame.into_iter().enumerate().take(words) {
                self.check_load(host, (page, word), value)?;
            }
            if view > 0 && !VIEWS[view].data_driven {
                self.check_purged(host, page, &frame[..words])?;
            }
            self.seen.loads += 1;
        }
        self.done(host);
        Ok(())
    }

    /// Nobody stores to a page that another host has locked (E12), unless that host seemed dead.
    fn check_locks(&self, host: usize, page: PageIndex) -> Check {
        let now = self.queue.now();
        let has = |at: &usize| {
            let other = &self.hosts[*at];
            let locked = other
                .locked
                .is_some_and(|(of, until)| of == page && now < until);
            *at != host && locked && !other.gone && !other.left
        };
        match (0..self.hosts.len()).find(has) {
            Some(_) if self.options.profile == Profile::Wild => Ok(()),
            Some(other) => Err(format!(
                "h{} stores to {page}, which h{} has locked",
                host + 1,
                other + 1
            )),
            None => Ok(()),
        }
    }

    /// The first host stores to all pages of a run, and publishes them.
    fn publish_run(&mut self, host: usize, segment: SegmentId) -> Check {
        let mapping = MappingId(1);
        let pages = || (RUN.0..PAGES).map(PageIndex);
        let lacks =
            |page: &PageIndex| self.hosts[host].memory.rights(mapping, *page) < Rights::Write;
        if let Some(page) = pages().find(lacks) {
            return self.fault(host, page, mapping, true);
        }
        for page in pages() {
            self.check_survives(host, page)?;
        }
        self.value += 1;
        self.hosts[host].keeping = Some((RUN, PAGES - RUN.0, self.value));
        for page in pages() {
            self.hosts[host].memory.store(page, self.value);
            self.published.insert(page, self.value);
        }
        let request = Request::Publish {
            segment,
            first: RUN,
            count: PageCount(PAGES - RUN.0),
            short: false,
            waits: self.options.replicas > 0,
        };
        self.ask(host, request)
    }

    fn replied(&mut self, host: usize, reply: Reply) -> Check {
        match reply {
            Reply::Segment(info) => {
                self.hosts[host].segment = Some(info.id);
                for (number, view) in (1..).zip(VIEWS) {
                    let input = Input::MappedView {
                        mapping: MappingId(number),
                        segment: info.id,
                        client: CLIENT,
                        view,
                    };
                    small::input(self, host, input)?;
                }
                if self.hosts[host].renews {
                    self.announce(host, info.id)?;
                }
                self.done(host);
            }
            Reply::Done => {
                if let Some((first, count, value)) = self.hosts[host].keeping.take() {
                    self.seen.waited += 1;
                    for page in (first.0..first.0 + count).map(PageIndex) {
                        let kept = self.kept.entry(page).or_default();
                        *kept = value.max(*kept);
                    }
                }
                match self.hosts[host].step {
                    Some((Step::Purge(page, short), _)) => {
                        self.purged(host, page, short);
                        self.seen.purges += 1;
                    }
                    Some((Step::Leave, _)) => {
                        self.hosts[host].left = true;
                        self.seen.left += 1;
                        // Pages that nobody ever touched begin anew elsewhere, at zero.
                        return Ok(());
                    }
                    Some((Step::Publish(page, ..), _)) => {
                        let holds = self.hosts[host].memory.is_writable(page);
                        if let Some(Some(last)) = self.last.get(&page).filter(|_| holds) {
                            self.published.insert(page, last[0]);
                        }
                        self.seen.published += 1;
                    }
                    Some((Step::Lock(page, _), began)) => {
                        self.hosts[host].locked = Some((page, began + PIN_LEASE));
                        self.seen.locked += 1;
                    }
                    Some((Step::PageOut(page, short), _)) => self.purged(host, page, short),
                    Some((Step::Unlock(_), _)) => {}
                    _ => self.seen.published += 1,
                }
                self.done(host);
            }
            // The consistent copy is elsewhere.
            Reply::Refused(Refusal::Invalid(_))
                if matches!(self.hosts[host].step, Some((Step::Lock(..), _))) =>
            {
                self.done(host);
            }
            // Declared dead, perhaps before it heard that it was a member; or leaving.
            Reply::Refused(Refusal::NotMember) => {
                self.hosts[host].left = true;
                self.seen.left += 1;
            }
            Reply::Refused(_) if self.hosts[host].segment.is_none() => {
                self.schedule(self.queue.now().0 + 500_000, Event::Run(host));
            }
            other => return Err(format!("h{} is told {other:?}", host + 1)),
        }
        Ok(())
    }
}
