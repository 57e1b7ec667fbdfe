//! Pages of files that this node keeps for others: last copies that their nodes had no room for.
//!
//! They lie in the stash, each in a slot of [`SegmentId::KEPT_FILES`](pagemesh_wire::SegmentId::KEPT_FILES).
//! A kept page is always the only copy as far as is known (G1): it leaves for the node that asks for it,
//! and as soon as the directory says that another node has it, too.

use super::pool::Name;
use crate::global::Ages;
use crate::time::Time;
use pagemesh_sorted::LongMap;
use pagemesh_wire::PageIndex;
use pagemesh_wire::peer::AGE_CLASSES;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The kept pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct KeptPages {
    pages: LongMap<Name, Kept>,
    ages: Ages<Name>,
    /// Slots without a page below `fresh`, and slots that were never used.
    free: BTreeSet<u32>,
    fresh: u32,
}

/// One kept page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Kept {
    slot: u32,
    pub(super) used: Time,
    /// Nodes that may keep it, this one included (G26).
    pub(super) rounds: u8,
}

impl Kept {
    /// The page of the stash's segment with the contents.
    pub(super) fn slot(self) -> PageIndex {
        PageIndex(self.slot)
    }
}

impl KeptPages {
    /// The number of pages.
    pub(super) fn len(&self) -> u32 {
        self.pages.len() as u32
    }

    /// A page comes to be kept; none if it is kept already.
    pub(super) fn insert(&mut self, name: Name, used: Time, rounds: u8) -> Option<PageIndex> {
        if self.pages.contains_key(&name) {
            return None;
        }
        let slot = self.free.pop_first().unwrap_or_else(|| {
            self.fresh += 1;
            self.fresh - 1
        });
        self.pages.insert(name, Kept { slot, used, rounds });
        self.ages.insert(used, name);
        Some(PageIndex(slot))
    }

    /// A page is not kept any more.
    pub(super) fn remove(&mut self, name: Name) -> Option<Kept> {
        let kept = self.pages.remove(&name)?;
        self.ages.remove(kept.used, name);
        self.free.insert(kept.slot);
        Some(kept)
    }

    /// Whether a page is kept.
    pub(super) fn contains(&self, name: Name) -> bool {
        self.pages.contains_key(&name)
    }

    /// The page that has not been used for the longest time.
    pub(super) fn oldest(&self) -> Option<(Time, Name)> {
        self.ages.oldest()
    }

    /// All pages, in order.
    pub(super) fn names(&self) -> impl Iterator<Item = Name> {
        self.pages.keys().copied()
    }

    /// Adds the ages of pages, each `boost` classes above its own.
    pub(super) fn summarize(&self, now: Time, boost: usize, into: &mut [u32; AGE_CLASSES]) {
        self.ages.summarize(now, boost, into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::peer::FileKey;

    fn name(page: u32) -> Name {
        (FileKey::default(), PageIndex(page))
    }

    #[test]
    fn slots_are_used_again_and_the_oldest_page_is_known() {
        let mut kept = KeptPages::default();
        let insert = |kept: &mut KeptPages, page, used| kept.insert(name(page), Time(used), 1);
        assert_eq!(insert(&mut kept, 7, 20), Some(PageIndex(0)));
        assert_eq!(insert(&mut kept, 8, 10), Some(PageIndex(1)));
        assert_eq!(insert(&mut kept, 7, 30), None, "twice");
        assert_eq!(kept.oldest(), Some((Time(10), name(8))));
        let slot = kept.remove(name(7)).map(Kept::slot);
        assert_eq!((slot, kept.remove(name(7))), (Some(PageIndex(0)), None));
        assert_eq!(insert(&mut kept, 9, 40), Some(PageIndex(0)));
        assert_eq!((kept.len(), kept.contains(name(9))), (2, true));
        assert_eq!(kept.names().collect::<Vec<_>>(), [name(8), name(9)]);
    }
}
