//! Whether stores follow loads: a page that comes for a load and is stored to next would fault twice.
//!
//! Every eighth page that comes for a load is a check: it is mapped for loading, and a store to it
//! faults. As long as nearly all checks are stored to, the other pages are mapped for storing at
//! once. A wrong guess costs a write to the disk and a putpage, since such a page counts as stored
//! to when it leaves.

use pagemesh_wire::PageIndex;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Every so many pages one is a check.
const CHECK: u8 = 8;

/// Checks that wait for their store at most. Pages are fetched many at once, long before the thread
/// comes to them.
const WAITING: usize = 64;

/// A check that is stored to counts one, one that is not counts two against; stores are expected
/// from this many on.
const EXPECTED: u8 = 6;
const MOST: u8 = 8;

/// What a segment has learnt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Stores {
    score: u8,
    since: u8,
    checks: VecDeque<PageIndex>,
}

impl Stores {
    /// A page comes for a load. Whether it is to be mapped for storing.
    pub(super) fn follow(&mut self, page: PageIndex) -> bool {
        self.since += 1;
        if self.since < CHECK {
            return self.score >= EXPECTED;
        }
        self.since = 0;
        if self.checks.len() >= WAITING {
            self.checks.pop_front();
            self.score = self.score.saturating_sub(2);
        }
        self.checks.push_back(page);
        false
    }

    /// A page that was mapped for loading is stored to.
    pub(super) fn stored(&mut self, page: PageIndex) {
        if self.ends(page) {
            self.score = MOST.min(self.score + 1);
        }
    }

    /// A page that was mapped for loading leaves its frame, and was not stored to.
    pub(super) fn left(&mut self, page: PageIndex) {
        if self.ends(page) {
            self.score = self.score.saturating_sub(2);
        }
    }

    fn ends(&mut self, page: PageIndex) -> bool {
        let at = self.checks.iter().position(|check| *check == page);
        at.is_some_and(|at| self.checks.remove(at).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages come for loads, and are stored to or leave. How many were mapped for storing.
    fn pages(stores: &mut Stores, count: u32, stored: impl Fn(u32) -> bool) -> u32 {
        let mut expected = 0;
        for page in 0..count {
            let index = PageIndex(page);
            if stores.follow(index) {
                expected += 1;
            } else if stored(page) {
                stores.stored(index);
            } else {
                stores.left(index);
            }
        }
        expected
    }

    #[test]
    fn stores_are_expected_after_they_followed_loads_and_no_longer_after_they_did_not() {
        let mut stores = Stores::default();
        assert_eq!(pages(&mut stores, 1000, |_| false), 0);
        let expected = pages(&mut stores, 1000, |_| true);
        assert!((800..=875).contains(&expected), "{expected}");
        let wrong = pages(&mut stores, 1000, |_| false);
        assert!(wrong <= 2 * u32::from(CHECK), "{wrong}");
        // Half of them: not worth it.
        let mut stores = Stores::default();
        let some = pages(&mut stores, 10_000, |page| page / 8 % 2 == 0);
        assert_eq!(some, 0);
    }

    #[test]
    fn checks_that_are_forgotten_count_as_loads_alone() {
        let mut stores = Stores::default();
        pages(&mut stores, 1000, |_| true);
        let expected = (0..2000).filter(|page| stores.follow(PageIndex(*page)));
        let expected = expected.count();
        assert!(expected <= (WAITING + 2) * usize::from(CHECK), "{expected}");
        assert!(stores.checks.len() <= WAITING);
    }
}
