//! Declarations of ranges for reductions. The coordinator keeps them with the names of segments,
//! and answers a declaration when every member knows it: from then on no node makes or merges a
//! change in the range in another way.

use crate::caller::Caller;
use crate::on_reply::OnReply;
use crate::segments::Segments;
use crate::steps::Step;
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

    /// At the coordinator: a node declares a range, after which these ranges of the segment are
    /// declared. It is answered when all members know them.
    pub(crate) fn declare(
        &mut self,
        members: &NodeSet,
        caller: Caller,
        segment: SegmentId,
        declared: Result<Vec<Reduction>, Refusal>,
    ) -> Vec<Step> {
        let reductions = match declared {
            Ok(reductions) => reductions,
            Err(why) => return vec![Step::Answer(caller, Reply::Refused(why))],
        };
        self.spreading.insert(caller, members.clone());
        let call = Call::Reduce {
            segment,
            reductions,
        };
        let tell = |node| Step::Call(node, call.clone(), OnReply::Declared(caller));
        members.iter().map(tell).collect()
    }

    /// At the coordinator: a member knows the range, or is gone.
    pub(crate) fn declared(&mut self, caller: Caller, node: NodeId) -> Option<Step> {
        let missing = self.spreading.get_mut(&caller)?;
        missing.remove(node);
        if !missing.is_empty() {
            return None;
        }
        self.spreading.remove(&caller);
        Some(Step::Answer(caller, Reply::Done))
    }

    /// The coordinator tells which ranges of a segment are declared.
    pub(crate) fn told(
        &mut self,
        segments: &mut Segments,
        segment: SegmentId,
        reductions: Vec<Reduction>,
    ) {
        let sound = |reduction: &Reduction| reduction.check(u64::MAX).is_ok();
        let fits = reductions.len() <= Reduction::LIMIT && reductions.iter().all(sound);
        if fits && reductions.len() > self.of(segment).len() {
            self.known.insert(segment, reductions);
            self.inform(segments, segment);
        }
    }

    /// Tells a segment that is here its declared ranges. A policy that refuses them refused the
    /// coordinator as well.
    pub(crate) fn inform(&self, segments: &mut Segments, segment: SegmentId) {
        let known = self.of(segment);
        if let Some(segment) = segments.get_mut(&segment)
            && !known.is_empty()
        {
            let _ = segment.policy.declare(known);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::CallId;
    use pagemesh_wire::peer::{Kind, Merge};

    const CALLER: Caller = Caller {
        node: NodeId(3),
        call: CallId(7),
    };

    fn range(offset: u64) -> Reduction {
        Reduction {
            offset,
            length: 8,
            merge: Merge::Sum,
            kind: Kind::U64,
        }
    }

    #[test]
    fn a_declaration_is_answered_when_all_members_know_it() {
        let (mut reductions, segment) = (Reductions::default(), SegmentId::new(NodeId(1), 1));
        let members = [NodeId(1), NodeId(2)].into_iter().collect();
        let told = reductions.declare(&members, CALLER, segment, Ok(vec![range(0)]));
        assert_eq!(told.len(), 2);
        assert_eq!(reductions.declared(CALLER, NodeId(1)), None);
        assert_eq!(
            reductions.declared(CALLER, NodeId(1)),
            None,
            "n2 is missing"
        );
        let done = Some(Step::Answer(CALLER, Reply::Done));
        assert_eq!(reductions.declared(CALLER, NodeId(2)), done);
        assert_eq!(reductions.declared(CALLER, NodeId(2)), None);
    }

    #[test]
    fn declared_ranges_become_more_only_and_all_are_sound() {
        let (mut reductions, segment) = (Reductions::default(), SegmentId::new(NodeId(1), 1));
        let mut tell = |ranges: &[Reduction]| {
            reductions.told(&mut Segments::default(), segment, ranges.to_vec());
            reductions.of(segment).len()
        };
        assert_eq!(tell(&[range(0), range(8)]), 2);
        assert_eq!(tell(&[range(0)]), 2);
        assert_eq!(
            tell(&[range(0), range(8), range(4)]),
            2,
            "4 is no multiple of 8"
        );
        assert_eq!(tell(&[range(0), range(8), range(16)]), 3);
    }
}
