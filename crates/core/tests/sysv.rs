//! System V objects on a bad network, with processes and nodes that die: random
//! programs, and what must hold whatever happens to them.
//!
//! - Never hold more processes a semaphore than it has places.
//! - A message is received at most once, those of one sender in their order, and
//!   none is lost but with a process that died while it waited for one.
//! - Who withdraws learns whether the operation happened.
//! - When all processes are gone, every semaphore is as it was, nobody waits, and
//!   nothing is attached.

use core::net::SocketAddr;
use core::time::Duration;
use pagemesh_core::{Config, Effect, Effects, Input, Node, Pace, Reply, Request, Start, Time};
use pagemesh_wire::peer::{Credentials, Refusal};
use pagemesh_wire::sysv::{
    Ask, Family, IPC_CREAT, IPC_NOWAIT, Id, Kind, Limits, Op, Outcome, Pick, SEM_UNDO, SemBuf,
    SemRead, Who,
};
use pagemesh_wire::{ClientId, ClusterId, Incarnation, PublicKey, SegmentId, Ticket};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

const NODES: usize = 3;
/// Places of the two semaphores.
const PLACES: [i32; 2] = [2, 1];
const KEY: i32 = 7;

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Datagram(usize, SocketAddr, Vec<u8>),
    Act(usize, ClientId),
    Signal(usize, Ticket),
}

/// What a process is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Doing {
    Nothing,
    /// Takes these semaphores.
    Takes([bool; 2]),
    Gives([bool; 2]),
    Sends(Vec<u8>),
    Receives,
    Attaches,
    Other,
}

/// A process.
struct Process {
    doing: Doing,
    ticket: Ticket,
    holds: [bool; 2],
    attached: Vec<SegmentId>,
    sent: u8,
    /// The last message it had from each sender.
    heard: BTreeMap<u32, u8>,
}

struct World {
    seed: u64,
    dice: Dice,
    nodes: Vec<Option<Node>>,
    now: Time,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    serial: u64,
    lossy: bool,
    processes: BTreeMap<(usize, ClientId), Process>,
    clients: u32,
    tickets: u64,
    replies: Vec<(usize, Ticket, Reply)>,
    /// Set, queue and segment.
    ids: [Id; 3],
    unheard: BTreeSet<Vec<u8>>,
    heard: BTreeSet<Vec<u8>>,
    /// Messages that may have been lost with who waited for them.
    excused: usize,
}

fn address(index: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1000 + index as u16))
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            seed,
            dice: Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            nodes: Vec::new(),
            now: Time(1_000_000),
            events: BinaryHeap::new(),
            serial: 0,
            lossy: false,
            processes: BTreeMap::new(),
            clients: 0,
            tickets: 0,
            replies: Vec::new(),
            ids: [Id(0); 3],
            unheard: BTreeSet::new(),
            heard: BTreeSet::new(),
            excused: 0,
        };
        for index in 0..NODES {
            world.nodes.push(Some(Node::new(Config {
                name: format!("host{index}"),
                address: address(index),
                incarnation: Incarnation(100 + index as u64),
                key: PublicKey::NONE,
                start: match index {
                    0 => Start::Found(ClusterId(77)),
                    _ => Start::Join(address(0)),
                },
                pace: Pace::default(),
                check_races: false,
            })));
            world.input(index, Input::Deadline);
            world.run(Duration::from_millis(300));
        }
        world
    }

    fn later(&mut self, after: Duration, event: Event) {
        self.serial += 1;
        self.events
            .push(Reverse((self.now + after, self.serial, event)));
    }

    fn input(&mut self, index: usize, input: Input<'_>) {
        let mut effects = Effects::default();
        let now = self.now;
        let Some(node) = &mut self.nodes[index] else {
            return;
        };
        node.handle(now, input, &mut effects);
        for effect in effects.drain().collect::<Vec<_>>() {
            match effect {
                Effect::Send {
                    address,
                    header,
                    message,
                    ..
                } => {
                    let mut bytes = Vec::new();
                    message.encode(header, &mut bytes);
                    self.send(index, usize::from(address.port()) - 1000, bytes);
                }
                Effect::Reply { ticket, reply } => self.replies.push((index, ticket, reply)),
                _ => {}
            }
        }
    }

    fn send(&mut self, from: usize, to: usize, bytes: Vec<u8>) {
        let copies = match self.dice.below(10) {
            0 | 1 if self.lossy => 0,
            2 if self.lossy => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let delay =
                Duration::from_micros(50 + self.dice.below(if self.lossy { 20_000 } else { 100 }));
            self.later(delay, Event::Datagram(to, address(from), bytes.clone()));
        }
    }

    /// Lets time pass.
    fn run(&mut self, length: Duration) {
        let end = self.now + length;
        loop {
            self.hear();
            let due = self
                .nodes
                .iter()
                .flatten()
                .filter_map(Node::next_deadline)
                .min();
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            let Some(next) = [due, event]
                .into_iter()
                .flatten()
                .min()
                .filter(|next| *next <= end)
            else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            if event.is_some_and(|at| at <= self.now) {
                let Some(Reverse((_, _, event))) = self.events.pop() else {
                    return;
                };
                match event {
                    Event::Datagram(to, source, bytes) => {
                        let key = PublicKey::NONE;
                        let bytes = &bytes;
                        self.input(to, Input::Datagram { source, key, bytes });
                    }
                    Event::Act(index, client) => self.act(index, client),
                    Event::Signal(index, ticket) => self.input(index, Input::Cancel { ticket }),
                }
                continue;
            }
            for index in 0..self.nodes.len() {
                let due = self.nodes[index].as_ref().and_then(Node::next_deadline);
                if due.is_some_and(|due| due <= self.now) {
                    self.input(index, Input::Deadline);
                }
            }
        }
    }

    fn ask(&mut self, index: usize, client: ClientId, op: Op) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let credentials = Credentials {
            uid: 0,
            gid: 0,
            groups: vec![],
        };
        let ask = Ask {
            who: Who {
                client,
                pid: client.0 as i32,
                credentials,
            },
            wall: self.now.0 / 1_000_000_000,
            limits: Limits {
                msgmnb: 12,
                ..Limits::default()
            },
            op,
        };
        let request = Request::Sysv(Box::new(ask));
        self.input(
            index,
            Input::Request {
                ticket,
                client,
                request,
            },
        );
        ticket
    }

    /// Asks on the first node and waits for the answer.
    fn outcome(&mut self, op: Op) -> Outcome {
        let ticket = self.ask(0, ClientId(9999), op);
        let mine = |world: &mut Self| {
            let at = world.replies.iter().position(|(_, of, _)| *of == ticket)?;
            Some(world.replies.remove(at).2)
        };
        match mine(self) {
            Some(Reply::Sysv(outcome)) => outcome,
            other => panic!("seed {}: {other:?}", self.seed),
        }
    }

    fn number(&mut self, op: Op) -> i32 {
        match self.outcome(op) {
            Outcome::Number(number) => number,
            other => panic!("seed {}: {other:?}", self.seed),
        }
    }

    fn make(&mut self) {
        let flags = IPC_CREAT | 0o600;
        let set = self.number(Op::SemGet {
            key: KEY,
            count: 2,
            flags,
        });
        let queue = self.number(Op::MsgGet { key: KEY, flags });
        let segment = self.number(Op::ShmGet {
            key: KEY,
            size: 1,
            flags,
        });
        self.ids = [Id(set), Id(queue), Id(segment)];
        for (number, value) in PLACES.into_iter().enumerate() {
            self.number(Op::SemSetOne {
                id: Id(set),
                number: number as i32,
                value,
            });
        }
    }

    /// A new process.
    fn spawn(&mut self, index: usize) -> ClientId {
        self.clients += 1;
        let client = ClientId(self.clients);
        let process = Process {
            doing: Doing::Nothing,
            ticket: Ticket(0),
            holds: [false; 2],
            attached: Vec::new(),
            sent: 0,
            heard: BTreeMap::new(),
        };
        self.processes.insert((index, client), process);
        self.later(Duration::from_millis(1), Event::Act(index, client));
        client
    }

    /// Whoever was answered goes on.
    fn hear(&mut self) {
        for (index, ticket, reply) in std::mem::take(&mut self.replies) {
            let who = self.processes.iter().find(|((of, _), process)| {
                *of == index && process.ticket == ticket && process.doing != Doing::Nothing
            });
            let Some(key) = who.map(|(key, _)| *key) else {
                continue;
            };
            self.answered(key, reply);
            let wait = Duration::from_micros(self.dice.below(30_000));
            self.later(wait, Event::Act(key.0, key.1));
        }
    }

    fn answered(&mut self, key: (usize, ClientId), reply: Reply) {
        let seed = self.seed;
        let process = self.processes.get_mut(&key).expect("found just now");
        let doing = std::mem::replace(&mut process.doing, Doing::Nothing);
        match (doing, reply) {
            (Doing::Sends(text), Reply::Refused(Refusal::Cancelled)) => {
                let waits = self.unheard.remove(&text);
                assert!(waits, "seed {seed}: what was withdrawn was received");
            }
            (_, Reply::Refused(Refusal::Cancelled)) => {}
            (Doing::Takes(which), Reply::Sysv(Outcome::Number(0))) => {
                for (holds, takes) in process.holds.iter_mut().zip(which) {
                    *holds |= takes;
                }
                self.check_places();
            }
            (Doing::Gives(_) | Doing::Other, Reply::Sysv(_)) => {}
            (Doing::Sends(_), Reply::Sysv(Outcome::Number(0))) => {}
            (Doing::Receives, Reply::Sysv(Outcome::Message { text, .. })) => {
                let (sender, number) = (u32::from_le_bytes(text[..4].try_into().unwrap()), text[4]);
                let last = process.heard.insert(sender, number);
                assert!(
                    last.is_none_or(|last| last < number),
                    "seed {seed}: out of order"
                );
                self.unheard.remove(&text);
                assert!(self.heard.insert(text), "seed {seed}: received twice");
            }
            (Doing::Sends(_) | Doing::Receives, Reply::Sysv(Outcome::Failed(_))) => {}
            (Doing::Attaches, Reply::Segment(info)) => process.attached.push(info.id),
            (doing, reply) => panic!("seed {seed}: {doing:?} is answered {reply:?}"),
        }
    }

    fn check_places(&self) {
        for (number, places) in PLACES.into_iter().enumerate() {
            let holders = self
                .processes
                .values()
                .filter(|process| process.holds[number]);
            let holders = holders.count() as i32;
            assert!(
                holders <= places,
                "seed {}: {holders} hold {number}",
                self.seed
            );
        }
    }

    fn semop(&self, which: [bool; 2], op: i16) -> Op {
        let ops = (0..2).filter(|number| which[*number as usize]);
        let ops = ops.map(|number| SemBuf {
            number,
            op,
            flags: SEM_UNDO,
        });
        Op::SemOp {
            id: self.ids[0],
            ops: ops.collect(),
        }
    }

    /// A process does something, or loses patience.
    #[expect(clippy::too_many_lines, reason = "one arm for each thing it does")]
    fn act(&mut self, index: usize, client: ClientId) {
        let key = (index, client);
        if self.nodes[index].is_none() || !self.processes.contains_key(&key) {
            return;
        }
        let what = self.dice.below(20);
        let process = &self.processes[&key];
        if process.doing != Doing::Nothing {
            return;
        }
        if what == 0 {
            return self.die(index, client);
        }
        let holds = process.holds;
        let attached = process.attached.last().copied();
        let (op, doing) = match what {
            1..=8 if holds == [false; 2] => {
                let which =
                    [[true, false], [false, true], [true, true]][self.dice.below(3) as usize];
                (self.semop(which, -1), Doing::Takes(which))
            }
            1..=8 => {
                // It counts as free from the moment its holder wants to give it.
                let process = self.processes.get_mut(&key).expect("it acts");
                process.holds = [false; 2];
                (self.semop(holds, 1), Doing::Gives(holds))
            }
            9..=11 => {
                let process = self.processes.get_mut(&key).expect("it acts");
                process.sent += 1;
                let mut text = client.0.to_le_bytes().to_vec();
                text.push(process.sent);
                self.unheard.insert(text.clone());
                let send = Op::MsgSend {
                    id: self.ids[1],
                    kind: Kind(1),
                    text: text.clone(),
                    flags: 0,
                };
                (send, Doing::Sends(text))
            }
            12..=14 => {
                let receive = Op::MsgReceive {
                    id: self.ids[1],
                    room: 10,
                    kind: Kind(0),
                    flags: if self.dice.below(2) == 0 {
                        IPC_NOWAIT
                    } else {
                        0
                    },
                };
                (receive, Doing::Receives)
            }
            15 | 16 => {
                let attach = Op::ShmAttach {
                    id: self.ids[2],
                    write: true,
                    exec: false,
                };
                (attach, Doing::Attaches)
            }
            17 if attached.is_some() => {
                let process = self.processes.get_mut(&key).expect("it acts");
                let segment = process.attached.pop().expect("just seen");
                self.input(index, Input::Closed { segment, client });
                return self.later(Duration::from_millis(1), Event::Act(index, client));
            }
            18 => return self.fork(index, client),
            _ => {
                let stat = Op::Stat {
                    family: Family::Shm,
                    pick: Pick::Id(self.ids[2]),
                };
                (stat, Doing::Other)
            }
        };
        // The reply may come before this returns.
        let ticket = Ticket(self.tickets + 1);
        let process = self.processes.get_mut(&key).expect("it acts");
        process.doing = doing;
        process.ticket = ticket;
        assert_eq!(self.ask(index, client, op), ticket);
        // A signal, which comes before the answer, with it, or after it; or much
        // later, lest all wait for each other.
        let soon = self.dice.below(4) == 0;
        let wait = self.dice.below(if soon { 20_000 } else { 1_000_000 });
        self.later(Duration::from_micros(wait), Event::Signal(index, ticket));
    }

    fn fork(&mut self, parent_node: usize, parent: ClientId) {
        let child = self.spawn(parent_node);
        self.input(parent_node, Input::Forked { parent, child });
        let attached = self.processes[&(parent_node, parent)].attached.clone();
        let process = self
            .processes
            .get_mut(&(parent_node, child))
            .expect("just born");
        process.attached = attached;
        self.later(Duration::from_millis(1), Event::Act(parent_node, parent));
    }

    fn die(&mut self, index: usize, client: ClientId) {
        if let Some(process) = self.processes.remove(&(index, client)) {
            self.mourn(&process);
        }
        self.input(index, Input::ClientGone { client });
        if self.processes.len() < 9 {
            self.spawn(index);
        }
    }

    /// What a dead process was about to send or receive may be gone with it.
    fn mourn(&mut self, process: &Process) {
        match &process.doing {
            Doing::Receives => self.excused += 1,
            Doing::Sends(text) => drop(self.unheard.remove(text)),
            _ => {}
        }
    }

    fn crash(&mut self, index: usize) {
        self.nodes[index] = None;
        let there: Vec<_> = self
            .processes
            .keys()
            .filter(|key| key.0 == index)
            .copied()
            .collect();
        for key in there {
            let process = self.processes.remove(&key).expect("listed just now");
            self.mourn(&process);
        }
    }

    /// All processes end; what they left must be as if they had never been.
    fn end(&mut self) {
        self.lossy = false;
        let all: Vec<_> = self.processes.keys().copied().collect();
        for (index, client) in all {
            let process = self.processes.remove(&(index, client)).expect("listed");
            self.mourn(&process);
            self.input(index, Input::ClientGone { client });
        }
        self.run(Duration::from_secs(10));
        let seed = self.seed;
        let [set, queue, segment] = self.ids;
        for (number, places) in PLACES.into_iter().enumerate() {
            let number = number as i32;
            let mut read = |what| {
                self.number(Op::SemGetOne {
                    id: set,
                    number,
                    what,
                })
            };
            assert_eq!(read(SemRead::Value), places, "seed {seed}");
            assert_eq!(read(SemRead::Rising), 0, "seed {seed}");
        }
        let receive = Op::MsgReceive {
            id: queue,
            room: 10,
            kind: Kind(0),
            flags: IPC_NOWAIT,
        };
        while let Outcome::Message { text, .. } = self.outcome(receive.clone()) {
            // One whose sender died unanswered is nobody's loss.
            self.unheard.remove(&text);
        }
        let lost = self.unheard.len();
        assert!(
            lost <= self.excused,
            "seed {seed}: {lost} messages are lost"
        );
        let family = Family::Shm;
        let pick = Pick::Id(segment);
        match self.outcome(Op::Stat { family, pick }) {
            Outcome::Shm(stat) => assert_eq!(stat.nattch, 0, "seed {seed}"),
            other => panic!("seed {seed}: {other:?}"),
        }
        self.number(Op::Remove {
            family,
            id: segment,
        });
        let gone = self.outcome(Op::Stat { family, pick });
        assert!(matches!(gone, Outcome::Failed(_)), "seed {seed}: {gone:?}");
    }
}

fn live(seed: u64, lossy: bool, crash: bool) {
    let mut world = World::new(seed);
    world.make();
    world.lossy = lossy;
    for index in 0..NODES {
        for _ in 0..2 {
            world.spawn(index);
        }
    }
    world.run(Duration::from_secs(2));
    if crash {
        world.crash(2);
    }
    world.run(Duration::from_secs(if crash { 8 } else { 2 }));
    world.end();
}

#[test]
fn processes_leave_everything_as_it_was() {
    for seed in 0..60 {
        live(seed, seed % 2 == 1, false);
    }
}

#[test]
fn so_do_nodes_that_die() {
    for seed in 1000..1040 {
        live(seed, seed % 2 == 1, true);
    }
}

/// Numbers at the edges of everything.
fn odd(dice: &mut Dice) -> i32 {
    const ODD: [i32; 9] = [
        0,
        1,
        -1,
        i32::MAX,
        i32::MIN,
        0x7fff,
        1 << 24,
        (3 << 24) | 1,
        32768,
    ];
    ODD[dice.below(ODD.len() as u64) as usize]
}

/// What no library would ask, and nothing that names one of `spared`.
fn nonsense(dice: &mut Dice, spared: &[Id]) -> Op {
    let id = Some(Id(odd(dice))).filter(|id| !spared.contains(id));
    let id = id.unwrap_or(Id(-1));
    let (key, flags, number) = (odd(dice), odd(dice), odd(dice));
    let many = dice.below(3) as usize * 6000;
    match dice.below(12) {
        0 => Op::ShmGet {
            key,
            size: number as u64,
            flags,
        },
        1 => Op::ShmAttach {
            id,
            write: true,
            exec: true,
        },
        2 => Op::SemGet {
            key,
            count: number,
            flags,
        },
        3 => Op::SemOp {
            id,
            ops: vec![
                SemBuf {
                    number: number as u16,
                    op: i16::MIN,
                    flags: number as i16,
                };
                many
            ],
        },
        4 => Op::SemSetAll {
            id,
            values: vec![0xff; many + 1],
        },
        5 => Op::SemSetOne {
            id,
            number,
            value: flags,
        },
        6 => Op::MsgSend {
            id,
            kind: Kind(i64::MIN),
            text: vec![1; many],
            flags,
        },
        7 => Op::MsgReceive {
            id,
            room: u64::MAX,
            kind: Kind(i64::MIN),
            flags,
        },
        8 => Op::Stat {
            family: Family::Msg,
            pick: Pick::Index(number),
        },
        9 => Op::Stat {
            family: Family::Shm,
            pick: Pick::IndexAny(number),
        },
        10 => Op::Remove {
            family: Family::Sem,
            id,
        },
        _ => Op::SemGetOne {
            id,
            number,
            what: SemRead::Count,
        },
    }
}

#[test]
fn nonsense_is_answered_and_harms_nobody() {
    let mut world = World::new(5);
    world.make();
    let mut dice = Dice(99);
    for round in 0..3000_u32 {
        let node = dice.below(NODES as u64) as usize;
        let op = nonsense(&mut dice, &world.ids);
        let ticket = world.ask(node, ClientId(1 + round % 7), op.clone());
        // `run` would hand out the answers.
        for _ in 0..40 {
            if world.replies.iter().any(|(_, of, _)| *of == ticket) {
                break;
            }
            let Some(Reverse((at, _, event))) = world.events.pop() else {
                break;
            };
            world.now = world.now.max(at);
            if let Event::Datagram(to, source, bytes) = event {
                let key = PublicKey::NONE;
                let bytes = &bytes;
                world.input(to, Input::Datagram { source, key, bytes });
            }
        }
        let answers = world
            .replies
            .iter()
            .filter(|(_, of, _)| *of == ticket)
            .count();
        assert_eq!(answers, 1, "{op:?}");
        world.replies.clear();
    }
    let values = Op::SemGetAll { id: world.ids[0] };
    let before = PLACES
        .iter()
        .flat_map(|value| (*value as u16).to_le_bytes());
    let values = world.outcome(values);
    assert_eq!(
        values,
        Outcome::Values(before.collect()),
        "nobody named them"
    );
}
