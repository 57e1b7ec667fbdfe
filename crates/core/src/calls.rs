//! Remote procedure calls over lossy datagrams, each executed at most once.
//!
//! The caller repeats a call until its reply comes. The server remembers every
//! call until the caller's *floor* has passed it, and answers a repetition from
//! memory. A call that waits long is set aside: once the caller knows that it
//! waits, its floor goes on without it, and the server remembers the reply
//! until the caller says it has it. Calls to this very node take the same way
//! without a datagram.

mod made;
mod served;
mod then;

pub(crate) use then::Then;

use crate::shell::Cx;
use made::Outgoing;
use pagemesh_wire::peer::{Call, Reply};
use pagemesh_wire::{CallId, NodeId};
use serde::{Deserialize, Serialize};
use served::Memory;
use std::collections::BTreeMap;

/// Who called, and which of its calls it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Caller {
    pub(crate) node: NodeId,
    pub(crate) call: CallId,
}

/// A call to a home that has left, which this node is to serve itself.
#[derive(Debug)]
pub(crate) struct Redirected {
    pub(crate) caller: Caller,
    pub(crate) body: Call,
    /// The home had executed it already, with this reply; none while it waits.
    pub(crate) served: Option<Option<Reply>>,
    /// The client does not want it any more.
    pub(crate) cancelled: bool,
}

/// Calls made and calls served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Calls {
    last: CallId,
    outgoing: BTreeMap<CallId, Outgoing>,
    served: BTreeMap<NodeId, Memory>,
}

impl Calls {
    /// Whether a call is still to be answered.
    pub(crate) fn waits(&self, me: NodeId, caller: Caller) -> bool {
        if caller.node == me {
            return self.outgoing.contains_key(&caller.call);
        }
        let memory = self.served.get(&caller.node);
        let served = memory.and_then(|memory| memory.calls.get(&caller.call));
        served.is_some_and(|served| served.reply.is_none())
    }

    /// This node is no member any more: nobody will answer. Returns who waits.
    pub(crate) fn expelled(&mut self) -> Vec<Then> {
        self.served.clear();
        core::mem::take(&mut self.outgoing)
            .into_values()
            .map(|outgoing| outgoing.then)
            .collect()
    }

    /// Calls to a home that has left go to its heir, under their old numbers, so
    /// that what was executed is not executed again. Returns those that this
    /// node, being the heir, must serve itself.
    pub(crate) fn redirect(
        &mut self,
        cx: &mut Cx<'_>,
        home: NodeId,
        heir: NodeId,
    ) -> Vec<Redirected> {
        let (me, floor) = (cx.me(), self.floor());
        let mut here = Vec::new();
        for (call, outgoing) in &mut self.outgoing {
            if outgoing.to != home || outgoing.body.key().is_none() {
                continue;
            }
            outgoing.to = heir;
            if heir != me {
                cx.send(heir, outgoing.message(*call, floor));
                continue;
            }
            outgoing.backoff = None;
            let memory = self.served.get_mut(&me);
            let served = memory.and_then(|memory| memory.calls.remove(call));
            here.push(Redirected {
                caller: Caller {
                    node: me,
                    call: *call,
                },
                body: outgoing.body.clone(),
                served: served.map(|served| served.reply),
                cancelled: outgoing.cancelled,
            });
        }
        here
    }

    /// What homes had executed for this node concerns nobody any more, but for
    /// calls to a home that is still about to leave.
    pub(crate) fn forget_own(&mut self, me: NodeId) {
        let Some(memory) = self.served.get_mut(&me) else {
            return;
        };
        memory
            .calls
            .retain(|call, _| self.outgoing.contains_key(call));
        if memory.calls.is_empty() {
            self.served.remove(&me);
        }
    }

    /// A member is gone: its calls are void, and calls to it fail.
    pub(crate) fn member_gone(&mut self, node: NodeId) -> Vec<Then> {
        self.served.remove(&node);
        let calls: Vec<_> = self
            .outgoing
            .iter()
            .filter(|(_, outgoing)| outgoing.to == node)
            .map(|(call, _)| *call)
            .collect();
        calls
            .into_iter()
            .filter_map(|call| self.outgoing.remove(&call))
            .map(|outgoing| outgoing.then)
            .collect()
    }
}
