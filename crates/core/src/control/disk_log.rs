//! The coordinator's log on its own disk. Answers wait until the disk has what they tell of, so a
//! daemon that is started again knows all that any other node was told.

use super::{HeldAnswer, KeptEntry};
use crate::effect::Effect;
use crate::shell::Cx;
use pagemesh_wire::peer::{Decision, Decisions, MemberView};
use pagemesh_wire::{NodeId, Term};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// What this node has put on its disk, as far as the disk has answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct DiskLog {
    /// The number of the last batch that was given to the disk.
    written: u64,
    /// The number of the last batch that the disk has for sure.
    kept: u64,
    /// Entries of the present input.
    batch: Vec<KeptEntry>,
    /// The term and epoch of the newest view that was given to the disk.
    view: (Term, u64),
    /// Views that the disk may not have yet, each with its batch.
    views: VecDeque<(u64, (Term, u64))>,
    /// The newest view that the disk has for sure.
    kept_view: (Term, u64),
    /// This node coordinated or was the standby when the last input ended.
    in_role: bool,
    /// Answers, each with the batch that it waits for.
    held: VecDeque<(u64, HeldAnswer)>,
}

impl DiskLog {
    /// This node, which coordinates, begins to write.
    pub(crate) fn begin(&mut self, cx: &Cx<'_>) {
        if cx.shell.config.keeps {
            self.add(beginning(cx));
        }
    }

    /// At the standby: a copy of the coordinator's decisions comes.
    pub(super) fn keep_copy(&mut self, cx: &Cx<'_>, decisions: Decisions) {
        if !cx.shell.config.keeps {
            return;
        }
        if decisions.first == 0 {
            self.begin_anew();
            self.add(beginning(cx));
        }
        for entry in decisions.entries {
            self.add(KeptEntry::Decisions(entry));
        }
        self.add_view(&cx.shell.view);
    }

    /// Everything has to be written once more: the members, and these decisions.
    pub(crate) fn keep_anew(&mut self, cx: &Cx<'_>, decisions: Vec<Decision>) {
        if !cx.shell.config.keeps {
            return;
        }
        self.begin_anew();
        self.add(beginning(cx));
        self.add(KeptEntry::Decisions(decisions));
        self.add_view(&cx.shell.view);
    }

    /// Ends an input: gives the disk what it changed.
    pub(crate) fn end_input(&mut self, cx: &mut Cx<'_>, coordinates: bool) {
        if !cx.shell.config.keeps {
            return;
        }
        let is_standby = cx.shell.view.standby == cx.me() && cx.me() != NodeId::NONE;
        let in_role = coordinates || is_standby;
        // A node that is the standby no more writes that, too.
        if in_role || self.in_role {
            self.add_view(&cx.shell.view);
        }
        self.in_role = in_role;
        if let Some((batch, entries)) = self.take_batch() {
            cx.push(Effect::Keep { batch, entries });
        }
    }

    /// Adds an entry to the batch of the present input.
    fn add(&mut self, entry: KeptEntry) {
        self.batch.push(entry);
    }

    /// Adds decisions. Returns the number of the batch for which answers that tell of these and of
    /// earlier decisions have to wait.
    pub(crate) fn decide(&mut self, decisions: &[Decision]) -> u64 {
        if !decisions.is_empty() {
            self.add(KeptEntry::Decisions(decisions.to_vec()));
        }
        self.written + u64::from(!self.batch.is_empty())
    }

    /// Adds the members if they have changed.
    fn add_view(&mut self, view: &MemberView) {
        if view.age() != self.view {
            self.view = view.age();
            self.views.push_back((self.written + 1, self.view));
            self.add(KeptEntry::View(view.clone()));
        }
    }

    /// Everything has to be written once more.
    fn begin_anew(&mut self) {
        self.batch.clear();
        self.view = (Term::NONE, 0);
    }

    /// An answer that may leave when the disk has this batch.
    pub(crate) fn hold(&mut self, batch: u64, answer: HeldAnswer) {
        self.held.push_back((batch, answer));
    }

    /// The batch of the present input, with its number.
    fn take_batch(&mut self) -> Option<(u64, Vec<KeptEntry>)> {
        if self.batch.is_empty() {
            return None;
        }
        self.written += 1;
        Some((self.written, core::mem::take(&mut self.batch)))
    }

    /// The disk has all batches up to this one.
    pub(crate) fn kept(&mut self, batch: u64) {
        self.kept = self.kept.max(batch.min(self.written));
        while let Some((number, age)) = self.views.front()
            && *number <= self.kept
        {
            self.kept_view = *age;
            self.views.pop_front();
        }
    }

    /// The newest epoch of this term that the disk has.
    pub(crate) fn kept_epoch(&self, term: Term) -> u64 {
        let (kept, epoch) = self.kept_view;
        if kept == term { epoch } else { 0 }
    }

    /// Takes out the answers that may leave now, in their order.
    pub(crate) fn safe(&mut self) -> Vec<HeldAnswer> {
        let mut safe = Vec::new();
        while let Some((batch, _)) = self.held.front()
            && *batch <= self.kept
        {
            safe.extend(self.held.pop_front().map(|(_, answer)| answer));
        }
        safe
    }
}

/// The entry with which this node begins to write.
fn beginning(cx: &Cx<'_>) -> KeptEntry {
    let (cluster, node) = (cx.shell.cluster, cx.me());
    if cx.coordinator() == node {
        let term = cx.shell.view.term;
        return KeptEntry::Life {
            cluster,
            node,
            term,
        };
    }
    KeptEntry::Standby { cluster, node }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::Caller;
    use pagemesh_wire::CallId;
    use pagemesh_wire::peer::Reply;

    fn answer(call: u64) -> HeldAnswer {
        let caller = Caller {
            node: NodeId(3),
            call: CallId(call),
        };
        HeldAnswer {
            caller,
            reply: Reply::Done,
            batch: 0,
        }
    }

    #[test]
    fn answers_wait_for_the_batch_of_their_decisions() {
        let mut log = DiskLog::default();
        let batch = log.decide(&[Decision::Serial(1)]);
        log.hold(batch, answer(1));
        assert_eq!(log.take_batch().unwrap().0, 1);
        assert_eq!(log.take_batch(), None);
        // It tells of what an earlier call has decided.
        let batch = log.decide(&[]);
        log.hold(batch, answer(2));
        let batch = log.decide(&[Decision::Serial(2)]);
        log.hold(batch, answer(3));
        assert_eq!(log.take_batch().unwrap().0, 2);
        assert_eq!(log.safe(), []);
        log.kept(1);
        assert_eq!(log.safe(), [answer(1), answer(2)]);
        log.kept(9);
        assert_eq!(log.safe(), [answer(3)]);
    }

    #[test]
    fn a_view_is_written_once() {
        let mut log = DiskLog::default();
        let view = MemberView {
            epoch: 5,
            term: Term::FIRST,
            ..MemberView::default()
        };
        log.add_view(&view);
        log.add_view(&view);
        assert_eq!(log.take_batch().unwrap().1.len(), 1);
        assert_eq!(log.kept_epoch(Term::FIRST), 0);
        log.kept(1);
        assert_eq!(log.kept_epoch(Term::FIRST), 5);
        assert_eq!(log.kept_epoch(Term::NONE), 0);
        log.begin_anew();
        log.add_view(&view);
        assert_eq!(log.take_batch().unwrap().0, 2);
    }
}
