//! The write notices of a page, and which of them its copy has.

use pagemesh_wire::peer::DiffName;
use pagemesh_wire::{NodeId, NodeSet, PageIndex, VectorTime};
use serde::{Deserialize, Serialize};

/// An interval in which a page was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Notice {
    /// Its place in an order in which diffs may be merged, together with the node.
    rank: u64,
    node: NodeId,
    interval: u64,
}

impl Notice {
    fn place(&self) -> (u64, NodeId) {
        (self.rank, self.node)
    }

    fn is_in(&self, time: &VectorTime) -> bool {
        time.has(self.node, self.interval)
    }
}

/// The write notices of a page that are not collected.
///
/// A page of a lock that many nodes take has thousands of notices, of which its copy lacks a few.
/// The lacking ones are looked at whenever a diff or a notice of the page arrives, so they are kept
/// apart: behind the others, in order. Of one node the earlier interval always comes first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Notices {
    all: Vec<Notice>,
    /// The first `merged` of them are in the copy.
    merged: usize,
    /// The intervals that the copy has, if there is a copy.
    applied: VectorTime,
}

impl Notices {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn applied(&self) -> &VectorTime {
        &self.applied
    }

    /// A node wrote the page, in an interval that has this rank.
    pub(super) fn add(&mut self, (node, interval): (NodeId, u64), rank: u64) {
        let notice = Notice {
            rank,
            node,
            interval,
        };
        if notice.is_in(&self.applied) {
            self.all.insert(self.merged, notice);
            self.merged += 1;
            return;
        }
        let before = self.lacking();
        let place = before.partition_point(|other| other.place() < notice.place());
        self.all.insert(self.merged + place, notice);
    }

    /// The copy has this interval now, too.
    pub(super) fn apply(&mut self, node: NodeId, interval: u64) {
        self.apply_all([(node, interval)]);
    }

    pub(super) fn apply_all(&mut self, intervals: impl IntoIterator<Item = (NodeId, u64)>) {
        for (node, interval) in intervals {
            self.applied.raise(node, interval);
        }
        self.merged = divide(&mut self.all, self.merged, &self.applied);
    }

    /// There is another copy, which has `applied`, or none, which has nothing.
    pub(super) fn restart(&mut self, applied: VectorTime) {
        self.applied = applied;
        self.merged = divide(&mut self.all, 0, &self.applied);
        self.all[self.merged..].sort_by_key(Notice::place);
    }

    /// Everything in this time is collected: drops its notices. Whether the copy has them is for
    /// the caller to decide.
    pub(super) fn forget(&mut self, upto: &VectorTime) {
        let kept = |notice: &&Notice| !notice.is_in(upto);
        let merged = self.all[..self.merged].iter().filter(kept).count();
        self.all.retain(|notice| !notice.is_in(upto));
        self.merged = merged;
    }

    /// What is to be merged into the copy, in an order in which it may be merged.
    pub(super) fn pending(&self, page: PageIndex) -> Vec<DiffName> {
        let name = |notice: &Notice| DiffName {
            page,
            node: notice.node,
            interval: notice.interval,
        };
        self.lacking().iter().map(name).collect()
    }

    /// The node that wrote last what is to be merged into the copy.
    pub(super) fn last_lacking(&self) -> Option<NodeId> {
        self.lacking().last().map(|notice| notice.node)
    }

    /// The node that wrote what was merged into the copy; the last one that became known.
    pub(super) fn last_merged(&self) -> Option<NodeId> {
        let last = self.all[..self.merged].last();
        last.map(|notice| notice.node)
    }

    /// The node that alone wrote what is to be merged into the copy.
    pub(super) fn only_lacking(&self) -> Option<NodeId> {
        let last = self.last_lacking()?;
        let mut lacking = self.lacking().iter();
        lacking.all(|notice| notice.node == last).then_some(last)
    }

    /// Whether this interval is known, and not in the copy.
    pub(super) fn is_pending(&self, node: NodeId, interval: u64) -> bool {
        let mut lacking = self.lacking().iter();
        lacking.any(|notice| (notice.node, notice.interval) == (node, interval))
    }

    /// Whether an interval in this time is not in the copy.
    pub(super) fn lacks(&self, upto: &VectorTime) -> bool {
        self.lacking().iter().any(|notice| notice.is_in(upto))
    }

    /// Whether any notice is in this time.
    pub(super) fn any_in(&self, upto: &VectorTime) -> bool {
        self.all.iter().any(|notice| notice.is_in(upto))
    }

    /// Whether any other node wrote the page.
    pub(super) fn any_but(&self, node: NodeId) -> bool {
        self.all.iter().any(|notice| notice.node != node)
    }

    /// The node of each interval in which the page was written.
    pub(super) fn writers(&self) -> impl Iterator<Item = NodeId> {
        self.all.iter().map(|notice| notice.node)
    }

    /// The intervals of one node, the last one first.
    pub(super) fn of(&self, node: NodeId) -> impl Iterator<Item = u64> {
        let of_node = self.all.iter().rev().filter(move |one| one.node == node);
        of_node.map(|notice| notice.interval)
    }

    /// The diffs that a node made of the page after an interval, the first one first.
    pub(super) fn since(&self, (node, seen): (NodeId, u64), page: PageIndex) -> Vec<DiffName> {
        let new = self.of(node).take_while(|interval| *interval > seen);
        let name = |interval| DiffName {
            page,
            node,
            interval,
        };
        let mut names: Vec<_> = new.map(name).collect();
        names.reverse();
        names
    }

    /// The node that wrote the page last before `upto`, of those in `among`.
    pub(super) fn last_writer(&self, upto: &VectorTime, among: &NodeSet) -> Option<NodeId> {
        let in_question = |one: &&Notice| one.is_in(upto) && among.contains(one.node);
        let last = self
            .all
            .iter()
            .filter(in_question)
            .max_by_key(|one| one.place());
        last.map(|notice| notice.node)
    }

    fn lacking(&self) -> &[Notice] {
        &self.all[self.merged..]
    }
}

/// Puts notices that are in a time before those that are not, and keeps the order of both; those
/// before `from` are in front already. Returns how many are in front.
fn divide(notices: &mut [Notice], from: usize, time: &VectorTime) -> usize {
    let mut behind = Vec::new();
    let mut front = from;
    for place in from..notices.len() {
        let notice = notices[place];
        if notice.is_in(time) {
            notices[front] = notice;
            front += 1;
        } else {
            behind.push(notice);
        }
    }
    notices[front..].copy_from_slice(&behind);
    front
}

#[cfg(test)]
mod tests;
