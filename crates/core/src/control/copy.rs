//! The standby's copy of what the coordinator has decided.

use super::DiskLog;
use crate::directory::Directory;
use crate::limits::GONE_KEPT;
use crate::shell::Cx;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::{Decision, Decisions, Refusal, Reply};
use pagemesh_wire::{CallId, NodeId, NodeSet, SegmentId};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The calls of one node that the coordinator has answered and that it may repeat.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Answered {
    pub(crate) floor: CallId,
    pub(crate) replies: SortedMap<CallId, Reply>,
}

/// What a coordinator has decided, as far as it was heard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct DecisionCopy {
    /// The number of the next entry.
    next: u64,
    pub(crate) directory: Directory,
    pub(crate) answered: SortedMap<NodeId, Answered>,
    /// Segments that ended lately: the coordinator may not have told all nodes.
    pub(crate) gone: VecDeque<SegmentId>,
}

impl DecisionCopy {
    /// The coordinator has decided; the disk gets what the copy gets.
    pub(crate) fn log_arrived(
        &mut self,
        cx: &Cx<'_>,
        disk: &mut DiskLog,
        from: NodeId,
        decisions: Decisions,
    ) -> Reply {
        if from == cx.coordinator() && self.take(decisions.clone()) {
            disk.keep_copy(cx, decisions);
            return Reply::Done;
        }
        let why = "entries of the log before these are missing";
        Reply::Refused(Refusal::Invalid(why.into()))
    }

    /// Takes the next entries. Returns false if entries before them are missing.
    pub(crate) fn take(&mut self, decisions: Decisions) -> bool {
        let Decisions { first, entries } = decisions;
        let anew = first == 0;
        if !anew && first != self.next {
            return false;
        }
        self.next = first + entries.len() as u64;
        for entry in entries {
            self.decided(entry);
        }
        true
    }

    /// Takes decisions that were made together.
    pub(crate) fn decided(&mut self, decisions: Vec<Decision>) {
        for decision in decisions {
            self.apply(decision);
        }
    }

    /// Decisions from which the same copy comes.
    pub(crate) fn decisions(&self) -> Vec<Decision> {
        let mut decisions = vec![Decision::Anew];
        decisions.extend(self.directory.copy());
        decisions.extend(self.gone.iter().copied().map(Decision::Gone));
        for (node, Answered { floor, replies }) in &self.answered {
            decisions.extend(replies.iter().map(|(call, reply)| Decision::Answered {
                node: *node,
                call: *call,
                floor: *floor,
                reply: reply.clone(),
            }));
        }
        decisions
    }

    fn apply(&mut self, decision: Decision) {
        match decision {
            Decision::Anew => {
                let next = self.next;
                *self = Self {
                    next,
                    ..Self::default()
                };
            }
            Decision::Serial(serial) => self.directory.restore_serial(serial),
            Decision::Segment {
                info,
                changed,
                reductions,
            } => self.directory.restore(info, changed, reductions),
            Decision::Gone(id) => {
                self.directory.drop_segment(id);
                self.gone.retain(|other| *other != id);
                if self.gone.len() >= GONE_KEPT {
                    self.gone.pop_front();
                }
                self.gone.push_back(id);
            }
            Decision::Answered {
                node,
                call,
                floor,
                reply,
            } => {
                let answered = self.answered.entry(node).or_default();
                answered.floor = answered.floor.max(floor);
                answered.replies.insert(call, reply);
                answered.replies = answered.replies.split_off(&answered.floor);
            }
        }
    }

    /// Forgets the calls of lives that are over.
    pub(crate) fn forget_names(&mut self, over: &NodeSet) {
        self.answered.retain(|node, _| !over.contains(*node));
        self.directory.forget_names(over);
    }

    /// Another life has the number of a node, or none has: everybody has forgotten the node.
    pub(crate) fn life_forgotten(&mut self, node: NodeId) {
        self.answered.remove(&node);
        self.gone.retain(|id| id.home() != node);
        self.directory.life_forgotten(node);
    }

    /// A member is gone, and repeats no call.
    pub(crate) fn member_gone(&mut self, node: NodeId) {
        self.answered.remove(&node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(call: u64, floor: u64) -> Decision {
        Decision::Answered {
            node: NodeId(3),
            call: CallId(call),
            floor: CallId(floor),
            reply: Reply::Done,
        }
    }

    #[test]
    fn entries_come_in_order_or_not_at_all() {
        let mut copy = DecisionCopy::default();
        let said = |first, decisions| Decisions {
            first,
            entries: vec![decisions],
        };
        assert!(copy.take(said(0, vec![Decision::Anew, Decision::Serial(4)])));
        assert!(
            !copy.take(said(2, vec![Decision::Serial(9)])),
            "one is missing"
        );
        assert!(copy.take(said(1, vec![answered(7, 5), answered(8, 8)])));
        let replies = &copy.answered[&NodeId(3)].replies;
        let calls: Vec<_> = replies.keys().copied().collect();
        assert_eq!(calls, [CallId(8)], "the caller has the earlier answer");
        copy.take(said(2, vec![Decision::Gone(SegmentId(4))]));
        assert_eq!(copy.gone, [SegmentId(4)]);
        assert!(
            copy.take(said(0, vec![Decision::Anew])),
            "another coordinator"
        );
        assert!(copy.gone.is_empty() && copy.answered.is_empty());
    }
}
