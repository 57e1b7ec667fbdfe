//! Memory pressure (F14): a full node drops its copies of pages and gives pages that it owns to
//! others.
//!
//! A copy is dropped without a message: its owner sends an invalidation that finds nothing. A page
//! that was never written is dropped as well, and is zeros again. Any other owned page goes to a node
//! that may have a copy of it already, or else to a node with idle memory that knows the segment. If
//! there is none, the page stays: the node then has more frames than it should, and loses nothing.

use super::Sequential;
use super::context::PageContext;
use super::page::Page;
use crate::event::Event;
use crate::limits::USE_GUARD;
use crate::shell::Cx;
use crate::time::Time;
use crate::timers::Timer;
use core::time::Duration;
use pagemesh_wire::peer::Manager;
use pagemesh_wire::{NodeId, NodeSet, PageIndex, RequestId};

/// Pages that leave while a program waits, at most.
const BURST: usize = 32;

/// Pages that leave when it is time to look, at most.
const LONG_BURST: usize = 256;

/// Pages that are looked at for each that is to leave, at most.
const SCAN: usize = 16;

/// Time between two looks while pages leave ...
const SOON: Duration = Duration::from_millis(5);

/// ... and while they have nowhere to go.
const LATER: Duration = Duration::from_secs(1);

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

fn after(page: PageIndex) -> PageIndex {
    PageIndex(page.0.saturating_add(1))
}

impl Page {
    /// Whether the page has a frame that may be emptied: no access waits for it, and no time window
    /// or pin keeps it.
    fn may_be_pressed_out(&self, now: Time) -> bool {
        let used = !self.unused || now >= self.granted + USE_GUARD;
        self.filled && self.own.busy().is_none() && used && self.held_until() <= now
    }
}

impl Sequential {
    /// The frame of a page was filled or emptied.
    pub(super) fn count_frame(&mut self, cx: &mut Cx<'_>, filled: bool) {
        let used = &mut cx.shell.memory.used;
        if filled {
            self.frames += 1;
            *used += 1;
        } else if self.frames > 0 {
            self.frames -= 1;
            *used -= 1;
        }
    }

    /// A member knows the segment.
    pub(super) fn meet(&mut self, cx: &Cx<'_>, node: NodeId) {
        if cx.shell.memory.is_bounded() {
            self.met.insert(node);
        }
    }

    /// Whether this node has requested the page.
    pub(super) fn wants(&self, page: PageIndex) -> bool {
        let page = self.pages.get(page);
        page.is_some_and(|page| page.own.want().is_some())
    }

    /// Empties frames while the node has more than it should, a program waiting.
    pub(super) fn relieve(&mut self, cx: &mut Cx<'_>) {
        let in_vain = self.look_again.is_some_and(|due| due > cx.now + SOON);
        if !in_vain {
            self.relieve_by(cx, BURST);
        }
    }

    /// It may be time to look again.
    pub(super) fn relief_due(&mut self, cx: &mut Cx<'_>) {
        if self.look_again.is_some_and(|due| due <= cx.now) {
            self.look_again = None;
            self.relieve_by(cx, LONG_BURST);
        }
    }

    fn relieve_by(&mut self, cx: &mut Cx<'_>, burst: usize) {
        let excess = cx.shell.memory.excess();
        if excess == 0 || self.frames == 0 || self.held_until() > cx.now {
            return;
        }
        let wanted = burst.min(excess as usize);
        let mut left = 0;
        let looked = self.look(cx.now, wanted * SCAN);
        let allowed = self.receivers(cx, looked.knowing);
        let idle = idle(cx, &allowed);
        let nothing_fits = looked.frames.is_empty();
        if nothing_fits {
            self.hand = looked.end;
        }
        for page in looked.frames {
            if left == wanted {
                break;
            }
            self.hand = after(page);
            left += usize::from(self.press_out(cx, page, (&allowed, idle)));
        }
        if self.look_again.is_none() && cx.shell.memory.excess() > 0 {
            // Pages that do not fit yet came just now.
            let soon = left > 0 || nothing_fits;
            let due = cx.now + if soon { SOON } else { LATER };
            self.look_again = Some(due);
            cx.arm(due, Timer::Segment(self.rules.segment));
        }
    }

    /// Looks at pages from where the last search ended: the clock's hand. Pages that came long ago
    /// are met before pages that came just now.
    fn look(&self, now: Time, pages: usize) -> Looked {
        let behind = self.pages.from(self.hand);
        let before = self
            .pages
            .iter()
            .take_while(|(index, _)| *index < self.hand);
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
            self.at(cx, index, |context| context.drop_frame());
            return true;
        }
        let has_copy = copies.iter().find(|node| allowed.contains(*node));
        let Some(to) = has_copy.or(idle) else {
            return false;
        };
        self.at(cx, index, |context| {
            context.give_away(to, has_copy.is_some())
        })
    }

    /// Nodes that may get a page unasked: they know the segment, as owners and readers of pages do.
    /// The library site of a fixed manager has to know the clock site, which it learns from nodes
    /// that asked for the page: so only the library site itself may get it, or give it.
    fn receivers(&self, cx: &Cx<'_>, knowing: NodeSet) -> NodeSet {
        let home = cx.home(self.rules.segment);
        let mut all = NodeSet::only(home);
        if self.rules.manager == Manager::Dynamic || home == cx.me() {
            all = all.union(&knowing).union(&self.met);
            all.insert(cx.coordinator());
        }
        let fit = |node: &NodeId| *node != cx.me() && cx.is_alive(*node);
        all.iter().filter(fit).collect()
    }
}

/// One of these nodes that has idle memory.
fn idle(cx: &mut Cx<'_>, peers: &NodeSet) -> Option<NodeId> {
    let now = cx.now;
    let memory = &mut cx.shell.memory;
    memory.choose(now, Duration::ZERO, (peers, &NodeSet::EMPTY))
}

impl PageContext<'_, '_> {
    /// Drops a copy, or zeros.
    fn drop_frame(&mut self) {
        let (segment, page) = (self.rules.segment, self.index);
        self.evict(false);
        self.cx.emit(Event::PressedOut { segment, page });
    }

    /// Gives ownership away unasked. False if the backup must have the page first.
    fn give_away(&mut self, to: NodeId, has_copy: bool) -> bool {
        if !self.is_kept() {
            return false;
        }
        let (segment, page) = (self.rules.segment, self.index);
        let have = has_copy.then_some(self.page.own.version);
        self.give(to, RequestId::NONE, have);
        self.cx.emit(Event::PressedOut { segment, page });
        true
    }
}
