//! Common parts of all forecasts: hosts in one queue of events, and daemons that take their turns
//! on the processors they share with programs.

use crate::site::{self, PATIENCE, Pending, nanos};
use core::time::Duration;
use pagemesh_core::{Effects, Input, Node, Reply, Request};
use pagemesh_wire::peer::{Credentials, Policy, SegmentSpec};
use pagemesh_wire::{ByteLen, ClientId, MappingId, PAGE_SIZE, SegmentId, Ticket};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::SocketAddr;

/// The costs do not let the program come to its end.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the forecast comes to no end: {0}")]
pub struct Stuck(pub(crate) String);

/// One process on each host.
pub(crate) const CLIENT: ClientId = ClientId(1);

/// The events, in order of time and then of scheduling.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    Arrival {
        to: usize,
        source: SocketAddr,
        bytes: Vec<u8>,
    },
    /// A daemon takes its next input.
    Turn(usize),
    Deadline(usize),
    /// A daemon gets an input from its own host: host, and number of the input.
    Heard(usize, usize),
    /// A process goes on.
    Run {
        host: usize,
        generation: u64,
    },
}

/// A host's daemon, and the processor it shares with the host's process.
pub(crate) struct Seat {
    pub(crate) node: Node,
    inbox: VecDeque<Pending>,
    turn_due: bool,
    /// The daemon uses the processor until then, or did.
    pub(crate) busy_until: u64,
    deadline: Option<u64>,
    /// The process computes, and is done then.
    works_until: Option<u64>,
    /// Runs that were scheduled before carry an older one.
    generation: u64,
}

/// Time, and all daemons.
pub(crate) struct Engine {
    /// Nanoseconds.
    pub(crate) now: u64,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    pub(crate) seats: Vec<Seat>,
    effects: Effects,
    tickets: u64,
    /// Inputs for daemons from their own hosts, by number.
    local: Vec<Option<Input<'static>>>,
    /// Answers to requests that no process waits for.
    pub(crate) replies: BTreeMap<Ticket, Reply>,
}

impl Seat {
    /// The process computes now.
    pub(crate) fn works(&self) -> bool {
        self.works_until.is_some()
    }
}

impl Engine {
    pub(crate) fn new() -> Self {
        Self {
            now: 1_000,
            queue: BinaryHeap::new(),
            sequence: 0,
            seats: Vec::new(),
            effects: Effects::default(),
            tickets: 0,
            local: Vec::new(),
            replies: BTreeMap::new(),
        }
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        let at = at.max(self.now);
        self.queue.push(Reverse((at, self.sequence, event)));
    }

    pub(crate) fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    /// A process goes on then, and not when it was to go on before.
    pub(crate) fn resume_at(&mut self, host: usize, at: u64) {
        self.seats[host].generation += 1;
        let generation = self.seats[host].generation;
        self.schedule(at, Event::Run { host, generation });
    }

    /// A process computes for as many nanoseconds, and for the time its daemon takes meanwhile.
    pub(crate) fn works(&mut self, host: usize, nanos: u64) {
        let until = self.now + nanos;
        self.seats[host].works_until = Some(until);
        self.resume_at(host, until);
    }

    /// A daemon will hear something of its own host.
    pub(crate) fn hears_at(&mut self, host: usize, at: u64, input: Input<'static>) {
        self.local.push(Some(input));
        let which = self.local.len() - 1;
        self.schedule(at, Event::Heard(host, which));
    }

    /// A datagram arrives.
    pub(crate) fn arrives_at(&mut self, to: usize, at: u64, source: SocketAddr, bytes: Vec<u8>) {
        self.schedule(at, Event::Arrival { to, source, bytes });
    }

    fn check_deadline(&mut self, at: usize) {
        let seat = &mut self.seats[at];
        let Some(due) = seat.node.next_deadline() else {
            return;
        };
        let due = due.0.max(self.now + 1);
        if seat.deadline.is_none_or(|deadline| due < deadline) {
            seat.deadline = Some(due);
            self.schedule(due, Event::Deadline(at));
        }
    }
}

/// A daemon that handles an input: the executor of effects of each forecast.
pub(crate) struct Turn<'a, W> {
    pub(crate) world: &'a mut W,
    pub(crate) at: usize,
    /// Those of the datagram.
    pub(crate) bytes: &'a [u8],
    /// When the daemon is done so far.
    pub(crate) end: &'a mut u64,
    /// Inputs that it handles in the same turn.
    pub(crate) follow: &'a mut VecDeque<Pending>,
}

/// A kind of forecast: the actions of processes, the effects of daemons, and the costs of both.
pub(crate) trait World: Sized {
    fn engine(&self) -> &Engine;
    fn engine_mut(&mut self) -> &mut Engine;

    /// Until a daemon has the processor that was not at work.
    fn rouse(&self, at: usize) -> Duration;

    /// A daemon has done its turn.
    fn is_done(&mut self, _at: usize) {}

    /// A daemon gets an input: the time of receiving it and of deciding.
    fn hearing(&mut self, at: usize, pending: &Pending) -> Duration;

    /// Carries out the effects of an input.
    fn carry_out(turn: Turn<'_, Self>, effects: &mut Effects) -> Result<(), Stuck>;

    /// A process goes on until something takes time.
    fn go_on(&mut self, at: usize) -> Result<(), Stuck>;

    /// Whether a daemon still hears of this.
    fn still_so(&self, _at: usize, _input: &Input<'static>) -> bool {
        true
    }

    /// One more host joins.
    fn join(&mut self) -> Result<(), Stuck> {
        let number = self.engine().seats.len();
        self.engine_mut().seats.push(Seat {
            node: site::node(number),
            inbox: VecDeque::new(),
            turn_due: false,
            busy_until: 0,
            deadline: None,
            works_until: None,
            generation: 0,
        });
        self.pend(number, Pending::Local(Input::Deadline));
        self.until("a host is not admitted", |this| {
            this.engine().seats[number].node.id().is_some()
        })
    }

    /// The process of a host opens a segment that the first one creates, and maps it.
    fn open(
        &mut self,
        host: usize,
        name: &str,
        (pages, policy): (u32, Policy),
        mapping: MappingId,
    ) -> Result<SegmentId, Stuck> {
        let spec = SegmentSpec {
            size: ByteLen(u64::from(pages) * PAGE_SIZE as u64),
            mode: 0o600,
            policy,
            replicas: 0,
        };
        let (ticket, client) = (self.engine_mut().ticket(), CLIENT);
        let request = Request::Open {
            name: name.to_owned(),
            create: Some(spec),
            exclusive: host == 0,
            write: true,
            credentials: Credentials::root(),
        };
        let input = Input::Request {
            ticket,
            client,
            request,
        };
        self.pend(host, Pending::Local(input));
        let there = |this: &Self| this.engine().replies.contains_key(&ticket);
        self.until("a segment is not opened", there)?;
        let Some(Reply::Segment(info)) = self.engine_mut().replies.remove(&ticket) else {
            return Err(Stuck(format!("the segment {name} is refused")));
        };
        let segment = info.id;
        let mapped = Input::Mapped {
            mapping,
            segment,
            client,
        };
        self.pend(host, Pending::Local(mapped));
        Ok(segment)
    }

    /// Time goes on until that is so.
    fn until(&mut self, what: &str, there: impl Fn(&Self) -> bool) -> Result<(), Stuck> {
        while !there(self) {
            let next = self.engine_mut().queue.pop();
            let Some(Reverse((at, _, event))) = next.filter(|next| next.0.0 < PATIENCE) else {
                return Err(Stuck(what.to_owned()));
            };
            self.engine_mut().now = at;
            self.happen(event)?;
        }
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Result<(), Stuck> {
        match event {
            Event::Arrival { to, source, bytes } => {
                self.pend(to, Pending::Datagram { source, bytes });
            }
            Event::Deadline(host) => {
                let engine = self.engine_mut();
                let (now, due) = (engine.now, &mut engine.seats[host].deadline);
                if due.take_if(|at| *at <= now).is_some() {
                    self.pend(host, Pending::Local(Input::Deadline));
                }
            }
            Event::Turn(host) => return self.turn(host),
            Event::Heard(host, which) => {
                let input = self.engine_mut().local[which].take();
                if let Some(input) = input.filter(|input| self.still_so(host, input)) {
                    self.pend(host, Pending::Local(input));
                }
            }
            Event::Run { host, generation } => {
                let seat = &mut self.engine_mut().seats[host];
                if seat.generation == generation {
                    seat.works_until = None;
                    return self.run_on(host);
                }
            }
        }
        Ok(())
    }

    /// A process goes on, as soon as its daemon leaves it the processor.
    fn run_on(&mut self, at: usize) -> Result<(), Stuck> {
        let engine = self.engine_mut();
        let busy = engine.seats[at].busy_until;
        if busy > engine.now {
            engine.resume_at(at, busy);
            return Ok(());
        }
        self.go_on(at)
    }

    fn pend(&mut self, at: usize, pending: Pending) {
        self.engine_mut().seats[at].inbox.push_back(pending);
        self.plan_turn(at);
    }

    fn plan_turn(&mut self, at: usize) {
        let engine = self.engine_mut();
        let (now, seat) = (engine.now, &mut engine.seats[at]);
        if seat.inbox.is_empty() || std::mem::replace(&mut seat.turn_due, true) {
            return;
        }
        // A daemon at work goes on with the next; else it must get the processor.
        let begins = match seat.busy_until.max(now) {
            busy if busy > now => busy,
            now => now + nanos(self.rouse(at)),
        };
        self.engine_mut().schedule(begins, Event::Turn(at));
    }

    /// A daemon handles one input, and all effects of it; its process waits meanwhile.
    fn turn(&mut self, at: usize) -> Result<(), Stuck> {
        let engine = self.engine_mut();
        let (begin, seat) = (engine.now, &mut engine.seats[at]);
        seat.turn_due = false;
        let Some(pending) = seat.inbox.pop_front() else {
            return Ok(());
        };
        let mut end = begin;
        let mut inputs = VecDeque::from([pending]);
        while let Some(pending) = inputs.pop_front() {
            end += nanos(self.hearing(at, &pending));
            let engine = self.engine_mut();
            let mut effects = std::mem::take(&mut engine.effects);
            let bytes = pending.reach(&mut engine.seats[at].node, begin, &mut effects);
            let turn = Turn {
                world: self,
                at,
                bytes: &bytes,
                end: &mut end,
                follow: &mut inputs,
            };
            Self::carry_out(turn, &mut effects)?;
            self.engine_mut().effects = effects;
        }
        let engine = self.engine_mut();
        let seat = &mut engine.seats[at];
        seat.busy_until = end;
        if let Some(until) = &mut seat.works_until {
            *until += end - begin;
            let until = *until;
            engine.resume_at(at, until);
        }
        engine.check_deadline(at);
        self.is_done(at);
        self.plan_turn(at);
        Ok(())
    }
}
