//! Two nodes and a bad link between them.

use pagemesh_path::{BASE, Came, Counts, Manner, Outgoing, Paths, Surroundings, is_packet};
use pagemesh_wire::{NodeId, PublicKey};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;

const MS: u64 = 1_000_000;

fn at(end: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, end as u8 + 1], 7450))
}

/// How bad a link is, and what it carries.
#[derive(Clone, Copy)]
struct Weather {
    loss: f64,
    twice: f64,
    late: f64,
    /// Longer datagrams are lost.
    carries: usize,
    /// Longer ones do not even leave.
    leaves: usize,
}

const GOOD: Weather = Weather {
    loss: 0.0,
    twice: 0.0,
    late: 0.0,
    carries: 1472,
    leaves: 1472,
};

/// When, in which order, to which end, what.
type Flight = (u64, u64, usize, Vec<u8>);

struct Link {
    weather: Weather,
    dice: Xoshiro256PlusPlus,
    ends: [Paths; 2],
    now: u64,
    serial: u64,
    flying: BinaryHeap<Reverse<Flight>>,
    /// Datagrams lost, sent.
    lost: u64,
    sent: u64,
    /// Messages that came, and how long they took.
    came: BTreeMap<u64, u64>,
    began: BTreeMap<u64, u64>,
    twice: u64,
}

struct Around<'a>(&'a mut Xoshiro256PlusPlus, usize);

impl Surroundings for Around<'_> {
    fn nonce(&mut self) -> u64 {
        self.0.random()
    }

    fn link(&mut self, _: SocketAddr) -> usize {
        self.1
    }
}

impl Link {
    fn new(seed: u64, weather: Weather) -> Self {
        let mut ends = [0, 1].map(|end| Paths::new(0, 77 + end));
        for (end, paths) in ends.iter_mut().enumerate() {
            paths.meet(0, std::iter::once((at(1 - end), NodeId(2 - end as u16))));
        }
        Self {
            weather,
            dice: Xoshiro256PlusPlus::seed_from_u64(seed),
            ends,
            now: 1,
            serial: 0,
            flying: BinaryHeap::new(),
            lost: 0,
            sent: 0,
            came: BTreeMap::new(),
            began: BTreeMap::new(),
            twice: 0,
        }
    }

    fn fly(&mut self, to: usize, bytes: Vec<u8>) {
        self.sent += 1;
        if bytes.len() > self.weather.carries || self.dice.random_bool(self.weather.loss) {
            self.lost += 1;
            return;
        }
        let copies = 1 + u64::from(self.dice.random_bool(self.weather.twice));
        for _ in 0..copies {
            let late = self.dice.random_bool(self.weather.late);
            let held = if late {
                self.dice.random_range(0..300_000)
            } else {
                0
            };
            self.serial += 1;
            let due = self.now + 10_000 + held;
            self.flying
                .push(Reverse((due, self.serial, to, bytes.clone())));
        }
    }

    /// A message with this number in it leaves.
    fn say(&mut self, from: usize, number: u64, length: usize) {
        let mut message = vec![number as u8; length];
        message[..8].copy_from_slice(&number.to_le_bytes());
        self.began.insert(number, self.now);
        let to = 1 - from;
        if self.ends[from].carries(|| self.now, at(to), length) {
            return self.fly(to, message);
        }
        let mut pieces = Vec::new();
        let done = self.ends[from].cut(self.now, at(to), &message, |head, bytes, padding| {
            pieces.push([&head[..], bytes, padding].concat());
        });
        assert!(done);
        for piece in pieces {
            assert!(piece.len() <= self.ends[from].size(at(to)));
            self.fly(to, piece);
        }
    }

    fn post(&mut self, from: usize) {
        for Outgoing {
            to, bytes, manner, ..
        } in self.ends[from].take_outgoing()
        {
            assert_eq!(to, at(1 - from));
            if manner == Manner::Uncut && bytes.len() > self.weather.leaves {
                self.ends[from].too_long(self.now, to, bytes.len());
            } else {
                self.fly(1 - from, bytes);
            }
        }
    }

    fn arrive(&mut self, end: usize, bytes: &[u8]) {
        let mut message = bytes;
        if is_packet(bytes) {
            match self.ends[end].came(self.now, at(1 - end), PublicKey::NONE, bytes) {
                Came::Whole(whole) => message = whole,
                Came::Handled => return self.post(end),
                Came::Refused => panic!("{bytes:?}"),
            }
        }
        let number = u64::from_le_bytes(*message.first_chunk().unwrap());
        assert!(message[8..].iter().all(|byte| *byte == number as u8));
        let took = self.now - self.began[&number];
        // A message that did not come in pieces may come twice: the node accepts that.
        self.twice += u64::from(self.came.insert(number, took).is_some());
    }

    fn run(&mut self, until: u64) {
        loop {
            let flight = self.flying.peek().map(|next| next.0.0);
            let due = self.ends.iter().filter_map(Paths::due).min();
            let next = flight.into_iter().chain(due).min();
            let Some(next) = next.filter(|next| *next <= until) else {
                self.now = until;
                return;
            };
            self.now = self.now.max(next);
            if flight == Some(next) {
                let Reverse((_, _, to, bytes)) = self.flying.pop().unwrap();
                self.arrive(to, &bytes);
                continue;
            }
            for end in [0, 1] {
                let leaves = self.weather.leaves;
                self.ends[end].act(self.now, &mut Around(&mut self.dice, leaves));
                self.post(end);
            }
        }
    }

    fn counts(&mut self) -> [Counts; 2] {
        [0, 1].map(|end| self.ends[end].take_counts())
    }
}

/// Messages of a page each, one every 50 µs, through this weather.
fn pages(seed: u64, weather: Weather, count: u64) -> Link {
    let mut link = Link::new(seed, GOOD);
    link.run(2000 * MS);
    assert_eq!(link.ends[0].size(at(1)), 1472);
    link.counts();
    link.weather = weather;
    (link.lost, link.sent) = (0, 0);
    for number in 0..count {
        link.say(0, number, 4170);
        let next = link.now + 50_000;
        link.run(next);
    }
    let end = link.now + 100 * MS;
    link.run(end);
    link
}

#[test]
fn a_good_link_needs_no_repair() {
    let mut link = pages(1, GOOD, 1000);
    assert_eq!((link.came.len(), link.twice), (1000, 0));
    // A probe of the size in use, and its answer.
    assert!(link.sent <= 3002, "{}", link.sent);
    let [_, receiver] = link.counts();
    assert_eq!(
        (receiver.joined, receiver.asked, receiver.late),
        (1000, 0, 0)
    );
}

#[test]
fn single_pieces_are_repaired_and_nothing_storms() {
    for (seed, loss) in [(1, 0.001), (2, 0.01), (3, 0.1)] {
        let weather = Weather { loss, ..GOOD };
        let count = 20_000;
        let mut link = pages(seed, weather, count);
        let [sender, receiver] = link.counts();
        // All pieces of a message are lost, or what was asked for three times.
        let gone = count - link.came.len() as u64;
        let hopeless = count as f64 * loss.powi(3) * 5.0 + 3.0;
        assert!(gone as f64 <= hopeless, "{loss}: {gone} of {count}");
        let extra = link.sent - 3 * count;
        assert!(
            extra <= 3 * link.lost + 20,
            "{loss}: {extra} datagrams more for {} lost",
            link.lost
        );
        assert!(sender.repaired <= 2 * link.lost && receiver.asked <= 2 * link.lost);
        // Repaired within a millisecond, not in ten.
        let mut took: Vec<u64> = link.came.values().copied().collect();
        took.sort_unstable();
        let slow = took.partition_point(|took| *took < MS);
        let share = (took.len() - slow) as f64 / took.len() as f64;
        assert!(
            share <= 3.0 * 2.0 * loss * loss * 2.0 + 1e-3,
            "{loss}: {share}"
        );
    }
}

#[test]
fn doubled_and_reordered_pieces_are_one_message() {
    let weather = Weather {
        twice: 0.1,
        late: 0.2,
        ..GOOD
    };
    let mut link = pages(4, weather, 5000);
    assert_eq!((link.came.len(), link.twice), (5000, 0));
    let [sender, receiver] = link.counts();
    assert!(receiver.asked < 10 && sender.repaired < 20, "{receiver:?}");
    assert_eq!(receiver.refused, 0);
}

#[test]
fn everything_at_once() {
    for seed in 0..20 {
        let weather = Weather {
            loss: 0.1,
            twice: 0.05,
            late: 0.3,
            ..GOOD
        };
        let mut link = pages(100 + seed, weather, 1000);
        assert!(link.came.len() >= 985, "{seed}: {}", link.came.len());
        assert_eq!(link.twice, 0);
        let extra = link.sent - 3000;
        assert!(extra <= 4 * link.lost, "{seed}: {extra} for {}", link.lost);
        link.counts();
    }
}

#[test]
fn the_way_changes() {
    let mut link = Link::new(
        5,
        Weather {
            carries: 8972,
            leaves: 8972,
            ..GOOD
        },
    );
    link.run(50 * MS);
    assert_eq!(link.ends[0].size(at(1)), 8972);
    link.say(0, 1, 4170);
    link.run(60 * MS);
    assert!(link.came.contains_key(&1));
    link.weather.carries = 1400;
    // Nothing of this arrives until the way was tried again.
    link.say(0, 2, 4170);
    link.run(6000 * MS);
    assert!(!link.came.contains_key(&2));
    assert_eq!(link.ends[0].size(at(1)), 1352);
    link.say(0, 3, 4170);
    link.run(6100 * MS);
    assert!(link.came.contains_key(&3));
    assert_eq!(link.counts()[0].shrunk, 1);
}

#[test]
fn nobody_known_gets_short_pieces() {
    let mut paths = Paths::new(32, 7);
    let mut lengths = Vec::new();
    assert!(!paths.carries(|| 0, at(9), 4170));
    assert!(paths.cut(0, at(9), &[1; 4170], |head, bytes, padding| {
        lengths.push(head.len() + bytes.len() + padding.len());
    }));
    assert!(
        lengths.iter().all(|length| *length + 32 <= BASE),
        "{lengths:?}"
    );
    assert_eq!(paths.due(), None);
}

#[test]
fn nobody_hears_a_number_twice() {
    let mut paths = Paths::new(0, 7);
    let mut heard = std::collections::BTreeSet::new();
    let mut say = |paths: &mut Paths, to| {
        paths.cut(0, to, &[1; 4170], |head, _, _| {
            // Stream, number, which piece.
            let new = heard.insert((to, head[4..12].to_vec(), head[15]));
            assert!(new, "{to} hears {head:?} twice");
        });
    };
    for round in 0..20 {
        say(&mut paths, at(9));
        let members = [(at(1), NodeId(1)), (at(9), NodeId(9))];
        paths.meet(0, members.into_iter().take(1 + round % 2));
        say(&mut paths, at(9));
        for stranger in 20..20 + round {
            say(&mut paths, at(stranger));
        }
    }
}

#[test]
fn strangers_take_little_memory() {
    let mut paths = Paths::new(0, 7);
    let mut other = Paths::new(0, 8);
    let mut pieces = Vec::new();
    for number in 0..200 {
        other.cut(number, at(1), &[1; 16_000], |head, bytes, padding| {
            pieces.push([&head[..], bytes, padding].concat());
        });
    }
    for (number, piece) in pieces.iter().enumerate() {
        // Never all pieces of a message from one address.
        let from = SocketAddr::from(([10, 9, 8, 7], number as u16));
        let came = paths.came(1, from, PublicKey::NONE, piece);
        assert_eq!(came, Came::Handled);
    }
    let mut outgoing = 0;
    while let Some(due) = paths.due() {
        paths.act(
            due,
            &mut Around(&mut Xoshiro256PlusPlus::seed_from_u64(1), 1472),
        );
        outgoing += paths.take_outgoing().len();
    }
    assert!(
        outgoing <= 8 * 3,
        "{outgoing} for eight strangers that are listened to"
    );
}
