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

/// The segment that has replicas, opened for the length of one input.
pub(in super::super) struct SegmentContext<'a, 'b> {
    pub(in super::super) cx: &'a mut Cx<'b>,
    pub(in super::super) rules: Rules,
    pub(in super::super) pages: &'a Table,
}

impl SegmentContext<'_, '_> {
    pub(in super::super) fn id(&self) -> SegmentId {
        self.rules.segment
    }

    pub(in super::super) fn timer(&self) -> Timer {
        Timer::Segment(self.rules.segment)
    }

    pub(in super::super) fn say(&mut self, to: NodeId, body: &Body) {
        let message = Message::Policy(self.envelope(body));
        self.cx.send(to, message);
    }

    pub(super) fn envelope(&self, body: &Body) -> PolicyMessage {
        PolicyMessage {
            segment: self.rules.segment,
            body: Payload::of(body),
        }
    }

    pub(super) fn introduce(&mut self, to: NodeId) {
        let segment = self.rules.segment;
        self.cx.ready(Continuation::Introduce { to, segment });
    }

    /// Whether a page is on its way from here to another node.
    pub(in super::super) fn is_passing(&self, page: PageIndex) -> bool {
        let page = self.pages.get(page);
        page.is_some_and(|page| page.own.passing().is_some())
    }
}

impl Memory {
    /// The replicas of the segment, and the segment that their methods work on.
    pub(in super::super) fn replicas<'a, 'b>(
        &'a mut self,
        cx: &'a mut Cx<'b>,
    ) -> (&'a mut Replicas, SegmentContext<'a, 'b>) {
        let (rules, pages) = (self.rules, &self.pages);
        (&mut self.replicas, SegmentContext { cx, rules, pages })
    }

    /// Begins a commit if something waits for one, looks for a backup, and for pages without an owner.
    pub(in super::super) fn pump(&mut self, cx: &mut Cx<'_>) {
        if !self.replicas.on {
            return;
        }
        let (replicas, mut segment) = self.replicas(cx);
        replicas.introduce_coordinator(&mut segment);
        let orphans = replicas.next_orphans(segment.cx.me(), segment.pages);
        self.each(cx, orphans, |context| context.open_request(Access::Read));
        if !self.replicas.look_for_backup(cx) {
            return self.go_on_alone(cx);
        }
        let (replicas, mut segment) = self.replicas(cx);
        if replicas.commit.is_some() {
            return;
        }
        let book = &replicas.book;
        let hurry = !book.wanted.is_empty() || !book.endangered.is_empty();
        if hurry || replicas.waiting.is_any() {
            self.begin_commit(cx);
        } else if !book.behind.is_empty() {
            replicas.look_later(&mut segment, IDLE);
        }
        let (replicas, mut segment) = self.replicas(cx);
        if replicas.commit.is_none() && replicas.part_with_leavers(&mut segment) {
            self.begin_commit(cx);
        }
    }

    /// There is no node that could keep anything: what waits goes on, and is on this node only.
    fn go_on_alone(&mut self, cx: &mut Cx<'_>) {
        self.replicas.waiting.settle(cx, u64::MAX);
        let wanted = core::mem::take(&mut self.replicas.book.wanted);
        self.each(cx, wanted, |context| context.leave_if_due());
        let (replicas, mut segment) = self.replicas(cx);
        replicas.part_with_leavers(&mut segment);
        if !replicas.book.behind.is_empty() {
            replicas.look_later(&mut segment, ALONE);
        }
    }

    fn begin_commit(&mut self, cx: &mut Cx<'_>) {
        let pages = self.replicas.to_commit();
        let freeze = |page: PageIndex| {
            let frozen = self.at(cx, page, |context| context.here.freeze());
            frozen.map(|(version, zeros)| Entry {
                page,
                version,
                zeros,
            })
        };
        let pages = pages.into_iter().filter_map(freeze).collect();
        let (replicas, mut segment) = self.replicas(cx);
        replicas.begin_commit(&mut segment, pages);
    }

    /// A message between a node and its backup.
    pub(in super::super) fn about_replicas(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        said: &Payload,
        page: bool,
    ) {
        let (replicas, mut context) = self.replicas(cx);
        let segment = &mut context;
        match Body::read(said).filter(|_| replicas.on) {
            Some(Body::Page(kept)) => replicas.keep_page(segment, from, kept, !page),
            _ if page => cx.emit(Event::Malformed {}),
            Some(Body::Keep(keep)) => replicas.keep(segment, from, keep),
            Some(Body::Kept(kept)) => {
                let pages = replicas.kept(segment, from, kept);
                self.each(cx, pages, |context| context.leave_if_due());
            }
            Some(Body::Leaving) => replicas.backup_leaves(segment, from),
            Some(Body::Free) => replicas.freed(segment, from),
            Some(Body::Release(pages)) => replicas.released(segment, from, &pages),
            Some(Body::Drop(pages)) => replicas.drop_older(segment, &pages),
            None => cx.emit(Event::Malformed {}),
        }
    }

    /// Repeats what the backup is asked, and looks at what nobody waits for.
    pub(in super::super) fn replicas_due(&mut self, cx: &mut Cx<'_>) {
        let (replicas, mut segment) = self.replicas(cx);
        if replicas.on && replicas.due(&mut segment) {
            self.begin_commit(cx);
        }
    }
}
