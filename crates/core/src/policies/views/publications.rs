//! The publications of this node, of which listeners are reminded. No two have a page in common: what
//! a newer one has is taken out of older ones.

use super::messages::{Run, Stamp};
use super::{REMIND, REMINDERS};
use crate::time::Time;
use pagemesh_sorted::LongMap;
use pagemesh_wire::PageIndex;
use serde::{Deserialize, Serialize};

/// A publication.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Published {
    run: Run,
    bytes: u16,
    /// How often listeners were reminded.
    reminders: u32,
}

/// All publications, by their first pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Publications(LongMap<PageIndex, Published>);

impl Publications {
    /// Pages are published: so many bytes of each.
    pub(super) fn add(&mut self, run: Run, bytes: u16) {
        let published = Published {
            run,
            bytes,
            reminders: 0,
        };
        self.0.insert(run.first, published);
    }

    /// Pages are here that are to be kept elsewhere, too. Nobody is reminded of them.
    pub(super) fn add_silent(&mut self, run: Run, bytes: u16) {
        let published = Published {
            run,
            bytes,
            reminders: REMINDERS,
        };
        self.0.insert(run.first, published);
    }

    /// Takes the pages of a run out of the publications before: what is left of those, listeners are
    /// still reminded of. Returns the first pages of those, and of what is left of each. `version` is
    /// that of a page now.
    pub(super) fn supersede(
        &mut self,
        run: Run,
        version: impl Fn(PageIndex) -> u64,
    ) -> Vec<(PageIndex, Vec<PageIndex>)> {
        let older = self.0.values().filter(|old| old.run.meets(run));
        let older: Vec<_> = older.cloned().collect();
        let take = |old: Published| {
            self.0.remove(&old.run.first);
            let rests = old.run.without(run).map(|rest| {
                // All pages of a publication have its number.
                let stamp = Stamp {
                    version: version(rest.first),
                    number: old.run.stamp.number,
                };
                let run = Run { stamp, ..rest };
                let left = Published { run, ..old.clone() };
                self.0.insert(run.first, left);
                run.first
            });
            (old.run.first, rests.collect())
        };
        older.into_iter().map(take).collect()
    }

    /// The publication that begins at this page.
    pub(super) fn at(&self, first: PageIndex) -> Option<Run> {
        self.0.get(&first).map(|known| known.run)
    }

    /// The publication that has this page.
    pub(super) fn with(&self, page: PageIndex) -> Option<Run> {
        let (_, known) = self.0.range(..=page).next_back()?;
        known.run.contains(page).then_some(known.run)
    }

    /// Publications that have pages of a run.
    pub(super) fn meeting(&self, run: Run) -> Vec<(Run, u16)> {
        let known = self.0.values().filter(|known| known.run.meets(run));
        known.map(|known| (known.run, known.bytes)).collect()
    }

    /// The first pages of all publications.
    pub(super) fn firsts(&self) -> impl Iterator<Item = PageIndex> {
        self.0.keys().copied()
    }

    /// Those of which listeners are to be reminded now. Sets when to remind them next.
    pub(super) fn remind(&mut self, now: Time, next: &mut Option<Time>) -> Vec<(Run, u16)> {
        let mut remind = Vec::new();
        if next.take_if(|due| *due <= now).is_none() {
            return remind;
        }
        let mut lately = 0;
        for published in self.0.values_mut() {
            if published.reminders < REMINDERS {
                published.reminders += 1;
                lately = lately.max(published.reminders);
                remind.push((published.run, published.bytes));
            }
        }
        *next = (lately > 0).then(|| now + REMIND * (1 << lately));
        remind
    }

    /// The pages are here no more.
    pub(super) fn withdraw(&mut self, first: PageIndex) {
        self.0.remove(&first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: u32, count: u32, number: u64) -> Run {
        Run {
            first: PageIndex(first),
            count,
            stamp: Stamp { version: 1, number },
        }
    }

    #[test]
    fn newer_pages_are_taken_out_of_older_publications() {
        let mut all = Publications::default();
        all.add(run(0, 4, 1), 4096);
        all.add(run(6, 2, 2), 4096);
        let left = all.supersede(run(1, 2, 3), |page| page.0.into());
        assert_eq!(left, [(PageIndex(0), vec![PageIndex(0), PageIndex(3)])]);
        all.add(run(1, 2, 3), 32);
        let behind = all.at(PageIndex(3)).unwrap();
        let stamp = Stamp {
            version: 3,
            number: 1,
        };
        assert_eq!((behind.count, behind.stamp), (1, stamp));
        assert_eq!(all.with(PageIndex(2)), Some(run(1, 2, 3)));
        assert_eq!(all.with(PageIndex(4)), None);
        assert_eq!(all.meeting(run(2, 5, 0)).len(), 3);
        assert_eq!(all.supersede(run(6, 2, 4), |_| 0), [(PageIndex(6), vec![])]);
    }

    #[test]
    fn listeners_are_reminded_ever_later_and_not_of_what_is_only_kept() {
        let mut all = Publications::default();
        all.add(run(0, 1, 1), 4096);
        all.add_silent(run(1, 1, 1), 4096);
        let (mut now, mut next) = (Time(0), Some(Time(0) + REMIND));
        assert_eq!(all.remind(now, &mut next), []);
        let mut waits = Vec::new();
        while let Some(due) = next {
            waits.push((due - now).as_millis() / REMIND.as_millis());
            now = due;
            let expected = match waits.len() {
                7 => vec![],
                _ => vec![(run(0, 1, 1), 4096)],
            };
            assert_eq!(all.remind(now, &mut next), expected);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64]);
    }
}
