//! The pages that this node keeps for others: sealed contents in its stash.

mod audit;
#[cfg(test)]
mod tests;

use super::ended::Ended;
use super::shares::Shares;
use super::{SharedPages, age_in_millis};
use crate::effect::{Effect, Source};
use crate::event::Event;
use crate::limits::{GIVEN_BACK, LEAVE_BURST};
use crate::shell::Cx;
use crate::time::Time;
use crate::timers::Timer;
use audit::Audit;
use core::time::Duration;
use pagemesh_sorted::{LongMap, SortedMap};
use pagemesh_wire::peer::{
    AgeSummary, DonorReply, Forward, Global, Got, LentPage, Message, PageSeal, Placement, Put,
};
use pagemesh_wire::{NodeId, NodeSet, PageIndex, SegmentId, Version};
use serde::{Deserialize, Serialize};

/// A page, whatever its version.
type Name = (SegmentId, PageIndex);

/// Pages of others count as older than they are by so many classes, so that they are replaced
/// before a node's own pages of about the same age (G7).
const BOOST: usize = 1;

/// The pages kept for others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Donor {
    pages: LongMap<Name, Held>,
    /// Those that their owners have on their disks, too: they may be dropped at any time.
    droppable: Shares,
    /// Segments that ended a moment ago.
    #[serde(default)]
    ended: Ended,
    /// How far owners have been asked whether they count on what is kept for them.
    #[serde(default)]
    audit: Audit,
}

/// One page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Held {
    version: Version,
    seal: PageSeal,
    on_disk: bool,
    used: Time,
    /// Nodes that may keep it, this one included (G26).
    rounds: u8,
    /// Another donor sent it, not the owner.
    sent_on: bool,
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
    pub(crate) fn put(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        put: &Put,
        files: &mut SharedPages,
    ) -> Taken {
        if put.lent.segment.home() != from {
            cx.emit(Event::Malformed {});
            return Taken::Known;
        }
        if self.ended.has(put.lent.segment) {
            // Its owner will neither ask for the page nor release it.
            cx.emit(Event::Stale {});
            return Taken::Known;
        }
        self.audit.came((put.lent.segment, put.lent.page));
        // The owner knows better than another donor what is new.
        let known = self.pages.get(&(put.lent.segment, put.lent.page)).copied();
        let known = known.filter(|held| !held.sent_on || held.version == put.lent.version);
        if known.is_some_and(|held| held.version > put.lent.version) {
            cx.emit(Event::Stale {});
            return Taken::Known;
        }
        let is_new = known.is_none_or(|held| held.version < put.lent.version);
        if is_new {
            let held = Held {
                version: put.lent.version,
                seal: put.seal,
                on_disk: put.on_disk,
                used: used(cx, put.age),
                rounds: cx.shell.memory.rounds(),
                sent_on: false,
            };
            if !self.keep(cx, put.lent, held, files) {
                Self::refuse(cx, from, put);
                return Taken::Refused;
            }
        }
        if put.answer {
            cx.send(from, Message::DonorReply(DonorReply::Kept(put.lent)));
        }
        if is_new { Taken::New } else { Taken::Known }
    }

    /// Another donor has no room for a page, and sends it on (G26).
    pub(crate) fn sent_on(&mut self, cx: &mut Cx<'_>, on: &Forward, files: &mut SharedPages) {
        let (put, owner) = (&on.put, on.put.lent.segment.home());
        let possible = put.on_disk && !put.answer && (1..Placement::ROUNDS).contains(&on.rounds);
        if !possible || owner == cx.me() || !cx.is_alive(owner) {
            return cx.emit(Event::Malformed {});
        }
        if self.ended.has(put.lent.segment) {
            return cx.emit(Event::Stale {});
        }
        let name = (put.lent.segment, put.lent.page);
        let known = self.pages.get(&name);
        if known.is_some_and(|held| !held.sent_on || held.version >= put.lent.version) {
            return cx.emit(Event::Stale {});
        }
        let held = Held {
            version: put.lent.version,
            seal: put.seal,
            on_disk: true,
            used: used(cx, put.age),
            rounds: on.rounds,
            sent_on: true,
        };
        if !self.keep(cx, put.lent, held, files) {
            cx.emit(Event::PutRefused {});
        }
    }

    /// Keeps a page; false if there is no room.
    fn keep(
        &mut self,
        cx: &mut Cx<'_>,
        lent: LentPage,
        held: Held,
        files: &mut SharedPages,
    ) -> bool {
        let (segment, page) = (lent.segment, lent.page);
        let name = (segment, page);
        let owner = Some(segment.home());
        if !self.pages.contains_key(&name) && !self.make_room(cx, owner, held.used, files) {
            return false;
        }
        cx.push(Effect::Stow { segment, page });
        cx.emit(Event::PageBorrowed { segment, page });
        self.take(name);
        self.pages.insert(name, held);
        if held.on_disk {
            self.droppable.insert(held.used, name);
        }
        true
    }

    /// Makes room for one more page of a node, or of a file, last used at `used`: the oldest one of
    /// those that may go for it goes, if it is older. False if there is no room.
    pub(crate) fn make_room(
        &mut self,
        cx: &mut Cx<'_>,
        owner: Option<NodeId>,
        used: Time,
        files: &mut SharedPages,
    ) -> bool {
        let lend = cx.shell.memory.budgets.lend.0;
        if self.len() + files.kept() < lend {
            return true;
        }
        if lend == 0 {
            return false;
        }
        match self.droppable.victim(cx.now, owner, lend, files.kept()) {
            Some((oldest, _)) if oldest > used => false,
            Some((_, name)) => {
                self.drop_for_another(cx, name);
                true
            }
            None => self.drop_oldest(cx, used, files, true),
        }
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
        let mut asked: SortedMap<SegmentId, Vec<_>> = SortedMap::new();
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

    /// The host wants memory back: the oldest pages go, as far as their owners have them, some at a
    /// time.
    pub(crate) fn shrink(&mut self, cx: &mut Cx<'_>, files: &mut SharedPages) {
        let lend = cx.shell.memory.budgets.lend.0;
        for _ in 0..GIVEN_BACK {
            if self.len() + files.kept() <= lend || !self.drop_oldest(cx, cx.now, files, false) {
                return;
            }
        }
        cx.arm(cx.now, Timer::GiveBack);
    }

    /// A member is gone, and with it all use for its pages.
    pub(crate) fn owner_gone(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        self.ended.forget(node);
        self.audit.forget(node);
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
        self.ended = Ended::default();
        self.audit = Audit::default();
        while let Some(((segment, _), _)) = self.pages.first_key_value() {
            let segment = *segment;
            self.forget(cx, segment);
        }
    }

    /// A segment has ended. Pages of it that are still on their way are not taken any more.
    pub(crate) fn ended(&mut self, cx: &mut Cx<'_>, segment: SegmentId) {
        if cx.is_alive(segment.home()) && segment.home() != cx.me() {
            self.ended.insert(cx.now, segment);
        }
        self.forget(cx, segment);
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
    pub(crate) fn summarize(
        &self,
        now: Time,
        (lend, busy): (u32, u8),
        files: &SharedPages,
        into: &mut AgeSummary,
    ) {
        into.free = lend.saturating_sub(self.len() + files.kept());
        self.droppable.summarize(now, BOOST, &mut into.global);
        files.summarize_kept(now, BOOST, &mut into.global);
        scale(into, busy);
    }

    /// Drops the oldest page of all that are kept if it is older than `used`. Under N-chance another
    /// node may get it if `forward`.
    fn drop_oldest(
        &mut self,
        cx: &mut Cx<'_>,
        used: Time,
        files: &mut SharedPages,
        forward: bool,
    ) -> bool {
        let mine = self.droppable.oldest();
        let its = files.oldest_kept();
        let file_first = its.is_some_and(|its| mine.is_none_or(|(mine, _)| its < mine));
        let oldest = if file_first {
            its
        } else {
            mine.map(|(mine, _)| mine)
        };
        if oldest.is_none_or(|oldest| oldest > used) {
            return false;
        }
        if file_first {
            files.drop_oldest_kept(cx, forward);
        } else if let Some((_, name)) = mine {
            match forward {
                true => self.drop_for_another(cx, name),
                false => {
                    cx.emit(Event::BorrowedDropped {});
                    self.drop_page(cx, name);
                }
            }
        }
        true
    }

    /// Drops a page that another one needs the room of. Under N-chance another node may get it.
    fn drop_for_another(&mut self, cx: &mut Cx<'_>, name: Name) {
        cx.emit(Event::BorrowedDropped {});
        self.send_on(cx, name);
        self.drop_page(cx, name);
    }

    /// Sends a page that is about to be dropped to another node, if it has not been kept by enough
    /// nodes (G26), and tells its owner.
    fn send_on(&self, cx: &mut Cx<'_>, (segment, page): Name) {
        let held = self.pages.get(&(segment, page));
        let Some(held) = held.filter(|held| held.rounds > 1) else {
            return;
        };
        let (now, age, owner) = (cx.now, cx.now - held.used, segment.home());
        let (peers, without) = (cx.shell.peers(), NodeSet::only(owner));
        let Some(to) = cx.shell.memory.choose(now, age, (&peers, &without)) else {
            return;
        };
        let lent = LentPage {
            segment,
            page,
            version: held.version,
        };
        let put = Put {
            lent,
            seal: held.seal,
            on_disk: true,
            answer: false,
            age: age_in_millis(age),
        };
        let rounds = held.rounds - 1;
        let message = Message::Forward(Forward { put, rounds });
        cx.send_page(to, message, Some((segment, page, Source::Stash)));
        cx.send(owner, Message::DonorReply(DonorReply::Moved(lent, to)));
        cx.emit(Event::PageSentOn {});
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

/// The part of a node's idle memory that counts however busy its processors are, in percent.
const COUNTS: u64 = 10;

/// A node whose processors are busy counts as one with less idle memory, so that fewer pages are sent
/// there, and other nodes become initiators (GB6).
fn scale(ages: &mut AgeSummary, busy: u8) {
    let idle = 100_u64.saturating_sub(busy.into()).max(COUNTS);
    for count in ages.global.iter_mut().chain([&mut ages.free]) {
        *count = (u64::from(*count) * idle).div_ceil(100) as u32;
    }
}

/// When a page was last used that comes to be kept.
fn used(cx: &Cx<'_>, age: u32) -> Time {
    let age = Duration::from_millis(age.into());
    cx.shell.memory.used(cx.now, age)
}
