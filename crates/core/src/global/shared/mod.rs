//! Shared pages (GMS): pages of files, which the nodes cache for each other.
//!
//! A process reads files through frames of its node ([`Pool`], the PFD). A page that is in no frame
//! here is looked up: the [`Pod`] names the node with the [`Directory`] of its chunk (GCD), that
//! node has a holder send the page, and the asker gets a copy and leaves the original where it is
//! (G4, case 4). Only if no node has the page does the process read the file (case 3). A lookup never
//! waits for long: what does not come is read from the file, so lost messages, nodes that die, and
//! directories that move cost a read and never a wrong page. A page never changes: a file that is
//! changed has another key (INV-shared-version).
//!
//! A last copy that has to leave goes to the node that the epoch's weights choose ([`KeptPages`], the
//! second half of G4). That node announces it to the directory, and forgets it when it sends it to a
//! node that asks: there it is local.

mod directory;
mod kept;
mod lookups;
mod pod;
mod pool;
mod putpage;
#[cfg(test)]
mod tests;

use crate::effect::{Effect, Source};
use crate::event::Event;
use crate::limits::{SHARED_ANNOUNCED, SHARED_PAUSE};
use crate::shell::Cx;
use crate::time::Time;
use crate::timers::Timer;
use directory::Directory;
use kept::KeptPages;
use lookups::Lookup;
use pagemesh_sorted::{LongMap, SortedMap};
use pagemesh_wire::peer::{AGE_CLASSES, FilePart, Global, Message, Refusal, SharedPage};
use pagemesh_wire::{NodeId, PageIndex, RequestId, SegmentId};
use pod::{Chunk, Pod};
use pool::{Dropped, Pool};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The shared pages of a node, and its part of the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct SharedPages {
    pod: Pod,
    directory: Directory,
    pools: SortedMap<SegmentId, Pool>,
    lookups: SortedMap<RequestId, Lookup>,
    /// Chunks of which another node has the directory now, and is to be told.
    announce: BTreeSet<Chunk>,
    announcing: bool,
    kept: KeptPages,
}

/// A segment with frames, and how many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frames {
    pub(crate) segment: SegmentId,
    pub(crate) count: u32,
}

impl SharedPages {
    /// A frame for a page, perhaps that of an older one.
    fn reserve(&mut self, cx: &mut Cx<'_>, of: Frames, name: pool::Name) -> Option<u32> {
        let pool = self.pools.get_mut(&of.segment)?;
        let before = pool.len();
        let budget = cx.shell.memory.budgets.memory.0;
        let most = of
            .count
            .min(before + budget.saturating_sub(cx.shell.memory.used));
        let mut frame = pool.reserve(name, most, cx.now);
        let mut dropped = Vec::new();
        if frame.is_none() && pool.drop_oldest(cx.now, &mut dropped) {
            frame = pool.reserve(name, most, cx.now);
        }
        cx.shell.memory.used += pool.len() - before;
        self.dropped(cx, of.segment, &dropped);
        frame
    }

    /// Pages have left their frames, whose memory still has them: last copies go to other nodes.
    fn dropped(&mut self, cx: &mut Cx<'_>, segment: SegmentId, dropped: &[Dropped]) {
        for _ in dropped {
            cx.emit(Event::FilePageDropped {});
        }
        self.tell_gone(cx, dropped.iter().map(|it| it.name));
        for it in dropped.iter().filter(|it| it.last) {
            self.put_away(cx, segment, it);
        }
    }

    /// Tells the directories which pages this node does not have any more.
    fn tell_gone(&mut self, cx: &mut Cx<'_>, names: impl Iterator<Item = pool::Name>) {
        let mut parts: LongMap<Chunk, u64> = LongMap::new();
        for (file, page) in names {
            // Another cache of this node may have the page, too.
            if !self.has((file, page)) {
                let part = FilePart::of_page(file, page);
                *parts.entry((file, part.chunk)).or_default() |= part.pages;
            }
        }
        for ((file, chunk), pages) in parts {
            let part = FilePart { file, chunk, pages };
            self.tell_directory(cx, part, Global::Gone { part });
        }
    }

    /// Sends a message to the node with the directory of a part, which may be this one.
    fn tell_directory(&mut self, cx: &mut Cx<'_>, part: FilePart, message: Global) {
        match self.pod.node((part.file, part.chunk)) {
            Some(node) if node == cx.me() => self.message(cx, node, message),
            Some(node) => cx.send(node, Message::Global(message)),
            None => {}
        }
    }

    /// A message of another node, or of this one as the directory's.
    pub(crate) fn message(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Global) {
        match message {
            Global::Find {
                request,
                again,
                part,
            } if part.is_possible() => self.find(cx, (from, request), part, again),
            Global::Fetch {
                asker,
                request,
                part,
            } if part.is_possible() => self.fetch(cx, from, (asker, request), part),
            Global::NotCached { request, part } if part.is_possible() => {
                self.not_cached(cx, request, part);
            }
            Global::Hold { part, copied } if part.is_possible() => {
                self.hold(cx, from, part, copied);
            }
            Global::Gone { part } if part.is_possible() => {
                let alone = self.directory.gone(chunk(part), from, part.pages);
                self.tell_copies(cx, part, alone, true);
            }
            Global::Copies { part, alone } if part.is_possible() => {
                self.copies(cx, part, !alone);
            }
            _ => cx.emit(Event::Malformed {}),
        }
    }

    /// As the directory: has the holders of pages send them to the asker.
    fn find(
        &mut self,
        cx: &mut Cx<'_>,
        (asker, request): (NodeId, RequestId),
        part: FilePart,
        again: bool,
    ) {
        let found = self.directory.find(chunk(part), part.pages, asker, again);
        for (holder, pages) in found.holders {
            let part = part.with(pages);
            let fetch = Global::Fetch {
                asker,
                request,
                part,
            };
            if holder == cx.me() {
                self.fetch(cx, holder, (asker, request), part);
            } else {
                cx.send(holder, Message::Global(fetch));
            }
        }
        if found.missing == 0 {
            return;
        }
        let part = part.with(found.missing);
        if asker == cx.me() {
            self.not_cached(cx, request, part);
        } else {
            let message = Global::NotCached { request, part };
            cx.send(asker, Message::Global(message));
        }
    }

    /// As a holder: sends pages to the asker.
    fn fetch(
        &mut self,
        cx: &mut Cx<'_>,
        directory: NodeId,
        (asker, request): (NodeId, RequestId),
        part: FilePart,
    ) {
        if asker == cx.me() || !cx.is_alive(asker) {
            return cx.emit(Event::Stale {});
        }
        let (file, mut missing) = (part.file, 0);
        for page in part.each() {
            let name = (file, page);
            let message = Message::SharedPage(SharedPage {
                request,
                file,
                page,
            });
            if let Some((segment, frame)) = self.find_here(name) {
                cx.send_page(asker, message, Some((segment, frame, Source::Frame)));
                cx.emit(Event::FilePageSent {});
            } else if self.kept.contains(name) {
                self.send_kept(cx, (asker, message), name);
            } else {
                missing |= 1 << bit_of(page);
            }
        }
        if missing == 0 {
            return;
        }
        cx.emit(Event::FilePageMissed {});
        let part = part.with(missing);
        let message = Global::NotCached { request, part };
        cx.send(asker, Message::Global(message));
        if directory == cx.me() {
            self.message(cx, directory, Global::Gone { part });
        } else {
            cx.send(directory, Message::Global(Global::Gone { part }));
        }
    }

    /// The frame of a page in any cache of this node. Another node gets a copy of it.
    fn find_here(&mut self, name: pool::Name) -> Option<(SegmentId, PageIndex)> {
        let mut pools = self.pools.iter_mut();
        pools.find_map(|(segment, pool)| {
            let frame = pool.look(name, true)?;
            Some((*segment, PageIndex(frame)))
        })
    }

    /// Whether a page is in a cache of this node, or kept for others.
    fn has(&mut self, name: pool::Name) -> bool {
        let mut pools = self.pools.values_mut();
        pools.any(|pool| pool.look(name, false).is_some()) || self.kept.contains(name)
    }

    /// As the directory: a node caches pages. Nodes that do not know that there are several copies
    /// are told.
    fn hold(&mut self, cx: &mut Cx<'_>, from: NodeId, part: FilePart, copied: bool) {
        // If the sender has a newer view of the members than this node, it will not say it again.
        let others = self.directory.hold(chunk(part), from, part.pages);
        let both = others.iter().fold(0, |all, (_, pages)| all | pages);
        if copied {
            // The node that they came from does not have them any more.
            let only = part.pages & !both;
            if only != 0 {
                self.tell_copies(cx, part, vec![(from, only)], true);
            }
            return;
        }
        if others.is_empty() {
            return;
        }
        self.tell_copies(cx, part, others, false);
        self.tell_copies(cx, part, vec![(from, both)], false);
    }

    fn tell_copies(
        &mut self,
        cx: &mut Cx<'_>,
        part: FilePart,
        holders: Vec<(NodeId, u64)>,
        alone: bool,
    ) {
        for (node, pages) in holders {
            let part = part.with(pages);
            if node == cx.me() {
                self.copies(cx, part, !alone);
            } else {
                cx.send(node, Message::Global(Global::Copies { part, alone }));
            }
        }
    }

    /// As a holder: other nodes have pages, too, or none has any more.
    fn copies(&mut self, cx: &mut Cx<'_>, part: FilePart, copy: bool) {
        for page in part.each() {
            let name = (part.file, page);
            for pool in self.pools.values_mut() {
                pool.set_copy(name, copy);
            }
            if copy && self.kept.contains(name) {
                self.drop_kept(cx, name, false);
            }
        }
    }

    /// A process does not read from frames any more that it got, and has filled some.
    pub(crate) fn done(
        &mut self,
        cx: &mut Cx<'_>,
        segment: SegmentId,
        part: FilePart,
        (filled, frames): (u64, &[PageIndex]),
    ) {
        let Some(pool) = self.pools.get_mut(&segment) else {
            return;
        };
        let mut named = 0;
        for (page, frame) in part.each().zip(frames) {
            let bit = 1 << bit_of(page);
            if pool.done(frame.0, (part.file, page), filled & bit != 0) {
                named |= bit;
                cx.emit(Event::FilePageRead {});
            }
        }
        self.pressed(cx);
        if named != 0 {
            let part = part.with(named);
            let copied = false;
            self.tell_directory(cx, part, Global::Hold { part, copied });
        }
    }

    /// The members may have changed: the directory moves (G19, G20). This node drops what it does
    /// not answer for any more, and tells other nodes what they answer for from now on.
    pub(crate) fn follow_members(&mut self, cx: &mut Cx<'_>) {
        let Some(before) = self.pod.follow(cx.shell.alive.clone()) else {
            return;
        };
        let (pod, me) = (&self.pod, cx.me());
        let mine = |chunk| pod.node(chunk) == Some(me);
        self.directory.retain(&cx.shell.alive, mine);
        let cached = self.pools.values().flat_map(Pool::named);
        for (file, page) in cached.chain(self.kept.names()) {
            let chunk = (file, page.0 / FilePart::PAGES);
            if before.node(chunk) != pod.node(chunk) {
                self.announce.insert(chunk);
            }
        }
        self.go_on_announcing(cx);
    }

    fn go_on_announcing(&mut self, cx: &mut Cx<'_>) {
        if !self.announce.is_empty() && !self.announcing {
            self.announcing = true;
            cx.arm(cx.now + SHARED_PAUSE, Timer::SharedPages);
        }
    }

    /// Tells other nodes of some more chunks.
    pub(crate) fn announce_due(&mut self, cx: &mut Cx<'_>) {
        self.announcing = false;
        for _ in 0..SHARED_ANNOUNCED {
            let Some((file, chunk)) = self.announce.pop_first() else {
                return;
            };
            let all = FilePart {
                file,
                chunk,
                pages: u64::MAX,
            };
            let here = all.each().filter(|page| self.has((file, *page)));
            let pages = here.fold(0, |pages, page| pages | 1 << bit_of(page));
            if pages != 0 {
                let part = all.with(pages);
                let copied = false;
                self.tell_directory(cx, part, Global::Hold { part, copied });
            }
        }
        self.go_on_announcing(cx);
    }

    /// The node's memory may have become less, or frames may have been given back that it was too
    /// small for.
    pub(crate) fn pressed(&mut self, cx: &mut Cx<'_>) {
        let budget = cx.shell.memory.budgets.memory.0;
        let segments: Vec<_> = self.pools.keys().copied().collect();
        for segment in segments {
            while cx.shell.memory.used > budget
                && let Some(pool) = self.pools.get_mut(&segment)
            {
                let mut dropped = Vec::new();
                if let Some(frame) = pool.shrink() {
                    let pages = (segment, PageIndex(frame)).into();
                    cx.push(Effect::Evict { pages, keep: false });
                    cx.shell.memory.used -= 1;
                } else if pool.drop_oldest(cx.now, &mut dropped) {
                    // Before the frames are emptied.
                    self.dropped(cx, segment, &dropped);
                } else {
                    break;
                }
            }
        }
    }

    /// A segment with frames is not used any more.
    pub(crate) fn forget(&mut self, cx: &mut Cx<'_>, segment: SegmentId) {
        let of: Vec<_> = self
            .lookups
            .iter()
            .filter(|(_, lookup)| lookup.segment == segment)
            .map(|(request, _)| *request)
            .collect();
        for request in of {
            self.withdraw(cx, request);
        }
        if let Some(pool) = self.pools.remove(&segment) {
            cx.shell.memory.used -= pool.len();
            for _ in pool.named() {
                cx.emit(Event::FilePageDropped {});
            }
            self.tell_gone(cx, pool.named());
        }
    }

    /// This node is no member any more.
    pub(crate) fn expelled(&mut self, cx: &mut Cx<'_>) {
        let all: Vec<_> = self.lookups.keys().copied().collect();
        for request in all {
            if let Some(ticket) = self.withdraw(cx, request) {
                cx.refuse(ticket, Refusal::NotMember);
            }
        }
        self.directory = Directory::default();
        self.announce.clear();
        if self.kept.len() > 0 {
            self.kept = KeptPages::default();
            let segment = SegmentId::KEPT_FILES;
            cx.push(Effect::Forget { segment });
        }
    }

    /// Adds the ages of pages that could leave memory.
    pub(crate) fn summarize(&self, now: Time, into: &mut [u32; AGE_CLASSES]) {
        for pool in self.pools.values() {
            pool.summarize(now, into);
        }
    }

    /// Frames in use.
    pub(crate) fn frames(&self) -> u64 {
        self.pools.values().map(|pool| u64::from(pool.len())).sum()
    }
}

fn chunk(part: FilePart) -> Chunk {
    (part.file, part.chunk)
}

fn bit_of(page: PageIndex) -> u32 {
    page.0 % FilePart::PAGES
}
