//! Random properly labelled programs: whatever two threads do to one byte, one of
//! them at least a store, is ordered by a lock or a barrier.
//!
//! Every byte that programs use belongs to a lock, or in each phase between two
//! barriers to one thread, or to nobody: then all may read it. Neighbouring
//! bytes belong to different threads, so pages have many writers.

use crate::dice::Dice;

/// One step of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Load(usize),
    Store(usize),
    Lock(u64),
    Unlock(u64),
    Barrier,
    Think(u64),
}

/// Bytes of a page that are used: neighbours, and the ends of the page.
const SPOTS: [usize; 14] = [0, 1, 2, 3, 7, 8, 9, 62, 63, 64, 65, 2047, 4094, 4095];

/// The shape of all programs of a run.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) threads: usize,
    pub(super) pages: usize,
    pub(super) locks: u64,
    phases: usize,
    seed: u64,
}

/// Who may use a byte.
enum Class {
    Lock(u64),
    Thread(usize),
    Nobody,
}

impl Shape {
    pub(super) fn new(dice: &mut Dice, threads: usize) -> Self {
        Self {
            threads,
            pages: dice.between(1, 5) as usize,
            locks: dice.between(1, 3),
            phases: dice.between(1, 6) as usize,
            seed: dice.number(),
        }
    }

    fn class(&self, byte: usize, phase: usize) -> Class {
        let mix = |more: u64| {
            let mut dice = Dice::stream(self.seed ^ (byte as u64) << 20 ^ more, "class");
            dice.number()
        };
        let kind = mix(1);
        if kind % 3 == 0 {
            return Class::Lock(mix(2) % self.locks);
        }
        match mix(3 + phase as u64) as usize % (self.threads + 2) {
            thread if thread < self.threads => Class::Thread(thread),
            _ => Class::Nobody,
        }
    }

    fn byte(&self, dice: &mut Dice) -> usize {
        dice.index(self.pages) * pagemesh_diff::PAGE + *dice.pick(&SPOTS)
    }

    /// What one thread does.
    pub(super) fn program(&self, dice: &mut Dice, thread: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        for phase in 0..self.phases {
            for _ in 0..dice.between(2, 10) {
                if dice.chance(400) {
                    self.section(dice, phase, &mut steps);
                } else {
                    self.free(dice, phase, thread, &mut steps);
                }
                if dice.chance(200) {
                    steps.push(Step::Think(dice.between(1_000, 3_000_000)));
                }
            }
            steps.push(Step::Barrier);
        }
        // In the end everybody looks at everything.
        for page in 0..self.pages {
            for spot in SPOTS {
                let byte = page * pagemesh_diff::PAGE + spot;
                if !matches!(self.class(byte, 0), Class::Lock(_)) {
                    steps.push(Step::Load(byte));
                }
            }
        }
        steps.push(Step::Barrier);
        steps
    }

    /// A critical section.
    fn section(&self, dice: &mut Dice, phase: usize, steps: &mut Vec<Step>) {
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
