//! What accesses, intervals and notices do to the pages of this node.

use super::Release;
use super::miss::schedule;
use super::page::{Copy, Miss, Page};
use super::races;
use super::requests::Requests;
use crate::effect::{Afterwards, DiffWork, Effect, Mappings, Rights};
use crate::event::Event;
use crate::shell::Cx;
use pagemesh_wire::peer::{Access, DiffName, Refusal};
use pagemesh_wire::{MappingId, NodeId, PageIndex, VectorTime};
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
        let (segment, timer) = (self.segment, self.timer(index));
        let page = self.pages.page(index);
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
            return self.map(cx, index, &[(mapping, access)]);
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
        let shows = self.note_own_use(index);
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
        self.send_requests(cx, requests);
    }

    /// As [`Release::open_miss`], but what is to be requested is added to `requests`.
    pub(super) fn open_miss_with(
        &mut self,
        cx: &mut Cx<'_>,
        index: PageIndex,
        fault: Option<(MappingId, Access)>,
        requests: &mut Requests,
    ) {
        let timer = self.timer(index);
        let page = self.pages.page(index);
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

    /// Gives the right to these accesses to a page in its frame (T7: a twin before the first
    /// store).
    pub(super) fn map(
        &mut self,
        cx: &mut Cx<'_>,
        index: PageIndex,
        faults: &[(MappingId, Access)],
    ) {
        let segment = self.segment;
        let writes = faults.iter().any(|(_, access)| *access == Access::Write);
        if faults.is_empty() {
            return;
        }
        if writes {
            self.prepare_store(cx, index);
        }
        let Some(page) = self.pages.get_mut(&index) else {
            return;
        };
        page.rights = page
            .rights
            .max(if writes { Rights::Write } else { Rights::Read });
        for (mapping, access) in faults {
            let rights = match access {
                Access::Read => page.rights,
                Access::Write => Rights::Write,
            };
            cx.push(Effect::Map {
                mappings: Mappings::One(*mapping),
                pages: (segment, index).into(),
                rights,
            });
        }
    }

    /// Makes what a page in its frame needs before its next store: the diff of an earlier name that
    /// may not have that store, and a twin.
    pub(super) fn prepare_store(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let given = self.pages.get(&index).is_some_and(Page::is_given);
        if given && self.reductions.rules(index).is_empty() {
            return self.renew_twin(cx, index);
        }
        if given {
            self.make_diff(cx, index, true);
        }
        self.pages.confirm(index);
        let Some(source) = self.pages.begin_twin(index) else {
            return;
        };
        let pages = (self.segment, index).into();
        cx.push(Effect::Diffs(DiffWork::Twin { pages, source }));
    }

    /// A page that was given away is about to be stored to: the contents that its diff is made of
    /// are its next twin, so they are read once.
    fn renew_twin(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let Some(interval) = self.pages.take_undiffed(index) else {
            return;
        };
        let page = self.pages.page(index);
        page.blank = false;
        page.returns = page.returns.saturating_add(1);
        self.pages.confirm(index);
        self.pages.writes(index);
        self.push_diff(cx, (index, interval), Afterwards::Refresh);
    }

    /// Ends the present interval, if anything may have been written in it (T12).
    pub(super) fn end_interval(&mut self, cx: &mut Cx<'_>) {
        let written = self.pages.written(&BTreeSet::new());
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
        let named = self.history.end(me, written);
        for (index, interval) in named.iter().copied() {
            let rank = self.history.rank(me, interval);
            self.pages.name(index, (me, interval), rank);
            self.push.writes(index);
        }
        self.mind_the_bound(cx);
        named
    }

    /// Makes the diff of a page that an interval of this node names.
    pub(super) fn make_diff(&mut self, cx: &mut Cx<'_>, index: PageIndex, leaves: bool) {
        let segment = self.segment;
        let Some(interval) = self.pages.take_undiffed(index) else {
            return;
        };
        let Some(page) = self.pages.get_mut(&index) else {
            return;
        };
        let writable = page.rights == Rights::Write;
        let stays = !leaves && writable && page.stays_writable();
        page.blank = false;
        if stays {
            self.pages.keeps_writable(index, self.replicas.on);
        } else {
            page.twin = false;
            page.rights = page.rights.min(Rights::Read);
            page.returns = page.returns.saturating_add(1);
            if writable {
                cx.push(Effect::Protect {
                    pages: (segment, index).into(),
                    mappings: Mappings::All,
                });
            }
        }
        let then = if stays {
            Afterwards::Refresh
        } else {
            Afterwards::Drop
        };
        self.push_diff(cx, (index, interval), then);
    }

    fn push_diff(&mut self, cx: &mut Cx<'_>, (page, interval): (PageIndex, u64), then: Afterwards) {
        let name = DiffName {
            page,
            node: cx.me(),
            interval,
        };
        cx.push(Effect::Diffs(DiffWork::Diff {
            segment: self.segment,
            name,
            then,
            rules: self.reductions.rules(page),
        }));
        self.diffs.keep(name);
    }

    /// Makes this diff, if this node named it and has not made it yet (T8).
    pub(super) fn make_named(&mut self, cx: &mut Cx<'_>, name: &DiffName) {
        let page = self.pages.get(&name.page);
        let named = page.is_some_and(|page| page.undiffed == Some(name.interval));
        if name.node == cx.me() && named {
            self.make_diff(cx, name.page, false);
        }
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
        let segment = self.segment;
        self.push.written_by(by.0, index);
        self.pages.notice(index, by, rank);
        let page = self.pages.page(index);
        if page.notices.applied().has(by.0, by.1) && page.copy != Copy::None {
            // The modification came with the copy, before this node knew of the interval. Stores
            // from now on happen after it, and must not be in a diff whose interval happened before
            // it: other nodes may apply that one first.
            self.make_diff(cx, index, true);
            return;
        }
        let framed = page.copy == Copy::Frame;
        if framed && !self.update(cx, index, by) {
            let keep = !self.is_to_be_replaced(cx, index, by.0);
            self.stow(cx, index, keep);
        } else {
            let (node, interval) = by;
            let page = index;
            self.diffs.take_early(&DiffName {
                page,
                node,
                interval,
            });
            return;
        }
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
            mine.any(|own| self.history.is_concurrent((me, own), by))
        };
        if self.pages.get(&index).is_some_and(concurrent) {
            self.open_miss(cx, index, None);
        }
    }

    /// Diffs are about to be applied to a page: compares them with concurrent ones.
    pub(super) fn compare(&self, cx: &mut Cx<'_>, index: PageIndex, fresh: &[DiffName]) {
        if !cx.checks_races() || !self.reductions.rules(index).is_empty() {
            return;
        }
        let pairs = races::pairs(&self.history, &self.diffs, index, fresh);
        if !pairs.is_empty() {
            let segment = self.segment;
            cx.push(Effect::Diffs(DiffWork::Compare { segment, pairs }));
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
            && !self.pages.get(&index).is_some_and(keeps)
            && !self.replicas.wards.contains_key(&writer)
    }

    /// Takes a page away from all mappings: makes the diff of its own changes, and keeps the
    /// contents in the stash, or drops them.
    pub(super) fn stow(&mut self, cx: &mut Cx<'_>, index: PageIndex, keep: bool) {
        let segment = self.segment;
        self.make_diff(cx, index, true);
        let Some(page) = self.pages.get_mut(&index) else {
            return;
        };
        assert!(
            !page.twin,
            "INV-diff-is-final: {index:?} has unnamed changes"
        );
        if keep {
            page.copy = Copy::Stash;
        } else {
            page.copy = Copy::None;
            page.notices.restart(VectorTime::ZERO);
        }
        page.blank = false;
        page.staying.in_place = false;
        let used = page.rights > Rights::None && !core::mem::take(&mut page.believed);
        page.rights = Rights::None;
        page.was_used = used;
        if used {
            self.pages.begin_habit(index);
        }
        cx.push(Effect::Evict {
            pages: (segment, index).into(),
            keep,
        });
    }
}
