//! Replicas: what this node holds, one other node has, too, the *backup*, as it was published; when
//! this node dies, the census finds it there.
//!
//! - A holder has chosen one backup for the segment, and keeps to it while that lives. It names each
//!   publication to the backup (`Keep`) until that has it (`Kept`).
//! - A copy that is kept ([`kept`](super::kept)) stays in its frame when programs purge it: it is *veiled* from their views.
//! - A holder that gives the consistent copy away keeps what it gave, until the new holder's backup has
//!   it; and its own backup does so until the copy has arrived.
//! - Pages that never moved are zeros until they are published. Their home asks its backup to answer
//!   for them (`Zeros`) when all else is kept; a node that answers for a home that is gone looks for
//!   a backup of its own. So a page that is found nowhere, and that nobody has seen move, is zeros, not lost.
//!
//! INV-published-survives: what was acknowledged as kept is on two living nodes, or on one whose
//! `unreplicated` is not zero; the next holder has it, or something newer.

use super::messages::{Body, Run};
use super::page::Passing;
use super::refresh::Published;
use super::{REMINDERS, Views};
use crate::backoff::Backoff;
use crate::continuation::Continuation;
use crate::effect::Reply;
use crate::event::Event;
use crate::policies::backup;
use crate::shell::Cx;
use core::time::Duration;
use pagemesh_wire::header::OLDEST_VERSION;
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::{ClientId, NodeId, NodeSet, PAGE_SIZE, PageIndex, Ticket};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Publications that are named to the backup at a time, pages without a holder that are asked for at
/// a time, and pages that a backup asks for at a time.
pub(super) const FLIGHT: usize = 64;

/// A node that is alone looks so often whether there is a backup.
const ALONE: Duration = Duration::from_millis(500);

/// The pages that this node keeps for others, and others for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Replicas {
    /// The segment has them.
    pub(super) on: bool,
    backup: Option<NodeId>,
    /// Publications that the backup does not have, by their first pages: not named to it yet, and
    /// named.
    pending: BTreeSet<PageIndex>,
    asked: BTreeSet<PageIndex>,
    backoff: Option<Backoff>,
    pub(super) zeros: Zeros,
    /// Requests that wait until these pages are kept.
    waiting: Vec<(Ticket, ClientId, PageIndex, u32)>,
    /// Pages kept here whose holder is gone.
    pub(super) orphans: BTreeSet<PageIndex>,
    /// Nodes that leave: they keep nothing more.
    leavers: NodeSet,
    /// This node leaves, and asks those for whom it keeps pages to find another one.
    pub(super) leaving: Option<Backoff>,
}

/// The answer for the pages that never moved: which node gives it, and which one when that is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Zeros {
    /// This node answers for them when that one is gone.
    pub(super) of: Option<NodeId>,
    /// It is gone.
    pub(super) inherited: bool,
    /// The backup was asked to answer for them, and does.
    asked: bool,
    kept: bool,
    /// The backup before, which leaves when another one answers for them.
    leaver: Option<NodeId>,
}

impl Replicas {
    /// The backup, if there is one.
    pub(super) fn backup(&self) -> Option<NodeId> {
        self.backup
    }

    pub(super) fn client_gone(&mut self, client: ClientId) {
        self.waiting.retain(|(_, owner, ..)| *owner != client);
    }

    pub(super) fn cancel(&mut self, ticket: Ticket) -> bool {
        let over = |waiting: &mut (Ticket, ClientId, PageIndex, u32)| waiting.0 == ticket;
        self.waiting.extract_if(.., over).next().is_some()
    }

    /// A publication is not the newest of its pages any more. True if the backup did not have it.
    pub(super) fn superseded(&mut self, first: PageIndex, same_first: bool) -> bool {
        let unkept = self.is_unkept(&first);
        if !same_first {
            self.pending.remove(&first);
            self.asked.remove(&first);
        }
        unkept
    }

    /// Whether the backup does not have the publication that begins at this page.
    fn is_unkept(&self, first: &PageIndex) -> bool {
        self.pending.contains(first) || self.asked.contains(first)
    }

    /// The first pages of what the backup does not have.
    fn unkept(&self) -> impl Iterator<Item = &PageIndex> {
        self.pending.iter().chain(&self.asked)
    }

    /// The backup does not have this publication.
    pub(super) fn lacks(&mut self, first: PageIndex) {
        if self.on && !self.asked.contains(&first) {
            self.pending.insert(first);
        }
    }
}

impl Views {
    /// Whether this node answers for the pages that never moved.
    fn answers_for_zeros(&self, me: NodeId) -> bool {
        self.segment.home() == me || self.replicas.zeros.inherited
    }

    /// Publications that the backup does not have.
    fn unkept_runs(&self) -> impl Iterator<Item = Run> {
        let firsts = self.replicas.unkept();
        firsts.filter_map(|first| Some(self.published.get(first)?.run))
    }

    /// Pages that are on no second node yet, as far as this node must see to that.
    pub(super) fn unreplicated(&self, me: NodeId) -> u64 {
        let replicas = &self.replicas;
        if !replicas.on {
            return 0;
        }
        if self.answers_for_zeros(me) && !replicas.zeros.kept {
            return self.size.into();
        }
        let pages: u64 = self.unkept_runs().map(|run| u64::from(run.count)).sum();
        pages + replicas.orphans.len() as u64
    }

    /// This node has the consistent copy, and its backup may not.
    pub(super) fn replicate(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        if !self.replicas.on {
            return;
        }
        self.materialize(cx, index);
        let stamp = self.page(cx, index).stamp;
        let run = Run {
            first: index,
            count: 1,
            stamp,
        };
        self.supersede(cx, run);
        let published = Published {
            run,
            bytes: PAGE_SIZE as u16,
            // No publication: nobody is reminded of it.
            reminders: REMINDERS,
        };
        self.published.insert(index, published);
        self.replicas.lacks(index);
        self.pump_replicas(cx);
    }

    /// The consistent copy goes from here to another node: this one keeps what it gives.
    pub(super) fn keep_given(&mut self, cx: &mut Cx<'_>, index: PageIndex, to: NodeId) {
        if !self.replicas.on {
            return;
        }
        let (me, backup) = (cx.me(), self.replicas.backup);
        let page = self.page(cx, index);
        (page.keeps, page.veiled) = (Some(to), None);
        page.kept_at = page.version.saturating_sub(1);
        let (stamp, giver) = (page.stamp, page.giver.take());
        let nodes = [backup, giver].into_iter().flatten();
        let nodes: NodeSet = nodes.filter(|node| *node != to && *node != me).collect();
        if let Some(passing) = &mut page.passing {
            passing.keepers = nodes;
        }
        let run = Run {
            first: index,
            count: 1,
            stamp,
        };
        self.supersede(cx, run);
        self.replicas.superseded(index, false);
        self.pump_replicas(cx);
    }

    /// The consistent copy has arrived where it went: who kept it for this node need not any more.
    pub(super) fn release_all(&mut self, cx: &mut Cx<'_>, index: PageIndex, passing: &Passing) {
        for node in passing.keepers.iter() {
            self.release(cx, node, index, (passing.stamp.version, passing.to));
        }
    }

    /// Tells a node that it need not keep a page any more, and where the consistent copy is.
    fn release(
        &self,
        cx: &mut Cx<'_>,
        to: NodeId,
        page: PageIndex,
        (version, holder): (u64, NodeId),
    ) {
        let release = Body::Release {
            page,
            version,
            holder,
        };
        self.say(cx, to, &release);
    }

    /// A request waits until the backup has these pages; at once, if there is nobody to keep them.
    pub(super) fn wait_for_backup(
        &mut self,
        cx: &mut Cx<'_>,
        (ticket, client): (Ticket, ClientId),
        (first, count): (PageIndex, u32),
    ) {
        self.replicas.waiting.push((ticket, client, first, count));
        self.settle(cx);
    }

    /// Ends the requests whose pages are kept.
    pub(super) fn settle(&mut self, cx: &mut Cx<'_>) {
        if self.replicas.waiting.is_empty() {
            return;
        }
        let unkept: Vec<Run> = self.unkept_runs().collect();
        let alone = self.replicas.backup.is_none();
        let pages = &self.pages;
        let is_over = |first: PageIndex, count: u32| {
            let meets =
                |run: &Run| run.first.0 < first.0 + count && first.0 < run.first.0 + run.count;
            let mut moving = pages.range(first..PageIndex(first.0 + count));
            alone || !(unkept.iter().any(meets) || moving.any(|(_, page)| page.passing.is_some()))
        };
        let over = self
            .replicas
            .waiting
            .extract_if(.., |(.., first, count)| is_over(*first, *count));
        for (ticket, ..) in over.collect::<Vec<_>>() {
            cx.reply(ticket, Reply::Done);
        }
    }

    /// Chooses a backup if there is none, names what it lacks, and asks for what lost its holder.
    pub(super) fn pump_replicas(&mut self, cx: &mut Cx<'_>) {
        if !self.replicas.on {
            return;
        }
        self.ask_for_orphans(cx);
        let lacks = !self.replicas.pending.is_empty() || self.answers_for_zeros(cx.me());
        if self.replicas.backup.is_none() && lacks {
            self.replicas.backup = self.choose_backup(cx);
        }
        if let Some(backup) = self.replicas.backup {
            self.name_to(cx, backup);
        } else if self.unreplicated(cx.me()) > 0 {
            self.arm(cx, cx.now + ALONE);
        }
        let waits = !self.replicas.asked.is_empty()
            || (self.replicas.zeros.asked && !self.replicas.zeros.kept);
        let timer = self.timer();
        match (waits, self.replicas.backoff.take()) {
            (true, None) => self.replicas.backoff = Some(cx.backoff(timer)),
            (false, Some(backoff)) => cx.end(&backoff, timer),
            (_, backoff) => self.replicas.backoff = backoff,
        }
        self.settle(cx);
    }

    fn choose_backup(&self, cx: &Cx<'_>) -> Option<NodeId> {
        let users = self.listeners.nodes.iter();
        backup::choose(cx, users, &self.replicas.leavers, OLDEST_VERSION)
    }

    fn name_to(&mut self, cx: &mut Cx<'_>, backup: NodeId) {
        while self.replicas.asked.len() < FLIGHT {
            let Some(first) = self.replicas.pending.pop_first() else {
                break;
            };
            if self.send_keep(cx, backup, first) {
                self.replicas.asked.insert(first);
            }
        }
        let answers = self.answers_for_zeros(cx.me());
        let replicas = &mut self.replicas;
        let all_else = replicas.unkept().next().is_none() && replicas.orphans.is_empty();
        if all_else && answers && !replicas.zeros.asked {
            replicas.zeros.asked = true;
            self.say(cx, backup, &Body::Zeros);
        }
    }

    /// Names a publication of which all pages are here.
    fn send_keep(&self, cx: &mut Cx<'_>, backup: NodeId, first: PageIndex) -> bool {
        let Some(known) = self.published.get(&first) else {
            return false;
        };
        let run = known.run;
        let holds = |page: PageIndex| self.pages.get(&page).is_some_and(|page| page.holds);
        let all = run.pages().all(holds);
        if all {
            self.say(cx, backup, &Body::Keep { run });
        }
        all
    }

    pub(super) fn replicas_due(&mut self, cx: &mut Cx<'_>) {
        let timer = self.timer();
        if let Some(mut backoff) = self.replicas.backoff.take() {
            let due = cx.fire(&mut backoff, timer);
            self.replicas.backoff = Some(backoff);
            if due && let Some(backup) = self.replicas.backup {
                for first in self.replicas.asked.clone() {
                    if !self.send_keep(cx, backup, first) {
                        self.replicas.asked.remove(&first);
                    }
                }
                if self.replicas.zeros.asked && !self.replicas.zeros.kept {
                    self.say(cx, backup, &Body::Zeros);
                }
            }
        }
        self.pump_replicas(cx);
    }

    /// The node that is to keep pages does not know the segment: it is told.
    pub(super) fn backup_knows_nothing(&mut self, cx: &mut Cx<'_>, backup: NodeId) {
        if self.replicas.backup != Some(backup) {
            return cx.emit(Event::Stale {});
        }
        cx.ready(Continuation::Introduce {
            to: backup,
            segment: self.segment,
        });
    }

    /// The backup has a publication. If there is a newer one of these pages, it is named now.
    pub(super) fn kept(&mut self, cx: &mut Cx<'_>, from: NodeId, run: Run) {
        let is_backup = self.replicas.backup == Some(from);
        if !is_backup || !self.replicas.asked.remove(&run.first) {
            return cx.emit(Event::Stale {});
        }
        match self.published.get(&run.first).map(|known| known.run) {
            Some(newest) if newest == run => self.release_givers(cx, from, run),
            Some(_) => self.replicas.lacks(run.first),
            None => {}
        }
        self.made_progress(cx);
    }

    fn made_progress(&mut self, cx: &mut Cx<'_>) {
        let timer = self.timer();
        if let Some(backoff) = self.replicas.backoff.take() {
            cx.end(&backoff, timer);
        }
        self.pump_replicas(cx);
    }

    /// The nodes that gave the pages to this one need not keep them any more.
    fn release_givers(&mut self, cx: &mut Cx<'_>, backup: NodeId, run: Run) {
        let me = cx.me();
        for index in run.pages() {
            let page = self.page(cx, index);
            let version = page.version;
            if let Some(giver) = page.giver.take()
                && giver != backup
            {
                self.release(cx, giver, index, (version, me));
            }
        }
    }

    pub(super) fn zeros_kept(&mut self, cx: &mut Cx<'_>, from: NodeId) {
        let is_backup = self.replicas.backup == Some(from);
        if !is_backup || !self.replicas.zeros.asked {
            return cx.emit(Event::Stale {});
        }
        self.replicas.zeros.kept = true;
        if let Some(leaver) = self.replicas.zeros.leaver.take() {
            self.say(cx, leaver, &Body::ReleaseZeros);
        }
        self.made_progress(cx);
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
        self.replicas.leavers.insert(from);
        if self.replicas.backup == Some(from) {
            self.without_backup();
        }
        let alone = self.choose_backup(cx).is_none();
        for index in pages {
            // The message is repeated with what is left, as far as it has room.
            let unkept = !alone && self.is_unkept(*index);
            let page = self.page(cx, *index);
            if page.holds && unkept && page.giver.is_none_or(|giver| giver == from) {
                page.giver = Some(from);
                continue;
            }
            let known = (page.version, page.hint_of(cx.me()));
            self.release(cx, from, *index, known);
        }
        if zeros && self.answers_for_zeros(cx.me()) && !alone && !self.replicas.zeros.kept {
            self.replicas.zeros.leaver = Some(from);
        } else if zeros {
            self.say(cx, from, &Body::ReleaseZeros);
        }
        self.made_progress(cx);
    }

    /// Whether the page is in a publication that the backup does not have.
    fn is_unkept(&self, page: PageIndex) -> bool {
        let known = self.published.range(..=page).next_back();
        known.is_some_and(|(first, known)| {
            self.replicas.is_unkept(first) && known.run.contains(page)
        })
    }

    /// A member is gone: its backup's work is another's from now on.
    pub(super) fn replica_gone(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        if !self.replicas.on {
            return;
        }
        for (index, page) in &mut self.pages {
            page.giver = page.giver.filter(|giver| *giver != node);
            if page.keeps == Some(node) && !page.holds {
                self.replicas.orphans.insert(*index);
            }
        }
        let replicas = &mut self.replicas;
        if replicas.zeros.of == Some(node) {
            replicas.zeros.inherited = true;
        }
        replicas.zeros.leaver = replicas.zeros.leaver.filter(|leaver| *leaver != node);
        if replicas.backup == Some(node) {
            self.without_backup();
        }
        self.made_progress(cx);
    }

    /// Another backup must have everything.
    fn without_backup(&mut self) {
        let replicas = &mut self.replicas;
        replicas.backup = None;
        replicas.asked.clear();
        replicas.pending = self.published.keys().copied().collect();
        (replicas.zeros.asked, replicas.zeros.kept) = (false, false);
    }

    /// This node is no member any more.
    pub(super) fn forget_replicas(&mut self, cx: &mut Cx<'_>) {
        let timer = self.timer();
        let on = self.replicas.on;
        let old = core::mem::take(&mut self.replicas);
        self.replicas.on = on;
        if let Some(backoff) = old.backoff {
            cx.end(&backoff, timer);
        }
        for (ticket, ..) in old.waiting {
            cx.refuse(ticket, Refusal::NotMember);
        }
    }
}
