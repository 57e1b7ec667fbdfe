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
mod pod;
mod pool;
mod putpage;
#[cfg(test)]
mod tests;

use crate::backoff::Backoff;
use crate::effect::{Effect, PageRange, Reply, Source};
use crate::event::Event;
use crate::limits::{SHARED_ANNOUNCED, SHARED_PAUSE};
use crate::shell::Cx;
use crate::time::Time;
use crate::timers::Timer;
use directory::Directory;
use kept::KeptPages;
use pagemesh_wire::local::FileFrames;
use pagemesh_wire::peer::{AGE_CLASSES, FilePart, Global, Message, Refusal, SharedPage};
use pagemesh_wire::{NodeId, PageIndex, RequestId, SegmentId, Ticket};
use pod::{Chunk, Pod};
use pool::{Dropped, Pool};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// After so many requests without an answer the rest is read from the file.
const PATIENCE: u8 = 2;

/// The shared pages of a node, and its part of the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct SharedPages {
    pod: Pod,
    directory: Directory,
    pools: BTreeMap<SegmentId, Pool>,
    lookups: BTreeMap<RequestId, Lookup>,
    /// Chunks of which another node has the directory now, and is to be told.
    announce: BTreeSet<Chunk>,
    announcing: bool,
    kept: KeptPages,
}

/// Pages that other nodes were asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Lookup {
    ticket: Ticket,
    segment: SegmentId,
    part: FilePart,
    /// The frames of pages, by bit.
    frames: BTreeMap<u32, u32>,
    /// Pages that were here, that came, that no node has, and that may still come.
    here: u64,
    came: u64,
    missing: u64,
    waiting: u64,
    backoff: Backoff,
    tries: u8,
}

/// A segment with frames, and how many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frames {
    pub(crate) segment: SegmentId,
    pub(crate) count: u32,
}

impl SharedPages {
    /// A process wants frames of pages of a file.
    pub(crate) fn ask(&mut self, cx: &mut Cx<'_>, ticket: Ticket, of: Frames, part: FilePart) {
        if !part.is_possible() {
            let why = "no page of a file has such a number";
            return cx.refuse(ticket, Refusal::Invalid(why.into()));
        }
        self.follow_members(cx);
        let mut lookup = Lookup {
            ticket,
            segment: of.segment,
            part,
            frames: BTreeMap::new(),
            here: 0,
            came: 0,
            missing: 0,
            waiting: 0,
            backoff: Backoff::start(cx.now, cx.pace().resend_first),
            tries: 1,
        };
        for page in part.each() {
            let bit = bit_of(page);
            let name = (part.file, page);
            let pool = self.pools.entry(of.segment).or_default();
            if let Some(frame) = pool.pin(name, cx.now) {
                lookup.here |= 1 << bit;
                lookup.frames.insert(bit, frame);
                cx.emit(Event::FilePageHere {});
            } else if let Some(frame) = self.reserve(cx, of, name) {
                lookup.frames.insert(bit, frame);
                if self.take_kept(cx, (of.segment, frame), name) {
                    lookup.here |= 1 << bit;
                } else {
                    lookup.waiting |= 1 << bit;
                }
            }
        }
        if lookup.waiting == 0 {
            return self.finish(cx, lookup);
        }
        let request = cx.next_request();
        cx.arm(lookup.backoff.due(), Timer::Lookup(request));
        let asked = part.with(lookup.waiting);
        self.lookups.insert(request, lookup);
        self.look_up(cx, request, asked, false);
    }

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
        let mut parts: BTreeMap<Chunk, u64> = BTreeMap::new();
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

    /// Asks the directory, first or again.
    fn look_up(&mut self, cx: &mut Cx<'_>, request: RequestId, part: FilePart, again: bool) {
        let find = Global::Find {
            request,
            again,
            part,
        };
        match self.pod.node((part.file, part.chunk)) {
            Some(node) if cx.shell.peers().is_empty() || node == NodeId::NONE => {
                self.not_cached(cx, request, part);
            }
            Some(_) => self.tell_directory(cx, part, find),
            None => self.not_cached(cx, request, part),
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

    /// A page comes from another node.
    pub(crate) fn came(&mut self, cx: &mut Cx<'_>, page: SharedPage) {
        let bit = bit_of(page.page);
        let Some(lookup) = self.lookups.get_mut(&page.request) else {
            return cx.emit(Event::Stale {});
        };
        let named = FilePart::of_page(page.file, page.page);
        let is_its = (named.file, named.chunk) == (lookup.part.file, lookup.part.chunk);
        let Some(frame) = lookup.frames.get(&bit).copied() else {
            return cx.emit(Event::Stale {});
        };
        if !is_its || lookup.waiting & named.pages == 0 {
            return cx.emit(Event::Stale {});
        }
        let segment = lookup.segment;
        let pages = PageRange {
            segment,
            first: PageIndex(frame),
            count: 1,
        };
        let source = Source::Payload;
        cx.push(Effect::Fill { pages, source });
        cx.emit(Event::FilePageCame {});
        lookup.waiting &= !named.pages;
        lookup.came |= named.pages;
        if let Some(pool) = self.pools.get_mut(&segment) {
            pool.arrived(frame);
        }
        self.finish_if_complete(cx, page.request);
    }

    /// No node has these pages, as far as is known.
    fn not_cached(&mut self, cx: &mut Cx<'_>, request: RequestId, part: FilePart) {
        let Some(lookup) = self.lookups.get_mut(&request) else {
            return cx.emit(Event::Stale {});
        };
        if (part.file, part.chunk) != (lookup.part.file, lookup.part.chunk) {
            return cx.emit(Event::Malformed {});
        }
        let missing = lookup.waiting & part.pages;
        lookup.waiting &= !missing;
        lookup.missing |= missing;
        if let Some(pool) = self.pools.get_mut(&lookup.segment) {
            for page in part.with(missing).each() {
                if let Some(frame) = lookup.frames.get(&bit_of(page)) {
                    pool.missed(*frame);
                }
            }
        }
        self.finish_if_complete(cx, request);
    }

    fn finish_if_complete(&mut self, cx: &mut Cx<'_>, request: RequestId) {
        let complete = |lookup: &Lookup| lookup.waiting == 0;
        if self.lookups.get(&request).is_some_and(complete)
            && let Some(lookup) = self.lookups.remove(&request)
        {
            cx.end(&lookup.backoff, Timer::Lookup(request));
            self.finish(cx, lookup);
        }
    }

    /// Answers the process.
    fn finish(&mut self, cx: &mut Cx<'_>, lookup: Lookup) {
        if lookup.came != 0 {
            let part = lookup.part.with(lookup.came);
            let copied = true;
            self.tell_directory(cx, part, Global::Hold { part, copied });
        }
        let frames = FileFrames {
            here: lookup.here,
            came: lookup.came,
            missing: lookup.missing,
            frames: lookup.frames.into_values().map(PageIndex).collect(),
        };
        cx.reply(lookup.ticket, Reply::FilePages(frames));
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

    /// The timer of a lookup is due.
    pub(crate) fn lookup_due(&mut self, cx: &mut Cx<'_>, request: RequestId) {
        let Some(lookup) = self.lookups.get_mut(&request) else {
            return;
        };
        if !cx.fire(&mut lookup.backoff, Timer::Lookup(request)) {
            return;
        }
        lookup.tries += 1;
        let part = lookup.part.with(lookup.waiting);
        if lookup.tries > PATIENCE {
            self.not_cached(cx, request, part);
        } else {
            self.look_up(cx, request, part, true);
        }
    }

    /// A request is withdrawn. True if it waited here.
    pub(crate) fn cancel(&mut self, cx: &mut Cx<'_>, ticket: Ticket) -> bool {
        let mut lookups = self.lookups.iter();
        let request = lookups.find(|(_, lookup)| lookup.ticket == ticket);
        let Some(request) = request.map(|(request, _)| *request) else {
            return false;
        };
        self.withdraw(cx, request);
        true
    }

    /// Frees the frames of a lookup that no process waits for.
    fn withdraw(&mut self, cx: &mut Cx<'_>, request: RequestId) -> Option<Ticket> {
        let lookup = self.lookups.remove(&request)?;
        cx.end(&lookup.backoff, Timer::Lookup(request));
        if let Some(pool) = self.pools.get_mut(&lookup.segment) {
            for (bit, frame) in &lookup.frames {
                let page = PageIndex(lookup.part.chunk * FilePart::PAGES + bit);
                pool.missed(*frame);
                pool.done(*frame, (lookup.part.file, page), false);
            }
        }
        Some(lookup.ticket)
    }

    /// The members may have changed: the directory moves (G19, G20). This node drops what it does
    /// not answer for any more, and tells other nodes what they answer for from now on.
    pub(crate) fn follow_members(&mut self, cx: &mut Cx<'_>) {
        let Some(before) = self.pod.follow(cx.shell.alive) else {
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
