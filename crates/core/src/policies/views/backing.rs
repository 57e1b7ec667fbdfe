//! What a holder has its backup keep (see [`replicas`](super::replicas)).

use super::Views;
use super::context::PageContext;
use super::messages::{Body, Run};
use super::page::Passing;
use super::replicas::{FLIGHT, Held, Replicas};
use super::say;
use crate::event::Event;
use crate::shell::Cx;
use pagemesh_wire::{NodeId, NodeSet, PAGE_SIZE, PageIndex, SegmentId};

impl PageContext<'_, '_> {
    /// This node has the consistent copy, and its backup may not.
    pub(super) fn replicate(&mut self) {
        if !self.views.replicas.on {
            return self.views.ask_for_orphans(self.cx);
        }
        self.here().materialize();
        let (index, stamp) = (self.at.1, self.page().stamp);
        let run = Run::of_one(index, stamp);
        self.views.supersede(run);
        self.views.published.add_silent(run, PAGE_SIZE as u16);
        self.views.replicas.lacks(index);
        self.views.pump_replicas(self.cx);
    }

    /// The backup, and the node that gave the page here, keep what goes from here, until it has arrived.
    pub(super) fn name_keepers(&mut self, to: NodeId) {
        let (me, index, backup) = (self.cx.me(), self.at.1, self.views.replicas.backup());
        let page = self.page();
        let (stamp, giver) = (page.stamp, page.giver.take());
        let nodes = [backup, giver].into_iter().flatten();
        let nodes: NodeSet = nodes.filter(|node| *node != to && *node != me).collect();
        if let Some(passing) = &mut page.passing {
            passing.keepers = nodes;
        }
        self.views.supersede(Run::of_one(index, stamp));
        self.views.replicas.superseded(index, false);
        self.views.pump_replicas(self.cx);
    }
}

impl Views {
    /// The replicas, and what there is to keep.
    pub(super) fn replicas(&mut self) -> (&mut Replicas, Held<'_>) {
        let held = Held {
            segment: self.segment,
            size: self.size,
            published: &self.published,
            pages: &self.pages,
            listeners: &self.listeners.nodes,
        };
        (&mut self.replicas, held)
    }

    /// Asks for what lost its holder, and names what the backup lacks.
    pub(super) fn pump_replicas(&mut self, cx: &mut Cx<'_>) {
        self.ask_for_orphans(cx);
        if !self.replicas.on {
            return;
        }
        let (replicas, held) = self.replicas();
        if let Some(again) = replicas.pump(cx, held) {
            self.arm(cx, again);
        }
    }

    fn restart_replicas(&mut self, cx: &mut Cx<'_>) {
        self.replicas.restart(cx, self.segment);
        self.pump_replicas(cx);
    }

    /// The backup has a publication.
    pub(super) fn kept(&mut self, cx: &mut Cx<'_>, from: NodeId, run: Run) {
        let newest = self.published.at(run.first);
        if !self.replicas.kept(from, run, newest) {
            return cx.emit(Event::Stale {});
        }
        if newest == Some(run) {
            self.release_givers(cx, from, run);
        }
        self.restart_replicas(cx);
    }

    /// The nodes that gave the pages to this one need not keep them any more.
    fn release_givers(&mut self, cx: &mut Cx<'_>, backup: NodeId, run: Run) {
        let (me, segment) = (cx.me(), self.segment);
        for index in run.pages() {
            let page = self.page(cx, index);
            let version = page.version;
            if let Some(giver) = page.giver.take()
                && giver != backup
            {
                release(cx, (segment, index), giver, (version, me));
            }
        }
    }

    pub(super) fn zeros_kept(&mut self, cx: &mut Cx<'_>, from: NodeId) {
        match self.replicas.zeros_kept(cx, self.segment, from) {
            true => self.restart_replicas(cx),
            false => cx.emit(Event::Stale {}),
        }
    }

    /// The backup leaves. What it alone keeps goes to another one first, if there is any.
    pub(super) fn backup_leaves(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        pages: &[PageIndex],
        zeros: bool,
    ) {
        if pages.len() > FLIGHT || pages.iter().any(|page| page.0 >= self.size) {
            return cx.emit(Event::Malformed {});
        }
        let (replicas, held) = self.replicas();
        let unkept = replicas.leaves(cx, held, from, pages);
        for index in pages {
            let segment = self.segment;
            let page = self.page(cx, *index);
            let is_first = page.holds && page.giver.is_none_or(|giver| giver == from);
            if is_first && unkept.contains(index) {
                page.giver = Some(from);
                continue;
            }
            let known = (page.version, page.hint_of(cx.me()));
            release(cx, (segment, *index), from, known);
        }
        if zeros {
            let (replicas, held) = self.replicas();
            replicas.zeros_leave(cx, held, from);
        }
        self.restart_replicas(cx);
    }

    /// A member is gone: what it kept, and what was kept for it, is another's from now on.
    pub(super) fn replica_gone(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        for (index, page) in &mut self.pages {
            page.giver = page.giver.filter(|giver| *giver != node);
            self.replicas.orphans.holder_gone(*index, page, node);
        }
        self.replicas.member_gone(&self.published, node);
        self.restart_replicas(cx);
    }
}

/// The consistent copy has arrived where it went: who kept it for this node need not any more.
pub(super) fn release_keepers(cx: &mut Cx<'_>, page: (SegmentId, PageIndex), passing: &Passing) {
    for node in passing.keepers.iter() {
        release(cx, page, node, (passing.stamp.version, passing.to));
    }
}

/// Tells a node that it need not keep a page any more, and where the consistent copy is.
fn release(
    cx: &mut Cx<'_>,
    (segment, page): (SegmentId, PageIndex),
    to: NodeId,
    (version, holder): (u64, NodeId),
) {
    let release = Body::Release {
        page,
        version,
        holder,
    };
    say(cx, segment, to, &release);
}
