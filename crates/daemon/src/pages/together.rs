//! Places, protects and evicts neighbouring pages in one system call where possible, else page by
//! page.

use super::Pages;
use crate::counters::{Count, Counters};
use crate::mapping::Mapping;
use crate::runs::Run;
use crate::segment::Segment;
use crate::stash::Stash;
use pagemesh_core::At;
use pagemesh_core::Rights;
use pagemesh_os::memfd::{PAGE, PageBytes};
use pagemesh_os::uffd::Outcome;
use pagemesh_wire::{MappingId, PageIndex};

impl Pages {
    /// As [`Pages::place`], for neighbouring pages whose contents came with datagrams. Returns how
    /// many were placed, from the first on; the next one must be placed by itself.
    pub(crate) fn place_run(
        &self,
        id: MappingId,
        (of, first): At,
        rights: Rights,
        pages: &[PageBytes],
        counters: &mut Counters,
    ) -> usize {
        let Some(mapping) = self.mappings.get(id).filter(|mapping| mapping.write) else {
            return 0;
        };
        let pages = &pages[..self.unprepared((of, first), pages.len())];
        if pages.is_empty() {
            return 0;
        }
        let (Some(address), Some(last)) = (
            mapping.place.address(first),
            mapping
                .place
                .address(PageIndex(first.0 + pages.len() as u32 - 1)),
        ) else {
            return 0;
        };
        debug_assert_eq!(last, address + (pages.len() as u64 - 1) * PAGE as u64);
        let write = rights == Rights::Write;
        let placed = mapping.uffd.copy_run(address, pages, write);
        counters.add(Count::PagesPlaced, placed as u64);
        placed
    }

    /// As [`Pages::protect`].
    pub(crate) fn protect_run(&self, run: &Run, counters: &mut Counters) {
        if self.unprotected {
            return;
        }
        let all_at_once = self.ids_of(run.first.0).iter().all(|id| {
            let mapping = self.mappings.get(*id);
            mapping.is_none_or(|mapping| !mapping.write || protect(mapping, run))
        });
        if !all_at_once {
            run.pages().for_each(|at| self.protect(at, counters));
        }
    }

    /// As [`Pages::evict`]; `keep` holds for all pages of the run.
    pub(crate) fn evict_run(&mut self, run: &Run, keep: bool, counters: &mut Counters) {
        // Page by page if the previous daemon may have done a part, or if a page may have no frame.
        let given_back = self.segments.is_given_back(run.first.0);
        if self.again || given_back || !self.waiting.is_empty() {
            return run.pages().for_each(|at| self.evict(at, keep, counters));
        }
        if keep {
            self.protect_run(run, counters);
        }
        let Some(segment) = self.segments.get(run.first.0) else {
            return;
        };
        if keep {
            keep_run(&mut self.stash, segment, run);
        }
        if let Err(error) = segment.punch_run(run.first.1, run.count) {
            let (segment, page) = run.first;
            tracing::error!(%segment, %page, %error, "pages cannot be taken away");
        }
        counters.add(Count::PagesEvicted, run.count.into());
        for id in self.ids_of(run.first.0) {
            if let Some(mapping) = self.mappings.get(*id) {
                wake(mapping, run);
            }
        }
    }
}

/// Copies the frames of a run into the stash.
fn keep_run(stash: &mut Stash, segment: &Segment, run: &Run) {
    let (of, first) = run.first;
    let all_at_once = stash.keep_run(of, first, run.count, |rooms| segment.read_run(first, rooms));
    if all_at_once.is_ok() {
        return;
    }
    for (of, page) in run.pages() {
        let copied = stash.keep(of, page, |room| segment.read(page, room));
        if let Err(error) = copied {
            tracing::error!(segment = %of, %page, %error, "a page cannot be kept");
        }
    }
}

/// Stops stores to all mapped pages of the run. False if the run must be protected page by page.
fn protect(mapping: &Mapping, run: &Run) -> bool {
    let Some((address, length)) = range(mapping, run) else {
        return true;
    };
    matches!(
        mapping.uffd.protect(address, length),
        Outcome::Done | Outcome::Gone
    )
}

fn wake(mapping: &Mapping, run: &Run) {
    if let Some((address, length)) = range(mapping, run) {
        mapping.uffd.wake(address, length);
    }
}

/// Address and length of the mapped part of a run, if there is any.
fn range(mapping: &Mapping, run: &Run) -> Option<(u64, u64)> {
    let mut mapped = run
        .pages()
        .filter_map(|(_, page)| mapping.place.address(page));
    let first = mapped.next()?;
    let last = mapped.last().unwrap_or(first);
    Some((first, last - first + PAGE as u64))
}
