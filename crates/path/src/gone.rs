//! Which messages of a stream are finished: completed, or given up.

/// A window over the message numbers up to the newest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gone {
    /// One more than the newest number; zero if there is none.
    end: u64,
    seen: [u64; WORDS],
}

const WORDS: usize = 16;

/// Number of message numbers that are remembered; older messages count as finished.
pub(crate) const REMEMBERED: u64 = 64 * WORDS as u64;

impl Gone {
    /// True if the message with this number is finished.
    pub(crate) fn has(&self, number: u32) -> bool {
        let number = u64::from(number);
        number < self.end && (self.end - number > REMEMBERED || self.bit(number))
    }

    /// Notes that a message is finished.
    pub(crate) fn note(&mut self, number: u32) {
        let number = u64::from(number);
        if number >= self.end {
            let first = self.end.max((number + 1).saturating_sub(REMEMBERED));
            for cleared in first..=number {
                let (word, bit) = place(cleared);
                self.seen[word] &= !bit;
            }
            self.end = number + 1;
        } else if self.end - number > REMEMBERED {
            return;
        }
        let (word, bit) = place(number);
        self.seen[word] |= bit;
    }

    fn bit(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        self.seen[word] & bit != 0
    }
}

fn place(number: u64) -> (usize, u64) {
    let at = number % REMEMBERED;
    (at as usize / 64, 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn remembers_as_a_set_would(numbers in prop::collection::vec(0u32..5000, 1..200)) {
            let (mut gone, mut all) = (Gone::default(), BTreeSet::new());
            for number in numbers {
                gone.note(number);
                all.insert(number);
                let newest = u64::from(*all.last().expect("one was just put in"));
                for asked in (0..5100).step_by(7).chain(all.iter().copied()) {
                    let old = u64::from(asked) + REMEMBERED <= newest;
                    let expected = all.contains(&asked) || old;
                    prop_assert_eq!(gone.has(asked), expected, "{} of {}", asked, newest);
                }
            }
        }
    }

    #[test]
    fn the_last_number_is_a_number() {
        let mut gone = Gone::default();
        gone.note(u32::MAX);
        assert!(gone.has(u32::MAX) && gone.has(0) && !gone.has(u32::MAX - 1));
    }
}
