//! Remote procedure calls over lossy datagrams, each executed at most once.
//!
//! The caller repeats a call until its reply comes. The server remembers every call until the
//! caller's *floor* has passed it, and answers a repetition from memory. A call that waits long
//! does not hold back the floor: once the caller knows that the call waits, its floor passes the
//! call, and the server remembers the reply until the caller acknowledges it. Calls of a node to
//! itself take the same path without a datagram.

mod made;
mod served;

use crate::caller::Caller;
use crate::on_reply::OnReply;
use crate::shell::Cx;
use made::OpenCall;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::{Call, Reply};
use pagemesh_wire::{CallId, NodeId};
use serde::{Deserialize, Serialize};
use served::Memory;

/// A call to a home that has left; this node must serve it itself.
#[derive(Debug)]
pub(crate) struct Redirected {
    pub(crate) caller: Caller,
    pub(crate) body: Call,
    /// If the home had executed the call: its reply, or none while the call waits.
    pub(crate) served: Option<Option<Reply>>,
    /// The client has withdrawn the call.
    pub(crate) cancelled: bool,
}

/// A call that was open when this node's membership ended.
#[derive(Debug)]
pub(crate) struct LeftBehind {
    pub(crate) to: NodeId,
    pub(crate) body: Call,
    pub(crate) withdrawn: bool,
    pub(crate) then: OnReply,
}

/// Calls made and calls served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Calls {
    last: CallId,
    outgoing: SortedMap<CallId, OpenCall>,
    served: SortedMap<NodeId, Memory>,
}

impl Calls {
    /// Whether a call has not been answered.
    pub(crate) fn waits(&self, me: NodeId, caller: Caller) -> bool {
        if caller.node == me {
            return self.outgoing.contains_key(&caller.call);
        }
        let memory = self.served.get(&caller.node);
        let served = memory.and_then(|memory| memory.calls.get(&caller.call));
        served.is_some_and(|served| served.reply.is_none())
    }

    /// Whether a member may know a former standby: it has not acknowledged a view that has no standby
    /// and tells of deaths.
    pub(crate) fn may_know_former_standby(&self, member: NodeId) -> bool {
        let without = |call: &Call| match call {
            Call::Members(view) => {
                let living = view.living().count();
                view.standby == NodeId::NONE && living < view.members.len()
            }
            _ => false,
        };
        let mut open = self.outgoing.values();
        open.any(|call| call.to == member && without(&call.body))
    }

    /// Whether a call is about names.
    pub(crate) fn is_about_names(&self, me: NodeId, caller: Caller) -> bool {
        if caller.node == me {
            let open = self.outgoing.get(&caller.call);
            return open.is_some_and(|open| open.body.is_about_names());
        }
        let memory = self.served.get(&caller.node);
        let served = memory.and_then(|memory| memory.calls.get(&caller.call));
        served.is_some_and(|served| served.for_names)
    }

    /// This node is no member any more, so no call will be answered. Returns how to go on with each
    /// open call.
    pub(crate) fn expelled(&mut self) -> Vec<OnReply> {
        self.served.clear();
        core::mem::take(&mut self.outgoing)
            .into_values()
            .map(|outgoing| outgoing.then)
            .collect()
    }

    /// This node's membership has ended, and it joins again as another node. Returns the calls that
    /// were open: to which node, what was asked, whether it was withdrawn, and how to go on.
    pub(crate) fn leave_behind(&mut self) -> Vec<LeftBehind> {
        self.served.clear();
        let open = core::mem::take(&mut self.outgoing).into_values();
        open.map(|call| LeftBehind {
            to: call.to,
            body: call.body,
            withdrawn: call.cancelled,
            then: call.then,
        })
        .collect()
    }

    /// Sends open calls of some kind to a node that is gone to its successor, under their old
    /// numbers, so that no call is executed twice. Returns those that this node must serve itself
    /// because it is the successor.
    pub(crate) fn redirect(
        &mut self,
        cx: &mut Cx<'_>,
        (home, kind): (NodeId, fn(&Call) -> bool),
        successor: NodeId,
    ) -> Vec<Redirected> {
        let (me, floor) = (cx.me(), self.floor());
        let mut here = Vec::new();
        for (call, outgoing) in &mut self.outgoing {
            if outgoing.to != home || !kind(&outgoing.body) {
                continue;
            }
            outgoing.to = successor;
            if successor != me {
                cx.send(successor, outgoing.message(*call, floor));
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

    /// The home of segments has left: sends open calls to it to its successor. Returns those that this
    /// node must serve itself.
    pub(crate) fn redirect_to_successor(
        &mut self,
        cx: &mut Cx<'_>,
        home: NodeId,
    ) -> Vec<Redirected> {
        let about_segments = |call: &Call| call.key().is_some();
        let successor = cx.coordinator();
        self.redirect(cx, (home, about_segments), successor)
    }

    /// Drops what homes had executed for this node, except for calls that are still open: their
    /// home is about to leave.
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

    /// A member is gone: drops its calls, and fails calls to it. Returns how to go on with the
    /// latter.
    pub(crate) fn member_gone(&mut self, node: NodeId) -> Vec<OnReply> {
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
