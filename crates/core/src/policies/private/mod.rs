//! The memory of one node, larger than its frames (GMS): pages that do not fit are in the idle
//! memory of other nodes and on the disk of the segment's home.
//!
//! Only the home has the segment open; so pages need no coherence, and the directory entry of each
//! is here (G17). A page is in a frame; then *staged*, that is, in the stash without a mapping; then
//! out. Frames are taken away in the order in which threads faulted at them. A staged page comes
//! back by a fault without any message, which makes it young again: that is how use is known
//! without an accessed bit. Pages that a walk brought are replaced by those that it brings next
//! ([`scan`]). From the stage the oldest pages go out, in runs: to the disk, and then, unless they are
//! older than MinAge, to a donor that the epoch's weights choose.
//!
//! With [`Backing::File`] every page that is out is on the disk (G12). So a putpage need not be
//! acknowledged, a donor may drop a page at any time, and an answer that does not come costs a
//! disk access, never contents. With [`Backing::Copies`] two donors must have said that they keep a
//! page before it leaves the stash (GB1); the disk takes only what finds no two donors.
//!
//! A version is one set of contents. A donor is asked for a version and the driver opens only what
//! was sealed as that version: an older one never comes back (INV-private-version).

mod ahead;
mod fetch;
mod leavers;
mod orphans;
mod outgoing;
mod page;
mod replace;
mod scan;
mod stores;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod traces;

use super::hooks::{Due, Gone, Hooks, Open, ProgramRequest, Who};
use crate::effect::{Effect, Mappings, PageRange, Reply, Rights, Source};
use crate::event::Event;
use crate::global::{Ages, MemoryReport};
use crate::inspection::Inspection;
use crate::prefetch::{Prefetch, WillneedRanges as _};
use crate::shell::Cx;
use crate::time::Time;
use crate::timers::Timer;
use fetch::Fetch;
use outgoing::Outgoing;
use page::{Page, Place};
use pagemesh_wire::local::PageLine;
use pagemesh_wire::peer::{
    Access, AgeSummary, Backing, DonorReply, Message, Policy, Refusal, Subject,
};
use pagemesh_wire::{ClientId, MappingId, NodeId, PageIndex, SegmentId, Ticket, Version};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use stores::Stores;

/// One private segment at its home.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Private {
    segment: SegmentId,
    /// Pages of it in memory at most; zero: no bound of its own.
    local: u32,
    backing: Backing,
    pages: BTreeMap<PageIndex, Page>,
    /// Pages in frames.
    mapped: Ages<PageIndex>,
    /// Pages in frames that a walk brought lately; the others are in `mapped`.
    #[serde(default)]
    walked: Ages<PageIndex>,
    /// Counts pages that leave their frames.
    #[serde(default)]
    turn: u8,
    /// Whether pages that come for loads are stored to next.
    #[serde(default)]
    stores: Stores,
    /// Pages in the stash that nothing is under way about.
    staged: Ages<PageIndex>,
    /// Pages of which this segment occupies memory: those in frames and in the stash, and those
    /// that were asked for.
    held: u32,
    /// Those of them that the driver writes to the disk now.
    storing: u32,
    /// Pages asked for.
    fetches: BTreeMap<PageIndex, Fetch>,
    /// Accesses that wait for room.
    blocked: VecDeque<Blocked>,
    /// Pages on their way to donors.
    outgoing: Outgoing,
    /// Since when the disk takes nothing.
    full: Option<Time>,
    prefetch: Prefetch,
}

/// An access that waits for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Blocked {
    mapping: MappingId,
    page: PageIndex,
    access: Access,
    since: Time,
}

impl Open for Private {
    fn open(segment: SegmentId, _: u32, chosen: Policy) -> Option<Result<Self, Refusal>> {
        let Policy::Private { local, backing } = chosen else {
            return None;
        };
        Some(Ok(Self {
            segment,
            local: local.0,
            backing,
            pages: BTreeMap::new(),
            mapped: Ages::default(),
            walked: Ages::default(),
            turn: 0,
            stores: Stores::default(),
            staged: Ages::default(),
            held: 0,
            storing: 0,
            fetches: BTreeMap::new(),
            blocked: VecDeque::new(),
            outgoing: Outgoing::default(),
            full: None,
            prefetch: Prefetch::default(),
        }))
    }
}

fn rights_for(access: Access) -> Rights {
    match access {
        Access::Read => Rights::Read,
        Access::Write => Rights::Write,
    }
}

impl Private {
    fn range(&self, page: PageIndex) -> PageRange {
        (self.segment, page).into()
    }

    fn timer(&self, page: PageIndex) -> Timer {
        let segment = self.segment;
        Timer::Subject(Subject::Page { segment, page })
    }

    /// Counts a page that occupies memory from now on.
    fn hold(&mut self, cx: &mut Cx<'_>) {
        self.held += 1;
        cx.shell.memory.used += 1;
    }

    /// Counts a page that does not occupy memory any more.
    fn unhold(&mut self, cx: &mut Cx<'_>) {
        self.held -= 1;
        cx.shell.memory.used -= 1;
    }

    /// A thread may go on.
    fn map(&self, cx: &mut Cx<'_>, mapping: MappingId, page: PageIndex, rights: Rights) {
        let segment = self.segment;
        cx.push(Effect::Map {
            mappings: Mappings::One(mapping),
            pages: self.range(page),
            rights,
        });
        cx.emit(Event::Granted { segment, page });
    }

    /// An access that can never be served.
    fn fail(&self, cx: &mut Cx<'_>, mapping: MappingId, page: PageIndex, why: Refusal) {
        cx.fail(mapping, (self.segment, page), why);
    }

    /// Serves an access if the page is in the memory of this node.
    fn serve_here(
        &mut self,
        cx: &mut Cx<'_>,
        (mapping, page): (MappingId, PageIndex),
        access: Access,
    ) -> bool {
        let Some(known) = self.pages.get(&page).copied() else {
            return false;
        };
        let segment = self.segment;
        match known.place {
            Place::Frame { rights, used } => {
                if (rights, access) == (Rights::Read, Access::Write) {
                    self.stores.stored(page);
                }
                let rights = rights.max(rights_for(access));
                self.pages.entry(page).and_modify(|known| {
                    known.place = Place::Frame { rights, used };
                });
                cx.emit(Event::LocalFault { segment, page });
                self.map(cx, mapping, page, rights);
                true
            }
            Place::Staged { used } | Place::Sending { used } => {
                self.staged.remove(used, page);
                self.outgoing.withdraw(page);
                cx.push(Effect::Fill {
                    pages: self.range(page),
                    source: Source::Stash,
                });
                // What was stored to and is nowhere else yet has to be written anyway: its next store
                // need not fault.
                let only_here = !known.on_disk && known.donors.all().is_empty();
                let rights = match only_here {
                    true => Rights::Write,
                    false => rights_for(access),
                };
                self.framed(cx.now, page, rights);
                cx.emit(Event::SoftFault { segment, page });
                self.map(cx, mapping, page, rights);
                cx.push(Effect::DropStash { segment, page });
                true
            }
            // The driver's answer comes next.
            Place::Storing { .. } | Place::Out => false,
        }
    }

    /// The page is in its frame from now on.
    fn framed(&mut self, now: Time, page: PageIndex, rights: Rights) {
        let known = self.pages.entry(page);
        known.or_insert_with(|| Page::zeros(rights, now)).place =
            Place::Frame { rights, used: now };
        self.mapped.insert(now, page);
    }

    /// Gets a page for which there is room: zeros, or from a donor, or from the disk.
    fn bring(&mut self, cx: &mut Cx<'_>, (mapping, page): (MappingId, PageIndex), access: Access) {
        let segment = self.segment;
        let Some(known) = self.pages.get(&page).copied() else {
            cx.emit(Event::LocalFault { segment, page });
            self.hold(cx);
            return self.fill(cx, page, Source::Zero, &[(mapping, access)]);
        };
        match access {
            Access::Read => cx.emit(Event::ReadFault { segment, page }),
            Access::Write => cx.emit(Event::WriteFault { segment, page }),
        }
        if self.reads_disk(cx, &known) {
            self.hold(cx);
            return self.load(cx, page, &[(mapping, access)]);
        }
        if known.donors.is_empty() {
            let why = Refusal::NodeGone(segment.home());
            return self.fail(cx, mapping, page, why);
        }
        self.hold(cx);
        self.fetch(cx, page, Some((mapping, access)));
    }

    /// Whether a page is to be read from the disk: no donor has it, or none that answers.
    fn reads_disk(&self, cx: &Cx<'_>, known: &Page) -> bool {
        let is_mute = |node| cx.shell.memory.is_mute(cx.now, node);
        known.on_disk && known.donors.all().iter().all(is_mute)
    }

    /// Reads a page from the disk; it is counted already.
    fn load(&mut self, cx: &mut Cx<'_>, page: PageIndex, waiters: &[(MappingId, Access)]) {
        let segment = self.segment;
        cx.emit(Event::DiskRead { segment, page });
        self.fill(cx, page, Source::Disk, waiters);
    }

    /// Contents are there: fills the frame and lets the threads go on.
    fn fill(
        &mut self,
        cx: &mut Cx<'_>,
        page: PageIndex,
        source: Source,
        waiters: &[(MappingId, Access)],
    ) {
        cx.push(Effect::Fill {
            pages: self.range(page),
            source,
        });
        let rights = waiters.iter().map(|(_, access)| rights_for(*access)).max();
        let rights = rights.unwrap_or_default();
        let stores = rights == Rights::Read && source != Source::Zero && self.stores.follow(page);
        let least = if stores { Rights::Write } else { Rights::None };
        self.framed(cx.now, page, rights.max(least));
        for (mapping, access) in waiters {
            self.map(cx, *mapping, page, rights_for(*access).max(least));
        }
    }
}

impl Hooks for Private {
    fn fault(&mut self, cx: &mut Cx<'_>, who: Who, page: PageIndex, access: Access) {
        if page.0 >= who.pages {
            return;
        }
        if self.segment.home() != cx.me() {
            let why = Refusal::NodeGone(self.segment.home());
            return self.fail(cx, who.mapping, page, why);
        }
        let mapping = who.mapping;
        let place = self.pages.get(&page).map(|known| known.place);
        let is_mark = matches!(
            place,
            Some(Place::Frame {
                rights: Rights::None,
                ..
            })
        );
        if is_mark {
            self.serve_here(cx, (mapping, page), access);
            self.walk(cx, who, page, access);
        } else if !self.serve_here(cx, (mapping, page), access)
            && !self.wait_too(page, mapping, access)
        {
            let since = cx.now;
            self.blocked.push_back(Blocked {
                mapping,
                page,
                access,
                since,
            });
            self.unblock(cx);
            self.walk(cx, who, page, access);
        }
        self.tend(cx, 0);
    }

    fn request(&mut self, cx: &mut Cx<'_>, who: (Ticket, ClientId), request: ProgramRequest) {
        match request {
            ProgramRequest::Advise(ranges, advice, mapping) => {
                self.advise(cx, (who.1, mapping), &ranges, advice);
                cx.reply(who.0, Reply::Done);
            }
            ProgramRequest::Unpin(..) => cx.reply(who.0, Reply::Done),
            ProgramRequest::Hold | ProgramRequest::EndHold => {
                cx.refuse(who.0, Refusal::Invalid(ProgramRequest::NO_HOLD.into()));
            }
            ProgramRequest::Watch(_) | ProgramRequest::Pin(..) => {
                let why = "no other node changes pages of policy private, or takes them away";
                cx.refuse(who.0, Refusal::Invalid(why.into()));
            }
            ProgramRequest::Purge(..)
            | ProgramRequest::PinShort(..)
            | ProgramRequest::Publish { .. }
            | ProgramRequest::WatchRange(..) => {
                let why = ProgramRequest::NO_VIEWS.into();
                cx.refuse(who.0, Refusal::Invalid(why));
            }
        }
    }

    fn message(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Message) {
        match message {
            Message::Got(got) => self.came(cx, from, got.lent.page, got.lent.version),
            Message::DonorReply(reply) => {
                let (page, version) = (reply.lent().page, reply.lent().version);
                match reply {
                    DonorReply::Kept(_) => self.kept(cx, from, page, version),
                    DonorReply::Refused(_) => self.refused(cx, from, page, version),
                    DonorReply::Missing(_) => self.missing(cx, from, page, version),
                    DonorReply::Moved(lent, to) => self.moved(cx, from, (lent, to)),
                    DonorReply::Spoiled(_) => self.spoiled(cx, from, page, version),
                }
            }
            _ => return cx.emit(Event::Stale {}),
        }
        self.unblock(cx);
        self.tend(cx, 0);
    }

    fn due(&mut self, cx: &mut Cx<'_>, due: Due) {
        match due {
            Due::Page(page, _) => self.page_due(cx, page),
            Due::Ahead => self.look_ahead(cx),
            Due::Segment => self.outgoing_due(cx),
        }
        self.unblock(cx);
        self.tend(cx, 0);
    }

    fn gone(&mut self, cx: &mut Cx<'_>, gone: Gone) {
        match gone {
            Gone::Mapping(mapping) => {
                self.blocked.retain(|blocked| blocked.mapping != mapping);
                for fetch in self.fetches.values_mut() {
                    fetch.waiters.retain(|(waiter, _)| *waiter != mapping);
                }
                self.prefetch.unmapped(mapping);
            }
            Gone::Client(client) => self.prefetch.client_gone(client),
            Gone::Member(node) => {
                self.donor_gone(cx, node);
                self.unblock(cx);
                self.tend(cx, 0);
            }
            // The pages are this node's own and stay true; but what donors have is out of reach.
            Gone::Membership => {
                let waits = self
                    .blocked
                    .drain(..)
                    .map(|blocked| (blocked.mapping, blocked.page));
                let mut waits: Vec<_> = waits.collect();
                for (page, fetch) in core::mem::take(&mut self.fetches) {
                    waits.extend(fetch.waiters.iter().map(|(mapping, _)| (*mapping, page)));
                    self.unhold(cx);
                }
                for (mapping, page) in waits {
                    self.fail(cx, mapping, page, Refusal::NotMember);
                }
            }
        }
    }

    /// The pages end with the programs of their home.
    fn hand_over(&mut self, _: &mut Cx<'_>, _: NodeId, _: usize) -> usize {
        0
    }

    fn inspect(&self, me: NodeId, first: PageIndex, limit: usize) -> Inspection {
        let lines = self.pages.range(first..).take(limit);
        let line = |(page, known): (&PageIndex, &Page)| line(me, *page, known);
        let writable = |known: &&Page| {
            matches!(
                known.place,
                Place::Frame {
                    rights: Rights::Write,
                    ..
                }
            )
        };
        Inspection {
            unreplicated: 0,
            known: self.pages.len() as u64,
            readable: (self.mapped.len() + self.walked.len()).into(),
            writable: self.pages.values().filter(writable).count() as u64,
            owned: self.pages.len() as u64,
            pages: lines.map(line).collect(),
        }
    }

    fn may_open(&self, node: NodeId) -> Result<(), Refusal> {
        let home = self.segment.home();
        if node == home {
            return Ok(());
        }
        Err(Refusal::Invalid(format!(
            "the segment has policy private: only {home}, which created it, may open it; choose \
             another name, or remove it there"
        )))
    }

    /// A child has a copy of its parent's memory, which this is not: without the segment its
    /// accesses fault for good, and read neither zeros nor the parent's pages.
    fn is_inherited(&self) -> bool {
        false
    }

    fn stored(&mut self, cx: &mut Cx<'_>, pages: PageRange, done: bool) {
        self.written(cx, pages, done);
        self.unblock(cx);
        self.tend(cx, 0);
    }

    fn summarize(&self, now: Time, into: &mut AgeSummary) {
        self.mapped.summarize(now, 0, &mut into.local);
        self.walked.summarize(now, 0, &mut into.local);
        self.staged.summarize(now, 0, &mut into.local);
    }

    fn forgotten(&mut self, cx: &mut Cx<'_>) {
        while self.held > 0 {
            self.unhold(cx);
        }
    }

    fn pressed(&mut self, cx: &mut Cx<'_>) {
        self.tend(cx, 0);
    }

    fn take_back(&mut self, cx: &mut Cx<'_>, donor: NodeId, pages: &[(PageIndex, Version)]) {
        self.donor_leaves(cx, donor, pages);
        self.unblock(cx);
        self.tend(cx, 0);
    }

    fn unwanted(
        &mut self,
        cx: &mut Cx<'_>,
        donor: NodeId,
        pages: &[(PageIndex, Version)],
    ) -> Vec<PageIndex> {
        let pages = pages.iter().copied();
        let unwanted = pages.filter(|copy| !self.counts_on(cx, donor, *copy));
        unwanted.map(|(page, _)| page).collect()
    }

    fn memory(&self, into: &mut MemoryReport) {
        into.local += u64::from(self.held);
        for page in self.pages.values() {
            match page.place {
                Place::Out if !page.donors.is_empty() => into.lent += 1,
                Place::Out => into.on_disk += 1,
                _ => {}
            }
        }
    }
}

fn line(me: NodeId, page: PageIndex, known: &Page) -> PageLine {
    let rights = match known.place {
        Place::Frame { rights, .. } => rights,
        _ => Rights::None,
    };
    let holder = (known.place == Place::Out).then(|| known.donors.after(None));
    let mut copies = known.donors.all();
    if known.on_disk {
        copies.insert(me);
    }
    PageLine {
        page,
        rights: rights as u8,
        owner: true,
        hint: holder.flatten().unwrap_or(me),
        version: known.version.0,
        copies,
        queued: 0,
    }
}
