//! Memory pressure (F14): a full node drops copies that it can get again.
//!
//! A copy is dropped without a message, and the next access has the page made whole anew: from the
//! copy of its keeper or its last writer, or from zeros and diffs. So a copy stays that another node
//! relies on (this node is the keeper, or is to become it) or that may be the last one with what a dead
//! node wrote; and one that this node has written to since its last diff, since the diff may take as
//! much memory as the page.

use super::Release;
use super::page::{Copy, Page};
use crate::event::Event;
use crate::limits::USE_GUARD;
use crate::policies::clock::{MEANWHILE, SCAN, SOON, after};
use crate::shell::Cx;
use pagemesh_wire::PageIndex;

impl Release {
    /// Empties frames while the node has more than it should, a program waiting.
    pub(super) fn relieve(&mut self, cx: &mut Cx<'_>) {
        let wanted = self.clock.wanted(cx);
        self.relieve_by(cx, wanted);
    }

    /// It may be time to look again.
    pub(super) fn relieve_again(&mut self, cx: &mut Cx<'_>) {
        let wanted = self.clock.wanted_again(cx);
        self.relieve_by(cx, wanted);
    }

    fn relieve_by(&mut self, cx: &mut Cx<'_>, wanted: usize) {
        if wanted == 0 || self.memory.copies == 0 {
            return;
        }
        // While a collection is under way this node may be the next keeper.
        let collects = self.collector.time().is_some();
        let dropped = !collects && self.drop_some(cx, wanted);
        let wait = if dropped { SOON } else { MEANWHILE };
        self.clock.go_on(cx, self.rules.segment, wait);
    }

    /// Drops so many copies at most. Returns whether it met any.
    fn drop_some(&mut self, cx: &mut Cx<'_>, wanted: usize) -> bool {
        let (mut found, mut hand) = (Vec::new(), self.clock.hand);
        let pages = self.memory.pages.round(hand).take(wanted * SCAN);
        for (index, page) in pages {
            hand = after(index);
            if self.may_be_dropped(cx, page) {
                found.push(index);
            }
            if found.len() == wanted {
                break;
            }
        }
        self.clock.hand = hand;
        for index in &found {
            self.drop_page(cx, *index);
        }
        !found.is_empty()
    }

    /// Whether the page has a copy here that no other node relies on and that this node can get again.
    fn may_be_dropped(&self, cx: &Cx<'_>, page: &Page) -> bool {
        let me = cx.me();
        let rests = page.copy != Copy::None && page.is_idle();
        let written = page.twin || page.undiffed.is_some();
        let is_elsewhere = match page.keeper {
            Some(keeper) => !page.is_kept_by(me) && cx.is_alive(keeper),
            // Nothing of any page is collected.
            None => self.intervals.history.floor().is_empty(),
        };
        let mut writers = page.notices.writers();
        let is_here = |node| node == me || cx.is_alive(node);
        let used = cx.now >= page.granted + USE_GUARD;
        rests && used && !written && is_elsewhere && writers.all(is_here)
    }

    fn drop_page(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let page = self.memory.pages.get(&index);
        match page.map(|page| page.copy) {
            Some(Copy::Frame) => self.memory.stow(cx, index, false),
            _ => self.memory.drop_copy(cx, index),
        }
        // It is not requested along with others.
        self.memory.pages.end_habit(index);
        let (segment, page) = (self.rules.segment, index);
        cx.emit(Event::PressedOut { segment, page });
    }
}

#[cfg(test)]
mod tests {
    use super::super::rules::Rules;
    use super::*;
    use crate::effect::Effects;
    use crate::shell::Shell;
    use crate::time::Time;
    use pagemesh_wire::peer::{Health, Spread};
    use pagemesh_wire::{NodeId, SegmentId, VectorTime};

    const HOME: NodeId = NodeId(1);
    const ME: NodeId = NodeId(2);
    const OTHER: NodeId = NodeId(3);
    const NOW: Time = Time(1_000_000_000);

    /// Copies of so many pages, on a node with memory for none.
    fn full(pages: u32, shell: &mut Shell) -> Release {
        shell.memory.budgets.frames.0 = 0;
        let mut release = Release::new(Rules {
            segment: SegmentId::new(HOME, 1),
            size: 16,
            spread: Spread::Lazy,
        });
        with(shell, |cx| {
            for index in (0..pages).map(PageIndex) {
                release.memory.put(cx, index, Copy::Frame);
                release.memory.pages.page(index).granted = Time::ZERO;
            }
        });
        release
    }

    /// Does something, long after the pages came.
    fn with(shell: &mut Shell, work: impl FnOnce(&mut Cx<'_>)) {
        work(&mut Cx {
            now: NOW,
            shell,
            effects: &mut Effects::default(),
        });
    }

    /// Of which pages there are copies.
    fn copies(release: &Release) -> Vec<u32> {
        let pages = release.memory.pages.which(|page| page.copy != Copy::None);
        pages.into_iter().map(|index| index.0).collect()
    }

    /// Whether a page with this about it stays on a full node of which another one has vanished.
    fn stays(change: impl FnOnce(&mut Release)) -> bool {
        let mut shell = Shell::of_four(ME);
        let mut view = shell.view.clone();
        view.members[3].health = Health::Dead;
        shell.set_view(view);
        let mut release = full(1, &mut shell);
        change(&mut release);
        with(&mut shell, |cx| release.relieve(cx));
        !copies(&release).is_empty()
    }

    fn page(release: &mut Release) -> &mut Page {
        release.memory.pages.page(PageIndex(0))
    }

    #[test]
    fn copies_are_counted_and_dropped_as_the_hand_meets_them() {
        let mut shell = Shell::of_four(ME);
        let mut release = full(6, &mut shell);
        assert_eq!((release.memory.copies, shell.memory.used), (6, 6));
        shell.memory.budgets.frames.0 = 4;
        release.clock.hand = PageIndex(5);
        with(&mut shell, |cx| release.relieve(cx));
        assert_eq!(copies(&release), [1, 2, 3, 4]);
        assert_eq!((release.memory.copies, shell.memory.used), (4, 4));
        with(&mut shell, |cx| release.relieve(cx));
        assert_eq!(copies(&release).len(), 4, "it has no more than it should");
    }

    #[test]
    fn what_others_rely_on_or_only_this_node_has_stays() {
        assert!(!stays(|_| ()), "it is zeros");
        assert!(!stays(|release| page(release).keeper = Some(OTHER)));
        assert!(stays(|release| page(release).keeper = Some(ME)));
        assert!(stays(|release| page(release).keeper = Some(NodeId(4))));
        let wrote = |node| move |release: &mut Release| page(release).notices.add((node, 1), 1);
        assert!(!stays(wrote(OTHER)));
        assert!(stays(wrote(NodeId(4))), "it is dead");
        let collected = |release: &mut Release| {
            let floor = VectorTime::from_iter([(OTHER, 1)]);
            release.intervals.history.collect(&floor);
        };
        assert!(stays(collected), "the keeper is not known");
    }

    #[test]
    fn what_is_written_or_just_came_stays() {
        assert!(stays(|release| page(release).twin = true));
        assert!(stays(|release| page(release).undiffed = Some(1)));
        assert!(stays(|release| page(release).lost = Some(OTHER)));
        assert!(stays(|release| page(release).granted = NOW));
    }
}
