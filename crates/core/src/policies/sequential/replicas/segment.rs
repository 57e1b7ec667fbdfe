//! The segment and its replicas: what calls the replicas when, and does what they say to pages.

use super::super::memory::Memory;
use super::super::messages::Body;
use super::super::rules::Rules;
use super::super::table::Table;
use super::commit::Entry;
use super::{ALONE, IDLE, Replicas};
use crate::continuation::Continuation;
use crate::event::Event;
use crate::shell::Cx;
use crate::timers::Timer;
use pagemesh_wire::peer::{Access, Message, Payload, PolicyMessage};
use pagemesh_wire::{NodeId, PageIndex, SegmentId};

/// The settings and pages of the segment that has replicas.
#[derive(Clone, Copy)]
pub(in super::super) struct SegmentPages<'a> {
    pub(in super::super) rules: Rules,
    pub(in super::super) pages: &'a Table,
}

impl SegmentPages<'_> {
    pub(in super::super) fn id(self) -> SegmentId {
        self.rules.segment
    }

    pub(in super::super) fn timer(self) -> Timer {
        Timer::Segment(self.rules.segment)
    }

    pub(in super::super) fn say(self, cx: &mut Cx<'_>, to: NodeId, body: &Body) {
        cx.send(to, Message::Policy(self.envelope(body)));
    }

    pub(super) fn envelope(self, body: &Body) -> PolicyMessage {
        PolicyMessage {
            segment: self.rules.segment,
            body: Payload::of(body),
        }
    }

    pub(super) fn introduce(self, cx: &mut Cx<'_>, to: NodeId) {
        let segment = self.rules.segment;
        cx.ready(Continuation::Introduce { to, segment });
    }

    /// Whether a page is on its way from here to another node.
    pub(in super::super) fn is_passing(self, page: PageIndex) -> bool {
        let page = self.pages.get(page);
        page.is_some_and(|page| page.own.passing().is_some())
    }
}

impl Memory {
    /// The replicas of the segment, and its pages, for the calls of the first that read the second.
    pub(in super::super) fn with_pages(&mut self) -> (&mut Replicas, SegmentPages<'_>) {
        let (rules, pages) = (self.rules, &self.pages);
        (&mut self.replicas, SegmentPages { rules, pages })
    }

    /// Begins a commit if something waits for one, looks for a backup, and for pages without an owner.
    pub(in super::super) fn pump(&mut self, cx: &mut Cx<'_>) {
        if !self.replicas.on {
            return;
        }
        let (replicas, segment) = self.with_pages();
        replicas.introduce_coordinator(cx, segment);
        let orphans = replicas.next_orphans(cx.me(), segment.pages);
        self.each(cx, orphans, |context| context.open_request(Access::Read));
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
        self.each(cx, wanted, |context| context.leave_if_due());
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

    /// A message between a node and its backup.
    pub(in super::super) fn about_replicas(
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
                self.each(cx, pages, |context| context.leave_if_due());
            }
            Some(Body::Leaving) => replicas.backup_leaves(cx, segment, from),
            Some(Body::Free) => replicas.freed(cx, segment, from),
            Some(Body::Release(pages)) => replicas.released(cx, segment, from, &pages),
            Some(Body::Drop(pages)) => replicas.drop_older(cx, segment, &pages),
            None => cx.emit(Event::Malformed {}),
        }
    }

    /// Repeats what the backup is asked, and looks at what nobody waits for.
    pub(in super::super) fn replicas_due(&mut self, cx: &mut Cx<'_>) {
        let (replicas, segment) = self.with_pages();
        if replicas.on && replicas.due(cx, segment) {
            self.begin_commit(cx);
        }
    }

    /// This node is no member any more.
    pub(in super::super) fn forget_replicas(&mut self, cx: &mut Cx<'_>) {
        let (replicas, segment) = self.with_pages();
        replicas.forget(cx, segment);
    }
}
