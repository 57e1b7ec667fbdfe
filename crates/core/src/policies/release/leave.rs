//! This node leaves: its intervals are collected first, and other nodes become the keepers of its
//! pages.

use super::Release;
use super::page::Copy;
use crate::shell::Cx;
use pagemesh_wire::NodeId;

impl Release {
    /// Whether another node may need what only this node has.
    pub(super) fn is_needed(&self, me: NodeId) -> bool {
        let kept = |page: &super::page::Page| page.is_kept_by(me) && page.copy != Copy::None;
        let mut pages = self.memory.pages.iter();
        let keeps = pages.any(|(_, page)| kept(page) && page.lost.is_none());
        let own = self.intervals.history.time().get(me) > self.intervals.history.floor().get(me);
        keeps
            || own
            || self
                .replicas
                .keeps_for_wards(self.intervals.history.floor())
            || self.replicas.repair.is_some()
    }

    /// This node leaves: all its intervals are collected first, and other nodes become the keepers
    /// of its pages. Returns how much is left to do.
    pub(super) fn give_up(&mut self, cx: &mut Cx<'_>) -> usize {
        let me = cx.me();
        self.end_interval(cx);
        // Arrivals at barriers may wait for news, too: they are handed over when they count.
        let waiting = self.memory.pages.which(|page| page.miss.is_some()).len()
            + self.intervals.inquiries.goals();
        self.collector.leave();
        self.prefetch.willneed_ranges.clear();
        // Only what is kept can be collected.
        self.backup(cx).want_kept();
        if self.round.is_under_way() {
            return waiting + 1;
        }
        if !self.is_needed(me) {
            return waiting;
        }
        if self.collector.time().is_none() {
            self.give_up_pages(cx, me);
            self.backup(cx).want_kept();
        }
        self.mind_the_bound(cx);
        waiting + 1
    }

    /// Names the pages that this node keeps as if it had written them: so the next round finds
    /// another keeper for each.
    pub(super) fn give_up_pages(&mut self, cx: &mut Cx<'_>, me: NodeId) {
        self.name_as_written(cx, |page| page.is_kept_by(me));
    }
}
