//! Remote procedure calls over lossy datagrams, each executed at most once.
//!
//! The caller repeats a call until its reply comes. The server remembers every
//! call until the caller says (by its *floor*) that it awaits it no longer, and
//! answers a repetition from memory. Calls to this very node take the same way
//! without a datagram.

use crate::backoff::Backoff;
use crate::limits::REPLIES_KEPT;
use crate::shell::Cx;
use crate::timers::Timer;
use pagemesh_wire::peer::{Call, Message, Refusal, Reply};
use pagemesh_wire::{CallId, ClientId, NodeId, SyncKey, Ticket};
use std::collections::BTreeMap;

/// Who called, and which of its calls it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Caller {
    pub(crate) node: NodeId,
    pub(crate) call: CallId,
}

/// What to do with the reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Then {
    /// Hand it to a client.
    Tell(Ticket, ClientId),
    /// A client opens a segment of this name; nobody, if it has withdrawn.
    Open {
        client: Option<(Ticket, ClientId)>,
        name: String,
    },
    /// This node has left.
    Left,
    /// Wake another waiter of this condition variable.
    WakeAnother(SyncKey),
    /// Nothing: it only had to arrive.
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Outgoing {
    to: NodeId,
    body: Call,
    then: Then,
    /// None for calls to this node itself.
    backoff: Option<Backoff>,
    /// The caller was told that the call waits at the server.
    waiting_told: bool,
    /// The caller has withdrawn it; the server is told until it says it knows.
    cancelled: bool,
}

/// What a server remembers of one caller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Memory {
    floor: CallId,
    /// None while the call waits.
    replies: BTreeMap<CallId, Option<Reply>>,
}

/// Calls made and calls served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Calls {
    last: CallId,
    outgoing: BTreeMap<CallId, Outgoing>,
    served: BTreeMap<NodeId, Memory>,
}

impl Calls {
    /// Calls `to`. If that is this node, the caller of this function serves it.
    pub(crate) fn call(&mut self, cx: &mut Cx<'_>, to: NodeId, body: Call, then: Then) -> Caller {
        self.last.0 += 1;
        let call = self.last;
        let here = to == cx.me();
        let backoff = (!here).then(|| cx.backoff(Timer::Call(call)));
        self.outgoing.insert(
            call,
            Outgoing {
                to,
                body: body.clone(),
                then,
                backoff,
                waiting_told: false,
                cancelled: false,
            },
        );
        if !here {
            let floor = self.floor();
            cx.send(to, Message::Call { call, floor, body });
        }
        Caller {
            node: cx.me(),
            call,
        }
    }

    fn floor(&self) -> CallId {
        self.outgoing.keys().next().copied().unwrap_or(self.last)
    }

    /// A call arrived. True if it is new and is to be executed.
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
            .replies
            .retain(|call, reply| *call >= floor || reply.is_none());
        while memory.replies.len() > REPLIES_KEPT {
            let Some(oldest) = memory.replies.iter().find(|(_, reply)| reply.is_some()) else {
                break;
            };
            let oldest = *oldest.0;
            memory.replies.remove(&oldest);
        }
        if caller.call < floor {
            return false;
        }
        match memory.replies.get(&caller.call) {
            None => {
                memory.replies.insert(caller.call, None);
                return true;
            }
            Some(Some(reply)) => {
                let body = reply.clone();
                cx.send(
                    caller.node,
                    Message::Reply {
                        call: caller.call,
                        body,
                    },
                );
            }
            Some(None) if matches!(body, Call::CondWait { .. }) => {
                let body = Reply::Waiting;
                cx.send(
                    caller.node,
                    Message::Reply {
                        call: caller.call,
                        body,
                    },
                );
            }
            Some(None) => {}
        }
        false
    }

    /// Answers a remote call, now and whenever it is repeated.
    pub(crate) fn answer(&mut self, cx: &mut Cx<'_>, caller: Caller, body: Reply) {
        let Some(slot) = self
            .served
            .get_mut(&caller.node)
            .and_then(|memory| memory.replies.get_mut(&caller.call))
        else {
            return;
        };
        if body != Reply::Waiting {
            *slot = Some(body.clone());
        }
        cx.send(
            caller.node,
            Message::Reply {
                call: caller.call,
                body,
            },
        );
    }

    /// A reply arrived. Returns what to do with it, if the call was still open
    /// and this is news.
    pub(crate) fn replied(&mut self, from: NodeId, call: CallId, reply: &Reply) -> Option<Then> {
        let outgoing = self.outgoing.get_mut(&call)?;
        if outgoing.to != from {
            return None;
        }
        if *reply == Reply::Waiting {
            let news = !core::mem::replace(&mut outgoing.waiting_told, true);
            return (news && !outgoing.cancelled).then(|| outgoing.then.clone());
        }
        let outgoing = self.outgoing.remove(&call)?;
        match outgoing.body {
            // It was woken after its client had gone: somebody else must wake.
            Call::CondWait { key } if outgoing.cancelled && *reply == Reply::Done => {
                Some(Then::WakeAnother(key))
            }
            _ => Some(outgoing.then),
        }
    }

    /// A call may be due to be repeated.
    pub(crate) fn due(&mut self, cx: &mut Cx<'_>, call: CallId) {
        let floor = self.floor();
        let Some(outgoing) = self.outgoing.get_mut(&call) else {
            return;
        };
        let Some(backoff) = &mut outgoing.backoff else {
            return;
        };
        if cx.fire(backoff, Timer::Call(call)) {
            let message = if outgoing.cancelled {
                Message::CancelCall { call }
            } else {
                Message::Call {
                    call,
                    floor,
                    body: outgoing.body.clone(),
                }
            };
            cx.send(outgoing.to, message);
        }
    }

    /// Whether an opening of a segment of this name is under way.
    pub(crate) fn opening(&self, name: &str) -> bool {
        self.outgoing.values().any(
            |outgoing| matches!(&outgoing.then, Then::Open { name: opening, .. } if opening == name),
        )
    }

    /// A client withdraws a request. Returns the calls this node must serve
    /// the withdrawal of itself, or nothing if no call belonged to the ticket.
    pub(crate) fn cancel(&mut self, cx: &mut Cx<'_>, ticket: Ticket) -> Option<Vec<Caller>> {
        let calls = self.calls_of(|of, _| of == ticket);
        (!calls.is_empty()).then(|| self.withdraw(cx, calls))
    }

    /// A client is gone, with everything it waited for.
    pub(crate) fn client_gone(&mut self, cx: &mut Cx<'_>, client: ClientId) -> Vec<Caller> {
        let calls = self.calls_of(|_, of| of == client);
        self.withdraw(cx, calls)
    }

    fn calls_of(&self, pick: impl Fn(Ticket, ClientId) -> bool) -> Vec<CallId> {
        let picked = |outgoing: &Outgoing| match outgoing.then {
            Then::Tell(ticket, client)
            | Then::Open {
                client: Some((ticket, client)),
                ..
            } => pick(ticket, client),
            _ => false,
        };
        let calls = self
            .outgoing
            .iter()
            .filter(|(_, outgoing)| picked(outgoing));
        calls.map(|(call, _)| *call).collect()
    }

    fn withdraw(&mut self, cx: &mut Cx<'_>, calls: Vec<CallId>) -> Vec<Caller> {
        let mut here = Vec::new();
        for call in calls {
            let outgoing = self.outgoing.get_mut(&call).expect("listed just now");
            if let Then::Open { client, .. } = &mut outgoing.then {
                // The segment will be opened; it is closed again then.
                *client = None;
                continue;
            }
            outgoing.then = Then::Nothing;
            if outgoing.backoff.is_some() {
                outgoing.cancelled = true;
                cx.send(outgoing.to, Message::CancelCall { call });
            } else {
                self.outgoing.remove(&call);
                here.push(Caller {
                    node: cx.me(),
                    call,
                });
            }
        }
        here
    }

    /// A remote caller no longer waits for a call, which may not even have
    /// arrived yet. It is told that this is known, or the answer it had missed.
    pub(crate) fn cancelled(&mut self, cx: &mut Cx<'_>, caller: Caller) {
        let memory = self.served.entry(caller.node).or_default();
        let slot = memory.replies.entry(caller.call).or_default();
        let body = slot
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
