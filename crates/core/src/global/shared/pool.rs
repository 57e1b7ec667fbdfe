//! The frames of one cache: the page frame directory (PFD, G15) of its pages.
//!
//! A frame is named after its page as long as its contents are those of that page. Only named
//! frames answer other nodes. A frame that the process reads from, or that something is under way
//! to, is *pinned*: it is not taken for another page.

use crate::global::Ages;
use crate::time::Time;
use pagemesh_sorted::LongMap;
use pagemesh_wire::PageIndex;
use pagemesh_wire::peer::{AGE_CLASSES, FileKey};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A page of a file.
pub(super) type Name = (FileKey, PageIndex);

/// The age of a page that other nodes cache, too, counts so many times: it is dropped before a page
/// that only this node has, unless it is much younger (G7, G24).
const COPIES_AGE: u64 = 4;

/// Neighbours of a dropped page that are dropped with it, so that the directory is told once.
const RUN: usize = 16;

/// The frames of one cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Pool {
    /// Frames in use.
    frames: LongMap<u32, Frame>,
    names: LongMap<Name, u32>,
    /// Frames without use that still occupy memory.
    free: BTreeSet<u32>,
    /// Frames without use and memory below `fresh`.
    empty: BTreeSet<u32>,
    /// Frames from this one on have never been used.
    fresh: u32,
    /// Frames that can be taken for other pages: of pages that only this node has, and of others.
    singles: Ages<u32>,
    copies: Ages<u32>,
}

/// One frame in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Frame {
    name: Name,
    state: State,
    used: Time,
    pins: u32,
}

/// A page that leaves its frame, whose memory still has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dropped {
    pub(super) name: Name,
    pub(super) frame: PageIndex,
    pub(super) used: Time,
    /// No other node is known to have it.
    pub(super) last: bool,
}

/// The contents of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum State {
    /// Other nodes were asked for the page.
    Asked,
    /// The process reads the page from the file.
    Filling,
    /// Those of the page that it is named after. With whether another node has the page, too.
    Named { copy: bool },
    /// Those of the page, but another frame is named after it.
    Unnamed,
}

impl Pool {
    /// The frames that occupy memory.
    pub(super) fn len(&self) -> u32 {
        self.frames.len() as u32 + self.free.len() as u32
    }

    /// The frame that is named after a page, pinned from now on.
    pub(super) fn pin(&mut self, name: Name, now: Time) -> Option<u32> {
        let slot = *self.names.get(&name)?;
        self.unage(slot);
        let frame = self.frames.get_mut(&slot)?;
        frame.used = now;
        frame.pins += 1;
        Some(slot)
    }

    /// The frame that is named after a page. Another node gets a copy of it if `copied`.
    pub(super) fn look(&mut self, name: Name, copied: bool) -> Option<u32> {
        let slot = *self.names.get(&name)?;
        if copied {
            self.mark(slot, true);
        }
        Some(slot)
    }

    /// Another node has a page, too, or none has any more.
    pub(super) fn set_copy(&mut self, name: Name, copy: bool) {
        if let Some(slot) = self.names.get(&name).copied() {
            self.mark(slot, copy);
        }
    }

    fn mark(&mut self, slot: u32, is_copy: bool) {
        self.unage(slot);
        if let Some(frame) = self.frames.get_mut(&slot)
            && let State::Named { copy } = &mut frame.state
        {
            *copy = is_copy;
        }
        self.age(slot);
    }

    /// A frame for a page that other nodes are asked for, if one is free; pinned. It may be one that
    /// occupies no memory yet if there are fewer than `most`.
    pub(super) fn reserve(&mut self, name: Name, most: u32, now: Time) -> Option<u32> {
        let may_grow = self.len() < most;
        let slot = match self.free.pop_first() {
            Some(slot) => slot,
            None if !may_grow => return None,
            None => self.empty.pop_first().unwrap_or_else(|| {
                self.fresh += 1;
                self.fresh - 1
            }),
        };
        let frame = Frame {
            name,
            state: State::Asked,
            used: now,
            pins: 1,
        };
        self.frames.insert(slot, frame);
        Some(slot)
    }

    /// Other nodes sent the contents of a frame. False if another frame is named after the page.
    pub(super) fn arrived(&mut self, slot: u32) -> bool {
        self.fill(slot, State::Asked, true)
    }

    fn fill(&mut self, slot: u32, from: State, copy: bool) -> bool {
        let frame = self.frames.get_mut(&slot);
        let Some(frame) = frame.filter(|frame| frame.state == from) else {
            return false;
        };
        let is_new = !self.names.contains_key(&frame.name);
        if is_new {
            frame.state = State::Named { copy };
            self.names.insert(frame.name, slot);
        } else {
            frame.state = State::Unnamed;
        }
        is_new
    }

    /// No other node has the page: the process reads it.
    pub(super) fn missed(&mut self, slot: u32) {
        if let Some(frame) = self.frames.get_mut(&slot)
            && frame.state == State::Asked
        {
            frame.state = State::Filling;
        }
    }

    /// The process is done with a frame that it got for a page; it has filled it, or not. True if
    /// the frame is named after the page from now on.
    pub(super) fn done(&mut self, slot: u32, name: Name, filled: bool) -> bool {
        let frame = self.frames.get_mut(&slot);
        let Some(frame) = frame.filter(|frame| frame.name == name && frame.pins > 0) else {
            return false;
        };
        if frame.state == State::Asked {
            // The process was not given it.
            return false;
        }
        frame.pins -= 1;
        let is_new = filled && self.fill(slot, State::Filling, false);
        let frame = self.frames[&slot];
        if matches!(frame.state, State::Named { .. }) {
            self.age(slot);
        } else if frame.pins == 0 {
            self.release(slot);
        }
        is_new
    }

    /// A frame that is to occupy no memory any more, if one has no use.
    pub(super) fn shrink(&mut self) -> Option<u32> {
        let slot = self.free.pop_last()?;
        self.empty.insert(slot);
        Some(slot)
    }

    /// Drops the page that is to go next, and neighbours of about its age. Adds them to `dropped`;
    /// false if all frames are pinned. The frames keep their memory.
    pub(super) fn drop_oldest(&mut self, now: Time, dropped: &mut Vec<Dropped>) -> bool {
        let (single, copy) = (self.singles.oldest(), self.copies.oldest());
        let age = |(used, _): &(Time, u32)| (now - *used).as_nanos() as u64;
        let weight = copy
            .as_ref()
            .map_or(0, |copy| age(copy).saturating_mul(COPIES_AGE));
        let victim = match (single, copy) {
            (Some(single), Some(_)) if age(&single) > weight => Some(single),
            (single, copy) => copy.or(single),
        };
        let Some((used, slot)) = victim else {
            return false;
        };
        let victim = self.frames[&slot];
        let (file, page) = victim.name;
        let all = (file, page)
            ..=(
                file,
                PageIndex(page.0 | (pagemesh_wire::peer::FilePart::PAGES - 1)),
            );
        let run: Vec<_> = self
            .names
            .range(all)
            .take(RUN)
            .take_while(|(_, slot)| {
                let frame = self.frames[slot];
                // Of the same kind, and not used since.
                frame.pins == 0 && frame.state == victim.state && frame.used <= used
            })
            .map(|(name, slot)| (*name, *slot))
            .collect();
        for (name, slot) in run {
            dropped.push(Dropped {
                name,
                frame: PageIndex(slot),
                used: self.frames[&slot].used,
                last: victim.state == State::Named { copy: false },
            });
            self.release(slot);
        }
        true
    }

    /// All named pages, in order.
    pub(super) fn named(&self) -> impl Iterator<Item = Name> {
        self.names.keys().copied()
    }

    /// Adds the ages of pages.
    pub(super) fn summarize(&self, now: Time, into: &mut [u32; AGE_CLASSES]) {
        self.singles.summarize(now, 0, into);
        self.copies.summarize(now, 0, into);
    }

    fn release(&mut self, slot: u32) {
        self.unage(slot);
        if let Some(frame) = self.frames.remove(&slot) {
            if self.names.get(&frame.name) == Some(&slot) {
                self.names.remove(&frame.name);
            }
            self.free.insert(slot);
        }
    }

    fn age(&mut self, slot: u32) {
        if let Some(frame) = self.frames.get(&slot)
            && frame.pins == 0
            && let State::Named { copy } = frame.state
        {
            let ages = if copy {
                &mut self.copies
            } else {
                &mut self.singles
            };
            ages.insert(frame.used, slot);
        }
    }

    fn unage(&mut self, slot: u32) {
        if let Some(frame) = self.frames.get(&slot) {
            self.singles.remove(frame.used, slot);
            self.copies.remove(frame.used, slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(page: u32) -> Name {
        (FileKey::default(), PageIndex(page))
    }

    /// A page that was read from the file.
    fn read(pool: &mut Pool, page: u32, now: u64) -> u32 {
        let slot = pool.reserve(name(page), 4, Time(now)).unwrap();
        pool.missed(slot);
        assert!(pool.done(slot, name(page), true));
        slot
    }

    fn dropped(pool: &mut Pool, now: u64) -> Vec<u32> {
        let mut dropped = Vec::new();
        pool.drop_oldest(Time(now), &mut dropped);
        dropped.iter().map(|it| it.name.1.0).collect()
    }

    #[test]
    fn frames_are_named_when_they_are_filled() {
        let mut pool = Pool::default();
        let slot = pool.reserve(name(1), 4, Time(1)).unwrap();
        assert_eq!(pool.look(name(1), false), None, "other nodes are asked");
        assert!(!pool.done(slot, name(1), true), "not given to the process");
        pool.missed(slot);
        assert_eq!(pool.look(name(1), false), None, "the process reads it");
        assert!(!pool.done(slot, name(2), true), "it is another page's");
        assert!(pool.done(slot, name(1), true));
        assert_eq!(pool.look(name(1), false), Some(slot));
        assert!(!pool.done(slot, name(1), true), "no pin is left");
    }

    #[test]
    fn a_page_that_was_not_read_leaves_its_frame() {
        let mut pool = Pool::default();
        let slot = pool.reserve(name(1), 1, Time(1)).unwrap();
        assert_eq!(pool.reserve(name(2), 1, Time(1)), None, "no frame is free");
        pool.missed(slot);
        assert!(!pool.done(slot, name(1), false));
        assert_eq!(
            (pool.len(), pool.reserve(name(2), 1, Time(1))),
            (1, Some(0))
        );
        pool.missed(0);
        pool.done(0, name(2), false);
        assert_eq!(
            (pool.len(), pool.shrink(), pool.shrink()),
            (1, Some(0), None)
        );
        assert_eq!(pool.reserve(name(2), 0, Time(1)), None);
        assert_eq!(pool.reserve(name(2), 1, Time(1)), Some(0));
    }

    #[test]
    fn one_frame_of_two_for_a_page_is_named() {
        let mut pool = Pool::default();
        let slots = [0, 0].map(|_| pool.reserve(name(1), 4, Time(1)).unwrap());
        assert!(pool.arrived(slots[0]) && !pool.arrived(slots[1]));
        assert!(!pool.done(slots[1], name(1), false));
        assert_eq!((pool.len(), pool.look(name(1), false)), (2, Some(slots[0])));
        assert_eq!(pool.shrink(), Some(slots[1]));
    }

    #[test]
    fn copies_go_before_pages_that_only_this_node_has_and_pinned_ones_stay() {
        let mut pool = Pool::default();
        read(&mut pool, 10, 100);
        read(&mut pool, 200, 200);
        pool.set_copy(name(200), true);
        assert_eq!(dropped(&mut pool, 1000), [200], "a copy");
        read(&mut pool, 300, 990);
        pool.set_copy(name(300), true);
        assert_eq!(dropped(&mut pool, 1000), [10], "a copy, but much younger");
        pool.pin(name(300), Time(1001)).unwrap();
        assert!(dropped(&mut pool, 9000).is_empty());
        pool.done(pool.names[&name(300)], name(300), false);
        assert_eq!(dropped(&mut pool, 9000), [300]);
        assert!(pool.named().next().is_none());
    }

    #[test]
    fn neighbours_of_the_same_age_go_together() {
        let mut pool = Pool::default();
        for (page, now) in [(5, 10), (6, 10), (7, 11), (64, 10)] {
            read(&mut pool, page, now);
        }
        assert_eq!(dropped(&mut pool, 1000), [5, 6]);
    }
}
