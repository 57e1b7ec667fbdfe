//! The cost of a read fault in the core: two nodes, one writes, the other reads, with nothing else
//! around. It has no clock; count instructions with `valgrind --tool=callgrind
//! --toggle-collect='*read_all*' target/release/examples/read_fault 1000`.

use pagemesh_core::{Config, Effect, Effects, Input, Node, Pace, Reply, Request, Start, Time};
use pagemesh_wire::peer::{Access, Credentials, Manager, Policy, SegmentSpec, Window};
use pagemesh_wire::{
    ByteLen, ClientId, ClusterId, Incarnation, MappingId, PAGE_SIZE, PageIndex, PublicKey, Ticket,
};
use std::collections::VecDeque;
use std::net::SocketAddr;

const CLIENT: ClientId = ClientId(1);
const MAPPING: MappingId = MappingId(1);

/// Two nodes and the datagrams under way between them.
struct Pair {
    nodes: Vec<Node>,
    now: Time,
    effects: Effects,
    wire: VecDeque<(usize, Vec<u8>)>,
    /// Memory of datagrams that have arrived.
    spare: Vec<Vec<u8>>,
    mapped: usize,
    inputs: usize,
}

fn address(index: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1000 + index as u16))
}

fn node(index: usize) -> Node {
    Node::new(Config {
        pace: Pace {
            ahead: 0,
            ..Pace::default()
        },
        ..Config::plain(
            format!("host{index}"),
            address(index),
            Incarnation(index as u64 + 100),
            match index {
                0 => Start::Found(ClusterId(77)),
                _ => Start::Join(address(0)),
            },
        )
    })
}

impl Pair {
    fn new(pages: u32) -> Self {
        let mut pair = Self {
            nodes: vec![node(0), node(1)],
            now: Time(1_000_000),
            effects: Effects::default(),
            wire: VecDeque::new(),
            spare: Vec::new(),
            mapped: 0,
            inputs: 0,
        };
        for index in 0..2 {
            pair.input(index, Input::Deadline);
            pair.settle();
        }
        for index in 0..2 {
            pair.open(index, pages);
        }
        pair
    }

    fn open(&mut self, index: usize, pages: u32) {
        let spec = SegmentSpec {
            size: ByteLen(u64::from(pages) * PAGE_SIZE as u64),
            mode: 0o600,
            policy: Policy::Sequential {
                manager: Manager::Dynamic,
                window: Window::Nanos(0),
            },
            replicas: 0,
        };
        let request = Request::Open {
            name: "a".into(),
            create: Some(spec),
            exclusive: false,
            write: true,
            credentials: Credentials::root(),
        };
        let (ticket, client) = (Ticket(index as u64 + 1), CLIENT);
        self.input(
            index,
            Input::Request {
                ticket,
                client,
                request,
            },
        );
        self.settle();
        let segment = self.nodes[index].segment_named("a").expect("opened").id;
        self.input(
            index,
            Input::Mapped {
                mapping: MAPPING,
                segment,
                client,
            },
        );
    }

    /// Feeds one input and carries out its effects; those that concern memory are only counted.
    fn input(&mut self, index: usize, input: Input<'_>) {
        let mut effects = std::mem::take(&mut self.effects);
        self.inputs += 1;
        self.nodes[index].handle(self.now, input, &mut effects);
        let mut confirm = None;
        for effect in effects.drain() {
            match effect {
                Effect::Send {
                    header,
                    message,
                    page,
                    ..
                } => {
                    let mut datagram = self.spare.pop().unwrap_or_default();
                    datagram.clear();
                    message.encode(header, &mut datagram);
                    if page.is_some() {
                        datagram.extend_from_slice(&[0; PAGE_SIZE]);
                    }
                    self.wire.push_back((1 - index, datagram));
                }
                Effect::ConfirmUse { segment, page } => confirm = Some((segment, page)),
                Effect::Map { .. } => self.mapped += 1,
                Effect::Reply { reply, .. } => {
                    assert!(!matches!(*reply, Reply::Refused(_)), "{reply:?}");
                }
                _ => {}
            }
        }
        self.effects = effects;
        if let Some((segment, page)) = confirm {
            let used = true;
            self.input(
                index,
                Input::UseConfirmed {
                    segment,
                    page,
                    used,
                },
            );
        }
    }

    fn settle(&mut self) {
        while let Some((to, datagram)) = self.wire.pop_front() {
            self.now = Time(self.now.0 + 10_000);
            let (source, key) = (address(1 - to), PublicKey::NONE);
            let bytes = &datagram;
            self.input(to, Input::Datagram { source, key, bytes });
            self.spare.push(datagram);
        }
    }

    fn touch(&mut self, index: usize, page: u32, access: Access) {
        let (mapping, page) = (MAPPING, PageIndex(page));
        self.input(
            index,
            Input::Fault {
                mapping,
                page,
                access,
            },
        );
        self.settle();
    }
}

/// Apart, so that a profiler can tell it.
#[inline(never)]
fn read_all(pair: &mut Pair, pages: u32) {
    for page in 0..pages {
        pair.touch(0, page, Access::Read);
    }
}

fn main() {
    let rounds = std::env::args()
        .nth(1)
        .map_or(Ok(200), |n| n.parse::<u32>());
    let rounds = rounds.expect("how often all pages are read");
    const PAGES: u32 = 256;
    let mut pair = Pair::new(PAGES);
    let mut inputs = 0;
    for _ in 0..rounds {
        for page in 0..PAGES {
            pair.touch(1, page, Access::Write);
        }
        // Each was used meanwhile.
        pair.now = Time(pair.now.0 + 1_000_000_000);
        let (mapped, before) = (pair.mapped, pair.inputs);
        read_all(&mut pair, PAGES);
        assert_eq!(
            pair.mapped - mapped,
            PAGES as usize,
            "each fault got its page"
        );
        inputs += pair.inputs - before;
    }
    let faults = u64::from(rounds) * u64::from(PAGES);
    let each = inputs as f64 / faults as f64;
    println!("{faults} read faults, {each:.2} inputs each");
}
