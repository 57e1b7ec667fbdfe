//! Declarations of ranges for reductions. The coordinator keeps them with the names of segments,
//! and answers a declaration when every member knows it: from then on no node makes or merges a
//! change in the range in another way.

use crate::caller::Caller;
use crate::on_reply::OnReply;
use crate::services::Services;
use crate::shell::Cx;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::{Call, Reduction, Refusal, Reply};
use pagemesh_wire::{NodeId, NodeSet, SegmentId};
use serde::{Deserialize, Serialize};

/// The declared ranges, and at the coordinator the members that do not know one yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Reductions {
    known: SortedMap<SegmentId, Vec<Reduction>>,
    spreading: SortedMap<Caller, NodeSet>,
}

impl Reductions {
    pub(crate) fn of(&self, segment: SegmentId) -> &[Reduction] {
        self.known.get(&segment).map_or(&[], Vec::as_slice)
    }

    /// At a new coordinator: these ranges are declared.
    pub(crate) fn restore(&mut self, segment: SegmentId, reductions: Vec<Reduction>) {
        self.known.insert(segment, reductions);
    }

    pub(crate) fn forget(&mut self, segment: SegmentId) {
        self.known.remove(&segment);
    }
}

impl Services {
    /// At the coordinator: a node declares a range.
    pub(crate) fn declare(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        segment: SegmentId,
        reduction: Reduction,
    ) {
        let Some(coordinator) = &mut self.coordinator else {
            let why = Refusal::Invalid("this node keeps no names".into());
            return self.answer(cx, caller, Reply::Refused(why));
        };
        let reductions = match coordinator.directory.declare(segment, reduction) {
            Ok(reductions) => reductions,
            Err(why) => return self.answer(cx, caller, Reply::Refused(why)),
        };
        let members = &cx.shell.alive;
        self.reductions.spreading.insert(caller, members.clone());
        for node in members.iter() {
            let reductions = reductions.clone();
            let call = Call::Reduce {
                segment,
                reductions,
            };
            self.call(cx, node, call, OnReply::Declared(caller));
        }
    }

    /// At the coordinator: a member knows the range, or is gone.
    pub(crate) fn declared(&mut self, cx: &mut Cx<'_>, caller: Caller, node: NodeId) {
        let Some(missing) = self.reductions.spreading.get_mut(&caller) else {
            return;
        };
        missing.remove(node);
        if missing.is_empty() {
            self.reductions.spreading.remove(&caller);
            self.answer(cx, caller, Reply::Done);
        }
    }

    /// The coordinator tells which ranges of a segment are declared.
    pub(crate) fn reduce(
        &mut self,
        cx: &Cx<'_>,
        from: NodeId,
        segment: SegmentId,
        reductions: Vec<Reduction>,
    ) {
        let sound = |reduction: &Reduction| reduction.check(u64::MAX).is_ok();
        let fits = reductions.len() <= Reduction::LIMIT && reductions.iter().all(sound);
        let news = reductions.len() > self.reductions.of(segment).len();
        if from == cx.coordinator() && fits && news {
            self.reductions.known.insert(segment, reductions);
            self.inform_of_reductions(segment);
        }
    }

    /// Tells a segment that is here its declared ranges. A policy that refuses them refused the
    /// coordinator as well.
    pub(crate) fn inform_of_reductions(&mut self, segment: SegmentId) {
        let known = self.reductions.of(segment);
        if let Some(segment) = self.segments.get_mut(&segment)
            && !known.is_empty()
        {
            let _ = segment.policy.declare(known);
        }
    }
}
