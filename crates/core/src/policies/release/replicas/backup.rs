//! What this node has its backup keep, and what waits for that.

use super::super::feeds::Feeds;
use super::super::intervals::Intervals;
use super::super::memory::Memory;
use super::super::messages::{
    Body, DiffRequest, IntervalRecord, IntervalReply, IntervalRequest, Keep, Kept,
};
use super::super::push_credit::PushCredit;
use super::super::rules::Rules;
use super::super::serve::SupplyContext;
use super::super::{Release, say};
use super::Replicas;
use crate::continuation::Continuation;
use crate::event::Event;
use crate::limits::PUSHED;
use crate::shell::Cx;
use crate::timers::Timer;
use pagemesh_wire::peer::DiffName;
use pagemesh_wire::{NodeId, VectorTime};

/// The intervals of this node, and the backup that is to keep them.
pub(in super::super) struct BackupContext<'a, 'b> {
    cx: &'a mut Cx<'b>,
    rules: Rules,
    intervals: &'a mut Intervals,
    memory: &'a mut Memory,
    replicas: &'a mut Replicas,
    push: &'a mut PushCredit,
    feeds: &'a mut Feeds,
}

impl Release {
    /// Opens what is to be kept.
    pub(in super::super) fn backup<'a, 'b>(
        &'a mut self,
        cx: &'a mut Cx<'b>,
    ) -> BackupContext<'a, 'b> {
        BackupContext {
            cx,
            rules: self.rules,
            intervals: &mut self.intervals,
            memory: &mut self.memory,
            replicas: &mut self.replicas,
            push: &mut self.push,
            feeds: &mut self.feeds,
        }
    }
}

impl<'b> BackupContext<'_, 'b> {
    /// Whether all ended intervals of this node are kept; else `then` goes on when they are.
    pub(in super::super) fn is_kept(&mut self, then: &Continuation) -> bool {
        self.want_kept();
        let last = self.last();
        if last <= self.replicas.kept {
            return true;
        }
        self.replicas.waiting.push(last, then);
        false
    }

    /// All ended intervals of this node are to be kept.
    pub(in super::super) fn want_kept(&mut self) {
        if self.replicas.on {
            self.replicas.wanted = self.last();
            self.pump();
        }
    }

    /// Asks the backup to keep what is wanted and what it does not have, if it is not being asked
    /// already.
    pub(in super::super) fn pump(&mut self) {
        if !self.replicas.on {
            return;
        }
        let segment = self.rules.segment;
        let last = self.last().min(self.replicas.wanted);
        let collected = self.intervals.history.floor().get(self.cx.me());
        let kept = self.replicas.kept.max(collected);
        self.replicas.kept = kept;
        let asked = self.replicas.asked.as_ref();
        if asked.is_some_and(|(upto, _)| *upto <= kept) {
            self.replicas.end_asking(self.cx, segment);
        }
        if self.replicas.asked.is_none() && kept < last {
            self.replicas.introduce_coordinator(self.cx, segment);
            let heard = &self.intervals.heard;
            let backup = self.replicas.backup;
            self.replicas.backup = backup.or_else(|| self.replicas.choose_backup(self.cx, heard));
            match self.replicas.backup {
                Some(backup) => self.ask_to_keep(backup),
                None => {
                    // This node is alone: what it tells is on one node only, until there is another.
                    self.replicas.kept = last;
                    self.replicas.repair = Some(self.intervals.history.time().clone());
                    self.replicas.look_later(self.cx, segment);
                }
            }
        }
        self.settle();
    }

    fn ask_to_keep(&mut self, backup: NodeId) {
        let (me, wanted) = (self.cx.me(), self.replicas.wanted);
        let history = &self.intervals.history;
        let mut records = history.next_of(me, self.replicas.kept, Keep::WEIGHT);
        records.retain(|record| record.index <= wanted);
        let Some(upto) = records.last().map(|record| record.index) else {
            return;
        };
        let named = records.iter().flat_map(IntervalRecord::diffs);
        let mut names: Vec<DiffName> = named.collect();
        self.memory.give_each(self.cx, &names);
        for name in &names {
            self.memory.make_named(self.cx, name);
        }
        names.retain(|name| self.memory.diffs.has(name));
        names.truncate(PUSHED);
        for names in names.chunks(DiffRequest::LIMIT) {
            // The answer to nothing: the backup asks for what does not arrive.
            let request = self.cx.next_request();
            self.memory
                .send_diffs(self.cx, backup, request, names.to_vec(), u16::MAX);
        }
        let backoff = self.cx.backoff(Timer::Segment(self.rules.segment));
        self.replicas.asked = Some((upto, backoff));
        self.send_keep(backup, upto);
    }

    fn send_keep(&mut self, backup: NodeId, upto: u64) {
        let history = &self.intervals.history;
        let mut records = history.next_of(self.cx.me(), self.replicas.kept, Keep::WEIGHT);
        records.retain(|record| record.index <= upto);
        let keep = Keep {
            upto,
            records,
            news: self.intervals.news_for(self.cx, backup, self.replicas),
        };
        say(self.cx, self.rules.segment, backup, &Body::Keep(keep));
    }

    /// The backup has intervals.
    pub(in super::super) fn kept(&mut self, from: NodeId, kept: &Kept) {
        let asked = self.replicas.asked.as_ref().map(|(upto, _)| *upto);
        if self.replicas.backup != Some(from) || asked != Some(kept.upto) {
            return self.cx.emit(Event::Stale {});
        }
        self.intervals.heard.knows(from, &kept.time);
        self.replicas.end_asking(self.cx, self.rules.segment);
        self.replicas.kept = self.replicas.kept.max(kept.upto);
        self.pump();
    }

    /// Another node knows this much: of this node's intervals only those that the backup had first,
    /// though its answer may be lost.
    pub(in super::super) fn others_know(&mut self, time: &VectorTime) {
        let known = time.get(self.cx.me()).min(self.last());
        if self.replicas.on && known > self.replicas.kept {
            self.replicas.kept = known;
            self.pump();
        }
    }

    /// Another node inquires. The answer is all that the asking node will ever learn of the nodes
    /// that it knows to be gone: so this node must not take anything from them any more
    /// (*INV-dead-tell-nothing*), and does not answer while it has an older member view.
    pub(in super::super) fn inquired(&mut self, from: NodeId, inquire: &IntervalRequest) {
        self.intervals.heard.knows(from, &inquire.time);
        if self.cx.shell.view.epoch < inquire.epoch {
            return;
        }
        self.others_know(&inquire.time);
        let told = IntervalReply {
            request: inquire.request,
            news: self
                .intervals
                .news_after(self.cx, &inquire.time, self.replicas),
        };
        say(
            self.cx,
            self.rules.segment,
            from,
            &Body::IntervalReply(told),
        );
    }

    /// Lets everything go on that waited for what is kept now.
    fn settle(&mut self) {
        let kept = self.replicas.kept;
        self.replicas.waiting.settle(self.cx, kept);
        for fetch in core::mem::take(&mut self.replicas.copies) {
            self.supply().fetch(fetch);
        }
    }

    /// The node that is to keep intervals does not know the segment: it is told.
    pub(in super::super) fn knows_nothing(&mut self, from: NodeId) {
        if self.replicas.backup == Some(from) {
            let segment = self.rules.segment;
            let to = from;
            return self.cx.ready(Continuation::Introduce { to, segment });
        }
        self.cx.emit(Event::Stale {});
    }

    /// A node keeps nothing more, since it leaves. What it has is collected before it goes.
    pub(in super::super) fn leaves(&mut self, from: NodeId) {
        self.replicas.leaves(from);
        if self.replicas.backup == Some(from) {
            self.without_backup();
            self.pump();
        }
    }

    fn without_backup(&mut self) {
        self.replicas.end_asking(self.cx, self.rules.segment);
        self.replicas.backup = None;
    }

    /// A member is gone. Returns whether something is on one node only because of that.
    pub(in super::super) fn gone(&mut self, node: NodeId) -> bool {
        let history = &self.intervals.history;
        let mut endangered = history.time().get(node) > history.floor().get(node);
        let collected = history.floor().get(self.cx.me());
        let replicas = &mut *self.replicas;
        // What it had announced and not told completely, nobody will ever know.
        replicas.wards.remove(&node);
        replicas.leavers.remove(node);
        replicas.copies.retain(|fetch| fetch.reader != node);
        if replicas.backup == Some(node) {
            endangered |= replicas.kept > collected;
            self.without_backup();
        }
        endangered
    }

    /// Repeats what the backup is asked, if that is due, and looks for a backup if this node is
    /// alone. Returns whether it is time to look what is on one node only.
    pub(in super::super) fn due(&mut self) -> bool {
        if !self.replicas.on {
            return false;
        }
        let timer = Timer::Segment(self.rules.segment);
        if let Some((upto, mut backoff)) = self.replicas.asked.take() {
            let due = self.cx.fire(&mut backoff, timer);
            self.replicas.asked = Some((upto, backoff));
            if due && let Some(backup) = self.replicas.backup {
                self.send_keep(backup, upto);
            }
        }
        self.pump();
        // To look through all pages at each resend would cost as much as what is resent.
        let looks = self.replicas.looks.take_if(|at| *at <= self.cx.now);
        looks.is_some() || self.replicas.repair.is_some()
    }

    /// The last interval of this node.
    fn last(&self) -> u64 {
        self.intervals.history.time().get(self.cx.me())
    }

    fn supply(&mut self) -> SupplyContext<'_, 'b> {
        SupplyContext {
            cx: self.cx,
            rules: self.rules,
            intervals: self.intervals,
            memory: self.memory,
            replicas: self.replicas,
            push: self.push,
            feeds: self.feeds,
        }
    }
}
