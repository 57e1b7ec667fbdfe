//! Litmus tests: tiny parallel programs, run many times at once, and every
//! outcome that sequential consistency allows.

use std::collections::BTreeSet;
use std::fmt;

/// One access of a program to one of its places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Store this value there.
    Store(usize, u8),
    /// Load from there.
    Load(usize),
}

use Access::{Load, Store};

/// A program for a few threads.
#[derive(Clone, Copy, Debug)]
pub struct Litmus {
    /// Its usual name.
    pub name: &'static str,
    /// How many places its threads share; all are zero at first.
    pub places: usize,
    /// The accesses of each thread, in order.
    pub threads: &'static [&'static [Access]],
    /// The outcome it is known for, which must never be seen.
    pub famous: Famous,
}

/// An outcome, spelled out.
#[derive(Clone, Copy, Debug)]
pub struct Famous {
    /// The values that the loads saw, thread by thread.
    pub loads: &'static [&'static [u8]],
    /// The values in the places at the end.
    pub finals: &'static [u8],
}

/// The result of one run of a program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Outcome {
    /// The values that the loads saw, thread by thread.
    pub loads: Vec<Vec<u8>>,
    /// The values in the places at the end.
    pub finals: Vec<u8>,
}

/// The programs, by their usual names.
pub const ALL: [Litmus; 7] = [SB, MP, LB, CORR, COWW, IRIW, TWO_PLUS_TWO_W];

const X: usize = 0;
const Y: usize = 1;

/// Store buffering: both stores overtaken by the loads behind them.
pub const SB: Litmus = Litmus {
    name: "SB",
    places: 2,
    threads: &[&[Store(X, 1), Load(Y)], &[Store(Y, 1), Load(X)]],
    famous: Famous {
        loads: &[&[0], &[0]],
        finals: &[1, 1],
    },
};

/// Message passing: the flag is seen, the message is not.
pub const MP: Litmus = Litmus {
    name: "MP",
    places: 2,
    threads: &[&[Store(X, 1), Store(Y, 1)], &[Load(Y), Load(X)]],
    famous: Famous {
        loads: &[&[], &[1, 0]],
        finals: &[1, 1],
    },
};

/// Load buffering: both loads see stores that come after them.
pub const LB: Litmus = Litmus {
    name: "LB",
    places: 2,
    threads: &[&[Load(X), Store(Y, 1)], &[Load(Y), Store(X, 1)]],
    famous: Famous {
        loads: &[&[1], &[1]],
        finals: &[1, 1],
    },
};

/// Coherence of two loads: the older value is seen after the newer one.
pub const CORR: Litmus = Litmus {
    name: "CoRR",
    places: 1,
    threads: &[&[Store(X, 1)], &[Load(X), Load(X)], &[Load(X), Load(X)]],
    famous: Famous {
        loads: &[&[], &[1, 0], &[1, 1]],
        finals: &[1],
    },
};

/// Coherence of two stores: the first one wins. A reader makes the page travel.
pub const COWW: Litmus = Litmus {
    name: "CoWW",
    places: 1,
    threads: &[&[Store(X, 1), Store(X, 2)], &[Load(X)]],
    famous: Famous {
        loads: &[&[], &[2]],
        finals: &[1],
    },
};

/// Independent reads of independent writes: two readers see two orders.
pub const IRIW: Litmus = Litmus {
    name: "IRIW",
    places: 2,
    threads: &[
        &[Store(X, 1)],
        &[Store(Y, 1)],
        &[Load(X), Load(Y)],
        &[Load(Y), Load(X)],
    ],
    famous: Famous {
        loads: &[&[], &[], &[1, 0], &[1, 0]],
        finals: &[1, 1],
    },
};

/// Two writers of two places in opposite order: both first stores win.
pub const TWO_PLUS_TWO_W: Litmus = Litmus {
    name: "2+2W",
    places: 2,
    threads: &[&[Store(X, 1), Store(Y, 2)], &[Store(Y, 1), Store(X, 2)]],
    famous: Famous {
        loads: &[&[], &[]],
        finals: &[1, 1],
    },
};

impl Litmus {
    /// The program of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|litmus| litmus.name == name)
    }

    /// How many loads a thread makes.
    #[must_use]
    pub fn loads_of(&self, thread: usize) -> usize {
        let loads = self.threads[thread].iter();
        loads.filter(|access| matches!(access, Load(_))).count()
    }

    /// Every outcome that some interleaving of the threads leads to.
    #[must_use]
    pub fn allowed(&self) -> BTreeSet<Outcome> {
        let mut found = BTreeSet::new();
        self.explore(&mut vec![0; self.threads.len()], &self.start(), &mut found);
        found
    }

    /// The outcome it is known for.
    #[must_use]
    pub fn forbidden(&self) -> Outcome {
        Outcome {
            loads: self.famous.loads.iter().map(|seen| seen.to_vec()).collect(),
            finals: self.famous.finals.to_vec(),
        }
    }

    fn start(&self) -> Outcome {
        Outcome {
            loads: vec![Vec::new(); self.threads.len()],
            finals: vec![0; self.places],
        }
    }

    fn explore(&self, next: &mut [usize], so_far: &Outcome, found: &mut BTreeSet<Outcome>) {
        let mut over = true;
        for (thread, program) in self.threads.iter().enumerate() {
            let Some(access) = program.get(next[thread]) else {
                continue;
            };
            over = false;
            let mut after = so_far.clone();
            match *access {
                Store(place, value) => after.finals[place] = value,
                Load(place) => after.loads[thread].push(after.finals[place]),
            }
            next[thread] += 1;
            self.explore(next, &after, found);
            next[thread] -= 1;
        }
        if over {
            found.insert(so_far.clone());
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = |values: &[u8]| {
            values
                .iter()
                .map(|v| char::from(b'0' + v))
                .collect::<String>()
        };
        let loads: Vec<_> = self.loads.iter().map(|seen| digits(seen)).collect();
        write!(
            f,
            "loads {} finals {}",
            loads.join("|"),
            digits(&self.finals)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    #[test]
    fn the_famous_outcomes_are_not_sequentially_consistent() {
        for litmus in &ALL {
            let allowed = litmus.allowed();
            let forbidden = litmus.forbidden();
            assert!(
                !allowed.contains(&forbidden),
                "{}: {forbidden}",
                litmus.name
            );
            assert!(allowed.len() > 1, "{}", litmus.name);
        }
        assert_eq!(SB.allowed().len(), 3);
        assert_eq!(IRIW.allowed().len(), 15);
    }

    /// A memory that keeps no promise: every thread has copies that go stale,
    /// and its stores reach the others late and in any order.
    struct Weak {
        memory: Vec<u8>,
        copies: Vec<Vec<Option<u8>>>,
        late: Vec<(usize, u8)>,
    }

    impl Weak {
        fn new(litmus: &Litmus) -> Self {
            let copies = vec![None; litmus.places];
            Self {
                memory: vec![0; litmus.places],
                copies: vec![copies; litmus.threads.len()],
                late: Vec::new(),
            }
        }

        fn mischief(&mut self, dice: &mut Dice) {
            let thread = dice.below(self.copies.len());
            let place = dice.below(self.memory.len());
            if dice.once_in(2) {
                self.copies[thread][place] = Some(self.memory[place]);
            } else {
                self.copies[thread][place] = None;
            }
            if !self.late.is_empty() && dice.once_in(2) {
                let (place, value) = self.late.swap_remove(dice.below(self.late.len()));
                self.memory[place] = value;
            }
        }

        fn access(&mut self, thread: usize, access: Access) -> Option<u8> {
            match access {
                Store(place, value) => {
                    self.copies[thread][place] = Some(value);
                    self.late.push((place, value));
                    None
                }
                Load(place) => Some(self.copies[thread][place].unwrap_or(self.memory[place])),
            }
        }
    }

    /// One run on a weak memory whose loads may also be late.
    fn run_weakly(litmus: &Litmus, dice: &mut Dice) -> Outcome {
        let mut memory = Weak::new(litmus);
        let mut outcome = litmus.start();
        let mut left: Vec<Vec<(usize, Access)>> = litmus
            .threads
            .iter()
            .map(|program| program.iter().copied().enumerate().collect())
            .collect();
        let mut seen = vec![Vec::new(); left.len()];
        while left.iter().any(|program| !program.is_empty()) {
            memory.mischief(dice);
            let thread = dice.below(left.len());
            if left[thread].is_empty() {
                continue;
            }
            let which = dice.below(left[thread].len());
            let (number, access) = left[thread].remove(which);
            if let Some(value) = memory.access(thread, access) {
                seen[thread].push((number, value));
            }
        }
        while !memory.late.is_empty() {
            memory.mischief(dice);
        }
        for (loads, mut seen) in outcome.loads.iter_mut().zip(seen) {
            seen.sort_unstable();
            *loads = seen.into_iter().map(|(_, value)| value).collect();
        }
        outcome.finals = memory.memory;
        outcome
    }

    #[test]
    fn a_weak_memory_is_found_out_by_every_program() {
        let mut dice = Dice::new(1);
        for litmus in &ALL {
            let allowed = litmus.allowed();
            let caught = (0..10_000)
                .map(|_| run_weakly(litmus, &mut dice))
                .filter(|outcome| !allowed.contains(outcome))
                .count();
            assert!(caught > 0, "{} sees no difference", litmus.name);
        }
    }
}
