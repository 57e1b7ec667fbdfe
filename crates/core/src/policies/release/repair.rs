//! What becomes of copies when a node is gone, in a segment with replicas: what is on one node only
//! is brought to another one.
//!
//! A collection does that: it leaves what it collects on two nodes, the keeper of a page and its
//! deputy. So when a node is gone, what it or its backup alone had is collected; pages that it kept
//! are named by the other one of the two, as if that had written them, and get a keeper and a deputy
//! anew.

use super::Release;
use super::inquiries::OnReply;
use super::lead::Lead;
use super::memory::Memory;
use super::page::{Copy, Page};
use crate::effect::{DiffWork, Effect};
use crate::shell::Cx;
use pagemesh_wire::{NodeId, NodeSet, PageIndex};

/// The deputy of a page's keeper: the next one of the possible keepers. All nodes that collect choose
/// the same.
pub(super) fn deputy_of(keeper: NodeId, keepers: &NodeSet) -> Option<NodeId> {
    let others = keepers.without(&NodeSet::only(keeper));
    let next = others.iter().find(|node| *node > keeper);
    next.or_else(|| others.iter().next())
}

impl Memory {
    /// Whether this node alone has what is collected of a page.
    fn is_lonely(&self, me: NodeId, page: &Page) -> bool {
        self.replicated
            && page.keeper == Some(me)
            && page.deputy.is_none()
            && page.copy != Copy::None
            && page.lost.is_none()
    }

    /// Pages that are on no second node, as far as this node must see to that: while it `repairs`, also
    /// those that have changes which are not collected.
    pub(super) fn unreplicated(&self, me: NodeId, repairs: bool) -> u64 {
        let counts = |page: &Page| self.is_lonely(me, page) || repairs && !page.notices.is_empty();
        self.pages.count(counts)
    }

    /// Where a keeper's deputy is gone, or a deputy's keeper, the other one is alone.
    pub(super) fn mind_partners(&mut self, cx: &Cx<'_>) {
        let me = cx.me();
        let gone = |node: Option<NodeId>| node.is_some_and(|node| cx.is_gone(node));
        let alone = |page: &Page| page.is_kept_by(me) && (gone(page.keeper) || gone(page.deputy));
        for index in self.pages.which(alone) {
            let page = self.pages.page(index);
            (page.keeper, page.deputy) = (Some(me), None);
        }
    }

    /// The pages in their frames that are to be named as if they had been stored to.
    fn store_as_if(&mut self, cx: &mut Cx<'_>, pages: &[PageIndex]) {
        for index in pages {
            let Some(page) = self.pages.get_mut(index) else {
                continue;
            };
            if !page.twin {
                page.twin = true;
                let (pages, source) = ((self.segment, *index).into(), page.before_store());
                cx.push(Effect::Diffs(DiffWork::Twin { pages, source }));
            }
            self.pages.writes(*index);
        }
    }
}

impl Release {
    /// Sees to it that pages which this node alone has get a keeper and a deputy. `endangered` if
    /// intervals are perhaps on one node only.
    pub(super) fn repair(&mut self, cx: &mut Cx<'_>, endangered: bool) {
        let me = cx.me();
        if !self.replicas.on {
            return;
        }
        let lonely = self
            .memory
            .pages
            .which(|page| self.memory.is_lonely(me, page));
        if endangered {
            self.replicas.repair = Some(self.intervals.history.time().clone());
        }
        if lonely.is_empty() && self.replicas.repair.is_none() {
            return;
        }
        if self
            .replicas
            .choose_backup(cx, &self.intervals.heard)
            .is_none()
            || self.collector.leaves()
        {
            return self.replicas.look_later(cx, self.rules.segment);
        }
        let mut others = lonely
            .iter()
            .filter_map(|index| self.memory.pages.get(index));
        if others.any(|page| page.notices.is_empty()) {
            self.name_as_written(cx, |page| {
                page.keeper == Some(me) && page.deputy.is_none() && page.lost.is_none()
            });
        }
        if !lonely.is_empty() {
            self.replicas.repair = Some(self.intervals.history.time().clone());
        }
        self.backup(cx).want_kept();
        self.lead(cx, Lead::MindTheBound);
    }

    /// Something was collected.
    pub(super) fn repaired(&mut self, cx: &mut Cx<'_>) {
        if !self.replicas.on {
            return;
        }
        let floor = self.intervals.history.floor();
        self.replicas.repair.take_if(|repair| floor.covers(repair));
        self.memory.mind_partners(cx);
        let wards = self.replicas.collected(floor);
        self.advance_wards(cx, wards);
        self.backup(cx).pump();
        let repairs = self.replicas.repair.is_some();
        if self.memory.unreplicated(cx.me(), repairs) > 0 {
            self.replicas.look_later(cx, self.rules.segment);
        }
    }

    /// Names pages as if this node had written them: so the next round finds another keeper for each.
    pub(super) fn name_as_written(&mut self, cx: &mut Cx<'_>, pick: impl Fn(&Page) -> bool) {
        let stowed = self
            .memory
            .pages
            .which(|page| pick(page) && page.notices.is_empty() && page.copy == Copy::Stash);
        for index in stowed {
            self.open_miss(cx, index, None);
        }
        let kept = self
            .memory
            .pages
            .which(|page| pick(page) && page.notices.is_empty() && page.copy == Copy::Frame);
        self.memory.store_as_if(cx, &kept);
        self.end_interval(cx);
        for index in kept {
            self.memory.make_diff(cx, index, true);
        }
    }

    /// Copies may have intervals of a node that is gone which this node does not know. Some node
    /// does, since they were kept before the copy was sent: until all have told, such copies are out
    /// of sight.
    pub(super) fn doubt(&mut self, cx: &mut Cx<'_>) {
        let doubtful = self
            .memory
            .pages
            .which(|page| self.intervals.is_doubtful(cx, page));
        if doubtful.is_empty() {
            return;
        }
        self.end_interval(cx);
        for index in doubtful {
            let framed = |page: &Page| page.copy == Copy::Frame;
            if self.memory.pages.get(&index).is_some_and(framed) {
                self.memory.stow(cx, index, true);
            }
        }
        let peers = cx.shell.peers();
        let known = self.intervals.history.time();
        self.intervals
            .inquiries
            .ask_nodes(cx, known, None, (peers, OnReply::Doubts));
        self.check_goals(cx);
    }

    /// All nodes have told what they know of those that are gone.
    pub(super) fn end_doubts(&mut self, cx: &mut Cx<'_>) {
        self.drop_what_nobody_told(cx);
        let waiting = self.memory.pages.which(|page| page.miss.is_some());
        self.go_on(cx, waiting);
        self.repair(cx, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_nodes_choose_the_same_deputy() {
        let keepers: NodeSet = [NodeId(1), NodeId(3), NodeId(4)].into_iter().collect();
        assert_eq!(deputy_of(NodeId(1), &keepers), Some(NodeId(3)));
        assert_eq!(deputy_of(NodeId(4), &keepers), Some(NodeId(1)));
        assert_eq!(deputy_of(NodeId(2), &keepers), Some(NodeId(3)), "it leaves");
        assert_eq!(deputy_of(NodeId(1), &NodeSet::only(NodeId(1))), None);
    }
}
