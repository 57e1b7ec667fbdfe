//! Replicas: what this node's processes stored is on another node, the *backup*, before any other node
//! can see a part of it (output commit).
//!
//! - A *commit* takes all pages that may have been stored to since the last one, in one step: they are
//!   protected, and until the backup has all of them (`Keep`, `Kept`) they neither change nor leave. The
//!   backup stores it as a whole ([`wards`](super::wards)). So of a node that dies, the survivors find
//!   what its memory was at one instant, and nothing that depended on later stores has left it.
//! - A page leaves, as a copy or with its ownership, when this node's backup has its contents
//!   ([`PageContext::is_kept`]). A token leaves, and a process arrives at a barrier, when all that was
//!   stored before is committed.
//! - Who gave a page away has it at its backup, until the backup of the new owner has it (`Release`). If
//!   the new owner is that backup itself, the giver keeps its stash.
//!
//! INV-one-instant: after the death of one node, the survivors find in all pages what that node's memory
//! was at one instant, and nothing is missing that any of them has seen. What others have seen of a page is
//! on two living nodes, or on one whose `unreplicated` is not zero.

use super::book::{Book, Replica};
use super::context::PageContext;
use super::messages::{Body, Keep, KeepPage, Kept, PAGES};
use super::page::Page;
use super::table::Table;
use super::wards::Ward;
use super::{Rules, Sequential};
use crate::backoff::Backoff;
use crate::continuation::Continuation;
use crate::effect::{Effect, Mappings, Rights, Source};
use crate::event::Event;
use crate::policies::backup::{self, Waiting};
use crate::shell::Cx;
use crate::time::Time;
use crate::timers::Timer;
use core::time::Duration;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::{self, Access, Message, Payload, PolicyMessage, Refusal};
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

/// A commit that the backup does not have.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Commit {
    number: u64,
    pages: Vec<Entry>,
    /// The part that is under way.
    part: u32,
    backoff: Backoff,
}

/// A page of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Entry {
    page: PageIndex,
    version: Version,
    zeros: bool,
}

impl Commit {
    fn parts(&self) -> usize {
        self.pages.len().div_ceil(PAGES)
    }

    /// The pages of the part that is under way.
    fn present(&self) -> &[Entry] {
        let begin = self.part as usize * PAGES;
        &self.pages[begin..self.pages.len().min(begin + PAGES)]
    }

    fn is_last(&self) -> bool {
        self.part as usize + 1 == self.parts()
    }
}

/// The settings and pages of the segment that has replicas.
#[derive(Clone, Copy)]
pub(super) struct SegmentPages<'a> {
    pub(super) rules: Rules,
    pub(super) pages: &'a Table,
}

impl SegmentPages<'_> {
    pub(super) fn id(self) -> SegmentId {
        self.rules.segment
    }

    pub(super) fn timer(self) -> Timer {
        Timer::Segment(self.rules.segment)
    }

    pub(super) fn say(self, cx: &mut Cx<'_>, to: NodeId, body: &Body) {
        cx.send(to, Message::Policy(self.envelope(body)));
    }

    fn envelope(self, body: &Body) -> PolicyMessage {
        PolicyMessage {
            segment: self.rules.segment,
            body: Payload::of(body),
        }
    }

    fn introduce(self, cx: &mut Cx<'_>, to: NodeId) {
        let segment = self.rules.segment;
        cx.ready(Continuation::Introduce { to, segment });
    }

    /// Whether a page is on its way from here to another node.
    pub(super) fn is_passing(self, page: PageIndex) -> bool {
        let page = self.pages.get(page);
        page.is_some_and(|page| page.own.passing().is_some())
    }
}

impl Replicas {
    /// Of a segment with so many pages, which has none until it is told.
    pub(super) fn of(size: u32) -> Self {
        Self {
            size,
            ..Self::default()
        }
    }

    pub(super) fn book(&mut self) -> Option<&mut Book> {
        self.on.then_some(&mut self.book)
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

    fn look_later(&mut self, cx: &mut Cx<'_>, segment: SegmentPages<'_>, wait: Duration) {
        if self.looks.is_none_or(|at| at <= cx.now) {
            let at = cx.now + wait;
            self.looks = Some(at);
            cx.arm(at, segment.timer());
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
    fn begin_commit(&mut self, cx: &mut Cx<'_>, segment: SegmentPages<'_>, pages: Vec<Entry>) {
        self.last += 1;
        let number = self.last;
        if pages.is_empty() {
            return self.waiting.settle(cx, number);
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
            backoff: cx.backoff(segment.timer()),
        });
        self.send_part(cx, segment, u64::MAX);
    }

    /// Sends these places of the part that is under way to the backup.
    fn send_part(&mut self, cx: &mut Cx<'_>, segment: SegmentPages<'_>, places: u64) {
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
                segment.say(cx, backup, &body);
                continue;
            }
            let from = (segment.id(), entry.page, Source::Frame);
            let message = Message::PolicyPage(segment.envelope(&body));
            cx.send_page(backup, message, Some(from));
        }
        self.send_keep(cx, segment);
    }

    fn backup_and_commit(&self) -> Option<(NodeId, &Commit)> {
        Some((self.book.backup?, self.commit.as_ref()?))
    }

    fn send_keep(&self, cx: &mut Cx<'_>, segment: SegmentPages<'_>) {
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
        segment.say(cx, backup, &Body::Keep(keep));
    }

    /// The backup says what it has of a part of a commit. Returns the pages of the commit, if it has
    /// all of it.
    pub(super) fn kept(
        &mut self,
        cx: &mut Cx<'_>,
        segment: SegmentPages<'_>,
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
            cx.emit(Event::Stale {});
            return Vec::new();
        };
        cx.end(&commit.backoff, timer);
        if kept.lacks == 0 && commit.is_last() {
            return self.end_commit(cx, segment);
        }
        commit.part += u32::from(kept.lacks == 0);
        commit.backoff = cx.backoff(timer);
        let places = if kept.lacks == 0 {
            u64::MAX
        } else {
            kept.lacks
        };
        self.send_part(cx, segment, places);
        Vec::new()
    }

    /// The backup has the whole commit.
    fn end_commit(&mut self, cx: &mut Cx<'_>, segment: SegmentPages<'_>) -> Vec<PageIndex> {
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
                segment.say(cx, giver, &Body::Release(pages.to_vec()));
            }
        }
        self.waiting.settle(cx, commit.number);
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
        let waits = |page: &PageIndex| {
            let page = pages.get(*page);
            page.is_some_and(|page| page.own.want().is_some())
        };
        let requested = book.requested.iter();
        requested.filter(|page| !waits(page)).copied().collect()
    }

    /// The coordinator searches for pages when the home is gone: it is told of the segment.
    fn introduce_coordinator(&mut self, cx: &mut Cx<'_>, segment: SegmentPages<'_>) {
        let to = cx.coordinator();
        if self.introduced != Some(to) && to != cx.me() {
            self.introduced = Some(to);
            segment.introduce(cx, to);
        }
    }

    /// A message came back: its receiver does not know the segment.
    pub(super) fn came_back(&mut self, cx: &mut Cx<'_>, segment: SegmentPages<'_>, from: NodeId) {
        if self.book.backup == Some(from) {
            return segment.introduce(cx, from);
        }
        cx.emit(Event::Stale {});
    }

    /// The backup leaves: another one is to have everything first.
    pub(super) fn backup_leaves(
        &mut self,
        cx: &mut Cx<'_>,
        segment: SegmentPages<'_>,
        from: NodeId,
    ) {
        self.leavers.insert(from);
        if self.book.backup == Some(from) {
            self.released_later.insert(from);
            self.without_backup(cx, segment, false);
            // It may have the only contents of what this node gave away. If a copy comes, they are on
            // two nodes elsewhere.
            let book = &mut self.book;
            let given = core::mem::take(&mut book.given);
            book.orphans.extend(given.into_keys());
        } else if !self.released_later.contains(from) {
            segment.say(cx, from, &Body::Free);
        }
    }

    /// Backups that leave are told to go, if another one has everything, or there is none. Returns
    /// whether a commit has to begin for that.
    fn part_with_leavers(&mut self, cx: &mut Cx<'_>, segment: SegmentPages<'_>) -> bool {
        let book = &self.book;
        let searches = !book.orphans.is_empty() || !book.requested.is_empty();
        if searches {
            return false;
        }
        if book.alone || book.owed.is_empty() {
            for node in core::mem::take(&mut self.released_later).iter() {
                segment.say(cx, node, &Body::Free);
            }
            return false;
        }
        !self.released_later.is_empty() && self.commit.is_none()
    }

    /// Another backup must have everything. `dead`: what the former one had is gone.
    fn without_backup(&mut self, cx: &mut Cx<'_>, segment: SegmentPages<'_>, dead: bool) {
        if let Some(commit) = self.commit.take() {
            cx.end(&commit.backoff, segment.timer());
        }
        let me = cx.me();
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
    pub(super) fn member_gone(&mut self, cx: &mut Cx<'_>, segment: SegmentPages<'_>, node: NodeId) {
        if !self.on {
            return;
        }
        let ward = self.wards.remove(&node);
        self.forget_ward(cx, segment, ward);
        self.leavers.remove(node);
        self.users.remove(node);
        self.released_later.remove(node);
        self.book.givers.retain(|_, giver| *giver != node);
        self.book.orphaned_by(node);
        if self.book.backup == Some(node) {
            self.without_backup(cx, segment, true);
        }
    }

    /// Repeats what the backup is asked. Returns whether what nobody waits for is to be committed now.
    fn due(&mut self, cx: &mut Cx<'_>, segment: SegmentPages<'_>) -> bool {
        if let Some(commit) = &mut self.commit
            && cx.fire(&mut commit.backoff, segment.timer())
        {
            self.send_keep(cx, segment);
        }
        self.say_farewell(cx, segment);
        let looks = self.looks.take_if(|at| *at <= cx.now).is_some();
        let idle = self.commit.is_none() && !self.book.behind.is_empty();
        looks && idle && self.look_for_backup(cx)
    }

    /// This node is no member any more.
    pub(super) fn forget(&mut self, cx: &mut Cx<'_>, segment: SegmentPages<'_>) {
        let timer = segment.timer();
        let Replicas { on, size, .. } = *self;
        let fresh = Replicas {
            on,
            size,
            ..Replicas::default()
        };
        let mut old = core::mem::replace(self, fresh);
        if let Some(commit) = old.commit {
            cx.end(&commit.backoff, timer);
        }
        if let Some(backoff) = old.farewell {
            cx.end(&backoff, timer);
        }
        old.waiting.refuse(cx, &Refusal::NotMember);
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
            old.book.vacate(cx, segment.id(), place);
        }
    }
}

impl Sequential {
    /// The replicas of the segment, and its pages, for the calls of the first that read the second.
    pub(super) fn with_pages(&mut self) -> (&mut Replicas, SegmentPages<'_>) {
        let (rules, pages) = (self.rules, &self.pages);
        (&mut self.replicas, SegmentPages { rules, pages })
    }

    /// Begins a commit if something waits for one, looks for a backup, and for pages without an owner.
    pub(super) fn pump(&mut self, cx: &mut Cx<'_>) {
        if !self.replicas.on {
            return;
        }
        let me = cx.me();
        let (replicas, segment) = self.with_pages();
        replicas.introduce_coordinator(cx, segment);
        for page in replicas.next_orphans(me, segment.pages) {
            self.at(cx, page, |context| context.open_request(Access::Read));
        }
        if !self.replicas.look_for_backup(cx) {
            return self.go_on_alone(cx);
        }
        let (replicas, segment) = self.with_pages();
        if replicas.commit.is_some() {
            return;
        }
        let book = &replicas.book;
        let hurry = !book.wanted.is_empty() || !book.endangered.is_empty();
        if hurry || replicas.waiting.is_any() {
            self.begin_commit(cx);
        } else if !book.behind.is_empty() {
            replicas.look_later(cx, segment, IDLE);
        }
        if self.replicas.commit.is_none() {
            self.part_with_leavers(cx);
        }
    }

    /// There is no node that could keep anything: what waits goes on, and is on this node only.
    fn go_on_alone(&mut self, cx: &mut Cx<'_>) {
        self.replicas.waiting.settle(cx, u64::MAX);
        let wanted = core::mem::take(&mut self.replicas.book.wanted);
        self.may_leave(cx, wanted);
        self.part_with_leavers(cx);
        let (replicas, segment) = self.with_pages();
        if !replicas.book.behind.is_empty() {
            replicas.look_later(cx, segment, ALONE);
        }
    }

    fn part_with_leavers(&mut self, cx: &mut Cx<'_>) {
        let (replicas, segment) = self.with_pages();
        if replicas.part_with_leavers(cx, segment) {
            self.begin_commit(cx);
        }
    }

    fn begin_commit(&mut self, cx: &mut Cx<'_>) {
        let pages = self.replicas.to_commit();
        let freeze = |page: PageIndex| {
            let frozen = self.at(cx, page, |context| context.freeze());
            frozen.map(|(version, zeros)| Entry {
                page,
                version,
                zeros,
            })
        };
        let pages = pages.into_iter().filter_map(freeze).collect();
        let (replicas, segment) = self.with_pages();
        replicas.begin_commit(cx, segment, pages);
    }

    /// These pages do not wait for a commit any more.
    fn may_leave(&mut self, cx: &mut Cx<'_>, pages: impl IntoIterator<Item = PageIndex>) {
        for page in pages {
            self.at(cx, page, |context| context.leave_if_due());
        }
    }

    /// A message between a node and its backup.
    pub(super) fn about_replicas(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        said: &Payload,
        page: bool,
    ) {
        let (replicas, segment) = self.with_pages();
        match Body::read(said).filter(|_| replicas.on) {
            Some(Body::Page(kept)) => replicas.keep_page(cx, segment, from, kept, !page),
            _ if page => cx.emit(Event::Malformed {}),
            Some(Body::Keep(keep)) => replicas.keep(cx, segment, from, keep),
            Some(Body::Kept(kept)) => {
                let pages = replicas.kept(cx, segment, from, kept);
                self.may_leave(cx, pages);
            }
            Some(Body::Leaving) => replicas.backup_leaves(cx, segment, from),
            Some(Body::Free) => replicas.freed(cx, segment, from),
            Some(Body::Release(pages)) => replicas.released(cx, segment, from, &pages),
            Some(Body::Drop(pages)) => replicas.drop_older(cx, segment, &pages),
            None => cx.emit(Event::Malformed {}),
        }
    }

    /// Repeats what the backup is asked, and looks at what nobody waits for.
    pub(super) fn replicas_due(&mut self, cx: &mut Cx<'_>) {
        let (replicas, segment) = self.with_pages();
        if replicas.on && replicas.due(cx, segment) {
            self.begin_commit(cx);
        }
    }

    /// This node leaves: tells its wards. Returns how many have not gone to another backup.
    pub(super) fn leave_wards(&mut self, cx: &mut Cx<'_>) -> usize {
        let (replicas, segment) = self.with_pages();
        replicas.leave_wards(cx, segment)
    }

    /// This node is no member any more.
    pub(super) fn forget_replicas(&mut self, cx: &mut Cx<'_>) {
        let (replicas, segment) = self.with_pages();
        replicas.forget(cx, segment);
    }
}

impl PageContext<'_, '_> {
    /// Whether the page may leave: this node's backup has its contents. If not, a commit leads to
    /// another call.
    pub(super) fn is_kept(&mut self) -> bool {
        let page = self.index;
        let Some(book) = &mut self.book else {
            return true;
        };
        if book.alone || !book.behind.contains(&page) {
            return true;
        }
        book.wanted.insert(page);
        false
    }

    /// Whether a commit under way keeps the page from changing.
    pub(super) fn is_frozen(&self) -> bool {
        let book = self.book.as_ref();
        book.is_some_and(|book| book.frozen.contains(&self.index))
    }

    /// Stops stores for a commit. Returns the version of the contents, and whether they are zeros; none
    /// if the page is about to become another one.
    fn freeze(&mut self) -> Option<(Version, bool)> {
        let gathers = self.busy().is_some_and(|busy| busy.more.gather.is_some());
        let empty = !self.page.filled && !self.page.pristine;
        if !self.is_owner() || gathers || empty {
            return None;
        }
        if self.page.rights == Rights::Write {
            self.cx.push(Effect::Protect {
                pages: (self.rules.segment, self.index).into(),
                mappings: Mappings::All,
            });
            self.page.rights = Rights::Read;
        }
        Some((self.page.own.version, self.page.pristine))
    }

    /// This node has become the owner.
    pub(super) fn now_owned(&mut self) {
        let at = (self.rules.segment, self.index);
        if let Some(book) = &mut self.book {
            book.came(self.cx, at);
        }
    }

    /// Ownership goes to a node, as this version. The frame is in the stash.
    pub(super) fn note_given(&mut self, to: NodeId, version: Version) {
        let at = (self.rules.segment, self.index);
        let Some(book) = &mut self.book else { return };
        book.went(at.1);
        book.given.insert(at.1, (to, version));
        if book.backup == Some(to) {
            // Two nodes have the page: what the backup has would be gone with the new owner.
            book.drop_replica(self.cx, at, true);
            let replica = Replica {
                version: self.page.own.version,
                place: (!self.page.pristine).then_some(at.1),
                of: to,
            };
            book.replicas.insert(at.1, replica);
        }
    }
}
