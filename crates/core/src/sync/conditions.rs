//! Condition variables: waiters stand in a queue at the home of the segment.

use crate::caller::Caller;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::{CallId, NodeId, SegmentId, SyncKey};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The condition variables of this home that have waiters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Conditions(SortedMap<SyncKey, VecDeque<Caller>>);

impl Conditions {
    /// A caller waits from now on.
    pub(crate) fn wait(&mut self, caller: Caller, key: SyncKey) {
        self.0.entry(key).or_default().push_back(caller);
    }

    /// Takes out the waiters to be woken: one or all.
    pub(crate) fn signal(&mut self, key: SyncKey, all: bool) -> Vec<Caller> {
        let Some(line) = self.0.get_mut(&key) else {
            return Vec::new();
        };
        let count = if all { line.len() } else { 1 };
        let woken = line.drain(..count).collect();
        if line.is_empty() {
            self.0.remove(&key);
        }
        woken
    }

    /// All waiters in their order, for the successor of this home.
    pub(crate) fn handover(&self) -> Vec<(SyncKey, NodeId, CallId)> {
        let waiters = self.0.iter().flat_map(|(key, line)| {
            line.iter()
                .map(move |caller| (*key, caller.node, caller.call))
        });
        waiters.collect()
    }

    /// The home died: drops the waiters of its condition variables.
    pub(crate) fn home_died(&mut self, home: NodeId) {
        self.0.retain(|key, _| key.segment.home() != home);
    }

    /// A caller has withdrawn its wait.
    pub(crate) fn cancel(&mut self, caller: Caller) {
        self.retain(|waiting| *waiting != caller);
    }

    /// A node is gone: drops its waiters.
    pub(crate) fn member_gone(&mut self, node: NodeId) {
        self.retain(|waiting| waiting.node != node);
    }

    /// A segment is gone: drops its condition variables.
    pub(crate) fn forget(&mut self, segment: SegmentId) {
        self.0.retain(|key, _| key.segment != segment);
    }

    fn retain(&mut self, keep: impl Fn(&Caller) -> bool) {
        self.0.retain(|_, line| {
            line.retain(&keep);
            !line.is_empty()
        });
    }
}
