//! Random numbers from one seed, with one named stream for each purpose.
//!
//! Streams are derived from the seed by name, so that a change to the workload does not shift the
//! random numbers of the network. The generator and every mapping from its numbers are fixed
//! here: a seed always means the same run.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// One stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Dice(Xoshiro256PlusPlus);

impl Dice {
    /// The stream of this name that belongs to `seed`.
    pub(crate) fn stream(seed: u64, name: &str) -> Self {
        let mut state = 0xcbf2_9ce4_8422_2325_u64 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for byte in name.bytes() {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Self(Xoshiro256PlusPlus::seed_from_u64(state))
    }

    /// Any number.
    pub(crate) fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number from 0 to `limit`, exclusive; 0 if `limit` is 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(limit)) >> 64) as u64
    }

    /// An index into a slice of this length.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// A number from `low` to `high`, inclusive.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True with a probability of `per_mille` thousandths.
    pub(crate) fn chance(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.below(1000) < u64::from(per_mille)
    }

    /// One of the choices.
    pub(crate) fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ() {
        let draw = |seed, name| {
            let mut dice = Dice::stream(seed, name);
            [dice.number(), dice.number(), dice.below(1000)]
        };
        assert_eq!(draw(1, "network"), draw(1, "network"));
        assert_ne!(draw(1, "network"), draw(2, "network"));
        assert_ne!(draw(1, "network"), draw(1, "faults"));
    }

    #[test]
    fn a_seed_means_the_same_run_for_ever() {
        let mut dice = Dice::stream(42, "network");
        let first: Vec<u64> = (0..4).map(|_| dice.below(1_000_000)).collect();
        assert_eq!(first, [773_223, 624_085, 625_615, 356_824], "golden draws");
    }

    #[test]
    fn ranges_hold() {
        let mut dice = Dice::stream(7, "ranges");
        for _ in 0..1000 {
            assert!((3..=5).contains(&dice.between(3, 5)));
            assert!(dice.below(4) < 4);
        }
        assert!(!dice.chance(0));
        assert!(dice.chance(1000));
    }
}
