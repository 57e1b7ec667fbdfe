//! Replicas: what this node's processes stored is on another node, the *backup*, before any other node
//! can see a part of it (output commit).
//!
//! - A *commit* takes all pages that may have been stored to since the last one, in one step: they are
//!   protected, and until the backup has all of them (`Keep`, `Kept`) they neither change nor leave. The
//!   backup stores it as a whole ([`wards`](super::wards)). So of a node that dies, the survivors find
//!   what its memory was at one instant, and nothing that depended on later stores has left it.
//! - A page leaves, as a copy or with its ownership, when this node's backup has its contents
//!   ([`Notes::is_kept`]). A token leaves, and a process arrives at a barrier, when all that was
//!   stored before is committed.
//! - Who gave a page away has it at its backup, until the backup of the new owner has it (`Release`). If
//!   the new owner is that backup itself, the giver keeps its stash.
//!
//! INV-one-instant: after the death of one node, the survivors find in all pages what that node's memory
//! was at one instant, and nothing is missing that any of them has seen. What others have seen of a page is
//! on two living nodes, or on one whose `unreplicated` is not zero.

mod commit;
mod notes;
mod segment;

pub(super) use notes::Notes;
pub(super) use segment::SegmentContext;

use super::book::Book;
use super::messages::{Body, Keep, KeepPage, Kept, PAGES};
use super::page::Page;
use super::table::Table;
use super::wards::Ward;
use crate::backoff::Backoff;
use crate::continuation::Continuation;
use crate::effect::{Rights, Source};
use crate::event::Event;
use crate::policies::backup::{self, Waiting};
use crate::shell::Cx;
use crate::time::Time;
use commit::{Commit, Entry};
use core::time::Duration;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::{self, Message, Refusal};
use pagemesh_wire::{NodeId, NodeSet, PageIndex, SegmentId, Version};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A node that is alone looks so often whether there is a backup.
const ALONE: Duration = Duration::from_millis(500);

/// What nobody waits for is committed after this time.
const IDLE: Duration = Duration::from_millis(100);

/// Pages without an owner that are requested at once.
const ORPHANS: usize = 64;

/// What this node keeps for others, and others for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Replicas {
    /// The segment has them.
    pub(super) on: bool,
    /// Pages of the segment.
    pub(super) size: u32,
    pub(super) book: Book,
    /// The number of the last commit.
    last: u64,
    commit: Option<Commit>,
    /// What goes on when commits are kept.
    pub(super) waiting: Waiting,
    /// The nodes whose backup this one is.
    pub(super) wards: SortedMap<NodeId, Ward>,
    /// Nodes that leave: they keep nothing more.
    leavers: NodeSet,
    /// Backups that leave, and go when another one has everything.
    pub(super) released_later: NodeSet,
    /// This node leaves, and tells its wards.
    pub(super) farewell: Option<Backoff>,
    /// Nodes that use the segment.
    users: NodeSet,
    /// The coordinator that was told of the segment, which it may have to search for one day.
    introduced: Option<NodeId>,
    /// When to look at what nobody waits for, or for a second node.
    looks: Option<Time>,
}

impl Replicas {
    /// Of a segment with so many pages, which has none until it is told.
    pub(super) fn of(size: u32) -> Self {
        Self {
            size,
            ..Self::default()
        }
    }

    /// What they mean for one page.
    pub(super) fn notes(&mut self, segment: SegmentId, page: PageIndex) -> Notes<'_> {
        Notes {
            book: self.on.then_some(&mut self.book),
            segment,
            page,
        }
    }

    /// A member uses the segment.
    pub(super) fn met(&mut self, node: NodeId) {
        if self.on {
            self.users.insert(node);
        }
    }

    /// Pages that no second node has, as far as this node must see to that.
    pub(super) fn unreplicated(&self) -> u64 {
        let book = &self.book;
        let alone = if book.alone { book.behind.len() } else { 0 };
        let orphans = book.orphans.len() + book.requested.len();
        (book.endangered.len().max(alone) + orphans) as u64
    }

    /// Lives are over, and their numbers are to be forgotten.
    pub(super) fn forget_names(&mut self, over: &NodeSet) {
        self.book.forget_names(over);
        self.leavers = self.leavers.without(over);
        self.users = self.users.without(over);
        self.released_later = self.released_later.without(over);
        self.introduced = self.introduced.filter(|node| !over.contains(*node));
    }

    /// Whether there is a backup.
    fn look_for_backup(&mut self, cx: &Cx<'_>) -> bool {
        if self.book.backup.is_none() {
            let since = peer::REPLICAS_VERSION;
            let users = self.users.iter();
            self.book.backup = backup::choose(cx, users, &self.leavers, since);
        }
        let found = self.book.backup.is_some();
        self.book.alone = !found;
        found
    }

    fn look_later(&mut self, segment: &mut SegmentContext<'_, '_>, wait: Duration) {
        if self.looks.is_none_or(|at| at <= segment.cx.now) {
            let at = segment.cx.now + wait;
            self.looks = Some(at);
            segment.cx.arm(at, segment.timer());
        }
    }

    /// All that may have been stored to, and some of what else the backup lacks: what is to leave first.
    fn to_commit(&self) -> BTreeSet<PageIndex> {
        let book = &self.book;
        let mut pages = book.stored.clone();
        let lacking = book.wanted.iter().chain(&book.endangered);
        let lacking = lacking
            .chain(&book.owed)
            .chain(&book.behind)
            .take(2 * PAGES);
        let room = pages.len() + PAGES;
        for page in lacking.filter(|page| book.behind.contains(page)) {
            if pages.len() < room {
                pages.insert(*page);
            }
        }
        pages
    }

    /// A commit with these pages begins, whose contents do not change until it ends.
    fn begin_commit(&mut self, segment: &mut SegmentContext<'_, '_>, pages: Vec<Entry>) {
        self.last += 1;
        let number = self.last;
        if pages.is_empty() {
            return self.waiting.settle(segment.cx, number);
        }
        for entry in &pages {
            self.book.stored.remove(&entry.page);
            self.book.wanted.remove(&entry.page);
            self.book.frozen.insert(entry.page);
        }
        self.commit = Some(Commit {
            number,
            pages,
            part: 0,
            backoff: segment.cx.backoff(segment.timer()),
        });
        self.send_part(segment, u64::MAX);
    }

    /// Sends these places of the part that is under way to the backup.
    fn send_part(&mut self, segment: &mut SegmentContext<'_, '_>, places: u64) {
        let Some((backup, commit)) = self.backup_and_commit() else {
            return;
        };
        let present = commit.present();
        for (place, entry) in present.iter().enumerate() {
            if places & (1 << place) == 0 {
                continue;
            }
            let body = Body::Page(KeepPage {
                commit: commit.number,
                part: commit.part,
                place: place as u8,
                page: entry.page,
                version: entry.version,
            });
            if entry.zeros {
                segment.say(backup, &body);
                continue;
            }
            let from = (segment.id(), entry.page, Source::Frame);
            let message = Message::PolicyPage(segment.envelope(&body));
            segment.cx.send_page(backup, message, Some(from));
        }
        self.send_keep(segment);
    }

    fn backup_and_commit(&self) -> Option<(NodeId, &Commit)> {
        Some((self.book.backup?, self.commit.as_ref()?))
    }

    fn send_keep(&self, segment: &mut SegmentContext<'_, '_>) {
        let Some((backup, commit)) = self.backup_and_commit() else {
            return;
        };
        let mut endangered = self.book.endangered.iter();
        let keep = Keep {
            commit: commit.number,
            part: commit.part,
            count: commit.present().len() as u8,
            last: commit.is_last(),
            whole: endangered.all(|page| self.book.frozen.contains(page)),
        };
        segment.say(backup, &Body::Keep(keep));
    }

    /// The backup says what it has of a part of a commit. Returns the pages of the commit, if it has
    /// all of it.
    pub(super) fn kept(
        &mut self,
        segment: &mut SegmentContext<'_, '_>,
        from: NodeId,
        kept: Kept,
    ) -> Vec<PageIndex> {
        let timer = segment.timer();
        let is_backup = self.book.backup == Some(from);
        let commit = self
            .commit
            .as_mut()
            .filter(|commit| is_backup && (commit.number, commit.part) == (kept.commit, kept.part));
        let Some(commit) = commit else {
            segment.cx.emit(Event::Stale {});
            return Vec::new();
        };
        segment.cx.end(&commit.backoff, timer);
        if kept.lacks == 0 && commit.is_last() {
            return self.end_commit(segment);
        }
        commit.part += u32::from(kept.lacks == 0);
        commit.backoff = segment.cx.backoff(timer);
        let places = if kept.lacks == 0 {
            u64::MAX
        } else {
            kept.lacks
        };
        self.send_part(segment, places);
        Vec::new()
    }

    /// The backup has the whole commit.
    fn end_commit(&mut self, segment: &mut SegmentContext<'_, '_>) -> Vec<PageIndex> {
        let Some(commit) = self.commit.take() else {
            return Vec::new();
        };
        let book = &mut self.book;
        let mut releases: SortedMap<NodeId, Vec<(PageIndex, Version)>> = SortedMap::new();
        for entry in &commit.pages {
            if let Some(giver) = book.givers.get(&entry.page) {
                let pages = releases.entry(*giver).or_default();
                pages.push((entry.page, entry.version));
            }
            book.went(entry.page);
        }
        for (giver, pages) in releases {
            for pages in pages.chunks(PAGES) {
                segment.say(giver, &Body::Release(pages.to_vec()));
            }
        }
        self.waiting.settle(segment.cx, commit.number);
        let pages = commit.pages.into_iter();
        pages.map(|entry| entry.page).collect()
    }

    /// Whether all that was stored here is committed; else `then` goes on when it is.
    pub(super) fn is_committed(&mut self, cx: &mut Cx<'_>, then: &Continuation) -> bool {
        if !self.look_for_backup(cx) {
            return true;
        }
        let present = self.commit.as_ref().map(|commit| commit.number);
        let number = match (self.book.stored.is_empty(), present) {
            (true, None) => return true,
            (true, Some(number)) => number,
            // One that is under way has not what was stored since.
            (false, _) => self.last + 1,
        };
        self.waiting.push(number, then);
        false
    }

    /// Pages whose owner may be gone, and which are to be requested: so a page that this node has a
    /// replica of gets a new owner, and another backup.
    fn next_orphans(&mut self, me: NodeId, pages: &Table) -> Vec<PageIndex> {
        let lost = |page: &Page| page.own.busy().is_some_and(|busy| busy.more.lost.is_some());
        let over = |index: &PageIndex| {
            let page = pages.get(*index);
            page.is_some_and(|page| page.own.hint == me || page.rights > Rights::None || lost(page))
        };
        let book = &mut self.book;
        book.requested.retain(|page| !over(page));
        while book.requested.len() < ORPHANS
            && let Some(page) = book.orphans.pop_first()
        {
            if !over(&page) {
                book.requested.insert(page);
            }
        }
        let requested = book.requested.iter().copied();
        requested.filter(|page| !pages.wants(*page)).collect()
    }

    /// The coordinator searches for pages when the home is gone: it is told of the segment.
    fn introduce_coordinator(&mut self, segment: &mut SegmentContext<'_, '_>) {
        let to = segment.cx.coordinator();
        if self.introduced != Some(to) && to != segment.cx.me() {
            self.introduced = Some(to);
            segment.introduce(to);
        }
    }

    /// A message came back: its receiver does not know the segment.
    pub(super) fn came_back(&mut self, segment: &mut SegmentContext<'_, '_>, from: NodeId) {
        if self.book.backup == Some(from) {
            return segment.introduce(from);
        }
        segment.cx.emit(Event::Stale {});
    }

    /// The backup leaves: another one is to have everything first.
    pub(super) fn backup_leaves(&mut self, segment: &mut SegmentContext<'_, '_>, from: NodeId) {
        self.leavers.insert(from);
        if self.book.backup == Some(from) {
            self.released_later.insert(from);
            self.without_backup(segment, false);
            // It may have the only contents of what this node gave away. If a copy comes, they are on
            // two nodes elsewhere.
            let book = &mut self.book;
            let given = core::mem::take(&mut book.given);
            book.orphans.extend(given.into_keys());
        } else if !self.released_later.contains(from) {
            segment.say(from, &Body::Free);
        }
    }

    /// Backups that leave are told to go, if another one has everything, or there is none. Returns
    /// whether a commit has to begin for that.
    fn part_with_leavers(&mut self, segment: &mut SegmentContext<'_, '_>) -> bool {
        let book = &self.book;
        let searches = !book.orphans.is_empty() || !book.requested.is_empty();
        if searches {
            return false;
        }
        if book.alone || book.owed.is_empty() {
            for node in core::mem::take(&mut self.released_later).iter() {
                segment.say(node, &Body::Free);
            }
            return false;
        }
        !self.released_later.is_empty() && self.commit.is_none()
    }

    /// Another backup must have everything. `dead`: what the former one had is gone.
    fn without_backup(&mut self, segment: &mut SegmentContext<'_, '_>, dead: bool) {
        if let Some(commit) = self.commit.take() {
            segment.cx.end(&commit.backoff, segment.timer());
        }
        let me = segment.cx.me();
        let owned = segment
            .pages
            .those(|page| page.own.hint == me && page.own.version > Version(0));
        let book = &mut self.book;
        book.backup = None;
        let frozen = core::mem::take(&mut book.frozen);
        book.stored.extend(&frozen);
        book.wanted.extend(frozen);
        book.behind.extend(&owned);
        match dead {
            true => book.endangered.extend(owned),
            false => book.owed.extend(owned),
        }
    }

    /// A member is gone.
    pub(super) fn member_gone(&mut self, segment: &mut SegmentContext<'_, '_>, node: NodeId) {
        if !self.on {
            return;
        }
        let ward = self.wards.remove(&node);
        self.forget_ward(segment, ward);
        self.leavers.remove(node);
        self.users.remove(node);
        self.released_later.remove(node);
        self.book.givers.retain(|_, giver| *giver != node);
        self.book.orphaned_by(node);
        if self.book.backup == Some(node) {
            self.without_backup(segment, true);
        }
    }

    /// Repeats what the backup is asked. Returns whether what nobody waits for is to be committed now.
    fn due(&mut self, segment: &mut SegmentContext<'_, '_>) -> bool {
        if let Some(commit) = &mut self.commit
            && segment.cx.fire(&mut commit.backoff, segment.timer())
        {
            self.send_keep(segment);
        }
        self.say_farewell(segment);
        let looks = self.looks.take_if(|at| *at <= segment.cx.now).is_some();
        let idle = self.commit.is_none() && !self.book.behind.is_empty();
        looks && idle && self.look_for_backup(segment.cx)
    }

    /// This node is no member any more.
    pub(super) fn forget(&mut self, segment: &mut SegmentContext<'_, '_>) {
        let timer = segment.timer();
        let Replicas { on, size, .. } = *self;
        let fresh = Replicas {
            on,
            size,
            ..Replicas::default()
        };
        let mut old = core::mem::replace(self, fresh);
        if let Some(commit) = old.commit {
            segment.cx.end(&commit.backoff, timer);
        }
        if let Some(backoff) = old.farewell {
            segment.cx.end(&backoff, timer);
        }
        old.waiting.refuse(segment.cx, &Refusal::NotMember);
        let staged = old.wards.values().flat_map(Ward::places);
        let passing = |page: &PageIndex| segment.is_passing(*page);
        let kept = old.book.replicas.iter();
        let kept = kept.filter_map(|(page, replica)| {
            replica
                .place
                .filter(|place| place != page || !passing(page))
        });
        let places: Vec<_> = staged.chain(kept).collect();
        for place in places {
            old.book.vacate(segment.cx, segment.rules.segment, place);
        }
    }
}
