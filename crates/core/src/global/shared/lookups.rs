//! The lookups of a node: pages of files that its processes wait for, and where they may be.

use super::{Frames, SharedPages, bit_of};
use crate::backoff::Backoff;
use crate::effect::{Effect, PageRange, Reply, Source};
use crate::event::Event;
use crate::shell::Cx;
use crate::timers::Timer;
use pagemesh_sorted::LongMap;
use pagemesh_wire::local::FileFrames;
use pagemesh_wire::peer::{FilePart, Global, Refusal, SharedPage};
use pagemesh_wire::{NodeId, PageIndex, RequestId, SegmentId, Ticket};
use serde::{Deserialize, Serialize};

/// After so many requests without an answer the rest is read from the file.
const PATIENCE: u8 = 2;

/// Pages that other nodes were asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Lookup {
    ticket: Ticket,
    pub(super) segment: SegmentId,
    part: FilePart,
    /// The frames of pages, by bit.
    frames: LongMap<u32, u32>,
    /// Pages that were here, that came, that no node has, and that may still come.
    here: u64,
    came: u64,
    missing: u64,
    waiting: u64,
    pub(super) backoff: Backoff,
    tries: u8,
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
            frames: LongMap::new(),
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
    pub(super) fn not_cached(&mut self, cx: &mut Cx<'_>, request: RequestId, part: FilePart) {
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
    pub(super) fn withdraw(&mut self, cx: &mut Cx<'_>, request: RequestId) -> Option<Ticket> {
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
}
