//! This node leaves: its intervals are collected first, and other nodes become the keepers of its
//! pages.

use super::Release;
use super::page::Copy;
use crate::effect::{DiffWork, Effect};
use crate::shell::Cx;
use pagemesh_wire::NodeId;

impl Release {
    /// Whether another node may need what only this node has.
    pub(super) fn is_needed(&self, me: NodeId) -> bool {
        let kept = |page: &super::page::Page| page.keeper == Some(me) && page.copy != Copy::None;
        let mut pages = self.pages.iter();
        let keeps = pages.any(|(_, page)| kept(page) && page.lost.is_none());
        keeps || self.history.time().get(me) > self.history.floor().get(me)
    }

    /// This node leaves: all its intervals are collected first, and other nodes become the keepers
    /// of its pages. Returns how much is left to do.
    pub(super) fn give_up(&mut self, cx: &mut Cx<'_>) -> usize {
        let me = cx.me();
        self.end_interval(cx);
        // Arrivals at barriers may wait for news, too: they are handed over when they count.
        let waiting = self.pages.which(|page| page.miss.is_some()).len() + self.inquiries.goals();
        self.collector.leave();
        self.prefetch.willneed_ranges.clear();
        if self.round.is_under_way() {
            return waiting + 1;
        }
        if !self.is_needed(me) {
            return waiting;
        }
        if self.collector.time().is_none() {
            self.give_up_pages(cx, me);
        }
        self.mind_the_bound(cx);
        waiting + 1
    }

    /// Names the pages that this node keeps as if it had written them: so the next round finds
    /// another keeper for each.
    pub(super) fn give_up_pages(&mut self, cx: &mut Cx<'_>, me: NodeId) {
        let segment = self.segment;
        let stowed = self.pages.which(|page| {
            page.keeper == Some(me) && page.notices.is_empty() && page.copy == Copy::Stash
        });
        for index in stowed {
            self.open_miss(cx, index, None);
        }
        let kept = self.pages.which(|page| {
            page.keeper == Some(me) && page.notices.is_empty() && page.copy == Copy::Frame
        });
        for index in &kept {
            let Some(page) = self.pages.get_mut(index) else {
                continue;
            };
            if !page.twin {
                page.twin = true;
                let (pages, source) = ((segment, *index).into(), page.before_store());
                cx.push(Effect::Diffs(DiffWork::Twin { pages, source }));
            }
            self.pages.writes(*index);
        }
        self.end_interval(cx);
        for index in kept {
            self.make_diff(cx, index, true);
        }
    }
}
