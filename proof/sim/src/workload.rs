//! Random programs: the accesses of a seed's processes to memory.

use crate::dice::Dice;
use crate::golden::WORDS;
use crate::plan::Features;
use crate::step::{BarrierPlan, ClientPlan, Place, QueuePlan, Seg, Step, Sync};
use crate::world::Setting;

/// Words of a page that random loads and stores use; the others have meanings.
const FREE_WORDS: usize = 4;
/// Incremented under lock.
const COUNTER: usize = 4;
/// Produced and not consumed.
const QUEUE: usize = 5;
/// Rises; watched.
const NEWS: usize = 6;
/// Each barrier's parties leave their marks here.
const PHASE: usize = 7;
const _: () = assert!(PHASE < WORDS);

/// The lock of a segment that one saving process at a time holds.
const SAVERS: u64 = 3000;

/// The task of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Loads, stores, increments; comes to this barrier.
    Worker(Option<usize>),
    /// Opens, uses, closes and removes a segment of its own.
    Tenant,
    /// Produces so many.
    Producer(usize, u64),
    /// Consumes so many.
    Consumer(usize, u64),
    /// Publishes so many news.
    Publisher(u64),
    /// Waits for them.
    Watcher(u64),
}

struct Workload<'a> {
    dice: &'a mut Dice,
    /// For walks, so that the rest of a seed stays as it is without them.
    strolls: Dice,
    /// The same for holds.
    holds: Dice,
    features: Features,
    setting: &'a mut Setting,
    mains: usize,
    rounds: u64,
}

/// The processes of a seed; queues and barriers are added to the setting.
pub(crate) fn draw(
    dice: &mut Dice,
    features: Features,
    setting: &mut Setting,
    mains: usize,
    doomed: &[usize],
) -> Vec<ClientPlan> {
    let rounds = dice.between(1, 4);
    let mut workload = Workload {
        dice,
        strolls: Dice::stream(setting.seed, "steps"),
        holds: Dice::stream(setting.seed, "saves"),
        features,
        setting,
        mains,
        rounds,
    };
    let cast = workload.cast(doomed);
    let creators = workload.creators(&cast, doomed);
    let mut clients = Vec::new();
    for (client, (host, roles, mortal)) in cast.into_iter().enumerate() {
        let creates: Vec<bool> = creators.iter().map(|by| by.contains(&client)).collect();
        clients.push(workload.client(host, &roles, mortal, &creates));
    }
    clients
}

/// A host, the roles of a process's threads there, and whether it may die.
type Part = (usize, Vec<Role>, bool);

/// Assigns the roles.
impl Workload<'_> {
    fn cast(&mut self, doomed: &[usize]) -> Vec<Part> {
        let hosts = self.setting.hosts.len();
        let mut cast: Vec<Part> = Vec::new();
        for host in 0..hosts {
            let clients = self.dice.between(1, 2);
            for _ in 0..clients {
                let may_die = self.features.client_deaths && self.dice.chance(300);
                let somebody_stays = cast.iter().any(|part| !part.2);
                let mortal = doomed.contains(&host) || may_die && somebody_stays;
                let threads = self.dice.between(1, 3);
                let roles = (0..threads).map(|_| self.plain_role()).collect();
                cast.push((host, roles, mortal));
            }
        }
        if self.features.barriers {
            self.cast_barriers(&mut cast);
        }
        if self.features.queues {
            self.cast_queue(&mut cast);
        }
        if self.features.watches {
            self.cast_news(&mut cast);
        }
        cast
    }

    fn plain_role(&mut self) -> Role {
        if self.features.tenants && self.dice.chance(300) {
            Role::Tenant
        } else {
            Role::Worker(None)
        }
    }

    /// Makes workers of immortal processes come to one of a few barriers.
    fn cast_barriers(&mut self, cast: &mut [Part]) {
        let count = self.dice.between(1, 2) as usize;
        let mut parties = vec![0; count];
        for (_, roles, _) in cast.iter_mut().filter(|(.., mortal)| !mortal) {
            for role in roles.iter_mut().filter(|role| **role == Role::Worker(None)) {
                if self.dice.chance(700) {
                    let barrier = self.dice.index(count);
                    *role = Role::Worker(Some(barrier));
                    parties[barrier] += 1;
                }
            }
        }
        for (at, parties) in parties.into_iter().enumerate() {
            let sync = Sync {
                seg: self.dice.index(self.mains),
                number: 1000 + at as u64,
            };
            self.setting.barriers.push(BarrierPlan { sync, parties });
        }
    }

    fn cast_queue(&mut self, cast: &mut [Part]) {
        let seg = self.dice.index(self.mains);
        let page = self.dice.below(u64::from(self.setting.segments[seg].pages)) as u32;
        let queue = self.setting.queues.len();
        self.setting.queues.push(QueuePlan {
            lock: Sync { seg, number: 2000 },
            cond: Sync { seg, number: 2001 },
            count: Place {
                seg: Seg::Main(seg),
                mapping: 0,
                page,
                word: QUEUE,
            },
        });
        let each = self.dice.between(1, 4);
        let pairs = self.dice.between(1, 2);
        for _ in 0..pairs {
            self.add_role(cast, Role::Producer(queue, each));
            self.add_role(cast, Role::Consumer(queue, each));
        }
    }

    fn cast_news(&mut self, cast: &mut [Part]) {
        let news = self.dice.between(1, 5);
        self.add_role(cast, Role::Publisher(news));
        for _ in 0..self.dice.between(1, 3) {
            self.add_role(cast, Role::Watcher(news));
        }
    }

    /// Gives some immortal process one more thread.
    fn add_role(&mut self, cast: &mut [Part], role: Role) {
        let immortal: Vec<usize> = (0..cast.len()).filter(|at| !cast[*at].2).collect();
        let at = *self.dice.pick(&immortal);
        cast[at].1.push(role);
    }

    /// For each main segment the clients that may create it; none of them dies.
    fn creators(&mut self, cast: &[Part], doomed: &[usize]) -> Vec<Vec<usize>> {
        let safe: Vec<usize> = (0..cast.len())
            .filter(|at| !cast[*at].2 && !doomed.contains(&cast[*at].0))
            .collect();
        (0..self.mains)
            .map(|_| {
                if self.features.home_anywhere {
                    safe.clone()
                } else {
                    vec![*self.dice.pick(&safe)]
                }
            })
            .collect()
    }
}

/// Programs.
impl Workload<'_> {
    fn client(
        &mut self,
        host: usize,
        roles: &[Role],
        mortal: bool,
        creates: &[bool],
    ) -> ClientPlan {
        let several = self.features.several_mappings && self.dice.chance(500);
        let mappings = if several { 2 } else { 1 };
        let mut setup = Vec::new();
        for (name, create) in creates.iter().enumerate() {
            let seg = Seg::Main(name);
            let open = Step::Open {
                seg,
                name,
                create: *create,
                exclusive: false,
                write: true,
            };
            setup.push(open);
            setup.extend(std::iter::repeat_n(Step::Map(seg), mappings));
        }
        setup.push(Step::Begin);
        let mut programs: Vec<Vec<Step>> = roles.iter().map(|role| self.program(*role)).collect();
        setup.append(&mut programs[0]);
        programs[0] = setup;
        if self.features.races {
            self.race(&mut programs[0]);
        }
        let farewell = if mortal { Vec::new() } else { self.farewell() };
        ClientPlan {
            host,
            programs,
            farewell,
        }
    }

    /// Creates a name alone, as others try, too, and leaves it there.
    fn race(&mut self, program: &mut Vec<Step>) {
        let name = self.setting.segments.len() - 1;
        program.push(Step::Open {
            seg: Seg::Own,
            name,
            create: true,
            exclusive: true,
            write: true,
        });
        program.push(Step::Close(Seg::Own));
    }

    fn farewell(&mut self) -> Vec<Step> {
        // Some processes just exit.
        if self.dice.chance(300) {
            return vec![Step::Think(1_000)];
        }
        (0..self.mains)
            .flat_map(|number| {
                [
                    Step::Unmap(Seg::Main(number)),
                    Step::Close(Seg::Main(number)),
                ]
            })
            .collect()
    }

    fn program(&mut self, role: Role) -> Vec<Step> {
        match role {
            Role::Worker(barrier) => self.worker(barrier),
            Role::Tenant => self.tenant(),
            Role::Producer(queue, count) => self.producer(queue, count),
            Role::Consumer(queue, count) => {
                let lock = self.setting.queues[queue].lock;
                let consume = Step::Locked {
                    lock,
                    patience: None,
                    body: vec![Step::TryConsume(queue)],
                };
                vec![consume; count as usize]
            }
            Role::Publisher(news) => self.publisher(news),
            Role::Watcher(news) => (1..=news).map(|n| Step::WatchFor(self.news(), n)).collect(),
        }
    }

    fn worker(&mut self, barrier: Option<usize>) -> Vec<Step> {
        let mut steps = Vec::new();
        for _ in 0..self.rounds {
            for _ in 0..self.dice.between(2, 12) {
                self.random_step(&mut steps);
            }
            if self.features.strolls && self.strolls.chance(500) {
                self.stroll(&mut steps);
            }
            if self.features.holds && self.holds.chance(300) {
                self.save(&mut steps);
            }
            if let Some(barrier) = barrier {
                let seg = self.setting.barriers[barrier].sync.seg;
                let mark = Place {
                    seg: Seg::Main(seg),
                    mapping: 0,
                    page: 0,
                    word: PHASE,
                };
                steps.push(Step::Store(mark, None));
                steps.push(Step::Barrier(barrier));
                steps.push(Step::Load(mark));
            }
        }
        steps
    }

    /// Steps of equal length through a segment, loading, storing, or both.
    fn stroll(&mut self, steps: &mut Vec<Step>) {
        let dice = &mut self.strolls;
        let seg = dice.index(self.mains);
        let pages = i64::from(self.setting.segments[seg].pages);
        let stride = *dice.pick(&[1, 1, 1, -1, 2, 3]);
        let (mapping, word) = (dice.index(2), dice.index(FREE_WORDS));
        let (loads, stores) = *dice.pick(&[(true, false), (false, true), (true, true)]);
        let mut page = dice.below(pages as u64) as i64;
        for _ in 0..dice.between(4, 24) {
            let place = Place {
                seg: Seg::Main(seg),
                mapping,
                page: page as u32,
                word,
            };
            steps.extend(loads.then_some(Step::Load(place)));
            steps.extend(stores.then_some(Step::Store(place, None)));
            page = (page + stride).rem_euclid(pages);
        }
    }

    fn random_step(&mut self, steps: &mut Vec<Step>) {
        let features = self.features;
        match self.dice.below(20) {
            0 if features.pins => self.pin(steps),
            1 if features.inquiries => {
                let step = self.inquiry();
                steps.push(step);
            }
            2 if features.watches => {
                let patience = self.dice.between(10_000, 2_000_000);
                steps.push(Step::WatchBriefly(self.anywhere(), patience));
            }
            3..=6 if features.locks => {
                let step = self.critical();
                steps.push(step);
            }
            3..=11 => steps.push(Step::Load(self.anywhere())),
            12 => steps.push(Step::Think(self.dice.below(200_000))),
            _ => steps.push(Step::Store(self.anywhere(), None)),
        }
    }

    fn anywhere(&mut self) -> Place {
        let seg = self.dice.index(self.mains);
        Place {
            seg: Seg::Main(seg),
            mapping: self.dice.index(2),
            page: self.dice.below(u64::from(self.setting.segments[seg].pages)) as u32,
            word: self.dice.index(FREE_WORDS),
        }
    }

    /// An increment under a lock; the counter belongs to the lock.
    fn critical(&mut self) -> Step {
        let seg = self.dice.index(self.mains);
        let page = self
            .dice
            .below(u64::from(self.setting.segments[seg].pages).min(2)) as u32;
        let counter = Place {
            seg: Seg::Main(seg),
            mapping: 0,
            page,
            word: COUNTER,
        };
        let mut body = vec![Step::Add(counter, 1)];
        if self.dice.chance(300) {
            body.push(Step::Store(self.anywhere(), None));
        }
        let impatient = self.features.impatience && self.dice.chance(400);
        let patience = impatient.then(|| self.dice.between(1_000, 500_000));
        Step::Locked {
            lock: Sync {
                seg,
                number: u64::from(page),
            },
            patience,
            body,
        }
    }

    fn pin(&mut self, steps: &mut Vec<Step>) {
        let seg = self.dice.index(self.mains);
        let pages = u64::from(self.setting.segments[seg].pages);
        let first = self.dice.below(pages) as u32;
        let count = self.dice.between(1, pages - u64::from(first)) as u32;
        steps.push(Step::Pin { seg, first, count });
        for page in first..first + count {
            let word = self.dice.index(FREE_WORDS);
            let place = Place {
                seg: Seg::Main(seg),
                mapping: 0,
                page,
                word,
            };
            steps.push(Step::Store(place, None));
        }
        steps.push(Step::Unpin { seg, first, count });
    }

    /// Holds a segment, and copies it. As those who save do, under a lock of the segment: two holds on
    /// two nodes at once may each keep what the other one waits for.
    fn save(&mut self, steps: &mut Vec<Step>) {
        let seg = self.holds.index(self.mains);
        let mut body = vec![Step::Hold(seg)];
        for page in 0..self.setting.segments[seg].pages {
            body.push(Step::Load(Place {
                seg: Seg::Main(seg),
                mapping: 0,
                page,
                word: self.holds.index(FREE_WORDS),
            }));
        }
        body.push(Step::Think(self.holds.below(300_000)));
        body.push(Step::EndHold(seg));
        let number = SAVERS;
        steps.push(Step::Locked {
            lock: Sync { seg, number },
            patience: None,
            body,
        });
    }

    fn inquiry(&mut self) -> Step {
        match self.dice.below(3) {
            0 => Step::Probe(self.dice.index(self.setting.hosts.len())),
            1 => Step::Stat(self.dice.index(self.setting.segments.len())),
            _ => Step::List,
        }
    }

    fn tenant(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        let races = usize::from(self.features.races);
        let lets = self.setting.segments.len() - self.mains - races;
        for _ in 0..self.rounds {
            let name = self.mains + self.dice.index(lets);
            steps.push(Step::Open {
                seg: Seg::Own,
                name,
                create: true,
                exclusive: false,
                write: true,
            });
            steps.push(Step::Map(Seg::Own));
            for _ in 0..self.dice.between(1, 6) {
                let page = self
                    .dice
                    .below(u64::from(self.setting.segments[name].pages))
                    as u32;
                let word = self.dice.index(FREE_WORDS);
                let place = Place {
                    seg: Seg::Own,
                    mapping: 0,
                    page,
                    word,
                };
                let store = self.dice.chance(500);
                steps.push(if store {
                    Step::Store(place, None)
                } else {
                    Step::Load(place)
                });
            }
            if self.dice.chance(300) {
                steps.push(Step::Remove(name));
            }
            steps.push(Step::Unmap(Seg::Own));
            steps.push(Step::Close(Seg::Own));
            steps.push(Step::Think(self.dice.below(100_000)));
        }
        steps
    }

    fn producer(&mut self, queue: usize, count: u64) -> Vec<Step> {
        let QueuePlan {
            lock,
            cond,
            count: place,
        } = self.setting.queues[queue];
        let mut steps = Vec::new();
        for _ in 0..count {
            steps.push(Step::Think(self.dice.below(300_000)));
            let all = self.dice.chance(300);
            let body = vec![Step::Add(place, 1), Step::Signal { cond, all }];
            steps.push(Step::Locked {
                lock,
                patience: None,
                body,
            });
        }
        steps
    }

    fn news(&self) -> Place {
        Place {
            seg: Seg::Main(0),
            mapping: 0,
            page: 0,
            word: NEWS,
        }
    }

    fn publisher(&mut self, news: u64) -> Vec<Step> {
        let mut steps = Vec::new();
        for number in 1..=news {
            steps.push(Step::Think(self.dice.below(500_000)));
            steps.push(Step::Store(self.news(), Some(number)));
        }
        steps
    }
}
