//! One to many: what one host wrote, many read at once, and each page leaves the writer about once.

use crate::network::{Link, Weather};
use crate::process::State;
use crate::step::{ClientPlan, HostPlan, Place, Seg, SegmentPlan, Step};
use crate::world::{Setting, World};
use pagemesh_core::Time;
use pagemesh_wire::peer::{Manager, Policy, Window};

const MICRO: u64 = 1_000;

/// Pages of the segment.
const PAGES: u32 = 1024;

/// What a page takes on a link of 1 Gbit/s.
const GIGABIT: u64 = 34 * MICRO;

#[derive(Clone, Copy, Debug)]
struct Reading {
    readers: usize,
    /// Nanoseconds that a page takes on the link of each host.
    page: u64,
    /// Nanoseconds that a daemon takes for a datagram.
    cost: u64,
    /// Lost of a thousand datagrams.
    loss: u32,
}

/// How it went.
#[derive(Debug)]
struct Read {
    /// Until the last reader had read all.
    took: u64,
    /// Pages that each host sent, as parts of the segment; the writer's first.
    sent: Vec<f64>,
}

impl Reading {
    fn world(self) -> World {
        let plan = |_| HostPlan {
            starts_at: 0,
            successor_of: None,
            resumes: None,
            clock_offset: 0,
            cost: self.cost,
            wake: 10 * MICRO,
        };
        let mut world = World::new(Setting {
            seed: 1,
            hosts: (0..=self.readers).map(plan).collect(),
            weather: Weather {
                base: 20 * MICRO,
                jitter: 5 * MICRO,
                loss: self.loss,
                ..Weather::default()
            },
            segments: vec![SegmentPlan {
                name: "written".to_owned(),
                pages: PAGES,
                policy: Policy::Sequential {
                    manager: Manager::Dynamic,
                    window: Window::Auto,
                },
                replicas: 0,
            }],
            ..Setting::default()
        });
        world.admit_all();
        world
    }

    fn run(self) -> Read {
        let mut world = self.world();
        let stores = (0..PAGES).map(|page| Step::Store(word(page), None));
        spawn(&mut world, 0, stores);
        while !has_ended(&world, 0) {
            world.step().unwrap();
        }
        let links = (0..=self.readers).map(|_| Link::new(self.page));
        world.network.links = links.collect();
        let start = world.now;
        for reader in 1..=self.readers {
            spawn(
                &mut world,
                reader,
                (0..PAGES).map(|page| Step::Load(word(page))),
            );
        }
        let all = |world: &World| (1..=self.readers).all(|reader| has_ended(world, reader));
        while !all(&world) {
            world.step().unwrap();
            assert!(world.now < Time(start.0 + 60_000_000_000), "{self:?}");
        }
        let links = world.network.links.iter();
        Read {
            took: world.now.0 - start.0,
            sent: links
                .map(|link| link.pages as f64 / f64::from(PAGES))
                .collect(),
        }
    }
}

/// Whether the program of a host has done all but waiting for its end.
fn has_ended(world: &World, client: usize) -> bool {
    let of = |thread: &&crate::process::Thread| thread.client == client;
    let mut threads = world.processes.threads.iter().filter(of);
    threads.all(|thread| thread.state == State::Ended || thread.steps.is_empty())
}

fn spawn(world: &mut World, host: usize, work: impl Iterator<Item = Step>) {
    let seg = Seg::Main(0);
    let open = Step::Open {
        seg,
        name: 0,
        create: host == 0,
        exclusive: host == 0,
        write: true,
    };
    let mut program = vec![open, Step::Map(seg), Step::Begin];
    program.extend(work);
    program.push(Step::Think(1 << 60));
    world.spawn_client(ClientPlan {
        host,
        programs: vec![program],
        farewell: Vec::new(),
    });
}

fn word(page: u32) -> Place {
    Place {
        seg: Seg::Main(0),
        mapping: 0,
        page,
        word: 0,
    }
}

/// Times of the least that the link of the writer takes for the segment.
fn times(reading: Reading, read: &Read) -> f64 {
    read.took as f64 / (reading.page * u64::from(PAGES)) as f64
}

/// At 1 Gbit/s and at 200 Mbit/s. The first pages of a walk are asked for one by one, and such requests
/// are repeated.
#[test]
fn each_page_leaves_its_writer_about_once() {
    for page in [GIGABIT, 5 * GIGABIT] {
        for readers in [2, 8] {
            let reading = Reading {
                readers,
                page,
                cost: 5 * MICRO,
                loss: 0,
            };
            let read = reading.run();
            assert!(read.sent[0] < 1.15, "{reading:?}: {read:.2?}");
            let most = read.sent.iter().copied().fold(0.0, f64::max);
            assert!(
                most < 1.5,
                "no reader sends to several: {reading:?}: {read:.2?}"
            );
            let times = times(reading, &read);
            assert!(times < 1.65, "{times:.2} of one: {reading:?}: {read:.2?}");
        }
    }
}

/// Readers request lost pages again; such requests must not multiply.
#[test]
fn readers_serve_each_other_where_datagrams_are_lost() {
    let reading = Reading {
        readers: 8,
        page: GIGABIT,
        cost: 5 * MICRO,
        loss: 1,
    };
    let read = reading.run();
    let times = times(reading, &read);
    let all: f64 = read.sent.iter().sum();
    let of_all = read.sent[0] < 2.0 && all < 9.0 && times < 3.5;
    assert!(of_all, "{times:.2} of one: {read:.2?}");
}

#[test]
fn a_reader_alone_has_the_whole_link() {
    for page in [GIGABIT, 5 * GIGABIT] {
        let reading = Reading {
            readers: 1,
            page,
            cost: 5 * MICRO,
            loss: 0,
        };
        let read = reading.run();
        let times = times(reading, &read);
        assert!(
            read.sent[0] < 1.02 && times < 1.05,
            "{times:.2}: {read:.2?}"
        );
    }
}
