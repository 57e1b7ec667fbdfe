//! Arrivals at a barrier of which the segment's policy has to take in a payload first.

use crate::caller::Caller;
use crate::continuation::Continuation;
use crate::segments::Segments;
use crate::shell::Cx;
use pagemesh_wire::peer::{Payload, Refusal};
use pagemesh_wire::{NodeId, SegmentId, SyncKey};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Early {
    pub(crate) caller: Caller,
    pub(crate) key: SyncKey,
    pub(crate) parties: u32,
    pub(crate) payload: Payload,
}

/// Arrivals that came before this node, their home, knew the segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct EarlyArrivals(Vec<Early>);

impl EarlyArrivals {
    /// The policy takes in the payload of an arrival. Returns whether the arrival counts now; if it
    /// does not, it will when the policy knows enough, or this node the segment.
    pub(crate) fn take_in(
        &mut self,
        cx: &mut Cx<'_>,
        segments: &mut Segments,
        arrival: Early,
    ) -> Result<bool, Refusal> {
        let Early {
            caller,
            key,
            parties,
            ref payload,
        } = arrival;
        if let Some(sync) = segments.sync(key.segment) {
            let then = Continuation::Arrive {
                caller,
                key,
                parties,
            };
            return Ok(sync.acquire(cx, caller.node, payload, then));
        }
        if payload.is_empty() || segments.contains_key(&key.segment) {
            return Ok(true);
        }
        if key.segment.home() != cx.me() {
            return Err(Refusal::NotFound);
        }
        // This node created the segment, but has not heard of it yet.
        self.0.push(arrival);
        Ok(false)
    }

    /// The segment is known now: takes out its arrivals.
    pub(crate) fn of(&mut self, segment: SegmentId) -> Vec<Early> {
        let came = |early: &mut Early| early.key.segment == segment;
        self.0.extract_if(.., came).collect()
    }

    pub(crate) fn cancel(&mut self, caller: Caller) {
        self.0.retain(|early| early.caller != caller);
    }

    pub(crate) fn member_gone(&mut self, node: NodeId) {
        self.0.retain(|early| early.caller.node != node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effects;
    use crate::shell::Shell;
    use crate::time::Time;
    use pagemesh_wire::CallId;

    /// What becomes of an arrival of n2 at a barrier of a segment of this home.
    fn arrive(early: &mut EarlyArrivals, home: u16, payload: Payload) -> Result<bool, Refusal> {
        let (mut shell, mut effects) = (Shell::of_four(NodeId(1)), Effects::default());
        let mut cx = Cx {
            now: Time(0),
            shell: &mut shell,
            effects: &mut effects,
        };
        let arrival = Early {
            caller: Caller {
                node: NodeId(2),
                call: CallId(1),
            },
            key: SyncKey {
                segment: SegmentId::new(NodeId(home), 1),
                number: 0,
            },
            parties: 2,
            payload,
        };
        early.take_in(&mut cx, &mut Segments::default(), arrival)
    }

    #[test]
    fn what_comes_before_its_segment_waits_at_the_home_alone() {
        let mut early = EarlyArrivals::default();
        assert_eq!(arrive(&mut early, 1, Payload::EMPTY), Ok(true));
        let told = Payload::of(&7u32);
        assert_eq!(arrive(&mut early, 3, told.clone()), Err(Refusal::NotFound));
        assert_eq!(arrive(&mut early, 1, told.clone()), Ok(false));
        assert!(early.of(SegmentId::new(NodeId(1), 2)).is_empty());
        let waited = early.of(SegmentId::new(NodeId(1), 1));
        assert_eq!(waited.len(), 1);
        assert_eq!((&waited[0].payload, waited[0].parties), (&told, 2));
        assert!(early.of(SegmentId::new(NodeId(1), 1)).is_empty());
        assert_eq!(arrive(&mut early, 1, told), Ok(false));
        early.member_gone(NodeId(3));
        assert_eq!(early.0.len(), 1);
        early.member_gone(NodeId(2));
        assert_eq!(early, EarlyArrivals::default());
    }
}
