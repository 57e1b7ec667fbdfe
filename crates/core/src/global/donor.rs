//! The pages that this node keeps for others: sealed contents in its stash.

use super::Ages;
use crate::effect::{Effect, Source};
use crate::event::Event;
use crate::limits::LEAVE_BURST;
use crate::shell::Cx;
use crate::time::Time;
use core::time::Duration;
use pagemesh_wire::peer::{AgeSummary, DonorReply, Global, Got, LentPage, Message, PageSeal, Put};
use pagemesh_wire::{NodeId, PageIndex, SegmentId, Version};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A page, whatever its version.
type Name = (SegmentId, PageIndex);

/// Pages of others count as older than they are by so many classes, so that they are replaced
/// before a node's own pages of about the same age (G7).
const BOOST: usize = 1;

/// The pages kept for others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Donor {
    pages: BTreeMap<Name, Held>,
    /// Those that their owners have on their disks, too: they may be dropped at any time.
    droppable: Ages<Name>,
}

/// One page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Held {
    version: Version,
    seal: PageSeal,
    on_disk: bool,
    used: Time,
}

/// The outcome of a putpage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The page is here now.
    New,
    /// It was here, or a newer one is.
    Known,
    /// There is no room for it.
    Refused,
}

impl Donor {
    /// The number of pages kept.
    pub(crate) fn len(&self) -> u32 {
        self.pages.len() as u32
    }

    /// A page comes to be kept. The oldest one goes for it if there is no room.
    pub(crate) fn put(&mut self, cx: &mut Cx<'_>, from: NodeId, put: &Put) -> Taken {
        let name = (put.lent.segment, put.lent.page);
        if put.lent.segment.home() != from {
            cx.emit(Event::Malformed {});
            return Taken::Known;
        }
        let known = self.pages.get(&name).copied();
        if known.is_some_and(|held| held.version > put.lent.version) {
            cx.emit(Event::Stale {});
            return Taken::Known;
        }
        let room = cx.shell.memory.budgets.lend.0;
        let age = Duration::from_millis(put.age.into());
        let used = Time(cx.now.0.saturating_sub(age.as_nanos() as u64));
        if known.is_none() && self.len() >= room && !(room > 0 && self.drop_oldest(cx, used)) {
            Self::refuse(cx, from, put);
            return Taken::Refused;
        }
        let (segment, page) = name;
        let is_new = known.is_none_or(|held| held.version < put.lent.version);
        if is_new {
            cx.push(Effect::Stow { segment, page });
            cx.emit(Event::PageBorrowed { segment, page });
            self.take(name);
            let held = Held {
                version: put.lent.version,
                seal: put.seal,
                on_disk: put.on_disk,
                used,
            };
            self.pages.insert(name, held);
            if put.on_disk {
                self.droppable.insert(used, name);
            }
        }
        if put.answer {
            cx.send(from, Message::DonorReply(DonorReply::Kept(put.lent)));
        }
        if is_new { Taken::New } else { Taken::Known }
    }

    /// The owner wants pages back.
    pub(crate) fn get(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        segment: SegmentId,
        (pages, forget): (&[(PageIndex, Version)], bool),
    ) {
        if segment.home() != from || pages.len() > Global::PAGES {
            return cx.emit(Event::Malformed {});
        }
        for (page, version) in pages.iter().copied() {
            let lent = LentPage {
                segment,
                page,
                version,
            };
            let held = self.pages.get(&(segment, page)).copied();
            let Some(held) = held.filter(|held| held.version == version) else {
                cx.send(from, Message::DonorReply(DonorReply::Missing(lent)));
                continue;
            };
            let seal = held.seal;
            let contents = Some((segment, page, Source::Stash));
            cx.send_page(from, Message::Got(Got { lent, seal }), contents);
            cx.emit(Event::PageReturned { segment, page });
            if forget && held.on_disk {
                self.drop_page(cx, (segment, page));
            }
        }
    }

    /// The owner does not want pages any more.
    pub(crate) fn release(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        segment: SegmentId,
        pages: &[(PageIndex, Version)],
    ) {
        if segment.home() != from || pages.len() > Global::PAGES {
            return cx.emit(Event::Malformed {});
        }
        for (page, version) in pages {
            let held = self.pages.get(&(segment, *page));
            if held.is_some_and(|held| held.version <= *version) {
                self.drop_page(cx, (segment, *page));
            }
        }
    }

    /// The node leaves: asks the owners to take back what they do not have on their disks, some pages
    /// at a time.
    pub(crate) fn hand_back(&self, cx: &mut Cx<'_>) {
        let only = self.pages.iter().filter(|(_, held)| !held.on_disk);
        let mut asked: BTreeMap<SegmentId, Vec<_>> = BTreeMap::new();
        for ((segment, page), held) in only.take(LEAVE_BURST) {
            let pages = asked.entry(*segment).or_default();
            pages.push((*page, held.version));
        }
        for (segment, pages) in asked {
            for pages in pages.chunks(Global::PAGES) {
                let pages = pages.to_vec();
                let message = Global::TakeBack { segment, pages };
                cx.send(segment.home(), Message::Global(message));
            }
        }
    }

    /// The number of pages that their owners do not have on their disks.
    pub(crate) fn only_copies(&self) -> u32 {
        self.len() - self.droppable.len()
    }

    /// Refuses a page that comes to be kept.
    pub(crate) fn refuse(cx: &mut Cx<'_>, from: NodeId, put: &Put) {
        cx.emit(Event::PutRefused {});
        cx.send(from, Message::DonorReply(DonorReply::Refused(put.lent)));
    }

    /// The host wants memory back: the oldest pages go, as far as their owners have them.
    pub(crate) fn shrink(&mut self, cx: &mut Cx<'_>) {
        while self.len() > cx.shell.memory.budgets.lend.0 && self.drop_oldest(cx, cx.now) {}
    }

    /// A member is gone, and with it all use for its pages.
    pub(crate) fn owner_gone(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        let mut segments: Vec<_> = self.pages.keys().map(|(segment, _)| *segment).collect();
        segments.dedup();
        for segment in segments
            .into_iter()
            .filter(|segment| segment.home() == node)
        {
            self.forget(cx, segment);
        }
    }

    /// This node is no member any more: no owner will ask it.
    pub(crate) fn expelled(&mut self, cx: &mut Cx<'_>) {
        while let Some(((segment, _), _)) = self.pages.first_key_value() {
            let segment = *segment;
            self.forget(cx, segment);
        }
    }

    /// A segment is not used any more.
    pub(crate) fn forget(&mut self, cx: &mut Cx<'_>, segment: SegmentId) {
        let all = (segment, PageIndex(0))..=(segment, PageIndex(u32::MAX));
        let names: Vec<_> = self.pages.range(all).map(|(name, _)| *name).collect();
        if names.is_empty() {
            return;
        }
        for name in names {
            self.take(name);
        }
        cx.push(Effect::Forget { segment });
    }

    /// The ages of the pages that may be replaced.
    pub(crate) fn summarize(&self, now: Time, lend: u32, into: &mut AgeSummary) {
        into.free = lend.saturating_sub(self.len());
        self.droppable.summarize(now, BOOST, &mut into.global);
    }

    /// Drops the oldest page if it is older than `used`.
    fn drop_oldest(&mut self, cx: &mut Cx<'_>, used: Time) -> bool {
        let oldest = self
            .droppable
            .oldest()
            .filter(|(oldest, _)| *oldest <= used);
        let Some((_, name)) = oldest else {
            return false;
        };
        cx.emit(Event::BorrowedDropped {});
        self.drop_page(cx, name);
        true
    }

    fn drop_page(&mut self, cx: &mut Cx<'_>, (segment, page): Name) {
        self.take((segment, page));
        cx.push(Effect::DropStash { segment, page });
    }

    fn take(&mut self, name: Name) {
        if let Some(held) = self.pages.remove(&name)
            && held.on_disk
        {
            self.droppable.remove(held.used, name);
        }
    }
}
