//! Lists of the pages that a node knows: for people, for a process that saves the segment, and for the
//! successor of a leaving home.

use super::page::Page;
use super::table::Table;
use crate::effect::Rights;
use crate::inspection::Inspection;
use pagemesh_wire::local::{PageLine, PageState};
use pagemesh_wire::{NodeId, PageIndex, Version};

impl Table {
    pub(super) fn inspect(&self, me: NodeId, first: PageIndex, limit: usize) -> Inspection {
        let count = |pick: &dyn Fn(&Page) -> bool| {
            self.iter().filter(|(_, page)| pick(page)).count() as u64
        };
        let lines = self.from(first).take(limit);
        Inspection {
            unreplicated: 0,
            known: self.len() as u64,
            readable: count(&|page| page.rights >= Rights::Read),
            writable: count(&|page| page.rights == Rights::Write),
            owned: count(&|page| page.own.hint == me),
            pages: lines.map(|(index, page)| line(me, index, page)).collect(),
        }
    }

    /// What this node knows of pages, for a process that saves the segment.
    pub(super) fn states(
        &self,
        (me, home): (NodeId, NodeId),
        first: PageIndex,
        count: u32,
    ) -> Vec<PageState> {
        let pages = first.0..first.0.saturating_add(count);
        let unknown = Page::new(home);
        let state = |page| state(me, self.get(page).unwrap_or(&unknown));
        pages.map(PageIndex).map(state).collect()
    }

    /// The pages that other nodes own, as far as this one knows.
    pub(super) fn owned_elsewhere(&self, me: NodeId) -> Vec<(PageIndex, Version, NodeId)> {
        let elsewhere = self.iter().filter(|(_, page)| page.own.hint != me);
        let known = elsewhere.map(|(index, page)| (index, page.own.version, page.own.hint));
        known.collect()
    }
}

fn line(me: NodeId, index: PageIndex, page: &Page) -> PageLine {
    PageLine {
        page: index,
        rights: page.rights as u8,
        owner: page.own.hint == me,
        hint: page.own.hint,
        version: page.own.version.0,
        copies: page.copies.clone(),
        queued: page.own.queue_len() as u32,
    }
}

fn state(me: NodeId, page: &Page) -> PageState {
    let gathers = page
        .own
        .busy()
        .is_some_and(|busy| busy.more.gather.is_some());
    match page.rights {
        // The version is that of a store which is to come.
        _ if gathers => PageState::Unsure,
        _ if page.own.hint == me && page.pristine && page.rights < Rights::Write => PageState::Zero,
        Rights::Read => PageState::Version(page.own.version),
        Rights::None | Rights::Write => PageState::Unsure,
    }
}
