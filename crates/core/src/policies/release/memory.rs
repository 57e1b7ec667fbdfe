//! What accesses, intervals and notices do to the pages of this node.

use super::Release;
use super::page::{Copy, Miss};
use crate::effect::{Afterwards, DiffWork, Effect, Rights};
use crate::event::Event;
use crate::shell::Cx;
use pagemesh_wire::peer::{Access, DiffName, Refusal};
use pagemesh_wire::{MappingId, NodeId, PageIndex};
use std::collections::BTreeSet;

/// A page that was written again this many times after its diff had been made is kept writable from
/// then on, because comparing it costs less than a fault.
const PATTERN: u8 = 1;

impl Release {
    /// A thread faulted.
    pub(super) fn touched(
        &mut self,
        cx: &mut Cx<'_>,
        mapping: MappingId,
        index: PageIndex,
        access: Access,
    ) {
        let segment = self.segment;
        let page = self.pages.entry(index).or_default();
        if let Some(with) = page.lost {
            return fail(cx, mapping, (segment, index), with);
        }
        if page.copy == Copy::Frame {
            cx.emit(Event::LocalFault {
                segment,
                page: index,
            });
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
        let timer = self.timer(index);
        let page = self.pages.entry(index).or_default();
        if page.miss.is_none() {
            page.miss = Some(Box::new(Miss::new(cx.backoff(timer), cx.now)));
        }
        if let Some(miss) = &mut page.miss {
            miss.faults.extend(fault);
        }
        self.initial_sync(cx);
        self.go_on(cx, index);
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
        let Some(page) = self.pages.get_mut(&index) else {
            return;
        };
        let writes = faults.iter().any(|(_, access)| *access == Access::Write);
        if writes && !page.twin {
            cx.push(Effect::Diffs(DiffWork::Twin {
                segment,
                page: index,
            }));
            page.twin = true;
            self.dirty.insert(index);
        }
        let rights = if page.twin {
            Rights::Write
        } else {
            Rights::Read
        };
        page.rights = page.rights.max(rights);
        for (mapping, access) in faults {
            let rights = match access {
                Access::Read => page.rights,
                Access::Write => Rights::Write,
            };
            cx.push(Effect::Map {
                mapping: *mapping,
                segment,
                page: index,
                rights,
            });
        }
    }

    /// Ends the present interval, if anything may have been written in it (T12).
    pub(super) fn end_interval(&mut self, cx: &mut Cx<'_>) {
        let written = self.written(&[]);
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
            let page = self.pages.entry(index).or_default();
            self.undiffed += usize::from(page.undiffed.is_none());
            page.undiffed = Some(interval);
            self.named += usize::from(page.notices.is_empty());
            page.notices.apply(me, interval);
            page.notices
                .add((me, interval), self.history.rank(me, interval));
            page.unasked.is_shown();
            self.notices += 1;
        }
        self.mind_the_bound(cx);
        named
    }

    /// Makes the diff of a page that an interval of this node names.
    pub(super) fn make_diff(&mut self, cx: &mut Cx<'_>, index: PageIndex, leaves: bool) {
        let segment = self.segment;
        let rules = self.rules(index);
        let Some(page) = self.pages.get_mut(&index) else {
            return;
        };
        let Some(interval) = page.undiffed.take() else {
            return;
        };
        self.undiffed -= 1;
        let stays = !leaves && page.returns >= PATTERN;
        if !stays {
            page.twin = false;
            page.rights = page.rights.min(Rights::Read);
            page.returns = page.returns.saturating_add(1);
            cx.push(Effect::Protect {
                segment,
                page: index,
            });
        } else {
            self.kept_writable.insert(index);
        }
        let name = DiffName {
            page: index,
            node: cx.me(),
            interval,
        };
        let then = if stays {
            Afterwards::Refresh
        } else {
            Afterwards::Drop
        };
        cx.push(Effect::Diffs(DiffWork::Diff {
            segment,
            name,
            then,
            rules,
        }));
        self.held.insert(name);
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
        self.note_use(by.0, index);
        let page = self.pages.entry(index).or_default();
        page.users.insert(by.0);
        self.named += usize::from(page.notices.is_empty());
        page.notices.add(by, rank);
        self.notices += 1;
        if page.notices.applied().has(by.0, by.1) && page.copy != Copy::None {
            // The modification came with the copy, before this node knew of the interval. Stores
            // from now on happen after it, and must not be in a diff whose interval happened before
            // it: other nodes may apply that one first.
            self.make_diff(cx, index, true);
            return;
        }
        let framed = page.copy == Copy::Frame;
        if framed && !self.update(cx, index, by) {
            self.stow(cx, index);
        } else {
            let (node, interval) = by;
            let page = index;
            self.early.remove(&DiffName {
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

    /// Takes a page away from all mappings: makes the diff of its own changes, and keeps the
    /// contents in the stash.
    pub(super) fn stow(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let segment = self.segment;
        self.make_diff(cx, index, true);
        let Some(page) = self.pages.get_mut(&index) else {
            return;
        };
        assert!(
            !page.twin,
            "INV-diff-is-final: {index:?} has unnamed changes"
        );
        page.copy = Copy::Stash;
        page.staying.in_place = false;
        if page.rights > Rights::None && !core::mem::take(&mut page.believed) {
            self.habits.insert(index);
        }
        page.rights = Rights::None;
        cx.push(Effect::Evict {
            segment,
            page: index,
            keep: true,
        });
    }
}

/// Fails an access that can never be served.
pub(super) fn fail(
    cx: &mut Cx<'_>,
    mapping: MappingId,
    (segment, page): (pagemesh_wire::SegmentId, PageIndex),
    with: NodeId,
) {
    cx.emit(Event::Failed { segment, page });
    cx.push(Effect::Fail {
        mapping,
        segment,
        page,
        why: Refusal::NodeGone(with),
    });
}
