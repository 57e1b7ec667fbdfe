//! A node as the backup of others, its *wards*: it has what their intervals changed, and learns of
//! the intervals before anybody else does.
//!
//! The records that a ward names are not learnt before their diffs are here, and what happened before
//! them is known: this node would tell them on, and would need the diffs itself. If the ward is gone
//! before that, they never happened (INV-dead-tell-nothing).

use super::diff_store::DiffStore;
use super::history::{History, is_sound};
use super::inquiries::OnReply;
use super::memory::Memory;
use super::messages::{Body, DiffRequest, IntervalRecord, Keep, Kept, News};
use super::replicas::Replicas;
use super::{Release, say};
use crate::event::Event;
use crate::limits::PUSHED;
use crate::shell::Cx;
use pagemesh_wire::peer::DiffName;
use pagemesh_wire::{NodeId, SegmentId, VectorTime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What a ward has named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Ward {
    /// Its intervals up to this one are here.
    kept: u64,
    /// It has asked to keep those up to this one.
    upto: u64,
    /// Their records, until they are learnt.
    records: Vec<IntervalRecord>,
    /// Diffs that are not here, and those of them that are requested.
    missing: BTreeSet<DiffName>,
    asked: BTreeSet<DiffName>,
    /// It was asked what happened before.
    inquires: bool,
}

/// What the records of a ward need next.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Diffs, or an answer, or nothing.
    Waits,
    /// The ward is asked for what happened before them.
    Inquire(VectorTime),
    /// They are learnt up to this one.
    Learn(u64, Vec<IntervalRecord>),
}

impl Ward {
    /// What must be known before the records are learnt.
    fn before(&self) -> VectorTime {
        let mut before = VectorTime::ZERO;
        for record in &self.records {
            before.join(&record.time);
        }
        if let Some(first) = self.records.first() {
            before.raise(first.node, first.index - 1);
        }
        before
    }

    /// It asks to keep these intervals. Looks which of their diffs are not here and not collected.
    fn names(
        &mut self,
        (upto, records): (u64, Vec<IntervalRecord>),
        (floor, diffs): (&VectorTime, &DiffStore),
    ) {
        self.inquires &= self.upto == upto;
        (self.upto, self.records) = (upto, records);
        self.asked.clear();
        let names = self.records.iter().flat_map(IntervalRecord::diffs);
        let lacks = |name: &DiffName| !floor.has(name.node, name.interval) && !diffs.has(name);
        self.missing = names.filter(lacks).collect();
    }

    /// What its records need next, where this much is known.
    fn next(&mut self, known: &VectorTime) -> Next {
        if !self.missing.is_empty() || self.records.is_empty() {
            return Next::Waits;
        }
        let before = self.before();
        if known.covers(&before) {
            return Next::Learn(self.upto, core::mem::take(&mut self.records));
        }
        match core::mem::replace(&mut self.inquires, true) {
            true => Next::Waits,
            false => Next::Inquire(before),
        }
    }

    /// Requests some of the diffs that are missing, if none is requested.
    fn pull(&mut self, cx: &mut Cx<'_>, segment: SegmentId, from: NodeId) {
        if !self.asked.is_empty() {
            return;
        }
        self.asked = self.missing.iter().take(PUSHED).copied().collect();
        let names: Vec<_> = self.asked.iter().copied().collect();
        for diffs in names.chunks(DiffRequest::LIMIT) {
            let want = DiffRequest {
                request: cx.next_request(),
                diffs: diffs.to_vec(),
            };
            say(cx, segment, from, &Body::DiffRequest(want));
        }
    }
}

impl Replicas {
    /// Whether a diff is of a ward, and not collected.
    pub(super) fn is_of_ward(&self, name: &DiffName, pages: u32, floor: &VectorTime) -> bool {
        self.wards.contains_key(&name.node)
            && name.page.0 < pages
            && !floor.has(name.node, name.interval)
    }

    /// Whether this node has diffs of a ward that are not collected.
    pub(super) fn keeps_for_wards(&self, floor: &VectorTime) -> bool {
        let mut wards = self.wards.iter();
        wards.any(|(node, ward)| ward.kept > floor.get(*node))
    }

    /// Requests some of the diffs of a ward that are missing.
    fn pull(&mut self, cx: &mut Cx<'_>, segment: SegmentId, from: NodeId) {
        if let Some(ward) = self.wards.get_mut(&from) {
            ward.pull(cx, segment, from);
        }
    }

    /// Diffs have arrived. Returns the wards of which some were missing.
    pub(super) fn came(&mut self, names: &[DiffName]) -> BTreeSet<NodeId> {
        let mut nodes = BTreeSet::new();
        for name in names {
            if let Some(ward) = self.wards.get_mut(&name.node)
                && ward.missing.remove(name)
            {
                ward.asked.remove(name);
                nodes.insert(name.node);
            }
        }
        nodes
    }

    /// Intervals were collected: their diffs are not missing any more. Returns the wards.
    pub(super) fn collected(&mut self, floor: &VectorTime) -> BTreeSet<NodeId> {
        let kept = |name: &DiffName| !floor.has(name.node, name.interval);
        for ward in self.wards.values_mut() {
            ward.missing.retain(kept);
            ward.asked.retain(kept);
        }
        self.wards.keys().copied().collect()
    }

    /// A ward has told what happened before its intervals. Returns whether that is all known.
    pub(super) fn ward_told(&mut self, node: NodeId, known: &VectorTime) -> bool {
        let ward = self.wards.get_mut(&node);
        ward.is_some_and(|ward| {
            ward.inquires = false;
            known.covers(&ward.before())
        })
    }

    /// Tells a ward that its intervals up to this one are here, if this node has learnt them.
    fn tell_kept(
        &mut self,
        cx: &mut Cx<'_>,
        (segment, history): (SegmentId, &History),
        (node, upto): (NodeId, u64),
    ) {
        if !history.time().has(node, upto) {
            return;
        }
        let time = self.tellable(history, cx.me()).into_owned();
        if let Some(ward) = self.wards.get_mut(&node) {
            ward.kept = ward.kept.max(upto);
            say(cx, segment, node, &Body::Kept(Kept { upto, time }));
        }
    }
}

impl Memory {
    /// The diffs of records that are about to be learnt go into pages in use, as pushed ones do.
    fn expect(&mut self, history: &History, records: &[IntervalRecord]) {
        for name in records.iter().flat_map(IntervalRecord::diffs) {
            if self.diffs.has(&name) && self.welcomes(&name, history) {
                self.diffs.keep_early(name);
            }
        }
    }
}

/// Whether records are those of a node, one after the other, up to this one.
fn are_of(node: NodeId, upto: u64, records: &[IntervalRecord], pages: u32) -> bool {
    let follows = |pair: &[IntervalRecord]| pair[0].index.checked_add(1) == Some(pair[1].index);
    let sound = |record: &IntervalRecord| {
        record.node == node && record.index > 0 && is_sound(record, pages)
    };
    records.last().is_some_and(|last| last.index == upto)
        && records.iter().all(sound)
        && records.windows(2).all(follows)
}

impl Release {
    /// A node asks this one to keep its intervals.
    pub(super) fn keep(&mut self, cx: &mut Cx<'_>, from: NodeId, keep: Keep) {
        let Keep {
            upto,
            records,
            news,
        } = keep;
        if !self.replicas.on || !are_of(from, upto, &records, self.rules.size) {
            return cx.emit(Event::Malformed {});
        }
        if self.collector.leaves() {
            return say(cx, self.rules.segment, from, &Body::Leaving);
        }
        self.take_in(cx, from, &news);
        let ward = self.replicas.wards.entry(from).or_default();
        let here = (self.intervals.history.floor(), &self.memory.diffs);
        ward.names((upto, records), here);
        ward.pull(cx, self.rules.segment, from);
        self.advance_ward(cx, from);
    }

    /// Fewer diffs of these wards are missing.
    pub(super) fn advance_wards(&mut self, cx: &mut Cx<'_>, wards: BTreeSet<NodeId>) {
        for node in wards {
            self.replicas.pull(cx, self.rules.segment, node);
            self.advance_ward(cx, node);
        }
    }

    /// Learns what a ward has named, if all that it needs is here, and tells the ward.
    pub(super) fn advance_ward(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        let Some(ward) = self.replicas.wards.get_mut(&node) else {
            return;
        };
        match ward.next(self.intervals.history.time()) {
            Next::Waits => {}
            Next::Inquire(before) => {
                self.open_goal(cx, Some(before), node, OnReply::Ward(node));
            }
            Next::Learn(upto, records) => {
                self.memory.expect(&self.intervals.history, &records);
                let news = News {
                    floor: VectorTime::ZERO,
                    goal: VectorTime::from_iter([(node, upto)]),
                    records,
                };
                self.take_in(cx, node, &news);
                let of = (self.rules.segment, &self.intervals.history);
                self.replicas.tell_kept(cx, of, (node, upto));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::messages::PageRun;
    use super::*;
    use pagemesh_wire::PageIndex;

    const WARD: NodeId = NodeId(3);
    const OTHER: NodeId = NodeId(4);
    const PAGE: PageIndex = PageIndex(5);

    /// A ward has named its second interval, in which it stored to a page and knew one interval of
    /// another node.
    fn named(floor: &VectorTime, diffs: &DiffStore) -> (Ward, Vec<IntervalRecord>) {
        let mut ward = Ward::default();
        let records = vec![IntervalRecord {
            node: WARD,
            index: 2,
            time: VectorTime::from_iter([(OTHER, 1)]),
            pages: vec![PageRun {
                first: PAGE,
                count: 1,
            }],
        }];
        ward.names((2, records.clone()), (floor, diffs));
        (ward, records)
    }

    #[test]
    fn records_are_learnt_when_their_diffs_and_what_was_before_are_here() {
        let (mut ward, records) = named(&VectorTime::ZERO, &DiffStore::default());
        let before = VectorTime::from_iter([(OTHER, 1), (WARD, 1)]);
        assert_eq!(ward.next(&before), Next::Waits, "for the diff");
        ward.missing.clear();
        assert_eq!(ward.next(&VectorTime::ZERO), Next::Inquire(before.clone()));
        assert_eq!(ward.next(&VectorTime::ZERO), Next::Waits, "it was asked");
        assert_eq!(ward.next(&before), Next::Learn(2, records));
        assert_eq!(ward.next(&before), Next::Waits, "once");
    }

    #[test]
    fn diffs_that_are_here_or_collected_are_not_missing() {
        let name = DiffName {
            page: PAGE,
            node: WARD,
            interval: 2,
        };
        let mut diffs = DiffStore::default();
        assert!(diffs.keep(name));
        let (ward, _) = named(&VectorTime::ZERO, &diffs);
        assert!(ward.missing.is_empty());
        let floor = VectorTime::from_iter([(WARD, 2)]);
        let (ward, _) = named(&floor, &DiffStore::default());
        assert!(ward.missing.is_empty());
    }
}
