//! Declaring ranges in which nodes accumulate. The coordinator keeps them with the
//! names of segments, and answers when every member knows: from then on nobody
//! makes or merges a change there in another way.

use crate::calls::{Caller, Then};
use crate::rooms::Rooms;
use crate::shell::Cx;
use pagemesh_wire::peer::{Call, Reduction, Refusal, Reply};
use pagemesh_wire::{NodeId, NodeSet, SegmentId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is declared, and at the coordinator who has yet to hear of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Reductions {
    known: BTreeMap<SegmentId, Vec<Reduction>>,
    spreading: BTreeMap<Caller, NodeSet>,
}

impl Reductions {
    pub(crate) fn of(&self, segment: SegmentId) -> &[Reduction] {
        self.known.get(&segment).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn forget(&mut self, segment: SegmentId) {
        self.known.remove(&segment);
    }
}

impl Rooms {
    /// At the coordinator: somebody declares a range.
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
        let members = cx.shell.alive;
        self.reductions.spreading.insert(caller, members);
        for node in members.iter() {
            let reductions = reductions.clone();
            let call = Call::Reduce {
                segment,
                reductions,
            };
            self.call(cx, node, call, Then::Declared(caller));
        }
    }

    /// At the coordinator: a member knows, or is gone.
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

    /// The coordinator says which ranges of a segment are declared.
    pub(crate) fn reduce(&mut self, from: NodeId, segment: SegmentId, reductions: Vec<Reduction>) {
        let sound = |reduction: &Reduction| reduction.check(u64::MAX).is_ok();
        let fits = reductions.len() <= Reduction::LIMIT && reductions.iter().all(sound);
        let news = reductions.len() > self.reductions.of(segment).len();
        if from == NodeId::COORDINATOR && fits && news {
            self.reductions.known.insert(segment, reductions);
            self.inform_of_reductions(segment);
        }
    }

    /// A segment, if it is here, is told what is declared of it. A policy that refuses would have
    /// refused the coordinator, too, if that had asked.
    pub(crate) fn inform_of_reductions(&mut self, segment: SegmentId) {
        let known = self.reductions.of(segment);
        if let Some(segment) = self.segments.get_mut(&segment)
            && !known.is_empty()
        {
            let _ = segment.policy.declare(known);
        }
    }
}
