//! Condition variables: waiters stand in a queue at the home of the segment.

use crate::caller::Caller;
use crate::steps::Step;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::Reply;
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

    /// Wakes one waiter, or all, and tells the caller how many.
    pub(crate) fn signal(&mut self, caller: Caller, key: SyncKey, all: bool) -> Vec<Step> {
        let woken = self.take(key, all);
        let count = woken.len() as u32;
        let wake = |waiter| Step::Answer(waiter, Reply::Done);
        let told = Step::Answer(caller, Reply::Woken(count));
        woken.into_iter().map(wake).chain([told]).collect()
    }

    fn take(&mut self, key: SyncKey, all: bool) -> Vec<Caller> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_are_woken_in_their_order_and_counted() {
        let caller = |node| Caller {
            node: NodeId(node),
            call: CallId(1),
        };
        let key = SyncKey {
            segment: SegmentId::new(NodeId(1), 1),
            number: 0,
        };
        let mut conditions = Conditions::default();
        for node in 2..=4 {
            conditions.wait(caller(node), key);
        }
        conditions.member_gone(NodeId(2));
        let told = |count| Step::Answer(caller(1), Reply::Woken(count));
        let woken = |node| Step::Answer(caller(node), Reply::Done);
        let mut signal = |all| conditions.signal(caller(1), key, all);
        assert_eq!(signal(false), [woken(3), told(1)]);
        assert_eq!(signal(true), [woken(4), told(1)]);
        assert_eq!(signal(true), [told(0)]);
    }
}
