//! Calls of other nodes to this one: executed once, and answered as often as they are repeated.

use super::{Caller, Calls};
use crate::control::Answered;
use crate::limits::CALLS_KEPT;
use crate::shell::Cx;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::{Call, Decision, Message, Refusal, Reply, Service};
use pagemesh_wire::{CallId, NodeId};
use serde::{Deserialize, Serialize};

/// The calls of one node that this server remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Memory {
    floor: CallId,
    pub(super) calls: SortedMap<CallId, Served>,
}

/// A call that arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Served {
    /// The reply; none while the call waits.
    pub(super) reply: Option<Reply>,
    /// The caller knows that the call waits, so its floor has passed the call: the reply is
    /// remembered until the caller acknowledges it.
    waits: bool,
    /// The call came to this node as the home of a segment; a successor must know of it.
    for_home: bool,
    /// The call came to this node as the coordinator. Its caller is not told that it waits, so that
    /// its floor does not pass the call: another coordinator must take the call for a new one
    /// unless it knows the reply.
    for_coordinator: bool,
    /// The call is about names.
    pub(super) for_names: bool,
}

impl Calls {
    /// A call arrived. Returns true if it is new and must be executed.
    pub(crate) fn admit(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        floor: CallId,
        body: &Call,
    ) -> bool {
        let memory = self.served.entry(caller.node).or_default();
        memory.floor = memory.floor.max(floor);
        let floor = memory.floor;
        memory
            .calls
            .retain(|call, served| *call >= floor || served.reply.is_none() || served.waits);
        let full = memory.calls.len() >= CALLS_KEPT;
        match memory.calls.get_mut(&caller.call) {
            None if caller.call < floor || full => return false,
            None => {
                let served = Served {
                    for_home: body.key().is_some(),
                    for_coordinator: body.is_for_coordinator(),
                    for_names: body.is_about_names(),
                    ..Served::default()
                };
                memory.calls.insert(caller.call, served);
                return true;
            }
            Some(served) if served.for_coordinator && served.reply.is_none() => {}
            Some(served) => {
                served.waits |= served.reply.is_none();
                let body = served.reply.clone().unwrap_or(Reply::Waiting);
                cx.send(
                    caller.node,
                    Message::Reply {
                        call: caller.call,
                        body,
                    },
                );
            }
        }
        false
    }

    /// Answers a call of another node, now and whenever the call is repeated.
    pub(crate) fn answer(&mut self, cx: &mut Cx<'_>, caller: Caller, body: Reply) {
        let memory = self.served.get_mut(&caller.node);
        let Some(served) = memory.and_then(|memory| memory.calls.get_mut(&caller.call)) else {
            return;
        };
        if body == Reply::Waiting {
            served.waits = true;
        } else {
            served.reply = Some(body.clone());
        }
        cx.send(
            caller.node,
            Message::Reply {
                call: caller.call,
                body,
            },
        );
    }

    /// The caller has acknowledged the reply to a call, which need no longer be remembered for
    /// that.
    pub(crate) fn acknowledged(&mut self, caller: Caller) {
        let memory = self.served.get_mut(&caller.node);
        let served = memory.and_then(|memory| memory.calls.get_mut(&caller.call));
        if let Some(served) = served.filter(|served| served.reply.is_some()) {
            served.waits = false;
        }
    }

    /// The caller has withdrawn a call, which may not even have arrived. Tells the caller that the
    /// call is withdrawn, or the reply that the caller has missed, and remembers that until the
    /// caller has it.
    pub(crate) fn cancelled(&mut self, cx: &mut Cx<'_>, caller: Caller) {
        let memory = self.served.entry(caller.node).or_default();
        if caller.call < memory.floor && !memory.calls.contains_key(&caller.call) {
            let body = Reply::Refused(Refusal::Cancelled);
            return cx.send(
                caller.node,
                Message::Reply {
                    call: caller.call,
                    body,
                },
            );
        }
        if memory.calls.len() >= CALLS_KEPT && !memory.calls.contains_key(&caller.call) {
            // As a call that is one too many: the caller repeats what it withdraws.
            return;
        }
        let served = memory.calls.entry(caller.call).or_default();
        let body = served
            .reply
            .get_or_insert(Reply::Refused(Refusal::Cancelled))
            .clone();
        cx.send(
            caller.node,
            Message::Reply {
                call: caller.call,
                body,
            },
        );
    }

    /// The calls that this node has executed as a home, for its successor.
    pub(crate) fn handover(&self) -> Vec<Service> {
        let served = self.served.iter().flat_map(|(node, memory)| {
            let for_home = memory.calls.iter().filter(|(_, served)| served.for_home);
            for_home.map(|(call, served)| Service {
                node: *node,
                call: *call,
                reply: served.reply.clone(),
                waits: served.waits,
            })
        });
        served.collect()
    }

    /// The calls about names that this node has answered, for a standby.
    pub(crate) fn answered_about_names(&self) -> impl Iterator<Item = Decision> {
        self.served.iter().flat_map(|(node, memory)| {
            let named = memory.calls.iter().filter(|(_, served)| served.for_names);
            let answered = named.filter_map(|(call, served)| Some((*call, served.reply.clone()?)));
            answered.map(|(call, reply)| Decision::Answered {
                node: *node,
                call,
                floor: memory.floor,
                reply,
            })
        })
    }

    /// The number below which a node waits for no call.
    pub(crate) fn floor_of(&self, node: NodeId) -> CallId {
        let memory = self.served.get(&node);
        memory.map_or(CallId(0), |memory| memory.floor)
    }

    /// A new coordinator knows which calls of a node its predecessor has answered.
    pub(crate) fn restore(&mut self, node: NodeId, answered: Answered) {
        let memory = self.served.entry(node).or_default();
        memory.floor = memory.floor.max(answered.floor);
        for (call, reply) in answered.replies {
            let served = Served {
                reply: Some(reply),
                for_coordinator: true,
                for_names: true,
                ..Served::default()
            };
            memory.calls.entry(call).or_insert(served);
        }
    }

    /// Takes over the memory of a call that a leaving home has executed.
    pub(crate) fn inherit(&mut self, service: Service) {
        let memory = self.served.entry(service.node).or_default();
        memory.calls.insert(
            service.call,
            Served {
                reply: service.reply,
                waits: service.waits,
                for_home: true,
                ..Served::default()
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effects;
    use crate::shell::Shell;
    use crate::time::Time;
    use pagemesh_wire::NodeId;

    #[test]
    fn calls_of_one_node_are_kept_up_to_a_bound_withdrawn_ones_too() {
        let (me, node) = (NodeId(2), NodeId(3));
        let mut shell = Shell::of_four(me);
        let mut effects = Effects::default();
        let mut cx = Cx {
            now: Time(1_000_000),
            shell: &mut shell,
            effects: &mut effects,
        };
        let mut calls = Calls::default();
        for call in 1..=CALLS_KEPT as u64 + 10 {
            let call = CallId(call);
            calls.cancelled(&mut cx, Caller { node, call });
        }
        assert_eq!(calls.served[&node].calls.len(), CALLS_KEPT);
        let call = CallId(CALLS_KEPT as u64 + 11);
        let caller = Caller { node, call };
        let admitted = calls.admit(&mut cx, caller, CallId(1), &Call::Probe);
        assert!(!admitted, "the memory of node {node} is full");
        let admitted = calls.admit(&mut cx, caller, call, &Call::Probe);
        assert!(admitted, "the caller has all earlier replies");
    }
}
