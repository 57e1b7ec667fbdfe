//! What a node has of a private segment: the pages, where each is, and how much memory they take.

use super::page::{Page, Place};
use super::scan::Frames;
use super::stores::Stores;
use crate::effect::{Effect, Mappings, PageRange, Rights, Source};
use crate::event::Event;
use crate::global::Ages;
use crate::shell::Cx;
use crate::time::Time;
use crate::timers::Timer;
use pagemesh_sorted::LongMap;
use pagemesh_wire::peer::{Access, Backing, LentPage, Refusal, Subject};
use pagemesh_wire::{MappingId, PageIndex, SegmentId};

/// A segment has so many, whatever the others have: an instruction may touch several pages.
const LEAST: u32 = 16;

/// The settings of a segment, which its opening fixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Rules {
    pub(super) segment: SegmentId,
    /// Pages of it in memory at most; zero: no bound of its own.
    pub(super) local: u32,
    pub(super) backing: Backing,
}

/// The pages of one private segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Memory {
    pub(super) rules: Rules,
    pub(super) pages: LongMap<PageIndex, Page>,
    pub(super) frames: Frames,
    /// Whether pages that come for loads are stored to next.
    pub(super) stores: Stores,
    /// Pages in the stash that nothing is under way about.
    pub(super) staged: Ages<PageIndex>,
    /// Pages of which this segment occupies memory: those in frames and in the stash, and those
    /// that were asked for.
    pub(super) held: u32,
    /// Those of them that the driver writes to the disk now.
    pub(super) storing: u32,
}

pub(super) fn rights_for(access: Access) -> Rights {
    match access {
        Access::Read => Rights::Read,
        Access::Write => Rights::Write,
    }
}

impl Memory {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            pages: LongMap::new(),
            frames: Frames::default(),
            stores: Stores::default(),
            staged: Ages::default(),
            held: 0,
            storing: 0,
        }
    }

    pub(super) fn range(&self, page: PageIndex) -> PageRange {
        (self.rules.segment, page).into()
    }

    pub(super) fn timer(&self, page: PageIndex) -> Timer {
        let segment = self.rules.segment;
        Timer::Subject(Subject::Page { segment, page })
    }

    /// Counts a page that occupies memory from now on.
    pub(super) fn hold(&mut self, cx: &mut Cx<'_>) {
        self.held += 1;
        cx.shell.memory.used += 1;
    }

    /// Counts a page that does not occupy memory any more.
    pub(super) fn unhold(&mut self, cx: &mut Cx<'_>) {
        self.held -= 1;
        cx.shell.memory.used -= 1;
    }

    /// A thread may go on.
    pub(super) fn map(&self, cx: &mut Cx<'_>, mapping: MappingId, page: PageIndex, rights: Rights) {
        let segment = self.rules.segment;
        cx.push(Effect::Map {
            mappings: Mappings::One(mapping),
            pages: self.range(page),
            rights,
        });
        cx.emit(Event::Granted { segment, page });
    }

    /// An access that can never be served.
    pub(super) fn fail(&self, cx: &mut Cx<'_>, mapping: MappingId, page: PageIndex, why: Refusal) {
        cx.fail(mapping, (self.rules.segment, page), why);
    }

    /// The page, if its version is still the one that was lent.
    pub(super) fn page_of(&mut self, lent: LentPage) -> Option<&mut Page> {
        let known = self.pages.get_mut(&lent.page);
        known.filter(|known| known.version == lent.version)
    }

    /// Whether the disk has the contents of a page.
    pub(super) fn is_on_disk(&self, page: PageIndex) -> bool {
        self.pages.get(&page).is_some_and(|known| known.on_disk)
    }

    /// The page is in the stash, and nothing is under way about it any more.
    pub(super) fn stage(&mut self, page: PageIndex, used: Time) {
        if let Some(known) = self.pages.get_mut(&page) {
            known.place = Place::Staged { used };
            self.staged.insert(used, page);
        }
    }

    /// The page is in its frame from now on.
    pub(super) fn framed(&mut self, now: Time, page: PageIndex, rights: Rights) {
        let known = self.pages.entry(page);
        known.or_insert_with(|| Page::zeros(rights, now)).place =
            Place::Frame { rights, used: now };
        self.frames.mapped.insert(now, page);
    }

    /// A page is in its frame because a thread walks.
    pub(super) fn came_by_walk(&mut self, cx: &Cx<'_>, page: PageIndex) {
        let limit = self.limit(cx);
        self.frames.came_by_walk(limit, cx.now, page);
    }

    /// Whether a page is to be read from the disk: no donor has it, or none that answers.
    pub(super) fn reads_disk(&self, cx: &Cx<'_>, known: &Page) -> bool {
        let is_mute = |node| cx.shell.memory.is_mute(cx.now, node);
        known.on_disk && known.donors.all().iter().all(is_mute)
    }

    /// Reads a page from the disk; it is counted already.
    pub(super) fn load(
        &mut self,
        cx: &mut Cx<'_>,
        page: PageIndex,
        waiters: &[(MappingId, Access)],
    ) {
        let segment = self.rules.segment;
        cx.emit(Event::DiskRead { segment, page });
        self.fill(cx, page, Source::Disk, waiters);
    }

    /// Contents are there: fills the frame and lets the threads go on.
    pub(super) fn fill(
        &mut self,
        cx: &mut Cx<'_>,
        page: PageIndex,
        source: Source,
        waiters: &[(MappingId, Access)],
    ) {
        cx.push(Effect::Fill {
            pages: self.range(page),
            source,
        });
        let rights = waiters.iter().map(|(_, access)| rights_for(*access)).max();
        let rights = rights.unwrap_or_default();
        let stores = rights == Rights::Read && source != Source::Zero && self.stores.follow(page);
        let least = if stores { Rights::Write } else { Rights::None };
        self.framed(cx.now, page, rights.max(least));
        for (mapping, access) in waiters {
            self.map(cx, *mapping, page, rights_for(*access).max(least));
        }
    }

    /// Pages of the segment in memory at most.
    pub(super) fn limit(&self, cx: &Cx<'_>) -> u32 {
        let memory = &cx.shell.memory;
        let own = if self.rules.local == 0 {
            u32::MAX
        } else {
            self.rules.local
        };
        // The rest of the node's memory, after what other segments have of it.
        let others = memory.used - self.held;
        let rest = memory.budgets.memory.0.saturating_sub(others);
        own.min(rest.max(LEAST))
    }

    /// How many more pages may come into memory now.
    pub(super) fn room(&self, cx: &Cx<'_>) -> u32 {
        self.limit(cx).saturating_sub(self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effects;
    use crate::shell::Shell;
    use pagemesh_wire::NodeId;

    #[test]
    fn room_is_what_the_segment_and_the_other_segments_leave() {
        let mut shell = Shell::of_four(NodeId(1));
        shell.memory.budgets.memory.0 = 40;
        let cx = &mut Cx {
            now: Time(0),
            shell: &mut shell,
            effects: &mut Effects::default(),
        };
        let mut memory = Memory::new(Rules {
            segment: SegmentId::new(NodeId(1), 1),
            local: 20,
            backing: Backing::File,
        });
        (0..3).for_each(|_| memory.hold(cx));
        assert_eq!((memory.limit(cx), memory.room(cx)), (20, 17));
        memory.rules.local = 0;
        assert_eq!(memory.limit(cx), 40);
        cx.shell.memory.used += 30;
        assert_eq!((memory.limit(cx), memory.room(cx)), (LEAST, 13));
        memory.unhold(cx);
        assert_eq!(memory.room(cx), 14);
    }
}
