//! Slow and fast hosts that contend for one page take turns: a slow one is not
//! starved, neither behind a long line nor with a slow processor (FR5, FB4).

use crate::kernel::{PageKey, ThreadId};
use crate::network::Weather;
use crate::process::State;
use crate::step::{ClientPlan, HostPlan, Place, Seg, SegmentPlan, Step, Sync};
use crate::world::{Setting, World};
use pagemesh_core::Time;
use pagemesh_wire::PageIndex;
use pagemesh_wire::peer::{Manager, Policy, Window};

const MICRO: u64 = 1_000;
const MILLI: u64 = 1_000_000;

/// How long they contend: fifty turns at least.
const CONTEST: u64 = 1_000 * MILLI;

/// More steps than any program takes in that time.
const STEPS: usize = 200_000;

/// The reason why a host is slow.
#[derive(Clone, Copy, Debug)]
enum Slow {
    /// Every datagram to and from it takes so many nanoseconds more.
    Far(u64),
    /// Its daemon takes so many times as long for everything, its threads are woken late.
    Weak(u64),
    /// Its threads do something else for so long between two stores.
    Busy(u64),
}

const SLOW: [Slow; 4] = [
    Slow::Far(200 * MICRO),
    Slow::Far(2 * MILLI),
    Slow::Weak(50),
    Slow::Busy(50 * MICRO),
];

#[derive(Clone, Copy, Debug)]
struct Contest {
    seed: u64,
    slow: Slow,
    /// How many want the page; the first of them is slow.
    contenders: usize,
    /// True if the slow host is the home of the page; else the home is a host that does not
    /// contend.
    home_is_slow: bool,
    manager: Manager,
    window: Window,
    /// Lost of a thousand datagrams.
    loss: u32,
}

impl Contest {
    fn usual(seed: u64, slow: Slow) -> Self {
        Self {
            seed,
            slow,
            contenders: 2,
            home_is_slow: false,
            manager: Manager::Dynamic,
            window: Window::Auto,
            loss: 0,
        }
    }

    /// Host 0 is a bystander, unless the home is slow.
    fn slow_host(self) -> usize {
        usize::from(!self.home_is_slow)
    }

    fn world(self) -> World {
        let hosts = self.slow_host() + self.contenders;
        let plan = |host| {
            let weak = match self.slow {
                Slow::Weak(factor) if host == self.slow_host() => factor,
                _ => 1,
            };
            HostPlan {
                starts_at: 0,
                successor_of: None,
                resumes: None,
                clock_offset: 0,
                cost: MICRO * weak,
                wake: MICRO * weak,
            }
        };
        let mut world = World::new(Setting {
            seed: self.seed,
            hosts: (0..hosts).map(plan).collect(),
            weather: Weather {
                base: 5 * MICRO,
                jitter: 2 * MICRO,
                loss: self.loss,
                ..Weather::default()
            },
            segments: vec![SegmentPlan {
                name: "contested".to_owned(),
                pages: 1,
                policy: Policy::Sequential {
                    manager: self.manager,
                    window: self.window,
                },
                replicas: 0,
            }],
            ..Setting::default()
        });
        if let Slow::Far(nanos) = self.slow {
            world.network.put_far(self.slow_host(), nanos);
        }
        world.admit_all();
        world
    }

    /// Every host opens the segment, its home first, then repeats this work for ever.
    fn begin(self, world: &mut World, work: &[Step]) {
        for host in 0..world.hosts.len() {
            let seg = Seg::Main(0);
            let mut program = vec![
                Step::Open {
                    seg,
                    name: 0,
                    create: host == 0,
                    exclusive: host == 0,
                    write: true,
                },
                Step::Map(seg),
                Step::Begin,
            ];
            if host >= self.slow_host() {
                let mut work = work.to_vec();
                if let (true, Slow::Busy(nanos)) = (host == self.slow_host(), self.slow) {
                    work.push(Step::Think(nanos));
                }
                program.extend(work.iter().cycle().take(STEPS).cloned());
            }
            program.push(Step::Think(1 << 60));
            world.spawn_client(ClientPlan {
                host,
                programs: vec![program],
                farewell: Vec::new(),
            });
            let open = |world: &World| world.processes.clients[host].open[0].is_some();
            while !open(world) {
                world.step().unwrap();
            }
        }
    }

    /// The slow one's share of the turns, where a fair share is one.
    fn share(self, turns: &[u64]) -> f64 {
        let turns = &turns[self.slow_host()..];
        let all: u64 = turns.iter().sum();
        assert!(all > 50, "{all} turns in all: {self:?}");
        turns[0] as f64 / all as f64 * self.contenders as f64
    }

    /// How often each host became the owner of the page.
    fn for_a_page(self) -> f64 {
        let mut world = self.world();
        self.begin(&mut world, &[Step::Store(word(), None)]);
        let key = PageKey {
            segment: world.processes.clients[0].open[0].as_ref().unwrap().segment,
            page: PageIndex(0),
        };
        self.contend(&mut world, |world| world.checkers.golden.owner(key))
    }

    /// How often each host had the lock after another.
    fn for_a_lock(self) -> f64 {
        let mut world = self.world();
        let lock = Sync { seg: 0, number: 7 };
        let hold = Step::Locked {
            lock,
            patience: None,
            body: vec![Step::Think(MICRO)],
        };
        self.begin(&mut world, &[hold]);
        self.contend(&mut world, |world| {
            let thread: ThreadId = *world.processes.holders.values().next()?;
            Some((world.processes.host_of(thread), ()))
        })
    }

    fn contend<V: PartialEq>(
        self,
        world: &mut World,
        holder: impl Fn(&World) -> Option<(usize, V)>,
    ) -> f64 {
        let mut turns = vec![0; world.hosts.len()];
        let (mut last, end) = (None, Time(world.now.0 + CONTEST));
        while world.next_time().is_some_and(|next| next < end) {
            world.step().unwrap();
            let Some(now) = holder(world) else { continue };
            if last.as_ref() != Some(&now) {
                turns[now.0] += 1;
                last = Some(now);
            }
        }
        let running = |client: &crate::process::Client| client.alive;
        assert!(world.processes.clients.iter().all(running));
        let ended = |thread: &crate::process::Thread| thread.state == State::Ended;
        assert!(!world.processes.threads.iter().any(ended), "{self:?}");
        self.share(&turns)
    }
}

fn word() -> Place {
    Place {
        seg: Seg::Main(0),
        mapping: 0,
        page: 0,
        word: 0,
    }
}

/// Of a fair share. Of two contenders that is 40 % of the turns.
const FAIR: f64 = 0.8;

fn all() -> impl Iterator<Item = Contest> {
    let seeds = SLOW.into_iter().enumerate();
    seeds.map(|(seed, slow)| Contest::usual(seed as u64, slow))
}

#[test]
fn a_slow_host_gets_its_turns_at_a_page() {
    for usual in all() {
        for manager in [Manager::Dynamic, Manager::Fixed] {
            for window in [Window::Auto, Window::Nanos(0)] {
                let contest = Contest {
                    manager,
                    window,
                    ..usual
                };
                let share = contest.for_a_page();
                assert!((FAIR..2.0 - FAIR).contains(&share), "{share}: {contest:?}");
            }
        }
    }
}

#[test]
fn so_it_does_where_it_is_the_home() {
    for usual in all() {
        let contest = Contest {
            home_is_slow: true,
            ..usual
        };
        let share = contest.for_a_page();
        assert!((FAIR..2.0 - FAIR).contains(&share), "{share}: {contest:?}");
    }
}

#[test]
fn so_it_does_among_many() {
    for usual in all() {
        let contest = Contest {
            contenders: 5,
            ..usual
        };
        let share = contest.for_a_page();
        assert!(share >= FAIR, "{share}: {contest:?}");
    }
}

#[test]
fn so_it_does_where_datagrams_are_lost() {
    for usual in all() {
        let contest = Contest {
            loss: 10,
            contenders: 3,
            ..usual
        };
        let share = contest.for_a_page();
        assert!(share >= FAIR, "{share}: {contest:?}");
    }
}

/// Of two. A lock has no window: among three a host that takes longer to ask again than
/// the others to hand over a few times is not always in the queue.
#[test]
fn a_slow_host_gets_its_turns_at_a_lock() {
    for contest in all() {
        let share = contest.for_a_lock();
        assert!((FAIR..2.0 - FAIR).contains(&share), "{share}: {contest:?}");
    }
}
