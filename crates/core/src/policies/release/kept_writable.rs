//! Pages that are kept writable from one interval to the next, with a twin that was refreshed when
//! their diff was made: comparing costs less than a fault.
//!
//! Whether they were stored to since is not known without a look at them. So an interval names them
//! all, unless the driver has looked at them just before a barrier is reached: then it names those
//! that have changed. A program of phases writes a page in every other interval, say; without that
//! look, its node would name the page in every interval, and other nodes would request diffs in
//! vain.
//!
//! Where the segment has replicas, the backup gets the diff of every page named, and applies it. So
//! all pages kept writable are looked at there, from the first barrier on.
//!
//! A diff that is applied in place to such a page ends no interval for it: what was stored before
//! is named later, as if it had been stored later. A node that must see it synchronizes with this
//! node after that.

use super::messages::IntervalRecord;
use super::pages::Pages;
use crate::kept_writable::KeptWritable;
use pagemesh_wire::PageIndex;
use pagemesh_wire::peer::DiffName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// After this many consecutive looks that found a page unchanged it is protected: the next store
/// faults.
const IN_VAIN: u8 = 8;

/// After a page was named at a lock and had not changed, the number of barriers at which it is
/// named before it is looked at again.
const NOT_BEFORE: u8 = 4;

/// Pages looked at before one barrier at most. The other ones are named without a look.
const LOOKED_AT: usize = 64;

/// The same where the segment has replicas.
const MANY: usize = 8192;

/// Whether a page may be kept writable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Staying {
    /// The last change of another node arrived in time to be applied in place.
    pub(super) in_place: bool,
    /// It was last named at a barrier, where it could have been looked at.
    at_barrier: bool,
    /// It was named at a lock and had not changed: barriers at which it is still named before it is
    /// looked at again. Pages are not looked at for locks.
    for_locks: u8,
    /// Set if the driver looks at the page before each barrier: the number of consecutive looks
    /// that found it unchanged.
    looks: Option<u8>,
}

impl Staying {
    /// Whether changes of other nodes put the page out of sight sooner or later.
    pub(super) fn is_put_out_of_sight(self) -> bool {
        !self.in_place || self.for_locks > 0
    }
}

impl Pages {
    /// The diff of a page was made, and the page stays writable.
    pub(super) fn keeps_writable(&mut self, index: PageIndex, replicated: bool) {
        self.kept_writable.insert(index);
        if let Some(page) = self.get_mut(&index).filter(|_| replicated)
            && page.staying.for_locks == 0
        {
            page.staying.looks = Some(0);
        }
    }

    /// Whether the page was kept writable when its diff was made.
    #[cfg(test)]
    pub(super) fn is_kept_writable(&self, index: PageIndex) -> bool {
        self.kept_writable.contains(&index)
    }

    /// Pages of which the driver is asked, before a barrier is reached, whether they were stored
    /// to: they were kept writable, and have turned out unchanged before, or the segment has replicas.
    /// All pages are that were guessed to be stored to: a look takes a microsecond, and to name a page
    /// that did not change takes it from nodes that use it.
    pub(super) fn to_be_looked_at(&self, replicated: bool) -> KeptWritable {
        let at_most = if replicated { MANY } else { LOOKED_AT };
        let rests = |index: &&PageIndex| {
            let page = self.get(index);
            page.is_some_and(|page| page.staying.looks.is_some())
        };
        let others = self.kept_writable.difference(&self.guessed).filter(rests);
        KeptWritable {
            guessed: self.guessed(),
            others: others.take(at_most).copied().collect(),
        }
    }

    /// A page has a twin and may be stored to, though no thread has tried to.
    pub(super) fn guess(&mut self, index: PageIndex) {
        self.dirty.remove(&index);
        self.kept_writable.insert(index);
        self.guessed.insert(index);
        if let Some(page) = self.get_mut(&index) {
            page.staying.looks = Some(0);
        }
    }

    /// The pages guessed to be stored to.
    pub(super) fn guessed(&self) -> Vec<PageIndex> {
        self.guessed.iter().copied().collect()
    }

    /// A page that was guessed to be stored to was, or is about to be.
    pub(super) fn confirm(&mut self, index: PageIndex) {
        if self.guessed.remove(&index) && self.kept_writable.remove(&index) {
            self.dirty.insert(index);
            if let Some(page) = self.get_mut(&index) {
                page.staying.looks = None;
            }
        }
    }

    /// A page that was guessed to be stored to was not, and is protected.
    pub(super) fn refute(&mut self, index: PageIndex) {
        self.guessed.remove(&index);
        self.kept_writable.remove(&index);
        if let Some(page) = self.get_mut(&index) {
            page.staying.looks = None;
        }
    }

    /// The guesses about pages between two, the second one not included.
    pub(super) fn confirm_between(&mut self, one: PageIndex, other: PageIndex) {
        let range = one.min(other)..one.max(other);
        let passed: Vec<_> = self.guessed.range(range).copied().collect();
        for index in passed {
            self.confirm(index);
        }
    }

    /// A page kept writable was named and had not changed. From now on it is looked at before it is
    /// named, if that was a barrier and it was not looked at; otherwise it is protected next time.
    /// It may have been stored to since it was compared, so it keeps its twin.
    pub(super) fn unchanged(&mut self, page: PageIndex) {
        let Some(page) = self.get_mut(&page) else {
            return;
        };
        let staying = &mut page.staying;
        if staying.at_barrier && staying.looks.is_none() && staying.for_locks == 0 {
            staying.looks = Some(0);
        } else {
            if !staying.at_barrier {
                staying.for_locks = NOT_BEFORE;
            }
            staying.looks = None;
            (page.returns, page.cost_a_fault) = (0, 0);
        }
    }

    /// Notes whether the interval that names these pages ended at a barrier.
    pub(super) fn named_at(&mut self, barrier: bool, named: &[(PageIndex, u64)]) {
        for (index, _) in named {
            if let Some(page) = self.get_mut(index) {
                page.staying.at_barrier = barrier;
                if barrier {
                    page.staying.for_locks = page.staying.for_locks.saturating_sub(1);
                }
            }
        }
    }

    /// Takes the pages that the present interval has to name: all that may have been written in it,
    /// except those known to be untouched.
    pub(super) fn written(&mut self, untouched: &BTreeSet<PageIndex>) -> BTreeSet<PageIndex> {
        let mut written = core::mem::take(&mut self.dirty);
        let kept_writable = core::mem::take(&mut self.kept_writable);
        for index in kept_writable {
            if self.is_spared(index, untouched) {
                self.kept_writable.insert(index);
            } else {
                written.insert(index);
            }
        }
        self.guessed.retain(|page| !written.contains(page));
        written
    }

    /// Whether a page kept writable was looked at and had not changed. False after too many such
    /// looks: it is named once more, and then protected.
    fn is_spared(&mut self, index: PageIndex, untouched: &BTreeSet<PageIndex>) -> bool {
        let Some(page) = self.get_mut(&index) else {
            return false;
        };
        let Some(looks) = page.staying.looks else {
            return false;
        };
        if !untouched.contains(&index) {
            page.staying.looks = Some(0);
            return false;
        }
        if looks == IN_VAIN {
            page.staying.looks = None;
            page.returns = 0;
            return false;
        }
        page.staying.looks = Some(looks + 1);
        true
    }

    /// Takes the pages that an interval has to name that ends before this news is taken in: those
    /// written, and those kept writable that the news is about to put out of sight. A page whose diff
    /// `goes_in_place` stays.
    pub(super) fn written_before(
        &mut self,
        news: &[IntervalRecord],
        goes_in_place: impl Fn(&DiffName) -> bool,
    ) -> BTreeSet<PageIndex> {
        let mut written = core::mem::take(&mut self.dirty);
        if self.kept_writable.is_empty() {
            return written;
        }
        for record in news {
            // The records are not checked yet.
            let runs = record.pages.iter().map(|run| {
                let end = run.first.0.saturating_add(run.count);
                run.first..PageIndex(end).max(run.first)
            });
            let pages = runs.flat_map(|run| self.kept_writable.range(run));
            let name = |page: &PageIndex| DiffName {
                page: *page,
                node: record.node,
                interval: record.index,
            };
            // One that was guessed to be stored to may be protected.
            let guessed = &self.guessed;
            let out_of_sight =
                pages.filter(|page| guessed.contains(page) || !goes_in_place(&name(page)));
            written.extend(out_of_sight);
        }
        self.kept_writable.retain(|page| !written.contains(page));
        self.guessed.retain(|page| !written.contains(page));
        written
    }
}
