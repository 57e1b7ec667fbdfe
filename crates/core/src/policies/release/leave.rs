//! This node leaves: its intervals are collected first, and other nodes become the keepers of its
//! pages.

use super::Release;
use super::lead::Lead;
use super::memory::Memory;
use super::page::Copy;
use super::push_credit::PushCredit;
use crate::effect::Effect;
use crate::prefetch::Prefetch;
use crate::shell::Cx;
use pagemesh_wire::peer::Refusal;

impl Release {
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
        if !self.collection(cx).is_needed() {
            return waiting;
        }
        if self.collector.time().is_none() {
            self.name_as_written(cx, |page| page.is_kept_by(me));
            self.backup(cx).want_kept();
        }
        self.lead(cx, Lead::MindTheBound);
        waiting + 1
    }

    /// This node is no member any more: its pages are invalid.
    pub(super) fn expelled(&mut self, cx: &mut Cx<'_>) {
        self.intervals.inquiries.clear();
        self.collector.clear();
        self.round.give_up();
        self.replicas.forget(cx, self.rules.segment);
        self.prefetch = Prefetch::default();
        self.memory.invalidate_all(cx);
        self.push = PushCredit::new(self.rules.spread);
    }
}

impl Memory {
    /// All pages become invalid, and those who wait for one are told.
    fn invalidate_all(&mut self, cx: &mut Cx<'_>) {
        let segment = self.segment;
        self.uncount(cx);
        for (page, state) in self.pages.invalidate_all() {
            let keep = false;
            match state.copy {
                Copy::None => {}
                Copy::Stash => cx.push(Effect::DropStash { segment, page }),
                Copy::Frame => cx.push(Effect::Evict {
                    pages: (segment, page).into(),
                    keep,
                }),
            }
            for (mapping, _) in state.miss.into_iter().flat_map(|miss| miss.faults) {
                let why = Refusal::NotMember;
                cx.push(Effect::Fail {
                    mapping,
                    segment,
                    page,
                    why,
                });
            }
        }
    }
}
