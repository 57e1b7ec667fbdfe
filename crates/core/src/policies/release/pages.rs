//! The pages of a segment that this node knows, and what is counted of all of them.

use super::messages::CopyRequest;
use super::page::{Miss, Page};
use crate::effect::Source;
use crate::limits::PAGES_NAMED;
use pagemesh_sorted::LongMap;
use pagemesh_wire::{MappingId, NodeId, PageIndex, VectorTime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The page table of one segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Pages {
    table: LongMap<PageIndex, Page>,
    /// Pages that were in use here until another node wrote them.
    habits: BTreeSet<PageIndex>,
    /// Pages with a twin that the present interval is going to name.
    pub(super) dirty: BTreeSet<PageIndex>,
    /// Pages kept writable that the present interval has to name; whether they were stored to since
    /// is not known. See [`super::kept_writable`].
    pub(super) kept_writable: BTreeSet<PageIndex>,
    /// Notices of all pages, and how many pages have any.
    notices: usize,
    named: usize,
    /// Pages with a named interval of this node whose diff was not requested yet.
    undiffed: usize,
    /// Pages with a twin that a process got the right to store to before it asked for it, and has
    /// perhaps not stored to. See [`super::store_ahead`].
    #[serde(default)]
    pub(super) guessed: BTreeSet<PageIndex>,
}

impl Pages {
    /// The page, if it is known.
    pub(super) fn get(&self, index: &PageIndex) -> Option<&Page> {
        self.table.get(index)
    }

    pub(super) fn get_mut(&mut self, index: &PageIndex) -> Option<&mut Page> {
        self.table.get_mut(index)
    }

    /// The page, known from now on.
    pub(super) fn page(&mut self, index: PageIndex) -> &mut Page {
        self.table.entry(index).or_default()
    }

    /// The page being made whole.
    pub(super) fn miss(&mut self, index: PageIndex) -> Option<&mut Miss> {
        self.table.get_mut(&index)?.miss.as_deref_mut()
    }

    /// A request was left to this node, which has no copy yet: it waits for that. Returned if no copy is
    /// to come.
    pub(super) fn wait_for_copy(&mut self, fetch: CopyRequest) -> Option<CopyRequest> {
        let Some(miss) = self.miss(fetch.page) else {
            return Some(fetch);
        };
        miss.readers.retain(|other| other.reader != fetch.reader);
        miss.readers.push(fetch);
        None
    }

    /// Number of known pages.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// All known pages from this one on, in order.
    pub(super) fn from(&self, first: PageIndex) -> impl Iterator<Item = (PageIndex, &Page)> {
        self.table
            .range(first..)
            .map(|(index, page)| (*index, page))
    }

    /// So many known pages from this one on, and as many before it.
    pub(super) fn near(
        &self,
        index: PageIndex,
        count: usize,
    ) -> impl Iterator<Item = (PageIndex, &Page)> {
        let before = self.table.range(..index).rev();
        let before = before.map(|(index, page)| (*index, page));
        self.from(index).take(count).chain(before.take(count))
    }

    /// All known pages, in order, beginning behind those before this one.
    pub(super) fn round(&self, first: PageIndex) -> impl Iterator<Item = (PageIndex, &Page)> {
        let before = self.table.range(..first);
        let before = before.map(|(index, page)| (*index, page));
        self.from(first).chain(before)
    }

    /// All known pages, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (PageIndex, &Page)> {
        self.from(PageIndex(0))
    }

    /// The pages that have a property.
    pub(super) fn which(&self, pick: impl Fn(&Page) -> bool) -> Vec<PageIndex> {
        let picked = self.iter().filter(|(_, page)| pick(page));
        picked.map(|(index, _)| index).collect()
    }

    /// Number of pages that have a property.
    pub(super) fn count(&self, pick: impl Fn(&Page) -> bool) -> u64 {
        self.iter().filter(|(_, page)| pick(page)).count() as u64
    }

    /// The pages whose keeper is another node.
    pub(super) fn kept_elsewhere(&self, me: NodeId) -> impl Iterator<Item = (PageIndex, NodeId)> {
        let keeper = move |page: &Page| page.keeper.filter(|keeper| *keeper != me);
        self.iter()
            .filter_map(move |(index, page)| Some((index, keeper(page)?)))
    }

    /// An interval of this node names a page, whose diff is not made yet.
    pub(super) fn name(&mut self, index: PageIndex, by: (NodeId, u64), rank: u64) {
        let (me, interval) = by;
        let page = self.table.entry(index).or_default();
        self.undiffed += usize::from(page.undiffed.is_none());
        page.undiffed = Some(interval);
        page.notices.apply(me, interval);
        self.notice(index, by, rank);
    }

    /// A write notice of a page has arrived.
    pub(super) fn notice(&mut self, index: PageIndex, by: (NodeId, u64), rank: u64) {
        let page = self.table.entry(index).or_default();
        self.named += usize::from(page.notices.is_empty());
        page.notices.add(by, rank);
        self.notices += 1;
    }

    /// The interval of this node that names a page and whose diff is not made yet: it is made now,
    /// or is not needed any more.
    pub(super) fn take_undiffed(&mut self, index: PageIndex) -> Option<u64> {
        let interval = self.table.get_mut(&index)?.undiffed.take()?;
        self.undiffed -= 1;
        Some(interval)
    }

    /// Everything in this time is collected: drops the write notices of a page.
    pub(super) fn forget_notices(&mut self, index: PageIndex, upto: &VectorTime) {
        let Some(page) = self.table.get_mut(&index) else {
            return;
        };
        let had = page.notices.len();
        page.notices.forget(upto);
        self.notices -= had - page.notices.len();
        self.named -= usize::from(had > 0 && page.notices.is_empty());
    }

    /// What counts against the bound, where the driver keeps this many diffs and may keep `twins`
    /// twins. A page's first notice does not count, as long as its diff was not requested: only a
    /// twin is kept for it, which the page needs for the next store in any case. If it counted, a
    /// program that writes more pages than the bound in each of its phases would have all of them
    /// collected at each barrier, and fault on each of them again. Twins have a bound of their own,
    /// since they take as much memory as their pages.
    pub(super) fn remembered(&self, diffs: usize, twins: usize) -> usize {
        let again = self.notices - self.named;
        let named = self.named.saturating_sub(PAGES_NAMED);
        let twins = self.undiffed.saturating_sub(twins);
        again.max(diffs) + named.max(twins)
    }

    /// A page is about to be stored to for the first time in this interval: it gets a twin, whose
    /// source is returned, and the interval names it. `None` if it has a twin already.
    pub(super) fn begin_twin(&mut self, index: PageIndex) -> Option<Source> {
        let page = self.table.get_mut(&index).filter(|page| !page.twin)?;
        page.twin = true;
        self.dirty.insert(index);
        Some(page.before_store())
    }

    /// A page has a twin, and may be stored to: the present interval names it.
    pub(super) fn writes(&mut self, index: PageIndex) {
        self.dirty.insert(index);
    }

    /// The pages between two, the second one not included, were used by a walk.
    pub(super) fn used_between(&mut self, one: PageIndex, other: PageIndex) {
        let range = one.min(other)..one.max(other);
        for page in self.table.range_mut(range).map(|(_, page)| page) {
            page.believed = false;
        }
    }

    /// The page was in use here until now.
    pub(super) fn begin_habit(&mut self, index: PageIndex) {
        self.habits.insert(index);
    }

    /// The page is in use again, or is requested before that.
    pub(super) fn end_habit(&mut self, index: PageIndex) {
        self.habits.remove(&index);
    }

    /// The next pages that were in use until another node wrote them; `count` at most.
    pub(super) fn habits(
        &self,
        first: PageIndex,
        count: usize,
    ) -> impl Iterator<Item = (PageIndex, &Page)> {
        let habits = self.habits.range(first..).take(count);
        habits.filter_map(|index| Some((*index, self.table.get(index)?)))
    }

    /// A mapping is gone: forgets the threads that waited in it.
    pub(super) fn unmapped(&mut self, mapping: MappingId) {
        for page in self.table.values_mut() {
            if let Some(miss) = &mut page.miss {
                miss.faults.retain(|(waiting, _)| *waiting != mapping);
                if let Some(ahead) = &mut miss.ahead {
                    ahead.mark |= ahead.mapping == mapping;
                }
            }
        }
    }

    /// All pages become invalid; returns what they were.
    pub(super) fn invalidate_all(&mut self) -> LongMap<PageIndex, Page> {
        self.dirty.clear();
        self.kept_writable.clear();
        self.guessed.clear();
        core::mem::take(&mut self.table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: NodeId = NodeId(1);
    const OTHER: NodeId = NodeId(2);
    const PAGE: PageIndex = PageIndex(3);

    #[test]
    fn first_notices_do_not_count_and_later_ones_do() {
        let mut pages = Pages::default();
        pages.name(PAGE, (ME, 1), 1);
        assert_eq!(pages.remembered(0, 1), 0);
        assert_eq!(pages.remembered(0, 0), 1, "its twin, where none is allowed");
        pages.notice(PAGE, (OTHER, 1), 2);
        pages.notice(PAGE, (OTHER, 2), 3);
        assert_eq!(pages.remembered(0, 1), 2);
        assert_eq!(pages.remembered(5, 1), 5, "as many diffs");
        assert_eq!(pages.take_undiffed(PAGE), Some(1));
        assert_eq!(pages.take_undiffed(PAGE), None);
        pages.forget_notices(PAGE, &VectorTime::from_iter([(ME, 1), (OTHER, 1)]));
        assert_eq!(pages.remembered(0, 0), 0);
        pages.forget_notices(PAGE, &VectorTime::from_iter([(OTHER, 2)]));
        pages.notice(PAGE, (OTHER, 3), 4);
        assert_eq!(pages.remembered(0, 0), 0, "a first notice again");
    }

    #[test]
    fn an_interval_named_twice_has_one_diff() {
        let mut pages = Pages::default();
        pages.name(PAGE, (ME, 1), 1);
        pages.name(PAGE, (ME, 2), 2);
        assert_eq!(pages.take_undiffed(PAGE), Some(2));
        assert_eq!(pages.take_undiffed(PAGE), None);
        assert!(
            pages
                .get(&PAGE)
                .is_some_and(|page| !page.notices.is_pending(ME, 2))
        );
    }

    #[test]
    fn habits_are_found_from_a_page_on() {
        let mut pages = Pages::default();
        for index in [1, 4, 6, 9] {
            pages.page(PageIndex(index));
            pages.begin_habit(PageIndex(index));
        }
        pages.end_habit(PageIndex(6));
        let found = |first, count| -> Vec<_> {
            let habits = pages.habits(PageIndex(first), count);
            habits.map(|(index, _)| index.0).collect()
        };
        assert_eq!(found(2, 8), [4, 9]);
        assert_eq!(found(0, 2), [1, 4]);
    }
}
