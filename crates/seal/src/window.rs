//! The replay window: which datagrams of a session have been opened before.

/// A window over the counters of a session; its span bounds the reordering that is tolerated.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// One more than the highest counter seen.
    end: u64,
    /// A bit for each of the last [`SPAN`] counters, by counter modulo span.
    seen: [u64; WORDS],
}

const WORDS: usize = 256;

/// A datagram is refused if this many later ones have arrived before it: pages wait in a daemon while a
/// link is slow, 16 MiB of them at most, and small datagrams pass them.
pub(crate) const SPAN: u64 = (WORDS * 64) as u64;

impl Default for Window {
    fn default() -> Self {
        Self {
            end: 0,
            seen: [0; WORDS],
        }
    }
}

impl Window {
    /// A window in which all counters before `next` count as seen.
    pub(crate) const fn starting(next: u64) -> Self {
        Self {
            end: next,
            seen: [u64::MAX; WORDS],
        }
    }

    /// True if the counter was not seen before and is inside the window.
    pub(crate) fn is_new(&self, counter: u64) -> bool {
        if counter >= self.end {
            return true;
        }
        self.end - counter <= SPAN && self.seen[word(counter)] & bit(counter) == 0
    }

    /// Notes the counter of an authenticated datagram.
    pub(crate) fn note(&mut self, counter: u64) {
        if counter >= self.end {
            let skipped = counter - self.end;
            if skipped >= SPAN {
                self.seen = [0; WORDS];
            } else {
                (self.end..=counter).for_each(|old| self.seen[word(old)] &= !bit(old));
            }
            self.end = counter + 1;
        }
        self.seen[word(counter)] |= bit(counter);
    }
}

const fn word(counter: u64) -> usize {
    (counter / 64) as usize % WORDS
}

const fn bit(counter: u64) -> u64 {
    1 << (counter % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn agrees_with_a_set(counters in proptest::collection::vec(0_u64..6000, 0..400)) {
            let (mut window, mut seen, mut highest) = (Window::default(), HashSet::new(), 0);
            for counter in counters {
                let fresh = !seen.contains(&counter) && counter + SPAN > highest;
                prop_assert_eq!(window.is_new(counter), fresh, "{}", counter);
                if fresh {
                    window.note(counter);
                    seen.insert(counter);
                    highest = highest.max(counter);
                }
            }
        }
    }
}
