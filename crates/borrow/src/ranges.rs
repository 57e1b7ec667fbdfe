//! Which pages of the segment are in use.

use std::collections::BTreeMap;

/// Ranges of pages, by the number of their first page.
#[derive(Debug)]
pub struct Ranges {
    free: BTreeMap<usize, usize>,
    used: BTreeMap<usize, usize>,
    /// No page from here on was ever in use: they are zero.
    fresh: usize,
}

impl Ranges {
    /// So many pages, all free.
    pub fn new(pages: usize) -> Self {
        Self {
            free: BTreeMap::from([(0, pages)]),
            used: BTreeMap::new(),
            fresh: 0,
        }
    }

    /// Takes `pages` pages in a row: the lowest that are free, because pages
    /// that were in use have frames.
    pub fn take(&mut self, pages: usize) -> Option<usize> {
        debug_assert!(pages > 0);
        let (&start, &length) = self.free.iter().find(|(_, length)| **length >= pages)?;
        self.free.remove(&start);
        if length > pages {
            self.free.insert(start + pages, length - pages);
        }
        self.used.insert(start, pages);
        self.fresh = self.fresh.max(start + pages);
        Some(start)
    }

    /// Gives a range back; false if there is none that begins here.
    pub fn give(&mut self, start: usize) -> bool {
        let Some(pages) = self.used.remove(&start) else {
            return false;
        };
        self.free_up(start, pages);
        true
    }

    /// Frees the first pages of a range, which begins behind them then.
    pub fn split(&mut self, start: usize, pages: usize) {
        if let Some(length) = self.length(start)
            && pages < length
        {
            self.used.remove(&start);
            self.used.insert(start + pages, length - pages);
            self.free_up(start, pages);
        }
    }

    /// Makes a range longer or shorter where it lies; false if it cannot be.
    pub fn resize(&mut self, start: usize, pages: usize) -> bool {
        let Some(now) = self.length(start) else {
            return false;
        };
        if pages > now {
            let more = pages - now;
            match self.free.get(&(start + now)) {
                Some(length) if *length >= more => {
                    let rest = length - more;
                    self.free.remove(&(start + now));
                    if rest > 0 {
                        self.free.insert(start + pages, rest);
                    }
                    self.fresh = self.fresh.max(start + pages);
                }
                _ => return false,
            }
        }
        self.used.insert(start, pages);
        if pages < now {
            self.free_up(start + pages, now - pages);
        }
        true
    }

    /// The pages of the range that begins here.
    pub fn length(&self, start: usize) -> Option<usize> {
        self.used.get(&start).copied()
    }

    /// The first page that was never in use.
    pub fn fresh(&self) -> usize {
        self.fresh
    }

    /// All ranges in use: their first pages and numbers of pages.
    pub fn used(&self) -> impl Iterator<Item = (usize, usize)> {
        self.used.iter().map(|(start, pages)| (*start, *pages))
    }

    fn free_up(&mut self, mut start: usize, mut pages: usize) {
        if let Some(behind) = self.free.remove(&(start + pages)) {
            pages += behind;
        }
        if let Some((before, length)) = self.free.range(..start).next_back()
            && before + length == start
        {
            start = *before;
            pages += length;
        }
        self.free.insert(start, pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_given_back_is_whole_again() {
        let mut ranges = Ranges::new(10);
        let places: Vec<_> = (0..5).map(|_| ranges.take(2).unwrap()).collect();
        assert!(ranges.take(1).is_none());
        for place in [places[1], places[3], places[2], places[0], places[4]] {
            assert!(ranges.give(place));
            assert!(!ranges.give(place), "given back twice");
        }
        assert_eq!(ranges.take(10), Some(0));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Take(usize),
        Give(usize),
        Split(usize, usize),
        Resize(usize, usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1..20_usize).prop_map(Step::Take),
            (0..30_usize, 1..20_usize).prop_map(|(which, pages)| Step::Split(which, pages)),
            (0..30_usize).prop_map(Step::Give),
            (0..30_usize, 1..20_usize).prop_map(|(which, pages)| Step::Resize(which, pages)),
        ]
    }

    proptest! {
        /// Each page is in one range, used or free; free neighbours are one range.
        #[test]
        fn every_page_is_in_one_range(steps in prop::collection::vec(step(), 0..60)) {
            const PAGES: usize = 100;
            let mut ranges = Ranges::new(PAGES);
            for step in steps {
                let nth = |which| ranges.used.keys().nth(which).copied();
                match step {
                    Step::Split(which, pages) => {
                        if let Some(start) = nth(which) {
                            let before = ranges.length(start).unwrap();
                            ranges.split(start, pages);
                            let rest = before.checked_sub(pages).filter(|rest| *rest > 0);
                            let now = ranges.length(start + if rest.is_some() { pages } else { 0 });
                            prop_assert_eq!(now, Some(rest.unwrap_or(before)));
                        }
                    }
                    Step::Take(pages) => {
                        if let Some(start) = ranges.take(pages) {
                            prop_assert_eq!(ranges.length(start), Some(pages));
                        }
                    }
                    Step::Give(which) => {
                        if let Some(start) = nth(which) {
                            prop_assert!(ranges.give(start));
                        }
                    }
                    Step::Resize(which, pages) => {
                        if let Some(start) = nth(which) {
                            let before = ranges.length(start);
                            let done = ranges.resize(start, pages);
                            let now = if done { Some(pages) } else { before };
                            prop_assert_eq!(ranges.length(start), now);
                        }
                    }
                }
                let mut all: Vec<_> = ranges.used().map(|(start, pages)| (start, pages, true)).collect();
                all.extend(ranges.free.iter().map(|(start, pages)| (*start, *pages, false)));
                all.sort_unstable();
                let mut at = 0;
                let mut last = true;
                for (start, pages, used) in all {
                    prop_assert_eq!(start, at);
                    prop_assert!(used || last, "free neighbours");
                    (at, last) = (start + pages, used);
                    prop_assert!(!used || at <= ranges.fresh());
                }
                prop_assert_eq!(at, PAGES);
            }
        }
    }
}
