//! Hosts and the lines between them, in one queue of events.

use crate::costs::Costs;
use crate::host::{Act, Host, Place, Program, State};
use crate::site::{self, PATIENCE, Pending, address, host_of, nanos};
use core::time::Duration;
use pagemesh_core::{Effect, Effects, Event as Happened, Input, Reply, Request, Rights};
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Access, Credentials, Manager, Message, Policy, SegmentSpec, Window};
use pagemesh_wire::{ByteLen, ClientId, MappingId, PAGE_SIZE, PageIndex, SegmentId, Ticket};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::SocketAddr;

/// What can happen, in order of time and then of scheduling.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival {
        to: usize,
        source: SocketAddr,
        bytes: Vec<u8>,
    },
    /// A daemon takes its next input.
    Turn(usize),
    Deadline(usize),
    /// A thread stopped at a page, and its daemon hears of it.
    Fault(usize),
    /// A program goes on.
    Run {
        host: usize,
        generation: u64,
    },
}

/// The costs do not let the program come to its end.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the forecast comes to no end: {0}")]
pub struct Stuck(pub(crate) String);

/// What happened besides time passing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) datagrams: u64,
    pub(crate) pages: u64,
    pub(crate) read_faults: u64,
    pub(crate) write_faults: u64,
    pub(crate) upgrades: u64,
}

pub(crate) struct Cluster {
    costs: Costs,
    now: u64,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    hosts: Vec<Host>,
    /// Sequential consistency: there is one memory, whoever has which copy of it.
    memory: BTreeMap<Place, u64>,
    pub(crate) counts: Counts,
    effects: Effects,
    tickets: u64,
    /// Answers to requests, by ticket.
    replies: BTreeMap<Ticket, Reply>,
}

/// One process on each host.
const CLIENT: ClientId = ClientId(1);

impl Cluster {
    /// A program on each host, and segments of so many pages each, made by the first.
    pub(crate) fn new(
        costs: Costs,
        window: Window,
        segments: &[u32],
        programs: Vec<Box<dyn Program>>,
    ) -> Result<Self, Stuck> {
        let mut cluster = Self {
            costs,
            now: 1_000,
            queue: BinaryHeap::new(),
            sequence: 0,
            hosts: Vec::new(),
            memory: BTreeMap::new(),
            counts: Counts::default(),
            effects: Effects::default(),
            tickets: 0,
            replies: BTreeMap::new(),
        };
        for (number, program) in programs.into_iter().enumerate() {
            cluster.hosts.push(Host::new(site::node(number), program));
            cluster.input(number, Input::Deadline);
            cluster.until("a host is not admitted", |this| {
                this.hosts[number].node.id().is_some()
            })?;
        }
        for (which, pages) in segments.iter().enumerate() {
            cluster.share(which, *pages, window)?;
        }
        cluster.counts = Counts::default();
        for host in 0..cluster.hosts.len() {
            cluster.resume_at(host, cluster.now);
        }
        Ok(cluster)
    }

    /// Runs until all programs are over; the times that the first noted, from its
    /// first note on.
    pub(crate) fn run(&mut self) -> Result<Vec<Duration>, Stuck> {
        let over = |this: &Self| this.hosts.iter().all(|host| host.state == State::Ended);
        self.until("a program does not end", over)?;
        let notes = &self.hosts[0].notes;
        let since = |note: &u64| Duration::from_nanos(note - notes[0]);
        Ok(notes.iter().map(since).collect())
    }

    fn until(&mut self, what: &str, there: impl Fn(&Self) -> bool) -> Result<(), Stuck> {
        while !there(self) {
            let next = self.queue.pop();
            let Some(Reverse((at, _, event))) = next.filter(|next| next.0.0 < PATIENCE) else {
                return Err(Stuck(what.to_owned()));
            };
            self.now = at;
            self.happen(event)?;
        }
        Ok(())
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.queue
            .push(Reverse((at.max(self.now), self.sequence, event)));
    }

    fn happen(&mut self, event: Event) -> Result<(), Stuck> {
        match event {
            Event::Arrival { to, source, bytes } => {
                self.pend(to, Pending::Datagram { source, bytes });
                Ok(())
            }
            Event::Deadline(host) => {
                if self.hosts[host]
                    .deadline
                    .take_if(|at| *at <= self.now)
                    .is_some()
                {
                    self.input(host, Input::Deadline);
                }
                Ok(())
            }
            Event::Turn(host) => self.turn(host),
            Event::Fault(host) => {
                if let State::Stopped(segment, page, access) = self.hosts[host].state {
                    let mapping = self.mapping(host, segment);
                    self.input(
                        host,
                        Input::Fault {
                            mapping,
                            page,
                            access,
                        },
                    );
                }
                Ok(())
            }
            Event::Run { host, generation } => {
                if self.hosts[host].generation == generation {
                    self.go_on(host);
                }
                Ok(())
            }
        }
    }
}

/// Daemons.
impl Cluster {
    fn input(&mut self, host: usize, input: Input<'static>) {
        self.pend(host, Pending::Local(input));
    }

    fn pend(&mut self, at: usize, pending: Pending) {
        self.hosts[at].inbox.push_back(pending);
        self.plan_turn(at);
    }

    fn plan_turn(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        if host.inbox.is_empty() || std::mem::replace(&mut host.turn_due, true) {
            return;
        }
        // A daemon at work goes on with the next, and so does one that still looks for it.
        // Where a program works, it is not left to look for long.
        let works = matches!(host.state, State::Works { .. });
        let idle = self.now.saturating_sub(host.busy_until);
        let sleeps = idle > nanos(self.costs.awake);
        let rouse = match (works, sleeps) {
            (true, _) if idle > 0 => self.costs.preempt,
            (false, true) => self.costs.rouse,
            _ => Duration::ZERO,
        };
        let begins = self.now.max(host.busy_until) + nanos(rouse);
        self.schedule(begins, Event::Turn(at));
    }

    /// A daemon handles one input, and all effects of it; its program waits meanwhile.
    fn turn(&mut self, at: usize) -> Result<(), Stuck> {
        self.hosts[at].turn_due = false;
        let Some(pending) = self.hosts[at].inbox.pop_front() else {
            return Ok(());
        };
        let begin = self.now;
        let mut end = begin;
        let mut inputs = VecDeque::from([pending]);
        while let Some(pending) = inputs.pop_front() {
            end += nanos(self.cost(&pending));
            let mut effects = std::mem::take(&mut self.effects);
            pending.reach(&mut self.hosts[at].node, begin, &mut effects);
            for effect in effects.drain() {
                self.carry_out(at, effect, &mut end, &mut inputs)?;
            }
            self.effects = effects;
        }
        let host = &mut self.hosts[at];
        host.busy_until = end;
        if let State::Works { until } = &mut host.state {
            *until += end - begin;
            let until = *until;
            self.resume_at(at, until);
        }
        self.check_deadline(at);
        self.plan_turn(at);
        Ok(())
    }

    /// What deciding takes, with the receiver's half of a message.
    fn cost(&self, pending: &Pending) -> Duration {
        let costs = &self.costs;
        match pending {
            Pending::Local(Input::Fault { .. }) => costs.fault,
            // What the daemon asks itself, and what it has set itself.
            Pending::Local(_) => Duration::ZERO,
            Pending::Datagram { bytes, .. } => match Message::decode(bytes) {
                Ok((_, Message::Ask(_) | Message::AskMany(_) | Message::Invalidate(_), _)) => {
                    costs.short / 2 + costs.serve
                }
                Ok((_, message, _)) if message.carries_page() => costs.page / 2 + costs.take,
                _ => costs.short / 2 + costs.take,
            },
        }
    }

    fn check_deadline(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        let Some(due) = host.node.next_deadline() else {
            return;
        };
        let due = due.0.max(self.now + 1);
        if host.deadline.is_none_or(|deadline| due < deadline) {
            host.deadline = Some(due);
            self.schedule(due, Event::Deadline(at));
        }
    }

    fn carry_out(
        &mut self,
        at: usize,
        effect: Effect,
        end: &mut u64,
        follow: &mut VecDeque<Pending>,
    ) -> Result<(), Stuck> {
        match effect {
            Effect::Send {
                address,
                header,
                message,
                page,
            } => self.send(at, (address, header), &message, page.is_some(), end),
            Effect::Map {
                segment,
                page,
                rights,
                ..
            } => {
                *end += nanos(self.costs.install);
                self.hosts[at].rights.insert((segment, page), rights);
                self.wake(at, (segment, page), *end);
            }
            Effect::Protect { segment, page } => {
                let rights = self.hosts[at].rights.entry((segment, page)).or_default();
                *rights = (*rights).min(Rights::Read);
            }
            Effect::Evict { segment, page, .. } => {
                *end += nanos(self.costs.evict);
                self.hosts[at].rights.remove(&(segment, page));
            }
            Effect::ConfirmUse { segment, page } => {
                let used = self.hosts[at].state != State::Woken(segment, page);
                follow.push_back(Pending::Local(Input::UseConfirmed {
                    segment,
                    page,
                    used,
                }));
            }
            Effect::Reply { ticket, reply } => {
                self.replies.insert(ticket, *reply);
            }
            Effect::Fail { page, why, .. } => {
                return Err(Stuck(format!("page {} fails: {why}", page.0)));
            }
            Effect::Emit(event) => self.count(event),
            _ => {}
        }
        Ok(())
    }

    fn count(&mut self, event: Happened) {
        let count = match event {
            Happened::ReadFault { .. } => &mut self.counts.read_faults,
            Happened::WriteFault { .. } => &mut self.counts.write_faults,
            Happened::Upgrade { .. } => &mut self.counts.upgrades,
            _ => return,
        };
        *count += 1;
    }

    fn send(
        &mut self,
        at: usize,
        (address, header): (SocketAddr, Header),
        message: &Message,
        page: bool,
        end: &mut u64,
    ) {
        self.counts.datagrams += 1;
        self.counts.pages += u64::from(page);
        let way = if page {
            self.costs.page
        } else {
            self.costs.short
        };
        *end += nanos(way / 2);
        let mut bytes = Vec::new();
        message.encode(header, &mut bytes);
        if page {
            // Contents are nobody's concern here.
            bytes.resize(bytes.len() + PAGE_SIZE, 0);
        }
        let to = host_of(address);
        let line = self.hosts[at].lines.entry(to).or_default();
        *line = (*line).max(*end) + nanos(self.costs.on_the_line(page));
        let arrives = *line;
        let source = self::address(at);
        self.schedule(arrives, Event::Arrival { to, source, bytes });
    }

    fn wake(&mut self, at: usize, page: (SegmentId, PageIndex), end: u64) {
        let wake = nanos(self.costs.wake);
        if let State::Stopped(segment, index, _) = self.hosts[at].state
            && (segment, index) == page
        {
            self.hosts[at].state = State::Woken(segment, index);
            self.resume_at(at, end + wake);
        }
    }
}

/// Segments.
impl Cluster {
    fn share(&mut self, which: usize, pages: u32, window: Window) -> Result<(), Stuck> {
        for host in 0..self.hosts.len() {
            let spec = SegmentSpec {
                size: ByteLen(u64::from(pages) * PAGE_SIZE as u64),
                mode: 0o600,
                policy: Policy::Sequential {
                    manager: Manager::Dynamic,
                    window,
                },
            };
            self.tickets += 1;
            let ticket = Ticket(self.tickets);
            let request = Request::Open {
                name: format!("segment{which}"),
                create: Some(spec),
                exclusive: host == 0,
                write: true,
                credentials: Credentials {
                    uid: 0,
                    gid: 0,
                    groups: Vec::new(),
                },
            };
            let client = CLIENT;
            self.input(
                host,
                Input::Request {
                    ticket,
                    client,
                    request,
                },
            );
            self.until("a segment is not opened", |this| {
                this.replies.contains_key(&ticket)
            })?;
            let Some(Reply::Segment(info)) = self.replies.remove(&ticket) else {
                return Err(Stuck("a segment is refused".to_owned()));
            };
            let segment = info.id;
            self.hosts[host].segments.push(segment);
            let mapping = self.mapping(host, segment);
            self.input(
                host,
                Input::Mapped {
                    mapping,
                    segment,
                    client,
                },
            );
        }
        Ok(())
    }

    fn mapping(&self, host: usize, segment: SegmentId) -> MappingId {
        let known = &self.hosts[host].segments;
        let number = known.iter().position(|one| *one == segment);
        MappingId(number.expect("only what is open is touched") as u64 + 1)
    }
}

/// Programs.
impl Cluster {
    fn resume_at(&mut self, host: usize, at: u64) {
        self.hosts[host].generation += 1;
        let generation = self.hosts[host].generation;
        self.schedule(at, Event::Run { host, generation });
    }

    /// A program goes on until something takes time.
    fn go_on(&mut self, at: usize) {
        let busy = self.hosts[at].busy_until;
        if busy > self.now {
            return self.resume_at(at, busy);
        }
        loop {
            let host = &mut self.hosts[at];
            let again = host.again.take();
            let act = again.unwrap_or_else(|| host.program.next(host.loaded));
            match act {
                Act::Load(place) | Act::Store(place, _) => {
                    if !self.touch(at, act, place) {
                        return;
                    }
                }
                Act::Work(0) => {}
                Act::Work(nanos) => {
                    let until = self.now + nanos;
                    host.state = State::Works { until };
                    return self.resume_at(at, until);
                }
                Act::Sleep(nanos) => {
                    host.state = State::Sleeps;
                    return self.resume_at(at, self.now + nanos);
                }
                Act::Note => host.notes.push(self.now),
                Act::Meet => return self.meet(at),
                Act::End => {
                    host.state = State::Ended;
                    return;
                }
            }
        }
    }

    /// Does an access, or stops the program there.
    fn touch(&mut self, at: usize, act: Act, place: Place) -> bool {
        let host = &mut self.hosts[at];
        let (segment, page) = (host.segments[place.segment], PageIndex(place.page));
        let rights = host.may(segment, page);
        match act {
            Act::Store(_, value) if rights == Rights::Write => {
                self.memory.insert(place, value);
                true
            }
            Act::Load(_) if rights >= Rights::Read => {
                host.loaded = self.memory.get(&place).copied().unwrap_or(0);
                true
            }
            _ => {
                let access = match act {
                    Act::Store(..) => Access::Write,
                    _ => Access::Read,
                };
                host.again = Some(act);
                host.state = State::Stopped(segment, page, access);
                let trap = nanos(self.costs.trap);
                self.schedule(self.now + trap, Event::Fault(at));
                false
            }
        }
    }

    /// Waits for the others; the last lets all go on.
    fn meet(&mut self, at: usize) {
        self.hosts[at].state = State::Meets;
        let waits = |host: &Host| matches!(host.state, State::Meets | State::Ended);
        if self.hosts.iter().all(waits) {
            for host in 0..self.hosts.len() {
                if self.hosts[host].state == State::Meets {
                    self.hosts[host].state = State::Sleeps;
                    self.resume_at(host, self.now);
                }
            }
        }
    }
}
