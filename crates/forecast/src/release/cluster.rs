//! Hosts in one queue of events, and what daemons do.

use super::Replayed;
use super::costs::ReleaseCosts;
use super::host::{Host, State};
use super::trace::Trace;
use crate::cluster::Stuck;
use crate::site::{self, PATIENCE, Pending, nanos};
use core::time::Duration;
use pagemesh_core::{Effects, Input, Reply, Request};
use pagemesh_wire::peer::{Credentials, Policy, SegmentSpec, Spread};
use pagemesh_wire::{ByteLen, ClientId, MappingId, PAGE_SIZE, SegmentId, Ticket};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::SocketAddr;

/// What can happen, in order of time and then of scheduling.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    Arrival {
        to: usize,
        source: SocketAddr,
        bytes: Vec<u8>,
    },
    /// A daemon takes its next input.
    Turn(usize),
    Deadline(usize),
    /// A process stopped at a page or asked its daemon for something, which hears of it.
    Heard(usize, usize),
    /// A process goes on.
    Run {
        host: usize,
        generation: u64,
    },
}

/// One process on each host.
pub(super) const CLIENT: ClientId = ClientId(1);
pub(super) const MAPPING: MappingId = MappingId(1);

pub(super) struct Cluster {
    pub(super) costs: ReleaseCosts,
    pub(super) now: u64,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    pub(super) hosts: Vec<Host>,
    pub(super) segment: SegmentId,
    /// Signals of each lock so far.
    pub(super) signals: BTreeMap<u64, u64>,
    pub(super) counts: Replayed,
    effects: Effects,
    tickets: u64,
    /// What daemons are about to hear of their own hosts, by number.
    local: Vec<Option<Input<'static>>>,
    pub(super) replies: BTreeMap<Ticket, Reply>,
    ended: u64,
}

impl Cluster {
    /// A process on each host, which have opened the heap.
    pub(super) fn new(
        costs: ReleaseCosts,
        spread: Spread,
        traces: &[Trace],
    ) -> Result<Self, Stuck> {
        let mut cluster = Self {
            costs,
            now: 1_000,
            queue: BinaryHeap::new(),
            sequence: 0,
            hosts: Vec::new(),
            segment: SegmentId::default(),
            signals: BTreeMap::new(),
            counts: Replayed::default(),
            effects: Effects::default(),
            tickets: 0,
            local: Vec::new(),
            replies: BTreeMap::new(),
            ended: 0,
        };
        for (number, trace) in traces.iter().enumerate() {
            let steps = trace.steps.iter().copied().collect();
            cluster.hosts.push(Host::new(site::node(number), steps));
            cluster.input(number, Input::Deadline);
            cluster.until("a host is not admitted", |this| {
                this.hosts[number].node.id().is_some()
            })?;
        }
        let pages = traces.iter().map(Trace::pages).max().unwrap_or(0).max(1);
        for host in 0..cluster.hosts.len() {
            cluster.open(host, pages, spread)?;
        }
        cluster.counts = Replayed::default();
        Ok(cluster)
    }

    fn open(&mut self, host: usize, pages: u32, spread: Spread) -> Result<(), Stuck> {
        let spec = SegmentSpec {
            size: ByteLen(u64::from(pages) * PAGE_SIZE as u64),
            mode: 0o600,
            policy: Policy::Release { spread },
        };
        let ticket = self.ticket();
        let request = Request::Open {
            name: "heap".to_owned(),
            create: Some(spec),
            exclusive: host == 0,
            write: true,
            credentials: Credentials {
                uid: 0,
                gid: 0,
                groups: Vec::new(),
            },
        };
        self.input(
            host,
            Input::Request {
                ticket,
                client: CLIENT,
                request,
            },
        );
        self.until("the heap is not opened", |this| {
            this.replies.contains_key(&ticket)
        })?;
        let Some(Reply::Segment(info)) = self.replies.remove(&ticket) else {
            return Err(Stuck("the heap is refused".to_owned()));
        };
        let segment = info.id;
        self.segment = segment;
        self.input(
            host,
            Input::Mapped {
                mapping: MAPPING,
                segment,
                client: CLIENT,
            },
        );
        Ok(())
    }

    /// Runs until all processes have ended.
    pub(super) fn run(&mut self) -> Result<Replayed, Stuck> {
        let begun = self.now;
        for host in 0..self.hosts.len() {
            self.resume_at(host, begun);
        }
        let over = |this: &Self| this.hosts.iter().all(|host| host.state == State::Ended);
        self.until("a process does not end", over)?;
        let part = match self.hosts[0].notes[..] {
            [first, second, ..] => second - first,
            _ => 0,
        };
        self.counts.part = Duration::from_nanos(part);
        self.counts.whole = Duration::from_nanos(self.ended.max(begun) - begun);
        Ok(self.counts)
    }

    pub(super) fn has_ended(&mut self, host: usize) {
        self.hosts[host].state = State::Ended;
        self.ended = self.ended.max(self.now);
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

    pub(super) fn schedule(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.queue
            .push(Reverse((at.max(self.now), self.sequence, event)));
    }

    pub(super) fn resume_at(&mut self, host: usize, at: u64) {
        self.hosts[host].generation += 1;
        let generation = self.hosts[host].generation;
        self.schedule(at, Event::Run { host, generation });
    }

    pub(super) fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    /// A daemon will hear something of its own host.
    pub(super) fn hears_at(&mut self, host: usize, at: u64, input: Input<'static>) {
        self.local.push(Some(input));
        self.schedule(at, Event::Heard(host, self.local.len() - 1));
    }

    fn happen(&mut self, event: Event) -> Result<(), Stuck> {
        match event {
            Event::Arrival { to, source, bytes } => {
                self.pend(to, Pending::Datagram { source, bytes });
            }
            Event::Deadline(host) => {
                let due = &mut self.hosts[host].deadline;
                if due.take_if(|at| *at <= self.now).is_some() {
                    self.input(host, Input::Deadline);
                }
            }
            Event::Turn(host) => return self.turn(host),
            Event::Heard(host, which) => {
                if let Some(input) = self.local[which].take() {
                    self.input(host, input);
                }
            }
            Event::Run { host, generation } => {
                if self.hosts[host].generation == generation {
                    self.go_on(host)?;
                }
            }
        }
        Ok(())
    }

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
        // A daemon at work goes on with the next; else it must get the processor.
        let works = matches!(host.state, State::Works { .. });
        let begins = if host.busy_until < self.now && works {
            self.now + nanos(self.costs.preempt)
        } else {
            self.now.max(host.busy_until)
        };
        self.schedule(begins, Event::Turn(at));
    }

    /// A daemon handles one input, and all effects of it; its process waits meanwhile.
    fn turn(&mut self, at: usize) -> Result<(), Stuck> {
        self.hosts[at].turn_due = false;
        let Some(pending) = self.hosts[at].inbox.pop_front() else {
            return Ok(());
        };
        let begin = self.now;
        let mut end = begin;
        let mut inputs = VecDeque::from([pending]);
        while let Some(pending) = inputs.pop_front() {
            let mut effects = std::mem::take(&mut self.effects);
            end += nanos(self.costs.decide);
            if let Pending::Datagram { bytes, .. } = &pending {
                end += nanos(self.costs.half(bytes.len()));
            }
            let bytes = pending.reach(&mut self.hosts[at].node, begin, &mut effects);
            for effect in effects.drain() {
                self.carry_out(at, effect, &bytes, &mut end, &mut inputs)?;
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
}
