//! Segments that have ended, for as long as pages of them may still be on their way.

use crate::time::Time;
use core::time::Duration;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::{NodeId, SegmentId};
use serde::{Deserialize, Serialize};

/// No datagram is under way for so long.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Segments remembered at most. A page of one that is not remembered stays until its owner is gone,
/// or until it is the oldest.
const LIMIT: usize = 1024;

/// Segments of living nodes, and when they ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Ended(SortedMap<SegmentId, Time>);

impl Ended {
    pub(super) fn has(&self, segment: SegmentId) -> bool {
        self.0.contains_key(&segment)
    }

    pub(super) fn insert(&mut self, now: Time, segment: SegmentId) {
        if self.0.len() >= LIMIT {
            self.0.retain(|_, ended| now < *ended + REMEMBERED);
        }
        if self.0.len() >= LIMIT
            && let Some((_, first)) = self.0.iter().map(|(id, ended)| (*ended, *id)).min()
        {
            self.0.remove(&first);
        }
        self.0.insert(segment, now);
    }

    /// The life of a node is over, and with it all that it sent.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.0.retain(|segment, _| segment.home() != node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_remembered_segments_is_bounded() {
        let mut ended = Ended::default();
        let segment = |serial| SegmentId::new(NodeId(3), serial);
        for serial in 0..2000 {
            ended.insert(Time(serial), segment(serial));
        }
        assert_eq!(ended.0.len(), LIMIT);
        assert!(ended.has(segment(1999)) && !ended.has(segment(0)));
        ended.forget(NodeId(3));
        assert_eq!(ended, Ended::default());
    }
}
