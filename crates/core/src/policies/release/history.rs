//! The intervals that this node knows, and what it tells other nodes of them.

use super::messages::{IntervalRecord, News, PageRun};
use pagemesh_sorted::LongMap;
use pagemesh_wire::{NodeId, PageIndex, VectorTime};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Bound;

/// The records of all intervals that this node knows and has not collected.
///
/// *INV-time-has-records*: every interval in `time` has a record or is in `floor`; and with an
/// interval everything that happened before it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct History {
    /// The newest interval of each node that this node knows.
    time: VectorTime,
    /// The newest interval of each node whose record this node has collected.
    floor: VectorTime,
    records: LongMap<(NodeId, u64), Known>,
}

/// A known interval.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Known {
    /// How many intervals happened before it, and it: its place in a total order.
    rank: u64,
    record: IntervalRecord,
}

impl Known {
    fn new(record: IntervalRecord) -> Self {
        let rank = record.time.intervals().saturating_add(record.index);
        Self { rank, record }
    }
}

impl History {
    /// The newest interval of each node that this node knows.
    pub(super) fn time(&self) -> &VectorTime {
        &self.time
    }

    /// The newest interval of each node whose record this node has collected.
    pub(super) fn floor(&self) -> &VectorTime {
        &self.floor
    }

    /// Ends as many intervals of `me` as are needed for records of these written pages. Returns for
    /// each page the interval that names it.
    pub(super) fn end(
        &mut self,
        me: NodeId,
        written: &BTreeSet<PageIndex>,
    ) -> Vec<(PageIndex, u64)> {
        let mut named = Vec::with_capacity(written.len());
        for pages in runs(written).chunks(IntervalRecord::RUNS) {
            let index = self.time.get(me) + 1;
            let record = IntervalRecord {
                node: me,
                index,
                time: self.time.clone().without(me),
                pages: pages.to_vec(),
            };
            named.extend(record.each_page().map(|page| (page, index)));
            self.time.raise(me, index);
            self.records.insert((me, index), Known::new(record));
        }
        named
    }

    /// Takes a record. Returns true if it is new and everything before it is known: then it is
    /// known, too.
    pub(super) fn take(&mut self, me: NodeId, pages: u32, record: &IntervalRecord) -> bool {
        let IntervalRecord { node, index, .. } = *record;
        let next = node != me && index == self.time.get(node).saturating_add(1);
        if !next || !self.time.covers(&record.time) || !is_sound(record, pages) {
            return false;
        }
        self.time.raise(node, index);
        self.records
            .insert((node, index), Known::new(record.clone()));
        true
    }

    /// Whether there is an interval in these records that is not known here.
    pub(super) fn lacks_any(&self, me: NodeId, records: &[IntervalRecord]) -> bool {
        let lacks = |record: &IntervalRecord| !self.time.has(record.node, record.index);
        records
            .iter()
            .any(|record| record.node != me && lacks(record))
    }

    /// What a node that knows `known` lacks of `told`, which this node knows: as many records as fit,
    /// none before a record that happened before it. Only the records returned are looked at, because
    /// a node that lacks much asks again and again.
    pub(super) fn since(&self, known: &VectorTime, told: &VectorTime) -> News {
        let nodes = told.iter();
        let lacking = nodes.filter(|(node, last)| *last > known.get(*node));
        let mut heads: BinaryHeap<_> = lacking
            .filter_map(|(node, last)| self.behind(node, known.get(node), last))
            .collect();
        let mut room = News::WEIGHT;
        let mut records = Vec::new();
        while let Some(Reverse((_, node, index))) = heads.pop() {
            let record = &self.records[&(node, index)].record;
            if record.weight() > room {
                break;
            }
            room -= record.weight();
            records.push(record.clone());
            heads.extend(self.behind(node, index, told.get(node)));
        }
        News {
            floor: self.floor.clone(),
            goal: told.clone(),
            records,
        }
    }

    /// The records of a node after an interval, one after the other: as many as fit, one at least.
    pub(super) fn next_of(&self, node: NodeId, after: u64, mut room: usize) -> Vec<IntervalRecord> {
        let behind = (
            Bound::Excluded((node, after)),
            Bound::Included((node, u64::MAX)),
        );
        let records = self.records.range(behind).map(|(_, known)| &known.record);
        let fits = |(place, record): &(usize, &IntervalRecord)| {
            let left = room.checked_sub(record.weight());
            room = left.unwrap_or_default();
            *place == 0 || left.is_some()
        };
        let fitting = records.enumerate().take_while(fits);
        fitting.map(|(_, record)| record.clone()).collect()
    }

    /// The next record of a node up to `last`, with its rank: later intervals of a node have higher
    /// ranks.
    fn behind(&self, node: NodeId, index: u64, last: u64) -> Option<Reverse<(u64, NodeId, u64)>> {
        if index >= last {
            return None;
        }
        let behind = (
            Bound::Excluded((node, index)),
            Bound::Included((node, last)),
        );
        let ((_, index), known) = self.records.range(behind).next()?;
        Some(Reverse((known.rank, node, *index)))
    }

    /// The rank of an interval. No interval has a rank below that of one that happened before it;
    /// equal ranks are ordered by node.
    pub(super) fn rank(&self, node: NodeId, index: u64) -> u64 {
        let known = self.records.get(&(node, index));
        known.map_or(index, |known| known.rank)
    }

    /// Whether an interval happened after another one.
    pub(super) fn is_after(&self, late: (NodeId, u64), early: (NodeId, u64)) -> bool {
        let known = self.records.get(&late);
        known.is_some_and(|known| known.record.time.has(early.0, early.1))
    }

    /// Whether neither interval happened before the other. False if one of them is collected,
    /// because that is not known any more.
    pub(super) fn is_concurrent(&self, one: (NodeId, u64), other: (NodeId, u64)) -> bool {
        let known = |of| self.records.contains_key(&of);
        one.0 != other.0
            && known(one)
            && known(other)
            && !self.is_after(one, other)
            && !self.is_after(other, one)
    }

    /// Number of records.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Everything in this time is collected: drops its records.
    pub(super) fn collect(&mut self, upto: &VectorTime) {
        self.time.join(upto);
        self.floor.join(upto);
        let floor = &self.floor;
        self.records
            .retain(|(node, index), _| !floor.has(*node, *index));
    }
}

/// Whether a record is well formed; peers may send anything.
pub(super) fn is_sound(record: &IntervalRecord, pages: u32) -> bool {
    let IntervalRecord { node, time, .. } = record;
    let mut end = 0;
    let rising = record.pages.iter().all(|run| {
        let fits = run.count > 0 && run.first.0 >= end;
        end = run.first.0.saturating_add(run.count);
        fits && end <= pages
    });
    node.is_valid() && time.get(*node) == 0 && rising && record.pages.len() <= IntervalRecord::RUNS
}

/// Joins neighbouring pages into runs.
fn runs(pages: &BTreeSet<PageIndex>) -> Vec<PageRun> {
    let mut runs: Vec<PageRun> = Vec::new();
    for page in pages {
        match runs.last_mut() {
            Some(run) if run.first.0 + run.count == page.0 => run.count += 1,
            _ => runs.push(PageRun {
                first: *page,
                count: 1,
            }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);

    fn pages(pages: &[u32]) -> BTreeSet<PageIndex> {
        pages.iter().copied().map(PageIndex).collect()
    }

    #[test]
    fn what_one_ends_another_learns_in_order() {
        let (mut a, mut b) = (History::default(), History::default());
        a.end(A, &pages(&[1, 2, 3, 9]));
        a.end(A, &pages(&[2]));
        let news = a.since(&b.time, &a.time);
        assert_eq!(news.records[0].pages.len(), 2, "two runs");
        assert!(!b.take(B, 10, &news.records[1]), "not before the first");
        assert_eq!(b.time, VectorTime::ZERO);
        assert!(news.records.iter().all(|record| b.take(B, 10, record)));
        assert!(!b.take(B, 10, &news.records[1]), "no news");
        assert!(b.time.covers(&news.goal));
        b.end(B, &pages(&[3]));
        let back = b.since(&a.time, &b.time);
        assert_eq!(back.records.len(), 1);
        assert!(a.take(A, 10, &back.records[0]));
        assert!(a.is_after((B, 1), (A, 2)) && !a.is_after((A, 2), (B, 1)));
        assert!(a.rank(A, 2) < a.rank(B, 1));
    }

    #[test]
    fn who_did_not_know_of_each_other_is_concurrent_until_that_is_forgotten() {
        let (mut a, mut b) = (History::default(), History::default());
        a.end(A, &pages(&[1]));
        b.end(B, &pages(&[1]));
        assert!(!a.is_concurrent((A, 1), (B, 1)), "b's is not known here");
        for record in &b.since(&VectorTime::ZERO, &b.time).records {
            assert!(a.take(A, 10, record));
        }
        assert!(a.is_concurrent((A, 1), (B, 1)) && a.is_concurrent((B, 1), (A, 1)));
        a.end(A, &pages(&[1]));
        assert!(!a.is_concurrent((A, 2), (B, 1)), "learned before");
        assert!(!a.is_concurrent((A, 2), (A, 1)), "one node");
        a.collect(&a.time.clone());
        assert!(!a.is_concurrent((A, 1), (B, 1)));
    }

    #[test]
    fn who_wrote_everywhere_ends_several_intervals() {
        let mut a = History::default();
        let scattered: BTreeSet<_> = (0..1000).map(|page| PageIndex(2 * page)).collect();
        let named = a.end(A, &scattered);
        assert_eq!(
            a.time.get(A),
            1000_u64.div_ceil(IntervalRecord::RUNS as u64)
        );
        assert_eq!(named.len(), 1000);
        let mut b = History::default();
        let mut rounds = 0;
        while !b.time.covers(&a.time) {
            let news = a.since(&b.time, &a.time);
            assert!(!news.records.is_empty(), "any record fits");
            for record in &news.records {
                assert!(b.take(B, 2000, record));
            }
            rounds += 1;
        }
        assert!(rounds > 1);
    }

    /// The result is the same as if all lacking records were sorted first.
    #[test]
    fn what_fits_is_told_in_the_order_of_all() {
        let mut all = [History::default(), History::default(), History::default()];
        let nodes = [A, B, NodeId(3)];
        for turn in 0..400_u32 {
            let at = (turn * 7 % 11 % 3) as usize;
            let first = turn % 30;
            all[at].end(nodes[at], &pages(&[first, first + 2]));
            let to = (turn * 5 % 7 % 3) as usize;
            let news = all[at].since(&all[to].time, &all[at].time);
            for record in &news.records {
                all[to].take(nodes[to], 100, record);
            }
        }
        let [told, ..] = &all;
        for known in [VectorTime::ZERO, VectorTime::from_iter([(A, 40), (B, 3)])] {
            let mut order: Vec<_> = told.records.values().collect();
            order.retain(|one| !known.has(one.record.node, one.record.index));
            let sum = |record: &IntervalRecord| record.time.intervals() + record.index;
            order.sort_by_key(|one| (sum(&one.record), one.record.node));
            let news = told.since(&known, &told.time).records;
            assert!(news.len() > 10 && news.len() < order.len());
            let order = order.into_iter().map(|one| &one.record);
            assert!(news.iter().eq(order.take(news.len())));
        }
    }

    #[test]
    fn hostile_records_are_not_taken() {
        let good = IntervalRecord {
            node: A,
            index: 1,
            time: VectorTime::ZERO,
            pages: vec![PageRun {
                first: PageIndex(0),
                count: 2,
            }],
        };
        let mut of_me = History::default();
        assert!(!of_me.take(A, 2, &good), "nobody tells me what I did");
        let mut history = History::default();
        let long = [(0, 3), (0, 0), (u32::MAX, u32::MAX)];
        for (first, count) in long {
            let first = PageIndex(first);
            let pages = vec![PageRun { first, count }];
            let bad = IntervalRecord {
                pages,
                ..good.clone()
            };
            assert!(!history.take(B, 2, &bad), "{bad:?}");
        }
        let index = u64::MAX;
        assert!(!history.take(
            B,
            2,
            &IntervalRecord {
                index,
                ..good.clone()
            }
        ));
        assert!(history.take(B, 2, &good));
    }
}
