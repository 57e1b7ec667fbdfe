//! A node as the backup of others, its *wards*: it has what their intervals changed, and learns of
//! the intervals before anybody else does.
//!
//! The records that a ward names are not learnt before their diffs are here, and what happened before
//! them is known: this node would tell them on, and would need the diffs itself. If the ward is gone
//! before that, they never happened (INV-dead-tell-nothing).

use super::diff_store::DiffStore;
use super::history::is_sound;
use super::inquiries::OnReply;
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

    /// Looks which diffs of its records are not here and not collected.
    fn look_for_missing(&mut self, floor: &VectorTime, diffs: &DiffStore) {
        let names = self.records.iter().flat_map(IntervalRecord::diffs);
        let lacks = |name: &DiffName| !floor.has(name.node, name.interval) && !diffs.has(name);
        self.missing = names.filter(lacks).collect();
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
    fn came(&mut self, names: &[DiffName]) -> BTreeSet<NodeId> {
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
    fn collected(&mut self, floor: &VectorTime) -> BTreeSet<NodeId> {
        let kept = |name: &DiffName| !floor.has(name.node, name.interval);
        for ward in self.wards.values_mut() {
            ward.missing.retain(kept);
            ward.asked.retain(kept);
        }
        self.wards.keys().copied().collect()
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
        ward.inquires &= ward.upto == upto;
        (ward.upto, ward.records) = (upto, records);
        ward.asked.clear();
        ward.look_for_missing(self.intervals.history.floor(), &self.memory.diffs);
        ward.pull(cx, self.rules.segment, from);
        self.advance_ward(cx, from);
    }

    /// Diffs of wards have arrived.
    pub(super) fn wards_have(&mut self, cx: &mut Cx<'_>, names: &[DiffName]) {
        let wards = self.replicas.came(names);
        self.advance_wards(cx, wards);
    }

    /// Intervals were collected: their diffs are not missing any more.
    pub(super) fn wards_collected(&mut self, cx: &mut Cx<'_>) {
        let wards = self.replicas.collected(self.intervals.history.floor());
        self.advance_wards(cx, wards);
    }

    fn advance_wards(&mut self, cx: &mut Cx<'_>, wards: BTreeSet<NodeId>) {
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
        if !ward.missing.is_empty() || ward.records.is_empty() {
            return;
        }
        let before = ward.before();
        if !self.intervals.history.time().covers(&before) {
            if !core::mem::replace(&mut ward.inquires, true) {
                self.open_goal(cx, Some(before), node, OnReply::Ward(node));
            }
            return;
        }
        let upto = ward.upto;
        let records = core::mem::take(&mut ward.records);
        self.learn_records(cx, node, records);
        let knows = self.intervals.history.time().has(node, upto);
        if let Some(ward) = self.replicas.wards.get_mut(&node).filter(|_| knows) {
            ward.kept = ward.kept.max(upto);
            let time = self
                .replicas
                .tellable(&self.intervals.history, cx.me())
                .into_owned();
            say(
                cx,
                self.rules.segment,
                node,
                &Body::Kept(Kept { upto, time }),
            );
        }
    }

    /// Learns of intervals whose diffs are here: they go into pages in use, as pushed ones do.
    fn learn_records(&mut self, cx: &mut Cx<'_>, node: NodeId, records: Vec<IntervalRecord>) {
        for record in &records {
            for page in record.each_page() {
                let name = DiffName {
                    page,
                    node,
                    interval: record.index,
                };
                if self.memory.diffs.has(&name)
                    && self.memory.welcomes(&name, &self.intervals.history)
                {
                    self.memory.diffs.keep_early(name);
                }
            }
        }
        let last = records.last().map_or(0, |record| record.index);
        let news = News {
            floor: VectorTime::ZERO,
            goal: VectorTime::from_iter([(node, last)]),
            records,
        };
        self.take_in(cx, node, &news);
    }

    /// What happened before the intervals of a ward is known, or all has been told.
    pub(super) fn ward_told(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        let Some(ward) = self.replicas.wards.get_mut(&node) else {
            return;
        };
        ward.inquires = false;
        if self.intervals.history.time().covers(&ward.before()) {
            self.advance_ward(cx, node);
        }
    }
}
