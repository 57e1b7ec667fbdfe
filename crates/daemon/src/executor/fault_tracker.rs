//! Faults being served, and the threads that wait for their pages.

use crate::counters::Counters;
use crate::faults::{Faults, Waiting};
use crate::threads::Threads;
use pagemesh_core::At;
use pagemesh_os::clock;
use pagemesh_wire::MappingId;

/// Faults between their reading and their entry into the counters.
#[derive(Debug, Default)]
pub(crate) struct FaultTracker {
    /// Faults that are being served.
    pub(crate) open: Faults,
    /// Threads that waited for pages.
    pub(crate) threads: Threads,
    /// A thread got a page since this was last cleared.
    pub(crate) woken: bool,
    /// The mapping that got the last page, and how many more reads for its next fault are allowed.
    latest: Option<(MappingId, u32)>,
    /// Served faults not written down yet, with their durations.
    over: Vec<(At, Waiting, u64)>,
}

/// Reads of a mapping for the next fault after its thread got a page; after that the thread has
/// probably something else to do.
const LOOKS: u32 = 3;

/// Served faults that wait to be written down, at most.
const LATER: usize = 64;

impl FaultTracker {
    /// A mapping has got a page. Returns the time if a thread was woken: it may want this
    /// processor, so other work should wait.
    pub(crate) fn placed(&mut self, mapping: MappingId, at: At) -> Option<u64> {
        self.latest = Some((mapping, LOOKS));
        self.woken = true;
        let waiting = self.open.end((mapping, at.1))?;
        let now = clock::monotonic();
        let took = now.saturating_sub(waiting.since);
        self.over.push((at, waiting, took));
        Some(now)
    }

    /// True if the served faults must be written down now.
    pub(crate) fn is_full(&self) -> bool {
        self.over.len() >= LATER
    }

    /// Writes the served faults into the counters.
    pub(crate) fn write_down(&mut self, counters: &mut Counters) {
        for (at, waiting, took) in self.over.drain(..) {
            counters.fault(took, waiting.remote);
            self.threads.serve(at, waiting.threads());
        }
    }

    /// The mapping where the next fault is expected.
    pub(crate) fn expected(&mut self) -> Option<MappingId> {
        let (mapping, looks) = self.latest?;
        self.latest = looks.checked_sub(1).map(|looks| (mapping, looks));
        Some(mapping)
    }

    /// The page was taken from this node and from these mappings.
    pub(crate) fn taken_away(&mut self, at: At, mappings: &[MappingId]) {
        self.threads.forget(at);
        if !self.open.is_empty() {
            for mapping in mappings {
                self.open.outdate((*mapping, at.1));
            }
        }
    }

    /// Samples how often the threads that wait for other nodes have run.
    pub(crate) fn look(&mut self) {
        if self.open.has_unseen() {
            let threads = &mut self.threads;
            self.open.look(|thread| threads.look(thread));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::{PageIndex, SegmentId};

    #[test]
    fn the_next_fault_is_expected_where_the_last_page_went_for_some_turns() {
        let mut tracker = FaultTracker::default();
        assert_eq!(tracker.expected(), None);
        let at = (SegmentId(1), PageIndex(2));
        assert_eq!(tracker.placed(MappingId(7), at), None, "no thread waits");
        assert!(tracker.woken && !tracker.is_full());
        let turns = std::iter::from_fn(|| tracker.expected());
        assert_eq!(turns.count(), LOOKS as usize + 1);
    }
}
