//! Frames in the order of their last use: the part of the page frame directory (PFD, G15) that
//! replacement needs.

use crate::time::Time;
use core::time::Duration;
use pagemesh_wire::peer::AGE_CLASSES;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Pages by the time of their last known use.
///
/// No accessed bit is read: a use is known when a thread faults. Pages that were taken away and
/// still lie on this node come back by a fault, which makes them young again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Ages<K: Ord>(BTreeSet<(Time, K)>);

impl<K: Ord> Default for Ages<K> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<K: Ord + Copy> Ages<K> {
    /// A page was last used at `used`.
    pub(crate) fn insert(&mut self, used: Time, page: K) {
        self.0.insert((used, page));
    }

    /// Removes a page. False if it is not there with this time.
    pub(crate) fn remove(&mut self, used: Time, page: K) -> bool {
        self.0.remove(&(used, page))
    }

    /// The page that has not been used for the longest time.
    pub(crate) fn oldest(&self) -> Option<(Time, K)> {
        self.0.first().copied()
    }

    /// The pages, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Time, K)> {
        self.0.iter().copied()
    }

    /// The number of pages.
    pub(crate) fn len(&self) -> u32 {
        self.0.len() as u32
    }

    /// Counts the pages by class of age, each in the class `boost` above its own (G7).
    pub(crate) fn summarize(&self, now: Time, boost: usize, into: &mut [u32; AGE_CLASSES]) {
        for (used, _) in &self.0 {
            into[(class_of(now - *used) + boost).min(AGE_CLASSES - 1)] += 1;
        }
    }
}

/// The class of an age.
pub(crate) fn class_of(age: Duration) -> usize {
    let millis = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    (millis.max(1).ilog2() as usize).min(AGE_CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_classes_of_doubling_width() {
        let class = |millis| class_of(Duration::from_millis(millis));
        assert_eq!(
            [0, 1, 2, 3, 4, 1023, 1024].map(class),
            [0, 0, 1, 1, 2, 9, 10]
        );
        assert_eq!(class(u64::MAX), AGE_CLASSES - 1);
    }

    #[test]
    fn the_oldest_comes_first_and_pages_are_counted_by_age() {
        let mut ages = Ages::default();
        let millis = |millis: u64| Time(millis * 1_000_000);
        for (page, used) in [(1, 90), (2, 10), (3, 99)] {
            ages.insert(millis(used), page);
        }
        assert_eq!(ages.oldest(), Some((millis(10), 2)));
        assert!(ages.remove(millis(10), 2) && !ages.remove(millis(10), 2));
        let mut classes = [0; AGE_CLASSES];
        ages.summarize(millis(100), 1, &mut classes);
        assert_eq!((classes[1], classes[4], ages.len()), (1, 1, 2));
    }
}
