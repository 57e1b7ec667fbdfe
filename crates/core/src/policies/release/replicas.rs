//! Replicas: what an interval of this node changed is on another node, the *backup*, before anybody
//! else hears of the interval.
//!
//! - A node with intervals has chosen one backup, and keeps to it while that lives. It names each
//!   interval to the backup (`Keep`), with its record, until that says that it has the diffs and has
//!   learnt the record (`Kept`). What the backup does is in [`wards`](super::wards).
//! - Nothing that leaves this node has an interval that is not kept: no news ([`Replicas::tellable`]), and
//!   no copy ([`Release::waits_for_backup`]). So a token waits, and an arrival at a barrier.
//! - What is collected is in the copies of two nodes, the page's keeper and its *deputy*. When a node
//!   is gone, what it had is collected anew ([`repair`](super::repair)).
//!
//! INV-seen-survives: an interval that any node but its creator knows of is on two living nodes, as
//! diffs or in copies, or on one whose `unreplicated` is not zero; so a store that anybody has seen
//! is seen after the death of one node.

use super::history::History;
use super::messages::{Body, CopyRequest, DiffRequest, Keep, Kept};
use super::wards::Ward;
use super::{Release, say};
use crate::backoff::Backoff;
use crate::continuation::Continuation;
use crate::event::Event;
use crate::limits::PUSHED;
use crate::policies::backup::{self, Waiting};
use crate::shell::Cx;
use crate::time::Time;
use crate::timers::Timer;
use core::time::Duration;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::{self, DiffName, Refusal};
use pagemesh_wire::{ClientId, NodeId, NodeSet, Ticket, VectorTime};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A node that is alone looks so often whether there is a backup.
const ALONE: Duration = Duration::from_millis(500);

/// Requests for copies that wait at once; those behind are repeated by their nodes.
const COPIES: usize = 1024;

/// What this node keeps for others, and others for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Replicas {
    /// The segment has them.
    pub(super) on: bool,
    backup: Option<NodeId>,
    /// Intervals of this node up to this one are kept: others may hear of them.
    kept: u64,
    /// Those up to this one are to be kept. Those after it ended because this node learnt something:
    /// nobody waits for them.
    wanted: u64,
    /// The backup is asked to keep those up to this one.
    asked: Option<(u64, Backoff)>,
    /// What goes on when the intervals up to these are kept.
    waiting: Waiting,
    /// Requests for copies that have what is not kept.
    copies: Vec<CopyRequest>,
    /// The nodes whose backup this one is.
    pub(super) wards: SortedMap<NodeId, Ward>,
    /// Nodes that leave: they keep nothing more.
    leavers: NodeSet,
    /// This much is perhaps on one node only, until it is collected.
    pub(super) repair: Option<VectorTime>,
    /// The coordinator that was told of the segment, which it may have to lead one day.
    introduced: Option<NodeId>,
    /// When this node looks again whether there is a second one.
    looks: Option<Time>,
}

impl Replicas {
    /// What other nodes may hear of: what this node knows, but for its own intervals that are not
    /// kept.
    pub(super) fn tellable<'a>(&self, history: &'a History, me: NodeId) -> Cow<'a, VectorTime> {
        let time = history.time();
        let kept = self.kept.max(history.floor().get(me));
        if !self.on || time.get(me) <= kept {
            return Cow::Borrowed(time);
        }
        let mut told = time.clone().without(me);
        told.raise(me, kept);
        Cow::Owned(told)
    }

    /// The node that has the intervals of this one.
    pub(super) fn backup(&self) -> Option<NodeId> {
        self.backup
    }

    pub(super) fn client_gone(&mut self, client: ClientId) {
        self.waiting.client_gone(client);
    }

    pub(super) fn cancel(&mut self, ticket: Ticket) -> bool {
        self.waiting.cancel(ticket)
    }

    /// A node leaves: it is no backup any more.
    pub(super) fn leaves(&mut self, node: NodeId) {
        self.leavers.insert(node);
    }
}

impl Release {
    /// Whether all ended intervals of this node are kept; else `then` goes on when they are.
    pub(super) fn is_kept(&mut self, cx: &mut Cx<'_>, then: &Continuation) -> bool {
        self.want_kept(cx);
        let last = self.intervals.history.time().get(cx.me());
        if last <= self.replicas.kept {
            return true;
        }
        self.replicas.waiting.push(last, then);
        false
    }

    /// All ended intervals of this node are to be kept.
    pub(super) fn want_kept(&mut self, cx: &mut Cx<'_>) {
        if self.replicas.on {
            self.replicas.wanted = self.intervals.history.time().get(cx.me());
            self.pump_keeps(cx);
        }
    }

    /// Whether a request for a copy has to wait, since the copy has an interval that is not kept.
    pub(super) fn waits_for_backup(&mut self, cx: &mut Cx<'_>, fetch: &CopyRequest) -> bool {
        let page = self.memory.pages.get(&fetch.page);
        let last = page.map_or(0, |page| page.notices.applied().get(cx.me()));
        if !self.replicas.on
            || last
                <= self
                    .replicas
                    .kept
                    .max(self.intervals.history.floor().get(cx.me()))
        {
            return false;
        }
        let copies = &mut self.replicas.copies;
        copies.retain(|other| (other.page, other.reader) != (fetch.page, fetch.reader));
        if copies.len() < COPIES {
            copies.push(fetch.clone());
        }
        // Not here: what is kept already may serve the request again.
        self.replicas.wanted = self.intervals.history.time().get(cx.me());
        if self.replicas.asked.is_none() {
            cx.arm(cx.now, Timer::Segment(self.rules.segment));
        }
        true
    }

    /// Asks the backup to keep what is wanted and what it does not have, if it is not being asked
    /// already.
    pub(super) fn pump_keeps(&mut self, cx: &mut Cx<'_>) {
        if !self.replicas.on {
            return;
        }
        let me = cx.me();
        let last = self
            .intervals
            .history
            .time()
            .get(me)
            .min(self.replicas.wanted);
        let collected = self.intervals.history.floor().get(me);
        self.replicas.kept = self.replicas.kept.max(collected);
        let kept = self.replicas.kept;
        if self
            .replicas
            .asked
            .as_ref()
            .is_some_and(|(upto, _)| *upto <= kept)
        {
            self.end_asking(cx);
        }
        if self.replicas.asked.is_none() && self.replicas.kept < last {
            self.introduce_coordinator(cx);
            self.replicas.backup = self.replicas.backup.or_else(|| self.choose_backup(cx));
            match self.replicas.backup {
                Some(backup) => self.ask_to_keep(cx, backup),
                None => {
                    // This node is alone: what it tells is on one node only, until there is another.
                    self.replicas.kept = last;
                    self.replicas.repair = Some(self.intervals.history.time().clone());
                    self.look_later(cx);
                }
            }
        }
        self.settle(cx);
    }

    /// Looks again, after a time, whether there is a second node.
    pub(super) fn look_later(&mut self, cx: &mut Cx<'_>) {
        if self.replicas.looks.is_none_or(|at| at <= cx.now) {
            let at = cx.now + ALONE;
            self.replicas.looks = Some(at);
            cx.arm(at, Timer::Segment(self.rules.segment));
        }
    }

    fn ask_to_keep(&mut self, cx: &mut Cx<'_>, backup: NodeId) {
        let me = cx.me();
        let wanted = self.replicas.wanted;
        let mut records = self
            .intervals
            .history
            .next_of(me, self.replicas.kept, Keep::WEIGHT);
        records.retain(|record| record.index <= wanted);
        let Some(upto) = records.last().map(|record| record.index) else {
            return;
        };
        let named = records.iter().flat_map(|record| {
            let name = |page| DiffName {
                page,
                node: me,
                interval: record.index,
            };
            record.each_page().map(name)
        });
        let mut names: Vec<DiffName> = named.collect();
        self.memory.give_each(cx, &names);
        for name in &names {
            self.memory.make_named(cx, name);
        }
        names.retain(|name| self.memory.diffs.has(name));
        names.truncate(PUSHED);
        for names in names.chunks(DiffRequest::LIMIT) {
            // The answer to nothing: the backup asks for what does not arrive.
            let request = cx.next_request();
            self.memory
                .send_diffs(cx, backup, request, names.to_vec(), u16::MAX);
        }
        let backoff = cx.backoff(Timer::Segment(self.rules.segment));
        self.replicas.asked = Some((upto, backoff));
        self.send_keep(cx, backup, upto);
    }

    fn send_keep(&self, cx: &mut Cx<'_>, backup: NodeId, upto: u64) {
        let me = cx.me();
        let mut records = self
            .intervals
            .history
            .next_of(me, self.replicas.kept, Keep::WEIGHT);
        records.retain(|record| record.index <= upto);
        let keep = Keep {
            upto,
            records,
            news: self.intervals.news_for(cx, backup, &self.replicas),
        };
        say(cx, self.rules.segment, backup, &Body::Keep(keep));
    }

    /// The backup has intervals.
    pub(super) fn kept(&mut self, cx: &mut Cx<'_>, from: NodeId, kept: &Kept) {
        let asked = self.replicas.asked.as_ref().map(|(upto, _)| *upto);
        if self.replicas.backup != Some(from) || asked != Some(kept.upto) {
            return cx.emit(Event::Stale {});
        }
        self.intervals.heard.knows(from, &kept.time);
        self.end_asking(cx);
        self.replicas.kept = self.replicas.kept.max(kept.upto);
        self.pump_keeps(cx);
    }

    /// Another node knows this much: of this node's intervals only those that the backup had first,
    /// though its answer may be lost.
    pub(super) fn others_know(&mut self, cx: &mut Cx<'_>, time: &VectorTime) {
        let known = time
            .get(cx.me())
            .min(self.intervals.history.time().get(cx.me()));
        if self.replicas.on && known > self.replicas.kept {
            self.replicas.kept = known;
            self.pump_keeps(cx);
        }
    }

    fn end_asking(&mut self, cx: &mut Cx<'_>) {
        if let Some((_, backoff)) = self.replicas.asked.take() {
            cx.end(&backoff, Timer::Segment(self.rules.segment));
        }
    }

    /// Lets everything go on that waited for what is kept now.
    fn settle(&mut self, cx: &mut Cx<'_>) {
        let kept = self.replicas.kept;
        self.replicas.waiting.settle(cx, kept);
        for fetch in core::mem::take(&mut self.replicas.copies) {
            self.fetch(cx, fetch);
        }
    }

    pub(super) fn choose_backup(&self, cx: &Cx<'_>) -> Option<NodeId> {
        let since = peer::REPLICAS_VERSION;
        backup::choose(
            cx,
            self.intervals.heard.nodes(),
            &self.replicas.leavers,
            since,
        )
    }

    /// The coordinator leads the segment when its home is gone: it is told of it.
    pub(super) fn introduce_coordinator(&mut self, cx: &mut Cx<'_>) {
        let to = cx.coordinator();
        if self.replicas.introduced == Some(to) || to == cx.me() {
            return;
        }
        self.replicas.introduced = Some(to);
        self.introduce(cx, to);
    }

    fn introduce(&self, cx: &mut Cx<'_>, to: NodeId) {
        let segment = self.rules.segment;
        cx.ready(Continuation::Introduce { to, segment });
    }

    /// The node that is to keep intervals does not know the segment: it is told.
    pub(super) fn backup_knows_nothing(&mut self, cx: &mut Cx<'_>, from: NodeId) {
        if self.replicas.backup == Some(from) {
            return self.introduce(cx, from);
        }
        cx.emit(Event::Stale {});
    }

    /// A node keeps nothing more, since it leaves. What it has is collected before it goes.
    pub(super) fn backup_leaves(&mut self, cx: &mut Cx<'_>, from: NodeId) {
        self.replicas.leaves(from);
        if self.replicas.backup == Some(from) {
            self.without_backup(cx);
            self.pump_keeps(cx);
        }
    }

    fn without_backup(&mut self, cx: &mut Cx<'_>) {
        self.end_asking(cx);
        self.replicas.backup = None;
    }

    /// A member is gone. Returns whether something is on one node only because of that.
    pub(super) fn replica_gone(&mut self, cx: &mut Cx<'_>, node: NodeId) -> bool {
        let (me, floor) = (cx.me(), self.intervals.history.floor());
        let mut endangered = self.intervals.history.time().get(node) > floor.get(node);
        let replicas = &mut self.replicas;
        // What it had announced and not told completely, nobody will ever know.
        replicas.wards.remove(&node);
        replicas.leavers.remove(node);
        replicas.copies.retain(|fetch| fetch.reader != node);
        if replicas.backup == Some(node) {
            endangered |= replicas.kept > floor.get(me);
            self.without_backup(cx);
        }
        endangered
    }

    /// Repeats what the backup is asked, if that is due, and looks for a backup if this node is
    /// alone.
    pub(super) fn replicas_due(&mut self, cx: &mut Cx<'_>) {
        if !self.replicas.on {
            return;
        }
        let timer = Timer::Segment(self.rules.segment);
        if let Some((upto, mut backoff)) = self.replicas.asked.take() {
            let due = cx.fire(&mut backoff, timer);
            self.replicas.asked = Some((upto, backoff));
            if due && let Some(backup) = self.replicas.backup {
                self.send_keep(cx, backup, upto);
            }
        }
        self.pump_keeps(cx);
        // To look through all pages at each resend would cost as much as what is resent.
        let looks = self.replicas.looks.take_if(|at| *at <= cx.now);
        if looks.is_some() || self.replicas.repair.is_some() {
            self.repair(cx, false);
        }
    }

    /// This node is no member any more.
    pub(super) fn forget_replicas(&mut self, cx: &mut Cx<'_>) {
        self.end_asking(cx);
        let on = self.replicas.on;
        let mut old = core::mem::take(&mut self.replicas);
        self.replicas.on = on;
        old.waiting.refuse(cx, &Refusal::NotMember);
    }
}
