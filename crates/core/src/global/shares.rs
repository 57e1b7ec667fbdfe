//! The pages that a donor may drop, by owner: none may fill a donor at the cost of the others (GB5).
//!
//! While there is room everybody may have all of it. When there is none, an owner with more than its
//! share, the equal part for each that has pages here, replaces pages of its own; one with less
//! replaces the oldest page of those that have more. A page that was not used for ten minutes is
//! not protected by its owner's share.

use super::Ages;
use crate::time::Time;
use core::time::Duration;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::AGE_CLASSES;
use pagemesh_wire::{NodeId, PageIndex, SegmentId};
use serde::{Deserialize, Serialize};

type Name = (SegmentId, PageIndex);

/// Pages that were not used for so long go first, whoever has how many.
const PROTECTED: Duration = Duration::from_secs(600);

/// The pages of each owner, by age.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Shares(SortedMap<NodeId, Ages<Name>>);

impl Shares {
    pub(super) fn insert(&mut self, used: Time, name: Name) {
        self.0.entry(name.0.home()).or_default().insert(used, name);
    }

    pub(super) fn remove(&mut self, used: Time, name: Name) {
        let owner = name.0.home();
        if let Some(ages) = self.0.get_mut(&owner) {
            ages.remove(used, name);
            if ages.len() == 0 {
                self.0.remove(&owner);
            }
        }
    }

    /// The number of pages.
    pub(super) fn len(&self) -> u32 {
        self.0.values().map(Ages::len).sum()
    }

    /// The oldest page of all.
    pub(super) fn oldest(&self) -> Option<(Time, Name)> {
        self.0.values().filter_map(Ages::oldest).min()
    }

    /// The page that goes for one of this owner, where `all` pages may be kept, of which `files` are
    /// pages of files; none: the oldest of all, those of files with them. No owner: it is for a page
    /// of a file.
    pub(super) fn victim(
        &self,
        now: Time,
        owner: Option<NodeId>,
        all: u32,
        files: u32,
    ) -> Option<(Time, Name)> {
        let oldest = self.oldest()?;
        if now - oldest.0 >= PROTECTED {
            return None;
        }
        let there = owner.is_some_and(|owner| self.0.contains_key(&owner));
        let owners = self.0.len() as u32
            + u32::from(owner.is_some() && !there)
            + u32::from(files > 0 || owner.is_none());
        let share = all / owners.max(1);
        let mine = owner.and_then(|owner| self.0.get(&owner));
        if let Some(mine) = mine.filter(|mine| mine.len() >= share) {
            return mine.oldest();
        }
        let more = self.0.values().filter(|ages| ages.len() > share);
        more.filter_map(Ages::oldest).min()
    }

    /// Counts the pages by class of age.
    pub(super) fn summarize(&self, now: Time, boost: usize, into: &mut [u32; AGE_CLASSES]) {
        for ages in self.0.values() {
            ages.summarize(now, boost, into);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn name(node: u16, page: u32) -> Name {
        (SegmentId::new(NodeId(node), 1), PageIndex(page))
    }

    /// Eighty pages of node 1, each a little older than its next, and twenty older ones of node 2.
    fn shares() -> Shares {
        let mut shares = Shares::default();
        for page in 0..80 {
            shares.insert(Time(100 * SECOND + u64::from(page)), name(1, page));
        }
        for page in 0..20 {
            shares.insert(Time(50 * SECOND + u64::from(page)), name(2, page));
        }
        shares
    }

    #[test]
    fn who_has_more_than_its_share_replaces_its_own_pages() {
        let shares = shares();
        let now = Time(110 * SECOND);
        let victim = |owner: u16, files| {
            let owner = (owner > 0).then_some(NodeId(owner));
            shares.victim(now, owner, 100, files).map(|(_, name)| name)
        };
        assert_eq!(shares.oldest().unwrap().1, name(2, 0));
        assert_eq!(victim(1, 0), Some(name(1, 0)), "the oldest of its own");
        assert_eq!(victim(2, 0), Some(name(1, 0)), "it has less than half");
        assert_eq!(victim(3, 0), Some(name(1, 0)), "a new one");
        assert_eq!(victim(0, 5), Some(name(1, 0)), "a page of a file");
    }

    #[test]
    fn old_pages_are_not_protected_and_equal_shares_mean_the_oldest_of_all() {
        let shares = shares();
        let later = Time(700 * SECOND);
        assert_eq!(shares.victim(later, Some(NodeId(1)), 100, 0), None);
        let mut equal = Shares::default();
        for node in [1, 2] {
            equal.insert(Time(u64::from(node)), name(node, 0));
        }
        assert_eq!(equal.victim(Time(9), Some(NodeId(3)), 100, 0), None);
    }
}
