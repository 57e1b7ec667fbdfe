//! Pages that a walk brought: they are replaced by the pages that the walk brings next, not by all
//! pages of the segment, so that a scan does not flush what is used again (GB4).
//!
//! A page that came because a thread walks is in the *window*, an eighth of the segment's memory.
//! While there is room, what overflows the window joins the other pages. When pages have to leave,
//! seven of eight are the oldest of the window, which are a moment old, and one is the oldest of all
//! others. So a program that goes through memory that is an eighth too large, again and again, finds
//! most of it in place, where the order of use alone would make it miss every page. The one of eight
//! lets a walk through other memory take over in a few rounds. A page of the window that is touched
//! again from the stage is one that is used again, and joins the others.

use super::replace::STAGE;
use crate::global::Ages;
use crate::time::Time;
use pagemesh_wire::PageIndex;

/// Of so many pages that leave, one is the oldest of those that no walk brought.
const OTHERS: u8 = 8;

/// The longest burst of a walk through little memory.
const LEAST: u32 = 4;

/// The pages in frames, in the order in which they are replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Frames {
    /// Those that a walk brought lately.
    pub(super) walked: Ages<PageIndex>,
    /// The others.
    pub(super) mapped: Ages<PageIndex>,
    /// Counts pages that leave their frames.
    pub(super) turn: u8,
}

impl Frames {
    /// Pages of the window.
    fn window(&self, limit: u32) -> u32 {
        (limit / STAGE).max(1)
    }

    /// Pages that one walk may ask for ahead together: what two bursts bring must not make the first
    /// of it leave before the thread comes there.
    pub(super) fn longest_burst(&self, limit: u32) -> u32 {
        (self.window(limit) / 3).max(LEAST)
    }

    /// A page came because a thread walks.
    pub(super) fn came_by_walk(&mut self, limit: u32, used: Time, page: PageIndex) {
        if !self.mapped.remove(used, page) {
            return;
        }
        self.walked.insert(used, page);
        while self.walked.len() > self.window(limit) {
            let Some((used, page)) = self.walked.oldest() else {
                return;
            };
            self.walked.remove(used, page);
            self.mapped.insert(used, page);
        }
    }

    /// Takes the page that is to leave its frame next out of the order of pages. Says whether a walk
    /// brought it lately.
    pub(super) fn take_oldest(&mut self, limit: u32) -> Option<(Time, PageIndex, bool)> {
        self.turn = (self.turn + 1) % OTHERS;
        let walked = self.turn != 0 && self.walked.len() > self.window(limit) / 4 * 3;
        let of_walk = match walked {
            true => self.walked.oldest().is_some(),
            false => self.mapped.oldest().is_none(),
        };
        let ages = match of_walk {
            true => &mut self.walked,
            false => &mut self.mapped,
        };
        let (used, page) = ages.oldest()?;
        ages.remove(used, page);
        Some((used, page, of_walk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of memory for so many pages: the window has eight.
    const LIMIT: u32 = 64;

    /// Frames with pages from 0 on that a walk brought, and pages from 100 on that none did.
    fn frames(walked: u32, others: u32) -> Frames {
        let mut frames = Frames::default();
        for page in 0..walked {
            let used = Time(page.into());
            frames.mapped.insert(used, PageIndex(page));
            frames.came_by_walk(LIMIT, used, PageIndex(page));
        }
        for page in 100..100 + others {
            frames.mapped.insert(Time(page.into()), PageIndex(page));
        }
        frames
    }

    fn leave(frames: &mut Frames, count: usize) -> Vec<u32> {
        let page = |_| Some(frames.take_oldest(LIMIT)?.1.0);
        (0..count).map_while(page).collect()
    }

    #[test]
    fn what_overflows_the_window_joins_the_others() {
        let frames = frames(10, 0);
        assert_eq!(frames.walked.len(), 8);
        let others: Vec<_> = frames.mapped.iter().map(|(_, page)| page.0).collect();
        assert_eq!(others, [0, 1]);
    }

    #[test]
    fn two_bursts_of_a_walk_fit_into_its_window() {
        let frames = Frames::default();
        assert_eq!(frames.longest_burst(480), 20);
        assert_eq!(frames.longest_burst(LIMIT), LEAST);
    }

    #[test]
    fn most_that_leave_are_of_the_walk_while_its_window_is_full() {
        let mut frames = frames(8, 20);
        assert_eq!(leave(&mut frames, 4), [0, 1, 100, 101]);
    }
}
