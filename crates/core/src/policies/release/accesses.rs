//! What accesses, intervals and notices do to the pages of this node.

use super::Release;
use super::lead::Lead;
use super::miss::{PageContext, schedule};
use super::page::{Copy, Miss};
use super::requests::Requests;
use crate::event::Event;
use crate::prefetch::Ahead;
use crate::shell::Cx;
use pagemesh_wire::peer::{Access, DiffName, Refusal, Spread};
use pagemesh_wire::{MappingId, NodeId, PageIndex};
use std::collections::BTreeSet;

impl PageContext<'_, '_> {
    /// A thread faulted. Returns whether the page is to be made whole for it.
    fn touched(&mut self, mapping: MappingId, access: Access) -> bool {
        let (segment, page, timer) = (self.rules.segment, self.index, self.rules.timer(self.index));
        let known = self.memory.pages.page(page);
        if let Some(with) = known.lost {
            let why = Refusal::NodeGone(with);
            self.cx.fail(mapping, (segment, page), why);
            return false;
        }
        known.believed = false;
        if known.copy == Copy::Frame {
            self.cx.emit(Event::LocalFault { segment, page });
            if access == Access::Write {
                known.is_stored_to(true);
            }
            self.memory.map(self.cx, page, &[(mapping, access)]);
            return false;
        }
        if let Some(miss) = &mut known.miss {
            if miss.faults.contains(&(mapping, access)) {
                self.cx.emit(Event::RepeatedFault { segment, page });
            } else {
                miss.faults.push((mapping, access));
                self.cx.hurry(&mut miss.backoff, timer);
            }
            return false;
        }
        self.cx.emit(match access {
            Access::Read => Event::ReadFault { segment, page },
            Access::Write => Event::WriteFault { segment, page },
        });
        true
    }

    /// Another node wrote the page (T5), in an interval that has this rank: it must not be seen as it
    /// is. Returns whether its diff is to be requested to find races, though the page may never be
    /// touched here again.
    pub(super) fn noticed(&mut self, by: (NodeId, u64), rank: u64) -> bool {
        let index = self.index;
        self.push.written_by(by.0, index);
        self.memory.pages.notice(index, by, rank);
        let page = self.memory.pages.page(index);
        if page.notices.applied().has(by.0, by.1) && page.copy != Copy::None {
            // The modification came with the copy, before this node knew of the interval. Stores
            // from now on happen after it, and must not be in a diff whose interval happened before
            // it: other nodes may apply that one first.
            self.memory.make_diff(self.cx, index, true);
            return false;
        }
        let name = DiffName {
            page: index,
            node: by.0,
            interval: by.1,
        };
        let framed = page.copy == Copy::Frame;
        let with = (&self.intervals.history, &*self.push);
        if !framed || self.memory.update(self.cx, with, name) {
            self.memory.diffs.take_early(&name);
            return false;
        }
        let keep = !self.is_to_be_replaced(by.0);
        self.memory.stow(self.cx, index, keep);
        self.cx.emit(Event::Invalidated {
            segment: self.rules.segment,
            page: index,
        });
        self.cx.checks_races() && self.is_raced_by(by)
    }

    /// Whether this node wrote the page, too, in an interval that is concurrent with another node's.
    fn is_raced_by(&self, by: (NodeId, u64)) -> bool {
        let me = self.cx.me();
        let page = self.memory.pages.get(&self.index);
        page.is_some_and(|page| {
            let mut mine = page.notices.of(me);
            mine.any(|own| self.intervals.history.is_concurrent((me, own), by))
        })
    }

    /// Whether the copy of a page that another node wrote is of no use: that node's diffs are large,
    /// so its copy will be requested.
    fn is_to_be_replaced(&self, writer: NodeId) -> bool {
        let page = self.memory.pages.get(&self.index);
        // While a collection is under way this node may be the next keeper.
        self.collector.time().is_none()
            && self.sizes.prefer_copy(self.cx.pace(), (writer, self.index))
            && !self.cx.checks_races()
            && !page.is_some_and(|page| page.is_kept_by(self.cx.me()))
            && !self.replicas.wards.contains_key(&writer)
    }

    /// Whether diffs that were pushed are to be merged at once: with `eager`, if nothing else is
    /// missing.
    pub(super) fn merges_at_once(&self) -> bool {
        let page = self.memory.pages.get(&self.index);
        self.rules.spread == Spread::Eager
            && page.is_some_and(|page| {
                let idle = page.copy == Copy::Stash && page.is_idle();
                idle && self.memory.diffs.has_all(&page.notices.pending(self.index))
            })
    }
}

impl Release {
    /// A thread faulted.
    pub(super) fn touched(
        &mut self,
        cx: &mut Cx<'_>,
        mapping: MappingId,
        index: PageIndex,
        access: Access,
    ) {
        if !self.at(cx, index).touched(mapping, access) {
            return;
        }
        let shows = self.memory.note_own_use(&mut self.push, index);
        self.open_miss(cx, index, Some((mapping, access)));
        if shows {
            let mark = false;
            for other in self.memory.also_used(&self.push, index) {
                if self.walk(cx).open(other, Ahead { mapping, mark }) {
                    self.go_on(cx, [other]);
                }
            }
        }
    }

    /// Begins to make a page whole.
    pub(super) fn open_miss(
        &mut self,
        cx: &mut Cx<'_>,
        index: PageIndex,
        fault: Option<(MappingId, Access)>,
    ) {
        let mut requests = Requests::default();
        self.open_miss_with(cx, index, fault, &mut requests);
        requests.send(cx, self.rules.segment, self.intervals.history.floor());
    }

    /// As [`Release::open_miss`], but what is to be requested is added to `requests`.
    pub(super) fn open_miss_with(
        &mut self,
        cx: &mut Cx<'_>,
        index: PageIndex,
        fault: Option<(MappingId, Access)>,
        requests: &mut Requests,
    ) {
        let timer = self.rules.timer(index);
        let page = self.memory.pages.page(index);
        if page.miss.is_none() {
            let schedule = schedule(cx, timer, fault.is_some());
            page.miss = Some(Box::new(Miss::new(schedule, cx.now)));
        }
        if let Some(miss) = &mut page.miss {
            miss.faults.extend(fault);
        }
        self.initial_sync(cx);
        self.go_on_with(cx, index, requests);
    }

    /// Ends the present interval, if anything may have been written in it (T12).
    pub(super) fn end_interval(&mut self, cx: &mut Cx<'_>) {
        let written = self.memory.pages.written(&BTreeSet::new());
        self.end_interval_of(cx, &written);
    }

    /// Ends an interval in which these pages were written. The pages stay writable; they are named
    /// again only after their diff was made (T8). Returns which interval names which page.
    pub(super) fn end_interval_of(
        &mut self,
        cx: &mut Cx<'_>,
        written: &BTreeSet<PageIndex>,
    ) -> Vec<(PageIndex, u64)> {
        if written.is_empty() {
            return Vec::new();
        }
        let me = cx.me();
        let named = self.intervals.history.end(me, written);
        for (index, interval) in named.iter().copied() {
            let rank = self.intervals.history.rank(me, interval);
            self.memory.pages.name(index, (me, interval), rank);
            self.push.writes(index);
        }
        self.lead(cx, Lead::MindTheBound);
        named
    }
}

#[cfg(test)]
mod tests {
    use super::super::rules::Rules;
    use super::*;
    use crate::effect::Effects;
    use crate::shell::Shell;
    use crate::time::Time;
    use pagemesh_wire::SegmentId;

    const ME: NodeId = NodeId(2);
    const OTHER: NodeId = NodeId(3);
    const PAGE: PageIndex = PageIndex(4);

    /// Works on a page of which this node has such a copy.
    fn with(spread: Spread, copy: Copy, work: impl FnOnce(&mut PageContext<'_, '_>)) {
        let mut release = Release::new(Rules {
            segment: SegmentId::new(NodeId(1), 1),
            size: 16,
            spread,
        });
        release.memory.pages.page(PAGE).copy = copy;
        let mut cx = Cx {
            now: Time(1),
            shell: &mut Shell::of_four(ME),
            effects: &mut Effects::default(),
        };
        work(&mut release.at(&mut cx, PAGE));
    }

    #[test]
    fn pushed_diffs_are_merged_at_once_if_that_makes_a_page_whole() {
        with(Spread::Lazy, Copy::Stash, |at| {
            assert!(!at.merges_at_once())
        });
        with(Spread::Eager, Copy::Frame, |at| {
            assert!(!at.merges_at_once())
        });
        with(Spread::Eager, Copy::Stash, |at| {
            assert!(at.merges_at_once());
            assert!(!at.noticed((OTHER, 1), 1), "nobody looks for races");
            assert!(!at.merges_at_once(), "a diff is missing");
        });
    }

    #[test]
    fn a_page_that_another_node_wrote_is_out_of_sight_until_it_is_touched() {
        with(Spread::Lazy, Copy::Frame, |at| {
            assert!(!at.touched(MappingId(1), Access::Read), "it is here");
            at.noticed((OTHER, 1), 1);
            let copy = at.memory.pages.get(&PAGE).map(|page| page.copy);
            assert_eq!(copy, Some(Copy::Stash));
            assert!(at.touched(MappingId(1), Access::Read));
        });
    }
}
