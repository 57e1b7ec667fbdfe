//! putpage of last copies (G3, G24): to another node, and as the node that keeps them.

use super::SharedPages;
use super::pool::{Dropped, Name};
use crate::effect::{Effect, Source};
use crate::event::Event;
use crate::global::age_in_millis;
use crate::shell::Cx;
use crate::time::Time;
use pagemesh_wire::peer::{AGE_CLASSES, FilePart, Global, Message, Placement, SharedPut};
use pagemesh_wire::{NodeId, NodeSet, PageIndex, SegmentId};

impl SharedPages {
    /// The last copy of a page leaves its frame: another node is to keep it, unless it is too old.
    pub(super) fn put_away(&mut self, cx: &mut Cx<'_>, segment: SegmentId, it: &Dropped) {
        if self.has(it.name) {
            return;
        }
        let rounds = cx.shell.memory.rounds();
        let contents = (segment, it.frame, Source::Frame);
        if send_on(cx, it.name, (it.used, rounds), contents) {
            cx.emit(Event::FilePagePut {});
        }
    }

    /// Pages of files that this node keeps for others.
    pub(crate) fn kept(&self) -> u32 {
        self.kept.len()
    }

    /// When the oldest of them was last used.
    pub(crate) fn oldest_kept(&self) -> Option<Time> {
        self.kept.oldest().map(|(used, _)| used)
    }

    /// A page of another node comes to be kept, and there is room. False if it is here already.
    pub(crate) fn keep(&mut self, cx: &mut Cx<'_>, put: &SharedPut, used: Time) -> bool {
        self.follow_members(cx);
        let name = (put.file, put.page);
        let rounds = put.rounds.min(Placement::ROUNDS);
        let Some(page) = self.kept.insert(name, used, rounds) else {
            return false;
        };
        let segment = SegmentId::KEPT_FILES;
        cx.push(Effect::Stow { segment, page });
        cx.emit(Event::FilePageKept {});
        let (part, copied) = (FilePart::of_page(put.file, put.page), false);
        self.tell_directory(cx, part, Global::Hold { part, copied });
        true
    }

    /// Whether this node has no use for a page that comes to be kept: it has it.
    pub(crate) fn has_already(&mut self, put: &SharedPut) -> bool {
        self.has((put.file, put.page))
    }

    /// The oldest kept page goes; under N-chance perhaps to another node.
    pub(crate) fn drop_oldest_kept(&mut self, cx: &mut Cx<'_>, forward: bool) {
        if let Some((_, name)) = self.kept.oldest() {
            cx.emit(Event::BorrowedDropped {});
            self.drop_kept(cx, name, forward);
        }
    }

    pub(super) fn drop_kept(&mut self, cx: &mut Cx<'_>, name: Name, forward: bool) {
        let Some(kept) = self.kept.remove(name) else {
            return;
        };
        self.tell_gone(cx, core::iter::once(name));
        let (segment, page) = (SegmentId::KEPT_FILES, kept.slot());
        if forward && kept.rounds > 1 {
            let contents = (segment, page, Source::Stash);
            if send_on(cx, name, (kept.used, kept.rounds - 1), contents) {
                cx.emit(Event::PageSentOn {});
            }
        }
        cx.push(Effect::DropStash { segment, page });
    }

    /// A node asks for a kept page: it is that node's from now on (case 1).
    pub(super) fn send_kept(
        &mut self,
        cx: &mut Cx<'_>,
        (asker, message): (NodeId, Message),
        name: Name,
    ) {
        let Some(kept) = self.kept.remove(name) else {
            return;
        };
        let (segment, page) = (SegmentId::KEPT_FILES, kept.slot());
        cx.send_page(asker, message, Some((segment, page, Source::Stash)));
        cx.push(Effect::DropStash { segment, page });
        cx.emit(Event::FilePageSent {});
        self.tell_gone(cx, core::iter::once(name));
    }

    /// A process of this node reads a page that this node keeps for others: it gets a frame. False
    /// if the page is not kept.
    pub(super) fn take_kept(
        &mut self,
        cx: &mut Cx<'_>,
        (segment, frame): (SegmentId, u32),
        name: Name,
    ) -> bool {
        let Some(kept) = self.kept.remove(name) else {
            return false;
        };
        let page = kept.slot();
        let pages = (segment, PageIndex(frame)).into();
        let source = Source::Kept(page);
        cx.push(Effect::Fill { pages, source });
        cx.push(Effect::DropStash {
            segment: SegmentId::KEPT_FILES,
            page,
        });
        cx.emit(Event::FilePageHere {});
        if let Some(pool) = self.pools.get_mut(&segment) {
            pool.arrived(frame);
            pool.set_copy(name, false);
        }
        true
    }

    /// Adds the ages of kept pages.
    pub(crate) fn summarize_kept(&self, now: Time, boost: usize, into: &mut [u32; AGE_CLASSES]) {
        self.kept.summarize(now, boost, into);
    }
}

/// Sends a page to the node that placement chooses; false if there is none.
fn send_on(
    cx: &mut Cx<'_>,
    (file, page): Name,
    (used, rounds): (Time, u8),
    contents: (SegmentId, PageIndex, Source),
) -> bool {
    let (now, age, peers) = (cx.now, cx.now - used, cx.shell.peers());
    let node = cx.shell.memory.choose(now, age, (&peers, &NodeSet::EMPTY));
    let Some(node) = node else {
        return false;
    };
    let put = SharedPut {
        file,
        page,
        age: age_in_millis(age),
        rounds,
    };
    cx.send_page(node, Message::SharedPut(put), Some(contents));
    true
}
