//! Calls that this node makes: repeated until their replies come, withdrawn, or given up.

use super::{Caller, Calls, OnReply};
use crate::backoff::Backoff;
use crate::event::Event;
use crate::shell::Cx;
use crate::timers::Timer;
use pagemesh_wire::peer::{Call, Message, Reply};
use pagemesh_wire::{CallId, ClientId, NodeId, NodeSet, Ticket};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct OpenCall {
    pub(super) to: NodeId,
    pub(super) body: Call,
    pub(super) then: OnReply,
    /// None for calls to this node itself.
    pub(super) backoff: Option<Backoff>,
    /// The caller has been told that the call waits at the server.
    waiting_told: bool,
    /// The caller has withdrawn the call; the server is told until it acknowledges that.
    pub(super) cancelled: bool,
}

impl OpenCall {
    /// The message of the call, as each resend carries it.
    pub(super) fn message(&self, call: CallId, floor: CallId) -> Message {
        if self.cancelled {
            return Message::CancelCall { call };
        }
        let body = self.body.clone();
        Message::Call { call, floor, body }
    }
}

impl Calls {
    /// Calls `to`. If that is this node, the caller of this function must execute the call.
    pub(crate) fn call(
        &mut self,
        cx: &mut Cx<'_>,
        to: NodeId,
        body: Call,
        then: OnReply,
    ) -> Caller {
        self.last.0 += 1;
        let call = self.last;
        let here = to == cx.me();
        let backoff = (!here).then(|| cx.backoff(Timer::Call(call)));
        self.outgoing.insert(
            call,
            OpenCall {
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

    /// The floor: every call below it was answered, or its server knows that the call waits.
    pub(super) fn floor(&self) -> CallId {
        let open = self
            .outgoing
            .iter()
            .find(|(_, outgoing)| !outgoing.waiting_told);
        open.map_or(self.last, |(call, _)| *call)
    }

    /// A reply arrived. Returns how to go on with it, if the call is open and the reply is new.
    pub(crate) fn replied(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        call: CallId,
        reply: &Reply,
    ) -> Option<OnReply> {
        let outgoing = self.outgoing.get_mut(&call)?;
        if outgoing.to != from {
            return None;
        }
        if *reply == Reply::Waiting {
            let news = !core::mem::replace(&mut outgoing.waiting_told, true);
            let tell =
                news && !outgoing.cancelled && matches!(outgoing.body, Call::CondWait { .. });
            return tell.then(|| outgoing.then.clone());
        }
        let outgoing = self.outgoing.remove(&call)?;
        if let Some(backoff) = &outgoing.backoff {
            cx.end(backoff, Timer::Call(call));
        }
        if (outgoing.waiting_told || outgoing.cancelled) && from != cx.me() {
            // The server may forget the reply; the floor no longer tells it so.
            cx.send(from, Message::HaveReply { call });
        }
        match outgoing.body {
            // The waiter was woken after its client had gone: another waiter must be woken.
            Call::CondWait { key } if outgoing.cancelled && *reply == Reply::Done => {
                return Some(OnReply::WakeAnother(key));
            }
            Call::Barrier { key, .. } if matches!(reply, Reply::Done | Reply::Depart(_)) => {
                cx.emit(Event::BarrierPassed { key });
            }
            _ => {}
        }
        Some(outgoing.then)
    }

    /// Gives up a client's call to a server that has been silent for too long. Returns the server
    /// and how to go on. The call is withdrawn, because the server may still receive it.
    pub(crate) fn give_up(
        &mut self,
        cx: &mut Cx<'_>,
        call: CallId,
        silent: NodeSet,
    ) -> Option<(NodeId, OnReply)> {
        let outgoing = self.outgoing.get(&call)?;
        let server = outgoing.to;
        let client = outgoing.then.client();
        if !silent.contains(server) {
            return None;
        }
        let then = match (&outgoing.then, client?) {
            // The get that was begun is finished without this client.
            (OnReply::Register(_) | OnReply::Visit(_), (ticket, client)) => {
                OnReply::Tell(ticket, client)
            }
            (then, _) => then.clone(),
        };
        self.withdraw(cx, vec![call]);
        Some((server, then))
    }

    /// Resends a call if its resend is due.
    pub(crate) fn due(&mut self, cx: &mut Cx<'_>, call: CallId) {
        let floor = self.floor();
        let Some(outgoing) = self.outgoing.get_mut(&call) else {
            return;
        };
        let Some(backoff) = &mut outgoing.backoff else {
            return;
        };
        if cx.fire(backoff, Timer::Call(call)) {
            let message = outgoing.message(call, floor);
            cx.send(outgoing.to, message);
        }
    }

    /// Whether an opening of a segment of this name is under way.
    pub(crate) fn opening(&self, name: &str) -> bool {
        self.outgoing.values().any(
            |outgoing| matches!(&outgoing.then, OnReply::Open { name: opening, .. } if opening == name),
        )
    }

    /// How many openings of a segment of this name are under way.
    pub(crate) fn openings(&self, name: &str) -> u32 {
        let opens = |outgoing: &&OpenCall| matches!(&outgoing.then, OnReply::Open { name: opening, .. } if opening == name);
        self.outgoing.values().filter(opens).count() as u32
    }

    /// A client withdraws a request. Returns the calls whose withdrawal this node must serve
    /// itself; none if no call belongs to the ticket, or if a server answers the withdrawal.
    pub(crate) fn cancel(&mut self, cx: &mut Cx<'_>, ticket: Ticket) -> Option<Vec<Caller>> {
        let mut calls = self.calls_of(|of, _| of == ticket);
        // A get ends soon, and its answer comes then.
        calls.retain(|call| {
            !matches!(
                self.outgoing[call].then,
                OnReply::Register(_) | OnReply::Visit(_)
            )
        });
        calls.retain(|call| !self.inquire(cx, *call));
        (!calls.is_empty()).then(|| self.withdraw(cx, calls))
    }

    /// Asks the server whether a call was withdrawn in time. Only the home knows whether a barrier
    /// has opened with this party or a semaphore was taken; it answers either that the call was
    /// withdrawn or with the call's reply. False for calls of other kinds.
    fn inquire(&mut self, cx: &mut Cx<'_>, call: CallId) -> bool {
        let outgoing = self.outgoing.get_mut(&call).expect("listed just now");
        let asks = matches!(outgoing.body, Call::Barrier { .. } | Call::Sysv(_));
        // An attachment is given back when its reply comes; the reply to a survey is not needed.
        let spare = matches!(outgoing.then, OnReply::Open { .. } | OnReply::Survey(..));
        let inquires = asks && !spare && outgoing.backoff.is_some();
        if inquires {
            outgoing.cancelled = true;
            cx.send(outgoing.to, Message::CancelCall { call });
        }
        inquires
    }

    /// Withdraws all calls of a client that has gone.
    pub(crate) fn client_gone(&mut self, cx: &mut Cx<'_>, client: ClientId) -> Vec<Caller> {
        let calls = self.calls_of(|_, of| of == client);
        let here = self.withdraw(cx, calls.clone());
        for call in calls {
            // The effects of these calls are known when they are answered; only then is the exit of
            // the process complete.
            if let Some(outgoing) = self.outgoing.get_mut(&call)
                && matches!(outgoing.body, Call::Sysv(_))
                && outgoing.then == OnReply::Nothing
            {
                outgoing.then = OnReply::Orphaned(client);
            }
        }
        here
    }

    /// Whether a home has not yet acknowledged news of processes of this node.
    pub(crate) fn tells(&self, home: NodeId) -> bool {
        let mut outgoing = self.outgoing.values();
        outgoing.any(|outgoing| outgoing.to == home && outgoing.then == OnReply::Told)
    }

    /// Whether calls of a process that has ended are still under way.
    pub(crate) fn mourns(&self, client: ClientId) -> bool {
        let mut outgoing = self.outgoing.values();
        outgoing.any(|outgoing| outgoing.then == OnReply::Orphaned(client))
    }

    fn calls_of(&self, pick: impl Fn(Ticket, ClientId) -> bool) -> Vec<CallId> {
        let picked = |outgoing: &OpenCall| {
            let client = outgoing.then.client();
            client.is_some_and(|(ticket, client)| pick(ticket, client))
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
            match &mut outgoing.then {
                // The segment will be opened, and is closed again then.
                OnReply::Open { client, .. } => {
                    *client = None;
                    continue;
                }
                // The object will be found or made.
                OnReply::Register(get) | OnReply::Visit(get) => {
                    get.client = None;
                    continue;
                }
                _ => {}
            }
            outgoing.then = OnReply::Nothing;
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
}
