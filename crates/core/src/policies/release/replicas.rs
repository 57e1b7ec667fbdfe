//! Replicas: what an interval of this node changed is on another node, the *backup*, before anybody
//! else hears of the interval.
//!
//! - A node with intervals has chosen one backup, and keeps to it while that lives. It names each
//!   interval to the backup (`Keep`), with its record, until that says that it has the diffs and has
//!   learnt the record (`Kept`). What the backup does is in [`wards`](super::wards).
//! - Nothing that leaves this node has an interval that is not kept: no news ([`Replicas::tellable`]), and
//!   no copy ([`Replicas::delay`]). So a token waits, and an arrival at a barrier.
//! - What is collected is in the copies of two nodes, the page's keeper and its *deputy*. When a node
//!   is gone, what it had is collected anew ([`repair`](super::repair)).
//!
//! INV-seen-survives: an interval that any node but its creator knows of is on two living nodes, as
//! diffs or in copies, or on one whose `unreplicated` is not zero; so a store that anybody has seen
//! is seen after the death of one node.

mod backup;

use super::heard::Heard;
use super::history::History;
use super::messages::CopyRequest;
use super::wards::Ward;
use crate::backoff::Backoff;
use crate::continuation::Continuation;
use crate::policies::backup::{Waiting, choose};
use crate::shell::Cx;
use crate::time::Time;
use crate::timers::Timer;
use core::time::Duration;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::{self, Refusal};
use pagemesh_wire::{ClientId, NodeId, NodeSet, SegmentId, Ticket, VectorTime};
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

    /// Whether a request for a copy, which has this node's intervals up to `last`, has to wait, since one
    /// of them is not kept.
    pub(super) fn delay(
        &mut self,
        cx: &mut Cx<'_>,
        (segment, history): (SegmentId, &History),
        last: u64,
        fetch: &CopyRequest,
    ) -> bool {
        let me = cx.me();
        if !self.on || last <= self.kept.max(history.floor().get(me)) {
            return false;
        }
        let copies = &mut self.copies;
        copies.retain(|other| (other.page, other.reader) != (fetch.page, fetch.reader));
        if copies.len() < COPIES {
            copies.push(fetch.clone());
        }
        // Not here: what is kept already may serve the request again.
        self.wanted = history.time().get(me);
        if self.asked.is_none() {
            cx.arm(cx.now, Timer::Segment(segment));
        }
        true
    }

    /// Looks again, after a time, whether there is a second node.
    pub(super) fn look_later(&mut self, cx: &mut Cx<'_>, segment: SegmentId) {
        if self.looks.is_none_or(|at| at <= cx.now) {
            let at = cx.now + ALONE;
            self.looks = Some(at);
            cx.arm(at, Timer::Segment(segment));
        }
    }

    /// The node that would be the backup.
    pub(super) fn choose_backup(&self, cx: &Cx<'_>, heard: &Heard) -> Option<NodeId> {
        let since = peer::REPLICAS_VERSION;
        choose(cx, heard.nodes(), &self.leavers, since)
    }

    /// Whether something is to be collected because it is perhaps on one node only.
    pub(super) fn wants_repair(&self, cx: &Cx<'_>, heard: &Heard) -> bool {
        self.repair.is_some() && self.choose_backup(cx, heard).is_some()
    }

    /// The coordinator leads the segment when its home is gone: it is told of it.
    pub(super) fn introduce_coordinator(&mut self, cx: &mut Cx<'_>, segment: SegmentId) {
        let to = cx.coordinator();
        if self.introduced != Some(to) && to != cx.me() {
            self.introduced = Some(to);
            cx.ready(Continuation::Introduce { to, segment });
        }
    }

    /// This node is no member any more.
    pub(super) fn forget(&mut self, cx: &mut Cx<'_>, segment: SegmentId) {
        self.end_asking(cx, segment);
        let on = self.on;
        let mut old = core::mem::take(self);
        self.on = on;
        old.waiting.refuse(cx, &Refusal::NotMember);
    }

    fn end_asking(&mut self, cx: &mut Cx<'_>, segment: SegmentId) {
        if let Some((_, backoff)) = self.asked.take() {
            cx.end(&backoff, Timer::Segment(segment));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::PageIndex;
    use std::collections::BTreeSet;

    #[test]
    fn nobody_hears_of_an_interval_that_is_not_kept() {
        const ME: NodeId = NodeId(2);
        let mut history = History::default();
        for _ in 0..3 {
            history.end(ME, &BTreeSet::from([PageIndex(0)]));
        }
        let mut replicas = Replicas::default();
        let told = |replicas: &Replicas| replicas.tellable(&history, ME).get(ME);
        assert_eq!(told(&replicas), 3, "it has no replicas");
        replicas.on = true;
        assert_eq!(told(&replicas), 0);
        replicas.kept = 2;
        assert_eq!(told(&replicas), 2);
        replicas.kept = 3;
        assert_eq!(told(&replicas), 3);
    }
}
