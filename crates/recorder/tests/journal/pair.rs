//! Two nodes on a perfect wire, each with a journal.

use core::sync::atomic::{AtomicU64, Ordering};
use pagemesh_core::{Config, Effect, Effects, Input, Node, Reply, Request, Start, Time};
use pagemesh_recorder::Journal;
use pagemesh_wire::peer::{Access, Credentials, Manager, Policy, SegmentSpec, Window};
use pagemesh_wire::{
    ByteLen, ClientId, ClusterId, Incarnation, MappingId, PAGE_SIZE, PageIndex, PublicKey,
    SegmentId, SyncKey, Ticket,
};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// The memory of a journal.
pub type Memory = Vec<AtomicU64>;

/// Words of it: room for two slots, with the slack each needs.
pub const WORDS: usize = 1 << 17;

/// Bytes after which a log is long: short, so that slots change often.
pub const LOG: usize = 4096;

const CLIENT: ClientId = ClientId(1);
/// The mapping of the process of each side.
pub const MAPPING: MappingId = MappingId(1);

/// Memory that was never written.
pub fn memory() -> Memory {
    (0..WORDS).map(|_| AtomicU64::new(0)).collect()
}

/// The memory as a reader finds it after a kill at this instant.
pub fn copy(memory: &[AtomicU64]) -> Memory {
    memory
        .iter()
        .map(|word| AtomicU64::new(word.load(Ordering::Relaxed)))
        .collect()
}

/// One of the two.
pub struct Side {
    pub node: Node,
    pub journal: Journal<Memory>,
    pub queue: VecDeque<Input<'static>>,
}

/// The moments at which the memory is examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The journal has the input, the node not yet.
    Told,
    /// As many of these effects were carried out.
    Done(usize),
}

/// Sees a side at every moment.
pub type Look<'a> = dyn FnMut(&Side, Moment, &[Effect]) + 'a;

/// Both.
pub struct Pair {
    pub sides: [Side; 2],
    pub now: Time,
    wire: VecDeque<(usize, Vec<u8>)>,
    tickets: u64,
    segment: Option<SegmentId>,
    /// Datagrams that come together are handled in one turn.
    pub together: bool,
}

/// Datagrams handled in one turn at most.
const TURN: usize = 5;

fn address(side: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1000 + u16::from(side == 1)))
}

fn side(index: usize) -> Side {
    let node = Node::new(Config::plain(
        format!("host{index}"),
        address(index),
        Incarnation(index as u64 + 100),
        match index {
            0 => Start::Found(ClusterId(77)),
            _ => Start::Join(address(0)),
        },
    ));
    Side {
        journal: Journal::begin(memory(), LOG, &node, b"registry").expect("it fits"),
        node,
        queue: VecDeque::new(),
    }
}

impl Pair {
    /// Two members.
    pub fn new() -> Self {
        let mut pair = Self {
            sides: [side(0), side(1)],
            now: Time(1_000_000),
            wire: VecDeque::new(),
            tickets: 0,
            segment: None,
            together: false,
        };
        for side in 0..2 {
            pair.input(side, Input::Deadline, &mut |_, _, _| {});
            pair.settle(&mut |_, _, _| {});
        }
        pair
    }

    /// Gives a side an input.
    pub fn input(&mut self, at: usize, input: Input<'_>, look: &mut Look<'_>) {
        self.now.0 += 1_000;
        let side = &mut self.sides[at];
        side.journal.input(self.now, input.clone());
        self.step(at, input, look);
        self.follow_up(at, look);
    }

    /// Datagrams come together.
    fn turn(&mut self, at: usize, datagrams: &[Vec<u8>], look: &mut Look<'_>) {
        self.now.0 += 1_000;
        let mut effects = Effects::default();
        for (index, bytes) in datagrams.iter().enumerate() {
            let input = Input::Datagram {
                source: address(1 - at),
                key: PublicKey::NONE,
                bytes,
            };
            let side = &mut self.sides[at];
            match index {
                0 => side.journal.input(self.now, input.clone()),
                _ => side.journal.join(self.now, input.clone()),
            }
            look(side, Moment::Told, &[]);
            side.node.handle(self.now, input, &mut effects);
        }
        self.act(at, &effects, look);
        self.follow_up(at, look);
    }

    fn follow_up(&mut self, at: usize, look: &mut Look<'_>) {
        while let Some(next) = self.sides[at].queue.pop_front() {
            self.sides[at].journal.next(self.now);
            self.step(at, next, look);
        }
        let side = &mut self.sides[at];
        if side.journal.is_long() {
            side.journal
                .snapshot(&side.node, b"registry")
                .expect("it fits");
        }
    }

    fn step(&mut self, at: usize, input: Input<'_>, look: &mut Look<'_>) {
        look(&self.sides[at], Moment::Told, &[]);
        let mut effects = Effects::default();
        self.sides[at].node.handle(self.now, input, &mut effects);
        self.act(at, &effects, look);
    }

    fn act(&mut self, at: usize, effects: &Effects, look: &mut Look<'_>) {
        for index in 0..effects.as_slice().len() {
            look(&self.sides[at], Moment::Done(index), effects.as_slice());
            self.carry_out(at, &effects.as_slice()[index]);
            let done = u32::try_from(index).expect("few effects") + 1;
            self.sides[at].journal.progress(done);
        }
        let done = Moment::Done(effects.as_slice().len());
        look(&self.sides[at], done, effects.as_slice());
    }

    fn carry_out(&mut self, at: usize, effect: &Effect) {
        let side = &mut self.sides[at];
        match effect {
            Effect::Send {
                header,
                message,
                page,
                ..
            } => {
                let mut datagram = Vec::new();
                message.encode(*header, &mut datagram);
                if page.is_some() {
                    datagram.extend_from_slice(&[0xA5; PAGE_SIZE]);
                }
                self.wire.push_back((1 - at, datagram));
            }
            Effect::ConfirmUse { segment, page } => {
                let input = Input::UseConfirmed {
                    segment: *segment,
                    page: *page,
                    used: true,
                };
                side.journal.follow(input.clone());
                side.queue.push_back(input);
            }
            Effect::Store { pages } => {
                let input = Input::Stored {
                    pages: *pages,
                    done: true,
                };
                side.journal.follow(input.clone());
                side.queue.push_back(input);
            }
            Effect::ReclaimLock { key } => {
                let input = Input::LockReturned {
                    key: *key,
                    recovered: false,
                };
                side.journal.follow(input.clone());
                side.queue.push_back(input);
            }
            Effect::Reply { ticket, reply } => {
                if let Reply::Segment(info) = &**reply {
                    self.segment = Some(info.id);
                }
                side.journal.note(&ticket.0.to_le_bytes());
            }
            _ => {}
        }
    }

    /// Delivers all datagrams.
    pub fn settle(&mut self, look: &mut Look<'_>) {
        while self.together && !self.wire.is_empty() {
            let to = self.wire[0].0;
            let alike = self.wire.iter().take_while(|(other, _)| *other == to);
            let count = alike.take(TURN).count();
            let all = self.wire.drain(..count).map(|(_, bytes)| bytes);
            let all: Vec<_> = all.collect();
            self.turn(to, &all, look);
        }
        while let Some((to, bytes)) = self.wire.pop_front() {
            let source = address(1 - to);
            let bytes = bytes.as_slice();
            self.input(
                to,
                Input::Datagram {
                    source,
                    key: PublicKey::NONE,
                    bytes,
                },
                look,
            );
        }
    }

    /// A process asks, and all datagrams are delivered.
    fn ask(&mut self, at: usize, request: Request, look: &mut Look<'_>) {
        self.tickets += 1;
        let request = Input::Request {
            ticket: Ticket(self.tickets),
            client: CLIENT,
            request,
        };
        self.input(at, request, look);
        self.settle(look);
    }

    /// A process opens and maps a segment, which is made if there is none of that name.
    pub fn open(
        &mut self,
        at: usize,
        (name, policy): (&str, Policy),
        look: &mut Look<'_>,
    ) -> SegmentId {
        let open = Request::Open {
            name: name.into(),
            create: Some(SegmentSpec {
                size: ByteLen(64 * PAGE_SIZE as u64),
                mode: 0o600,
                policy,
                replicas: 0,
            }),
            exclusive: false,
            write: true,
            credentials: Credentials::root(),
        };
        self.ask(at, open, look);
        let segment = self.segment.expect("it was opened");
        let mapped = Input::Mapped {
            mapping: MAPPING,
            segment,
            client: CLIENT,
        };
        self.input(at, mapped, look);
        segment
    }

    /// Both open a segment, then each stores to its pages and takes its locks in
    /// turn, with some time between.
    pub fn work(&mut self, rounds: u32, look: &mut Look<'_>) {
        let policy = Policy::Sequential {
            manager: Manager::Dynamic,
            window: Window::Auto,
        };
        let segment = self.open(0, ("a", policy), look);
        self.open(1, ("a", policy), look);
        for round in 0..rounds {
            let at = round as usize % 2;
            let fault = Input::Fault {
                mapping: MAPPING,
                page: PageIndex(round / 3 % 64),
                access: if round % 5 == 0 {
                    Access::Read
                } else {
                    Access::Write
                },
            };
            self.input(at, fault, look);
            self.settle(look);
            let key = SyncKey {
                segment,
                number: u64::from(round / 4 % 3),
            };
            self.ask(at, Request::Lock { key }, look);
            self.pass(look);
        }
    }

    /// A millisecond passes.
    fn pass(&mut self, look: &mut Look<'_>) {
        let end = Time(self.now.0 + 1_000_000);
        while self.now < end {
            self.now.0 += 100_000;
            for at in 0..2 {
                let due = self.sides[at].node.next_deadline();
                if due.is_some_and(|due| due <= self.now) {
                    self.input(at, Input::Deadline, look);
                }
            }
            self.settle(look);
        }
    }
}
