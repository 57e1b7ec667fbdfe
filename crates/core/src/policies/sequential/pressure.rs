//! Memory pressure (F14): a full node drops its copies of pages and gives pages that it owns to
//! others.
//!
//! A copy is dropped without a message: its owner sends an invalidation that finds nothing. A page
//! that was never written is dropped as well, and is zeros again. Any other owned page goes to a node
//! that may have a copy of it already, or else to a node with idle memory that knows the segment. If
//! there is none, the page stays: the node then has more frames than it should, and loses nothing.

use super::memory::Memory;
use super::page::Page;
use super::page_here::PageHere;
use super::rules::Rules;
use super::table::Table;
use crate::event::Event;
use crate::limits::USE_GUARD;
use crate::policies::clock::{Clock, LATER, SCAN, SOON, after};
use crate::shell::Cx;
use crate::time::Time;
use core::time::Duration;
use pagemesh_wire::peer::Manager;
use pagemesh_wire::{NodeId, NodeSet, PageIndex, RequestId};

/// The clock whose hand goes over the pages, and to whom they may go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Pressure {
    pub(super) clock: Clock,
    /// Members that sent messages about pages while the frames of this node had a bound: they know the
    /// segment.
    pub(super) met: NodeSet,
}

impl Pressure {
    /// A member knows the segment.
    pub(super) fn meet(&mut self, cx: &Cx<'_>, node: NodeId) {
        if cx.shell.memory.is_bounded() {
            self.met.insert(node);
        }
    }

    /// Empties frames while the node has more than it should, a program waiting.
    pub(super) fn relieve(&mut self, cx: &mut Cx<'_>, memory: &mut Memory) {
        let wanted = self.clock.wanted(cx);
        self.relieve_by(cx, memory, wanted);
    }

    /// It may be time to look again.
    pub(super) fn due(&mut self, cx: &mut Cx<'_>, memory: &mut Memory) {
        let wanted = self.clock.wanted_again(cx);
        self.relieve_by(cx, memory, wanted);
    }

    fn relieve_by(&mut self, cx: &mut Cx<'_>, memory: &mut Memory, wanted: usize) {
        if wanted == 0 || memory.frames == 0 || memory.hold.until() > cx.now {
            return;
        }
        let mut left = 0;
        let looked = self.look(&memory.pages, cx.now, wanted * SCAN);
        let allowed = self.receivers(cx, memory.rules, looked.knowing);
        let idle = idle(cx, &allowed);
        let nothing_fits = looked.frames.is_empty();
        if nothing_fits {
            self.clock.hand = looked.end;
        }
        for page in looked.frames {
            if left == wanted {
                break;
            }
            self.clock.hand = after(page);
            left += usize::from(memory.press_out(cx, page, (&allowed, idle)));
        }
        // Pages that do not fit yet came just now.
        let soon = left > 0 || nothing_fits;
        let wait = if soon { SOON } else { LATER };
        self.clock.go_on(cx, memory.rules.segment, wait);
    }

    /// Looks at pages from where the last search ended: the clock's hand. Pages that came long ago
    /// are met before pages that came just now.
    fn look(&self, table: &Table, now: Time, pages: usize) -> Looked {
        let behind = table.from(self.clock.hand);
        let before = table.between(PageIndex(0), self.clock.hand);
        let mut looked = Looked::default();
        for (index, page) in behind.chain(before).take(pages) {
            if page.own.hint.is_valid() {
                looked.knowing.insert(page.own.hint);
            }
            looked.knowing = looked.knowing.union(&page.copies);
            looked.end = after(index);
            if page.may_be_pressed_out(now) {
                looked.frames.push(index);
            }
        }
        looked
    }

    /// Nodes that may get a page unasked: they know the segment, as owners and readers of pages do.
    /// The library site of a fixed manager has to know the clock site, which it learns from nodes
    /// that asked for the page: so only the library site itself may get it, or give it.
    fn receivers(&self, cx: &Cx<'_>, rules: Rules, knowing: NodeSet) -> NodeSet {
        let home = cx.home(rules.segment);
        let mut all = NodeSet::only(home);
        if rules.manager == Manager::Dynamic || home == cx.me() {
            all = all.union(&knowing).union(&self.met);
            all.insert(cx.coordinator());
        }
        let fit = |node: &NodeId| *node != cx.me() && cx.is_alive(*node);
        all.iter().filter(fit).collect()
    }
}

/// What a look at some pages found.
#[derive(Debug, Default)]
struct Looked {
    /// Pages whose frames may be emptied.
    frames: Vec<PageIndex>,
    /// Nodes that know the segment.
    knowing: NodeSet,
    /// The page behind the last one.
    end: PageIndex,
}

impl Page {
    /// Whether the page has a frame that may be emptied: no access waits for it, and no time window
    /// or pin keeps it.
    fn may_be_pressed_out(&self, now: Time) -> bool {
        let used = !self.unused || now >= self.granted + USE_GUARD;
        self.filled && self.own.busy().is_none() && used && self.held_until() <= now
    }
}

impl Memory {
    /// Empties the frame of a page: its contents go to one of these nodes that has a copy, or to the
    /// one that has idle memory. False if they have nowhere to go.
    fn press_out(
        &mut self,
        cx: &mut Cx<'_>,
        index: PageIndex,
        (allowed, idle): (&NodeSet, Option<NodeId>),
    ) -> bool {
        let Some(page) = self.pages.get(index) else {
            return false;
        };
        let (owned, pristine, copies) =
            (page.own.hint == cx.me(), page.pristine, page.copies.clone());
        if !owned || pristine {
            self.at(cx, index, |context| context.here.drop_frame());
            return true;
        }
        let has_copy = copies.iter().find(|node| allowed.contains(*node));
        let Some(to) = has_copy.or(idle) else {
            return false;
        };
        self.at(cx, index, |context| {
            context.here.give_away(to, has_copy.is_some())
        })
    }
}

/// One of these nodes that has idle memory.
fn idle(cx: &mut Cx<'_>, peers: &NodeSet) -> Option<NodeId> {
    let now = cx.now;
    let memory = &mut cx.shell.memory;
    memory.choose(now, Duration::ZERO, (peers, &NodeSet::EMPTY))
}

impl PageHere<'_, '_> {
    /// Drops a copy, or zeros.
    fn drop_frame(&mut self) {
        let (segment, page) = self.at();
        self.evict(false);
        self.cx.emit(Event::PressedOut { segment, page });
    }

    /// Gives ownership away unasked. False if the backup must have the page first.
    fn give_away(&mut self, to: NodeId, has_copy: bool) -> bool {
        if !self.notes.is_kept() {
            return false;
        }
        let (segment, page) = self.at();
        let have = has_copy.then_some(self.page.own.version);
        self.give(to, RequestId::NONE, have);
        self.cx.emit(Event::PressedOut { segment, page });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::Version;

    const ME: NodeId = NodeId(2);

    /// Pages 0 to 3, of which the even ones have frames, and whose owner has their number.
    fn table() -> Table {
        let mut table = Table::default();
        for index in 0..4 {
            let page = table.page(PageIndex(index), || Page::new(ME));
            page.own.hint = NodeId(index as u16 + 1);
            page.own.version = Version(1);
            page.filled = index % 2 == 0;
        }
        table
    }

    #[test]
    fn the_hand_goes_round_and_sees_who_knows_the_segment() {
        let mut pressure = Pressure::default();
        pressure.clock.hand = PageIndex(1);
        let looked = pressure.look(&table(), Time(1), 2);
        assert_eq!(looked.frames, [PageIndex(2)]);
        assert_eq!(looked.end, PageIndex(3));
        let knowing: Vec<_> = looked.knowing.iter().collect();
        assert_eq!(knowing, [NodeId(2), NodeId(3)]);
        let looked = pressure.look(&table(), Time(1), 9);
        assert_eq!(looked.frames, [PageIndex(2), PageIndex(0)]);
        assert_eq!(looked.end, PageIndex(1));
    }

    #[test]
    fn what_is_held_or_waited_for_stays() {
        let mut table = table();
        table.page(PageIndex(0), || unreachable!()).hold_for(SOON);
        let page = table.page(PageIndex(2), || unreachable!());
        (page.unused, page.granted) = (true, Time(1));
        let look = |at| Pressure::default().look(&table, at, 9).frames;
        assert_eq!(look(Time(1)), []);
        assert_eq!(look(Time::ZERO + SOON), [PageIndex(0)]);
        let later = Time(1) + USE_GUARD;
        assert_eq!(look(later.max(Time::ZERO + SOON)).len(), 2);
    }
}
