//! Giving the right to store to pages before it is asked for: where a process's faults show that it
//! stores to page after page, one fault serves many pages that are here already, or that start from
//! zeros. Pages that other nodes have are requested ahead ([`super::ahead`]).
//!
//! Whether such a page is really stored to is a guess. The next fault of the walk confirms it for
//! the pages before. Pages that are not confirmed are kept writable ([`super::kept_writable`]), and
//! the driver looks at them before the next barrier: one that has not changed is protected, and if it has
//! not changed at the next look either, its twin is dropped. Two looks at one barrier keep it from being
//! named when an interval comes in which another node stored to it.

use super::ahead::WalkContext;
use super::memory::Memory;
use super::page::{Copy, Page};
use crate::effect::{DiffWork, Effect, Mappings, PageRange, Rights, Source};
use crate::prefetch::beside;
use crate::shell::Cx;
use pagemesh_wire::{MappingId, PageIndex};
use std::collections::BTreeSet;

impl WalkContext<'_, '_> {
    /// A thread stores to a page far from its last ones. Returns the pages that it is expected to come
    /// to, as far as they need nothing of other nodes.
    pub(super) fn beside(&mut self, page: PageIndex) -> Vec<PageIndex> {
        if !self.stores_alone(page) {
            return Vec::new();
        }
        let is_writable = |index: PageIndex| {
            let page = self.memory.pages.get(&index);
            page.is_some_and(|page| page.rights == Rights::Write)
        };
        let (first, after) = beside(page, is_writable);
        let after = after.take_while(|page| self.stores_alone(*page));
        let after = after.collect();
        self.memory.pages.confirm_between(first, page);
        after
    }

    /// Whether a store to a page needs no other node: its contents are here, or are zeros.
    pub(super) fn stores_alone(&self, page: PageIndex) -> bool {
        self.starts_from_zeros(page)
            || (self.memory.pages.get(&page)).is_some_and(Page::may_become_writable)
    }

    /// Whether a page has no copy here, and zeros are all that it lacks.
    pub(super) fn starts_from_zeros(&self, page: PageIndex) -> bool {
        let untouched =
            |page: &Page| page.copy == Copy::None && page.notices.is_empty() && page.miss.is_none();
        self.intervals.inquiries.is_synced()
            && self.intervals.history.floor().is_empty()
            && page.0 < self.rules.size
            && !self.leaves
            && self.memory.pages.get(&page).is_none_or(untouched)
    }

    /// Gives a mapping the right to store to these pages, each of which
    /// [stores alone](Self::stores_alone).
    pub(super) fn store_ahead(&mut self, mapping: MappingId, pages: &[PageIndex]) {
        let (zeros, here): (Vec<_>, Vec<_>) = pages
            .iter()
            .copied()
            .partition(|page| self.starts_from_zeros(*page));
        for pages in PageRange::of(self.rules.segment, &zeros) {
            self.memory
                .fill_ahead(self.cx, mapping, pages, Rights::Write);
        }
        for index in &here {
            if let Some(page) = self.memory.pages.get_mut(index) {
                page.is_stored_to(false);
            }
            self.memory.prepare_store(self.cx, *index);
        }
        for pages in PageRange::of(self.rules.segment, &here) {
            self.memory
                .map_ahead(self.cx, mapping, pages, Rights::Write);
        }
        for page in pages {
            self.memory.pages.guess(*page);
        }
    }

    /// Gives a mapping the right to load from these pages, which start from zeros. Whether they are used
    /// must show by a fault the next time.
    pub(super) fn load_ahead(&mut self, mapping: MappingId, pages: &[PageIndex]) {
        for pages in PageRange::of(self.rules.segment, pages) {
            self.memory
                .fill_ahead(self.cx, mapping, pages, Rights::Read);
            for (_, index) in pages.iter() {
                self.memory.pages.page(index).believed = true;
            }
        }
    }
}

impl Memory {
    /// Pages start from zeros, with these rights.
    fn fill_ahead(
        &mut self,
        cx: &mut Cx<'_>,
        mapping: MappingId,
        pages: PageRange,
        rights: Rights,
    ) {
        let source = Source::Zero;
        cx.push(Effect::Fill { pages, source });
        for (_, index) in pages.iter() {
            self.put(cx, index, Copy::Frame);
            self.pages.page(index).blank = true;
            if rights == Rights::Write {
                let _ = self.pages.begin_twin(index);
            }
        }
        if rights == Rights::Write {
            cx.push(Effect::Diffs(DiffWork::Twin { pages, source }));
        }
        self.map_ahead(cx, mapping, pages, rights);
    }

    fn map_ahead(&mut self, cx: &mut Cx<'_>, mapping: MappingId, pages: PageRange, rights: Rights) {
        for (_, index) in pages.iter() {
            let page = self.pages.page(index);
            (page.rights, page.granted) = (rights, cx.now);
        }
        cx.push(Effect::Map {
            mappings: Mappings::One(mapping),
            pages,
            rights,
        });
    }

    /// The driver has looked at the pages that were guessed to be stored to, and those in `untouched` have
    /// not changed: they are protected or, if they were when it looked, need no twin any more.
    pub(super) fn settle_guesses(&mut self, cx: &mut Cx<'_>, untouched: &BTreeSet<PageIndex>) {
        let segment = self.segment;
        for index in self.pages.guessed() {
            if !untouched.contains(&index) {
                self.pages.confirm(index);
                continue;
            }
            let Some(page) = self.pages.get_mut(&index) else {
                continue;
            };
            if page.rights == Rights::Write {
                // It may have been stored to since the driver looked at it.
                page.rights = Rights::Read;
                cx.push(Effect::Protect {
                    pages: (segment, index).into(),
                    mappings: Mappings::All,
                });
                continue;
            }
            page.twin = false;
            self.pages.refute(index);
            let page = index;
            cx.push(Effect::Diffs(DiffWork::DropTwin { segment, page }));
        }
    }
}
