//! Random properly labelled programs: any two accesses of two threads to one byte, one of them at
//! least a store, are ordered by a lock or a barrier.
//!
//! Every byte that programs use belongs to a lock, or in each phase between two barriers to one
//! thread, or to none: then all may read it. Neighbouring bytes belong to different threads, so
//! pages have many writers.

use crate::dice::Dice;
use pagemesh_wire::peer::{Kind, Merge, Reduction};

/// One step of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Load(usize),
    Store(usize),
    /// Stores this value.
    Put(usize, u8),
    /// Stores to most bytes of the page of this byte.
    Fill(usize),
    Lock(u64),
    Unlock(u64),
    /// Announces that pages will be needed: from which on, and how many.
    Need(u32, u32),
    /// Declares one of the numbers.
    Declare(usize),
    /// Accumulates into a number, without a lock.
    Add(usize, u64),
    /// The number must have the value that all threads together gave it.
    Check(usize),
    /// For so many threads.
    Barrier(u32),
    /// The host leaves the cluster, when its other threads have ended.
    Leave,
    /// The host vanishes in so many nanoseconds, with all its threads.
    Crash(u64),
    /// The process dies in as many nanoseconds, at any step.
    Die(u64),
    Think(u64),
}

/// Bytes of a page that are used: neighbours, and the ends of the page.
const SPOTS: [usize; 14] = [0, 1, 2, 3, 7, 8, 9, 62, 63, 64, 65, 2047, 4094, 4095];

/// Where in each page the numbers are that threads accumulate into, and how. Byte
/// spots lie right before and behind.
pub(super) const NUMBERS: [Reduction; 4] = [
    number(16, Merge::Sum, Kind::U64),
    number(24, Merge::Sum, Kind::F32),
    number(28, Merge::Min, Kind::I32),
    number(54, Merge::Or, Kind::U16),
];

const fn number(offset: u64, merge: Merge, kind: Kind) -> Reduction {
    let length = match kind {
        Kind::U64 => 8,
        Kind::U16 => 2,
        _ => 4,
    };
    Reduction {
        offset,
        length,
        merge,
        kind,
    }
}

/// How long a thread takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Its last phase; none if it stays to the end.
    pub(super) last: Option<usize>,
    /// The end of the thread.
    pub(super) then: After,
}

/// The end of a thread after its last phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// Nothing.
    Ends,
    /// It lets its host leave.
    Leaves,
    /// Its host vanishes while it uses locks.
    Crashes,
    /// It uses locks until that happens.
    GoesOn,
    /// It dies while it uses locks.
    Dies,
}

/// The shape of all programs of a run.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) threads: usize,
    /// The part of each thread.
    pub(super) parts: Vec<Part>,
    pub(super) pages: usize,
    pub(super) locks: u64,
    /// Threads accumulate.
    pub(super) reduces: bool,
    pub(super) phases: usize,
    /// Phases after which the assignment of bytes to threads repeats.
    pub(super) rhythm: usize,
    /// How often a lock is taken, of a thousand times.
    pub(super) sections: u32,
    /// How often threads announce pages, of a thousand steps.
    pub(super) announced: u32,
    /// Threads go from page to page.
    pub(super) walks: bool,
    /// Pages belong to threads as wholes: each has a block of them, another one in another phase, and
    /// stores to it in even phases. In odd ones all pages may be loaded from.
    pub(super) blocks: bool,
    seed: u64,
}

/// The threads that may use a byte.
enum Class {
    Lock(u64),
    Thread(usize),
    Nobody,
}

impl Shape {
    pub(super) fn new(dice: &mut Dice, threads: usize) -> Self {
        let stays = Part {
            last: None,
            then: After::Ends,
        };
        let mut shape = Self {
            threads,
            parts: vec![stays; threads],
            pages: dice.between(1, 5) as usize,
            locks: dice.between(1, 3),
            reduces: dice.chance(500),
            phases: dice.between(1, 6) as usize,
            rhythm: usize::MAX,
            sections: 400,
            announced: 0,
            walks: false,
            blocks: false,
            seed: dice.number(),
        };
        // Drawn from a stream of its own: half of all seeds run as they did before this was added.
        shape.announced = *Dice::stream(shape.seed, "announced").pick(&[0, 0, 30, 200]);
        shape
    }

    fn class(&self, byte: usize, phase: usize) -> Class {
        if self.blocks {
            let block = byte / pagemesh_diff::PAGE * self.threads / self.pages;
            return match phase % 2 {
                0 => Class::Thread((block + phase / 2 % self.rhythm) % self.threads),
                _ => Class::Nobody,
            };
        }
        let mix = |more: u64| {
            let mut dice = Dice::stream(self.seed ^ (byte as u64) << 20 ^ more, "class");
            dice.number()
        };
        let kind = mix(1);
        if kind % 3 == 0 {
            return Class::Lock(mix(2) % self.locks);
        }
        match mix(3 + (phase % self.rhythm) as u64) as usize % (self.threads + 2) {
            thread if thread < self.threads => Class::Thread(thread),
            _ => Class::Nobody,
        }
    }

    fn byte(&self, dice: &mut Dice) -> usize {
        dice.index(self.pages) * pagemesh_diff::PAGE + *dice.pick(&SPOTS)
    }

    /// An access that others may make at the same time.
    pub(super) fn race(&self, dice: &mut Dice) -> Step {
        let byte = self.byte(dice);
        if dice.chance(500) {
            Step::Store(byte)
        } else {
            Step::Load(byte)
        }
    }

    /// The program of one thread.
    pub(super) fn program(&self, dice: &mut Dice, thread: usize) -> Vec<Step> {
        let mut apart = Dice::stream(self.seed ^ thread as u64, "needs");
        let mut steps = Vec::new();
        for step in self.accesses(dice, thread) {
            if apart.chance(self.announced) {
                let first = apart.index(self.pages);
                let count = 1 + apart.index(self.pages - first);
                steps.push(Step::Need(first as u32, count as u32));
            }
            steps.push(step);
        }
        steps
    }

    fn accesses(&self, dice: &mut Dice, thread: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        let part = self.parts[thread];
        if self.reduces {
            let numbers = 0..self.pages * NUMBERS.len();
            let declared = numbers.filter(|_| thread == 0).map(Step::Declare);
            steps.extend(declared);
            steps.push(Step::Barrier(self.parties(0)));
        }
        for phase in 0..part.last.map_or(self.phases, |last| last + 1) {
            for _ in 0..if self.walks { dice.between(1, 3) } else { 0 } {
                self.walk(dice, phase, thread, &mut steps);
            }
            for _ in 0..dice.between(2, 10) {
                if dice.chance(self.sections) {
                    self.section(dice, phase, &mut steps);
                } else {
                    self.free(dice, phase, thread, &mut steps);
                }
                if self.reduces && dice.chance(300) {
                    self.numbers(dice, phase, &mut steps);
                }
                if dice.chance(200) {
                    steps.push(Step::Think(dice.between(1_000, 3_000_000)));
                }
            }
            steps.push(Step::Barrier(self.parties(phase)));
        }
        match (part.last, part.then) {
            (None, _) => self.look_at_everything(&mut steps),
            (_, After::Ends) => {}
            (_, After::Leaves) => steps.push(Step::Leave),
            (_, After::Crashes) => {
                steps.push(Step::Crash(dice.between(1_000, 2_000_000)));
                self.go_on_with_locks(dice, &mut steps);
            }
            (_, After::GoesOn) => self.go_on_with_locks(dice, &mut steps),
            (_, After::Dies) => {
                steps.push(Step::Die(dice.between(1_000, 2_000_000)));
                self.go_on_with_locks(dice, &mut steps);
            }
        }
        steps
    }

    fn go_on_with_locks(&self, dice: &mut Dice, steps: &mut Vec<Step>) {
        for _ in 0..30 {
            self.section(dice, 0, steps);
            steps.push(Step::Think(dice.between(1_000, 100_000)));
        }
        // All processes that are to die have died by then.
        steps.push(Step::Think(10_000_000));
    }

    /// Whether hosts vanish.
    pub(super) fn has_crashes(&self) -> bool {
        self.parts.iter().any(|part| part.then == After::Crashes)
    }

    /// Threads that take part in a phase.
    fn parties(&self, phase: usize) -> u32 {
        let takes_part = |part: &&Part| part.last.is_none_or(|last| phase <= last);
        self.parts.iter().filter(takes_part).count() as u32
    }

    /// In the end every remaining thread loads all bytes.
    fn look_at_everything(&self, steps: &mut Vec<Step>) {
        if self.reduces {
            let numbers = 0..self.pages * NUMBERS.len();
            steps.extend(numbers.map(Step::Check));
        }
        for page in 0..self.pages {
            for spot in SPOTS {
                let byte = page * pagemesh_diff::PAGE + spot;
                match self.class(byte, 0) {
                    Class::Lock(lock) => {
                        let section = [Step::Lock(lock), Step::Load(byte), Step::Unlock(lock)];
                        steps.extend(section);
                    }
                    _ => steps.push(Step::Load(byte)),
                }
            }
        }
        // The home of the barriers may be the one that vanished.
        if !self.has_crashes() {
            steps.push(Step::Barrier(self.parties(self.phases)));
        }
    }

    /// Numbers of all pages: accumulated into in even phases, looked at in odd ones.
    fn numbers(&self, dice: &mut Dice, phase: usize, steps: &mut Vec<Step>) {
        for _ in 0..dice.between(1, 4) {
            let at = dice.index(self.pages) * NUMBERS.len() + dice.index(NUMBERS.len());
            steps.push(if phase.is_multiple_of(2) {
                Step::Add(at, dice.below(1000))
            } else {
                Step::Check(at)
            });
        }
    }

    /// A critical section.
    pub(super) fn section(&self, dice: &mut Dice, phase: usize, steps: &mut Vec<Step>) {
        let lock = dice.below(self.locks);
        steps.push(Step::Lock(lock));
        for _ in 0..dice.between(1, 12) {
            let byte = self.byte(dice);
            if matches!(self.class(byte, phase), Class::Lock(of) if of == lock) {
                let store = dice.chance(500);
                steps.push(if store {
                    Step::Store(byte)
                } else {
                    Step::Load(byte)
                });
            }
        }
        if dice.chance(150) {
            steps.push(Step::Think(dice.between(1_000, 500_000)));
        }
        steps.push(Step::Unlock(lock));
    }

    /// Accesses to page after page, forward or back.
    fn walk(&self, dice: &mut Dice, phase: usize, thread: usize, steps: &mut Vec<Step>) {
        let mut pages: Vec<usize> = if self.blocks && phase.is_multiple_of(2) {
            let owned = |page: &usize| {
                let class = self.class(page * pagemesh_diff::PAGE, phase);
                matches!(class, Class::Thread(owner) if owner == thread)
            };
            (0..self.pages).filter(owned).collect()
        } else {
            let first = dice.index(self.pages);
            (first..self.pages).collect()
        };
        if dice.chance(300) {
            pages.reverse();
        }
        pages.truncate(dice.between(3, pages.len().max(4) as u64) as usize);
        let (stores, fills) = (dice.chance(600), dice.chance(700));
        for page in pages {
            let start = page * pagemesh_diff::PAGE;
            let spot = |class: &dyn Fn(Class) -> bool| {
                let mut bytes = SPOTS.iter().map(|spot| start + spot);
                bytes.find(|byte| class(self.class(*byte, phase)))
            };
            let mine = spot(&|class| matches!(class, Class::Thread(owner) if owner == thread));
            let step = match (mine, stores) {
                (Some(byte), true) if self.blocks && fills => Some(Step::Fill(byte)),
                (Some(byte), true) => Some(Step::Store(byte)),
                (Some(byte), false) => Some(Step::Load(byte)),
                (None, _) => spot(&|class| matches!(class, Class::Nobody)).map(Step::Load),
            };
            steps.extend(step);
        }
    }

    /// Accesses that barriers order.
    fn free(&self, dice: &mut Dice, phase: usize, thread: usize, steps: &mut Vec<Step>) {
        for _ in 0..dice.between(1, 12) {
            let byte = self.byte(dice);
            match self.class(byte, phase) {
                Class::Thread(owner) if owner == thread => {
                    let store = dice.chance(600);
                    steps.push(if store {
                        Step::Store(byte)
                    } else {
                        Step::Load(byte)
                    });
                }
                Class::Nobody => steps.push(Step::Load(byte)),
                _ => {}
            }
        }
    }
}
