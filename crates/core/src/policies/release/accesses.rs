//! What accesses, intervals and notices do to the pages of this node.

use super::Release;
use super::miss::schedule;
use super::page::{Copy, Miss, Page};
use super::requests::Requests;
use crate::event::Event;
use crate::shell::Cx;
use pagemesh_wire::peer::{Access, DiffName, Refusal};
use pagemesh_wire::{MappingId, NodeId, PageIndex};
use std::collections::BTreeSet;

impl Release {
    /// A thread faulted.
    pub(super) fn touched(
        &mut self,
        cx: &mut Cx<'_>,
        mapping: MappingId,
        index: PageIndex,
        access: Access,
    ) {
        let (segment, timer) = (self.rules.segment, self.rules.timer(index));
        let page = self.memory.pages.page(index);
        if let Some(with) = page.lost {
            return cx.fail(mapping, (segment, index), Refusal::NodeGone(with));
        }
        page.believed = false;
        if page.copy == Copy::Frame {
            cx.emit(Event::LocalFault {
                segment,
                page: index,
            });
            if access == Access::Write {
                page.is_stored_to(true);
            }
            return self.memory.map(cx, index, &[(mapping, access)]);
        }
        if let Some(miss) = &mut page.miss {
            if miss.faults.contains(&(mapping, access)) {
                cx.emit(Event::RepeatedFault {
                    segment,
                    page: index,
                });
            } else {
                miss.faults.push((mapping, access));
                cx.hurry(&mut miss.backoff, timer);
            }
            return;
        }
        cx.emit(match access {
            Access::Read => Event::ReadFault {
                segment,
                page: index,
            },
            Access::Write => Event::WriteFault {
                segment,
                page: index,
            },
        });
        let shows = self.memory.note_own_use(&mut self.push, index);
        self.open_miss(cx, index, Some((mapping, access)));
        if shows {
            self.show_companions(cx, index, mapping);
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
        self.mind_the_bound(cx);
        named
    }

    /// Another node wrote a page (T5), in an interval that has this rank: the page must not be seen
    /// as it is.
    pub(super) fn noticed(
        &mut self,
        cx: &mut Cx<'_>,
        index: PageIndex,
        by: (NodeId, u64),
        rank: u64,
    ) {
        let segment = self.rules.segment;
        self.push.written_by(by.0, index);
        self.memory.pages.notice(index, by, rank);
        let page = self.memory.pages.page(index);
        if page.notices.applied().has(by.0, by.1) && page.copy != Copy::None {
            // The modification came with the copy, before this node knew of the interval. Stores
            // from now on happen after it, and must not be in a diff whose interval happened before
            // it: other nodes may apply that one first.
            self.memory.make_diff(cx, index, true);
            return;
        }
        let name = DiffName {
            page: index,
            node: by.0,
            interval: by.1,
        };
        let framed = page.copy == Copy::Frame;
        let with = (&self.intervals.history, &self.push);
        if !framed || self.memory.update(cx, with, name) {
            self.memory.diffs.take_early(&name);
            return;
        }
        let keep = !self.is_to_be_replaced(cx, index, by.0);
        self.memory.stow(cx, index, keep);
        cx.emit(Event::Invalidated {
            segment,
            page: index,
        });
        self.suspect(cx, index, by);
    }

    /// Another node wrote a page that this node wrote, too. If their intervals are concurrent, the
    /// diff is requested to find races, though the page may never be touched here again.
    fn suspect(&mut self, cx: &mut Cx<'_>, index: PageIndex, by: (NodeId, u64)) {
        if !cx.checks_races() {
            return;
        }
        let me = cx.me();
        let concurrent = |page: &Page| {
            let mut mine = page.notices.of(me);
            mine.any(|own| self.intervals.history.is_concurrent((me, own), by))
        };
        if self.memory.pages.get(&index).is_some_and(concurrent) {
            self.open_miss(cx, index, None);
        }
    }

    /// Whether the copy of a page that another node wrote is of no use: that node's diffs are large,
    /// so its copy will be requested.
    fn is_to_be_replaced(&self, cx: &Cx<'_>, index: PageIndex, writer: NodeId) -> bool {
        let keeps = |page: &Page| page.is_kept_by(cx.me());
        // While a collection is under way this node may be the next keeper.
        self.collector.time().is_none()
            && self.sizes.prefer_copy(cx.pace(), (writer, index))
            && !cx.checks_races()
            && !self.memory.pages.get(&index).is_some_and(keeps)
            && !self.replicas.wards.contains_key(&writer)
    }
}
