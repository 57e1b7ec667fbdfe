//! The memory of a segment on one node: its pages with their twins, and the diffs that were made of
//! them or have come.

use super::diff_store::DiffStore;
use super::page::{Copy, Page};
use super::pages::Pages;
use super::reductions::Reductions;
use crate::effect::{Afterwards, DiffWork, Effect, Mappings, Rights};
use crate::inspection::Inspection;
use crate::shell::Cx;
use pagemesh_wire::local::PageLine;
use pagemesh_wire::peer::{Access, DiffName};
use pagemesh_wire::{MappingId, NodeId, NodeSet, PageIndex, RequestId, SegmentId, VectorTime};

/// What this node has of the pages of one segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Memory {
    pub(super) segment: SegmentId,
    /// The segment has replicas: a backup gets the diff of every page that is named.
    pub(super) replicated: bool,
    pub(super) pages: Pages,
    /// Pages of which this node has a copy, in frames and in the stash.
    pub(super) copies: u32,
    pub(super) diffs: DiffStore,
    pub(super) reductions: Reductions,
}

impl Memory {
    pub(super) fn new(segment: SegmentId) -> Self {
        Self {
            segment,
            replicated: false,
            pages: Pages::default(),
            copies: 0,
            diffs: DiffStore::default(),
            reductions: Reductions::default(),
        }
    }

    /// This node has the contents of a page there from now on.
    pub(super) fn put(&mut self, cx: &mut Cx<'_>, index: PageIndex, copy: Copy) {
        let page = self.pages.page(index);
        let before = core::mem::replace(&mut page.copy, copy);
        page.granted = cx.now;
        let used = &mut cx.shell.memory.used;
        match (before != Copy::None, copy != Copy::None) {
            (false, true) => (self.copies, *used) = (self.copies + 1, *used + 1),
            // Those that a daemon of an earlier version left to this one are not counted.
            (true, false) if self.copies > 0 => (self.copies, *used) = (self.copies - 1, *used - 1),
            _ => {}
        }
    }

    /// This node has no copies any more.
    pub(super) fn uncount(&mut self, cx: &mut Cx<'_>) {
        cx.shell.memory.used -= core::mem::take(&mut self.copies);
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
        page.granted = cx.now;
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
            self.pages.keeps_writable(index, self.replicated);
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
        if !keep {
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
        self.put(cx, index, if keep { Copy::Stash } else { Copy::None });
        cx.push(Effect::Evict {
            pages: (segment, index).into(),
            keep,
        });
    }

    /// Drops a copy in the stash that is of no use: the page starts again from a base copy.
    pub(super) fn drop_copy(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let segment = self.segment;
        let Some(page) = self.pages.get_mut(&index) else {
            return;
        };
        if page.copy == Copy::Stash {
            cx.push(Effect::DropStash {
                segment,
                page: index,
            });
            page.notices.restart(VectorTime::ZERO);
            self.put(cx, index, Copy::None);
        }
    }

    /// Protects a page whose changes under this name are requested: its later stores belong to the next
    /// interval. If the whole page was requested, its diff is made when another node requests it, or
    /// before the next store here. Even if the page is to stay writable: nodes request copies of pages
    /// that change wholly, and their diffs are likely to be collected before any node requests them.
    fn give(&mut self, cx: &mut Cx<'_>, name: &DiffName) {
        let segment = self.segment;
        let Some(page) = self.pages.get_mut(&name.page) else {
            return;
        };
        let named = name.node == cx.me() && page.undiffed == Some(name.interval);
        if named && page.rights == Rights::Write {
            page.rights = Rights::Read;
            cx.push(Effect::Protect {
                pages: (segment, name.page).into(),
                mappings: Mappings::All,
            });
        }
    }

    /// Protects the pages of diffs that are to be made, before the first is made: the driver does it by
    /// one call.
    pub(super) fn give_each(&mut self, cx: &mut Cx<'_>, names: &[DiffName]) {
        for name in names {
            let stays = self.pages.get(&name.page).is_some_and(Page::stays_writable);
            if !stays {
                self.give(cx, name);
            }
        }
    }

    /// Protects a page that an interval of this node names and whose diff is not made yet, unless that
    /// costs more than the diff.
    pub(super) fn give_all(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let page = self.pages.get(&index);
        let page = page.filter(|page| !page.stays_writable_for_copies());
        if let Some(interval) = page.and_then(|page| page.undiffed) {
            let name = DiffName {
                page: index,
                node: cx.me(),
                interval,
            };
            self.give(cx, &name);
        }
    }

    /// Sends diffs that are in the driver's diff store.
    pub(super) fn send_diffs(
        &self,
        cx: &mut Cx<'_>,
        to: NodeId,
        request: RequestId,
        names: Vec<DiffName>,
        at_most: u16,
    ) {
        let Some(address) = cx.address_of(to) else {
            return;
        };
        let header = cx.header(to);
        cx.push(Effect::Diffs(DiffWork::Send {
            address,
            header,
            segment: self.segment,
            request,
            names,
            at_most,
        }));
    }

    /// The pages from one on, as a user sees them, and how many there are.
    pub(super) fn inspect(&self, me: NodeId, first: PageIndex, limit: usize) -> Inspection {
        let line = |(index, page): (PageIndex, &Page)| PageLine {
            page: index,
            rights: page.rights as u8,
            owner: page.keeper == Some(me),
            hint: page.keeper.unwrap_or(self.segment.home()),
            version: page.notices.applied().intervals(),
            copies: NodeSet::EMPTY,
            queued: 0,
        };
        Inspection {
            unreplicated: 0,
            known: self.pages.len() as u64,
            readable: self.pages.count(|page| page.rights >= Rights::Read),
            writable: self.pages.count(|page| page.rights == Rights::Write),
            owned: self.pages.count(|page| page.keeper == Some(me)),
            pages: self.pages.from(first).take(limit).map(line).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effects;
    use crate::shell::Shell;
    use crate::time::Time;

    const ME: NodeId = NodeId(2);
    const PAGE: PageIndex = PageIndex(4);

    /// Does this to a page in its frame, and returns the kinds of its effects.
    fn with(memory: &mut Memory, work: impl FnOnce(&mut Memory, &mut Cx<'_>)) -> Vec<&'static str> {
        let mut effects = Effects::default();
        let mut shell = Shell::of_four(ME);
        let mut cx = Cx {
            now: Time(1),
            shell: &mut shell,
            effects: &mut effects,
        };
        work(memory, &mut cx);
        let kinds = effects.drain().map(|effect| match effect {
            Effect::Map { .. } => "map",
            Effect::Protect { .. } => "protect",
            Effect::Evict { .. } => "evict",
            Effect::DropStash { .. } => "drop stash",
            Effect::Diffs(DiffWork::Twin { .. }) => "twin",
            Effect::Diffs(DiffWork::Diff { .. }) => "diff",
            other => panic!("not of a page: {other:?}"),
        });
        kinds.collect()
    }

    /// A page that this node stores to.
    fn stored() -> Memory {
        let mut memory = Memory::new(SegmentId::new(NodeId(1), 1));
        memory.pages.page(PAGE).copy = Copy::Frame;
        let done = with(&mut memory, |memory, cx| {
            memory.map(cx, PAGE, &[(MappingId(1), Access::Write)]);
        });
        assert_eq!(done, ["twin", "map"]);
        memory
    }

    /// The same, named by the first interval of this node.
    fn named() -> Memory {
        let mut memory = stored();
        memory.pages.name(PAGE, (ME, 1), 1);
        memory
    }

    fn name(interval: u64) -> DiffName {
        DiffName {
            page: PAGE,
            node: ME,
            interval,
        }
    }

    #[test]
    fn a_diff_is_made_once_and_of_the_interval_that_names_the_page() {
        let mut memory = named();
        let none = with(&mut memory, |memory, cx| memory.make_named(cx, &name(2)));
        assert!(none.is_empty() && !memory.diffs.has(&name(2)));
        let made = with(&mut memory, |memory, cx| memory.make_named(cx, &name(1)));
        assert_eq!(made, ["protect", "diff"]);
        assert!(memory.diffs.has(&name(1)));
        let again = with(&mut memory, |memory, cx| memory.make_named(cx, &name(1)));
        assert!(again.is_empty());
    }

    #[test]
    fn a_page_that_was_given_gets_another_twin_before_it_is_stored_to() {
        let mut memory = named();
        let given = with(&mut memory, |memory, cx| memory.give_all(cx, PAGE));
        assert_eq!(given, ["protect"]);
        let again = with(&mut memory, |memory, cx| {
            memory.map(cx, PAGE, &[(MappingId(1), Access::Write)]);
        });
        assert_eq!(again, ["diff", "map"], "the diff leaves a twin");
        assert!(memory.diffs.has(&name(1)));
        assert!(memory.pages.get(&PAGE).is_some_and(|page| page.twin));
    }

    #[test]
    fn what_is_put_out_of_sight_is_kept_or_dropped() {
        for (keep, copy) in [(true, Copy::Stash), (false, Copy::None)] {
            let mut memory = named();
            let done = with(&mut memory, |memory, cx| memory.stow(cx, PAGE, keep));
            assert_eq!(done, ["protect", "diff", "evict"]);
            let has = |memory: &Memory| memory.pages.get(&PAGE).map(|page| page.copy);
            assert_eq!(has(&memory), Some(copy));
            let dropped = with(&mut memory, |memory, cx| memory.drop_copy(cx, PAGE));
            assert_eq!(dropped.len(), usize::from(keep));
            assert_eq!(has(&memory), Some(Copy::None));
        }
    }
}
