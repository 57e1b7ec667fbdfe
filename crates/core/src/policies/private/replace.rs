//! Replacement: which pages leave their frames, and which leave the node (G10).

use super::memory::Memory;
use super::page::Place;
use super::{Blocked, Private};
use crate::effect::{Effect, PageRange};
use crate::event::Event;
use crate::limits::DISK_PATIENCE;
use crate::prefetch::WillneedRanges as _;
use crate::shell::Cx;
use pagemesh_wire::peer::{Backing, Refusal};
use pagemesh_wire::{PageIndex, SegmentId};

/// Pages that leave together at most: the kernel takes 64 in a row for the price of a few.
const RUN: u32 = 64;

/// The part of a segment's memory for staged pages.
pub(super) const STAGE: u32 = 8;

/// The part of it that is kept free for the next faults.
const SLACK: u32 = 64;

/// Pages that are taken from their frames together.
#[derive(Default)]
struct Taken {
    /// Those whose contents go into the stash.
    kept: Vec<PageIndex>,
    /// Those whose contents are elsewhere, or are zeros.
    dropped: Vec<PageIndex>,
}

impl Taken {
    /// Neighbours are evicted by one effect, in whichever order their turns came.
    fn evict(self, cx: &mut Cx<'_>, segment: SegmentId) {
        for (pages, keep) in [(self.kept, true), (self.dropped, false)] {
            for pages in PageRange::of(segment, &pages) {
                cx.push(Effect::Evict { pages, keep });
            }
        }
    }
}

impl Private {
    /// What waited for room goes on, and room is made for what comes next.
    pub(super) fn go_on(&mut self, cx: &mut Cx<'_>) {
        self.unblock(cx);
        self.tend(cx, 0);
    }

    /// Accesses that waited for room go on as far as there is any, and announced pages after them.
    pub(super) fn unblock(&mut self, cx: &mut Cx<'_>) {
        while let Some(Blocked {
            mapping,
            page,
            access,
            ..
        }) = self.blocked.front().copied()
        {
            let known = self.memory.pages.get(&page);
            let place = known.map_or(Place::Out, |known| known.place);
            if matches!(place, Place::Storing { .. }) {
                return;
            }
            let is_here = place != Place::Out;
            if !is_here && !self.fetches.contains_key(&page) && self.memory.room(cx) == 0 {
                self.tend(cx, 1);
                if self.memory.room(cx) == 0 {
                    return;
                }
            }
            self.blocked.pop_front();
            if !self.serve_here(cx, (mapping, page), access)
                && !self.wait_too(page, mapping, access)
            {
                self.bring(cx, (mapping, page), access);
            }
        }
        self.run_willneed_ranges(cx);
    }

    /// Makes room for `need` pages, and for some more before they are needed.
    pub(super) fn tend(&mut self, cx: &mut Cx<'_>, need: u32) {
        let limit = self.memory.limit(cx);
        let goal = limit - (limit / SLACK).min(RUN).max(need).min(limit);
        let held = self.memory.held - self.memory.storing - self.outgoing.sending();
        if held <= goal {
            return;
        }
        let run = (limit / SLACK).clamp(1, RUN);
        let excess = (held - goal).max(run).min(held);
        let stage = limit / STAGE + excess;
        let before = self.memory.held;
        let mut taken = Taken::default();
        while self.memory.staged.len() + (before - self.memory.held) < stage {
            if !self.memory.take_frame(cx, limit, &mut taken) {
                break;
            }
        }
        taken.evict(cx, self.memory.rules.segment);
        // Some have left at once.
        let left = before - self.memory.held;
        let held = self.memory.held - self.memory.storing - self.outgoing.sending();
        if held > goal {
            self.send_out(cx, excess.saturating_sub(left).max(held - goal));
        }
    }

    /// A page that was fetched only to be sent again is in the stash.
    pub(super) fn stage_again(&mut self, cx: &mut Cx<'_>, page: PageIndex) {
        self.memory.stage(page, cx.now);
        self.memory.release_leavers(cx, page);
        self.send_out(cx, 1);
    }

    /// Sends the oldest staged pages out of memory, `count` at most.
    fn send_out(&mut self, cx: &mut Cx<'_>, count: u32) {
        let oldest: Vec<_> = self.memory.staged.iter().take(count as usize).collect();
        let mut to_disk = Vec::new();
        for (used, page) in oldest {
            let Some(known) = self.memory.pages.get(&page).copied() else {
                continue;
            };
            match self.memory.rules.backing {
                Backing::File if known.on_disk => {
                    if !self.put(cx, page) {
                        break;
                    }
                }
                Backing::File => to_disk.push((used, page)),
                Backing::Copies if known.on_disk => self.memory.leave(cx, page),
                Backing::Copies if self.outgoing.is_full() => break,
                Backing::Copies => {
                    if !self.send_copies(cx, page) {
                        to_disk.push((used, page));
                    }
                }
            }
        }
        self.store(cx, to_disk.into_iter().map(|(_, page)| page).collect());
    }

    /// Has the driver write staged pages to the disk, neighbours together.
    pub(super) fn store(&mut self, cx: &mut Cx<'_>, pages: Vec<PageIndex>) {
        if self.outgoing.disk_waits(cx.now) {
            return;
        }
        let mut storing = Vec::new();
        for page in pages {
            let Some(known) = self.memory.pages.get_mut(&page) else {
                continue;
            };
            let Place::Staged { used } = known.place else {
                continue;
            };
            known.place = Place::Storing { used };
            self.memory.storing += 1;
            self.memory.staged.remove(used, page);
            storing.push(page);
        }
        for pages in PageRange::of(self.memory.rules.segment, &storing) {
            cx.push(Effect::Store { pages });
        }
    }

    /// The driver has written pages to the disk, or could not.
    pub(super) fn written(&mut self, cx: &mut Cx<'_>, pages: PageRange, done: bool) {
        let segment = self.memory.rules.segment;
        for (_, page) in pages.iter() {
            let Some(known) = self.memory.pages.get_mut(&page) else {
                continue;
            };
            let Place::Storing { used } = known.place else {
                continue;
            };
            self.memory.storing -= 1;
            known.on_disk = done;
            self.memory.stage(page, used);
            if done {
                cx.emit(Event::DiskWritten { segment, page });
                match self.memory.rules.backing {
                    Backing::File => drop(self.put(cx, page)),
                    Backing::Copies => self.memory.leave(cx, page),
                }
            }
        }
        if done {
            self.full = None;
            self.outgoing.disk_takes();
        } else {
            self.disk_full(cx);
        }
    }

    /// The disk takes nothing. Accesses wait for a while, then they fail; no contents are lost.
    fn disk_full(&mut self, cx: &mut Cx<'_>) {
        let since = *self.full.get_or_insert(cx.now);
        cx.emit(Event::DiskFull {});
        self.outgoing.wait_for_disk(cx, self.memory.rules.segment);
        if cx.now < since + DISK_PATIENCE {
            return;
        }
        for blocked in core::mem::take(&mut self.blocked) {
            let why = "the disk of private segments is full, and so is the memory that this \
                segment may use: free space in the daemon's --private-dir, or raise the segment's \
                local limit";
            let why = Refusal::Limit(why.into());
            self.memory.fail(cx, blocked.mapping, blocked.page, why);
        }
    }
}

impl Memory {
    /// Takes a page from its frame. False if there is none.
    fn take_frame(&mut self, cx: &mut Cx<'_>, limit: u32, taken: &mut Taken) -> bool {
        let Some((used, page, walked)) = self.frames.take_oldest(limit) else {
            return false;
        };
        let Some(known) = self.pages.get_mut(&page) else {
            return true;
        };
        let stored_to = known.place.is_writable();
        if known.version.0 == 0 && !stored_to {
            // Zeros, never stored to.
            self.pages.remove(&page);
            self.unhold(cx);
            taken.dropped.push(page);
            return true;
        }
        if stored_to {
            known.version.0 += 1;
            known.on_disk = false;
            known.donors.outdate();
        } else {
            self.stores.left(page);
            if walked && known.is_elsewhere(self.rules.backing) {
                // A walk does not come back soon: another copy on this node would be in vain.
                known.place = Place::Out;
                self.unhold(cx);
                taken.dropped.push(page);
                return true;
            }
        }
        known.place = Place::Staged { used };
        self.staged.insert(used, page);
        taken.kept.push(page);
        true
    }

    /// A staged page leaves this node's memory: its contents are elsewhere.
    pub(super) fn leave(&mut self, cx: &mut Cx<'_>, page: PageIndex) {
        let Some(known) = self.pages.get_mut(&page) else {
            return;
        };
        let Some(used) = known.place.used() else {
            return;
        };
        assert!(
            known.on_disk || !known.donors.sure().is_empty(),
            "INV-private-kept: {page} has contents elsewhere"
        );
        known.place = Place::Out;
        self.staged.remove(used, page);
        self.unhold(cx);
        let segment = self.rules.segment;
        cx.push(Effect::DropStash { segment, page });
    }
}
