//! Segments that no process of this node has open: resources they do not need are given back, lest
//! closed segments use up the daemon's descriptors.

use crate::driver::Driver;
use crate::executor::DaemonExecutor;
use crate::keeper::Tag;
use crate::segment::GivenBack;
use pagemesh_core::Input;
use pagemesh_core::Reclaimed;
use pagemesh_recorder::Note;
use pagemesh_wire::{SegmentId, SyncKey};

impl Driver {
    /// A process has closed a segment, or is gone.
    pub(crate) fn closed(&mut self, segment: SegmentId) {
        // Free locks are still lent to the processes here, of which there is none.
        for number in self.executor.free_locks(segment).unwrap_or_default() {
            let held = self.executor.pages.segments.get(segment);
            let reclaimed = held.map(|held| held.locks.reclaim(number));
            if reclaimed == Some(Reclaimed::Back) {
                let key = SyncKey { segment, number };
                let recovered = false;
                self.feed(Input::LockReturned { key, recovered });
            }
        }
        self.executor.give_back(segment);
    }
}

impl DaemonExecutor {
    /// The locks of a segment that no process here has open whose tokens are lent all the same.
    /// None if it is in use.
    fn free_locks(&self, segment: SegmentId) -> Option<Vec<u64>> {
        let held = self.pages.segments.get(segment)?;
        let used = !held.mappings.is_empty() || self.sessions.has_open(segment);
        if used { None } else { held.locks.idle() }
    }

    fn give_back(&mut self, segment: SegmentId) {
        if self.free_locks(segment).is_none_or(|free| !free.is_empty()) {
            return;
        }
        self.note(&Note::GivenBack { segment });
        match self.pages.segments.give_back(segment) {
            Some(GivenBack::All) => {
                self.keeper.drop(Tag::Memory(segment));
                self.keeper.drop(Tag::Locks(segment));
            }
            Some(GivenBack::Locks) => self.keeper.drop(Tag::Locks(segment)),
            None => {}
        }
    }

    /// The same for all segments: pages may have left since.
    pub(crate) fn give_back_unused(&mut self) {
        let all: Vec<_> = self.pages.segments.iter().map(|(id, _)| id).collect();
        all.into_iter().for_each(|id| self.give_back(id));
    }
}
