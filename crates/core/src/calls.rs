//! Remote procedure calls over lossy datagrams, each executed at most once.
//!
//! The caller repeats a call until its reply comes. The server remembers every
//! call until the caller's *floor* has passed it, and answers a repetition from
//! memory. A call that waits long is set aside: once the caller knows that it
//! waits, its floor goes on without it, and the server remembers the reply
//! until the caller says it has it. Calls to this very node take the same way
//! without a datagram.

use crate::backoff::Backoff;
use crate::event::Event;
use crate::limits::CALLS_KEPT;
use crate::shell::Cx;
use crate::sysv::Get;
use crate::timers::Timer;
use pagemesh_wire::peer::{Call, Message, Refusal, Reply, Service};
use pagemesh_wire::sysv::keys::{Bucket, Buckets, Name};
use pagemesh_wire::{CallId, ClientId, NodeId, NodeSet, SegmentId, SyncKey, Ticket};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Who called, and which of its calls it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Caller {
    pub(crate) node: NodeId,
    pub(crate) call: CallId,
}

/// What to do with the reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
    /// The coordinator has a piece of what this node knew; on to the next.
    Bequeathed,
    /// A step of a collection of this segment, in this round.
    Collected(SegmentId, u64),
    /// Wake another waiter of this condition variable.
    WakeAnother(SyncKey),
    /// Nothing: it only had to arrive.
    Nothing,
    /// Its process is gone; when its last call is over, more is to be done.
    Mourn(ClientId),
    /// A member knows a range that somebody declared.
    Declared(Caller),
    /// What processes ask this home next, it answers knowing what it was told.
    Told,
    /// A process wants the object of a key: the register says who has it.
    Register(Box<Get>),
    /// A process wants the object of a key: its home says what it is like.
    Visit(Box<Get>),
    /// The register knows that an object here does not have this key any more.
    Struck(Name),
    /// A node decides upon these keys.
    Lent(Buckets),
    /// A node does not decide upon these keys any more.
    Returned(Bucket),
    /// A process wants to know what all nodes have.
    Survey(Ticket, ClientId),
}

impl Then {
    /// The process that waits, and for which of its requests.
    fn client(&self) -> Option<(Ticket, ClientId)> {
        match self {
            Self::Tell(ticket, client) | Self::Survey(ticket, client) => Some((*ticket, *client)),
            Self::Open { client, .. } => *client,
            Self::Register(get) | Self::Visit(get) => get.client,
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

impl Outgoing {
    /// As it is said again and again.
    fn message(&self, call: CallId, floor: CallId) -> Message {
        if self.cancelled {
            return Message::CancelCall { call };
        }
        let body = self.body.clone();
        Message::Call { call, floor, body }
    }
}

/// What a server remembers of one caller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Memory {
    floor: CallId,
    calls: BTreeMap<CallId, Served>,
}

/// A call that arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Served {
    /// None while the call waits.
    reply: Option<Reply>,
    /// The caller was told that it waits, so its floor has passed it by: it is
    /// remembered until the caller says it has the reply.
    waits: bool,
    /// It came to this node as the home of a segment: an heir must know of it.
    for_home: bool,
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

    /// Every call below this was answered, or its server knows that it waits.
    fn floor(&self) -> CallId {
        let open = self
            .outgoing
            .iter()
            .find(|(_, outgoing)| !outgoing.waiting_told);
        open.map_or(self.last, |(call, _)| *call)
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
            .calls
            .retain(|call, served| *call >= floor || served.reply.is_none() || served.waits);
        let full = memory.calls.len() >= CALLS_KEPT;
        match memory.calls.get_mut(&caller.call) {
            None if caller.call < floor || full => return false,
            None => {
                let served = Served {
                    for_home: body.key().is_some(),
                    ..Served::default()
                };
                memory.calls.insert(caller.call, served);
                return true;
            }
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

    /// Answers a remote call, now and whenever it is repeated.
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

    /// A reply arrived. Returns what to do with it, if the call was still open
    /// and this is news.
    pub(crate) fn replied(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        call: CallId,
        reply: &Reply,
    ) -> Option<Then> {
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
            // The server may forget it; our floor no longer says so.
            cx.send(from, Message::HaveReply { call });
        }
        match outgoing.body {
            // It was woken after its client had gone: somebody else must wake.
            Call::CondWait { key } if outgoing.cancelled && *reply == Reply::Done => {
                return Some(Then::WakeAnother(key));
            }
            Call::Barrier { key, .. } | Call::Arrive { key, .. }
                if matches!(reply, Reply::Done | Reply::Depart { .. }) =>
            {
                cx.emit(Event::BarrierPassed { key });
            }
            _ => {}
        }
        Some(outgoing.then)
    }

    /// Gives up a client's call to a server that has been silent for too long. Returns
    /// the server and whom to tell. It is withdrawn: the server may yet hear of it.
    pub(crate) fn give_up(
        &mut self,
        cx: &mut Cx<'_>,
        call: CallId,
        silent: NodeSet,
    ) -> Option<(NodeId, Then)> {
        let outgoing = self.outgoing.get(&call)?;
        let server = outgoing.to;
        let client = outgoing.then.client();
        if !silent.contains(server) {
            return None;
        }
        let then = match (&outgoing.then, client?) {
            // What was begun comes to an end without it.
            (Then::Register(_) | Then::Visit(_), (ticket, client)) => Then::Tell(ticket, client),
            (then, _) => then.clone(),
        };
        self.withdraw(cx, vec![call]);
        Some((server, then))
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
            let message = outgoing.message(call, floor);
            cx.send(outgoing.to, message);
        }
    }

    /// Whether an opening of a segment of this name is under way.
    pub(crate) fn opening(&self, name: &str) -> bool {
        self.outgoing.values().any(
            |outgoing| matches!(&outgoing.then, Then::Open { name: opening, .. } if opening == name),
        )
    }

    /// How many openings of a segment of this name are under way.
    pub(crate) fn openings(&self, name: &str) -> u32 {
        let opens = |outgoing: &&Outgoing| matches!(&outgoing.then, Then::Open { name: opening, .. } if opening == name);
        self.outgoing.values().filter(opens).count() as u32
    }

    /// A client withdraws a request. Returns the calls this node must serve
    /// the withdrawal of itself, or nothing if no call belonged to the ticket, or
    /// one whose server answers the client.
    pub(crate) fn cancel(&mut self, cx: &mut Cx<'_>, ticket: Ticket) -> Option<Vec<Caller>> {
        let mut calls = self.calls_of(|of, _| of == ticket);
        // A get is over soon, and its word comes then.
        calls
            .retain(|call| !matches!(self.outgoing[call].then, Then::Register(_) | Then::Visit(_)));
        calls.retain(|call| !self.inquire(cx, *call));
        (!calls.is_empty()).then(|| self.withdraw(cx, calls))
    }

    /// Whether others have passed a barrier with this party, or a semaphore was
    /// taken, only its home can say: the withdrawal is answered with its word, that
    /// the call was withdrawn or what became of it. False for all other calls.
    fn inquire(&mut self, cx: &mut Cx<'_>, call: CallId) -> bool {
        let outgoing = self.outgoing.get_mut(&call).expect("listed just now");
        let asks = matches!(
            outgoing.body,
            Call::Barrier { .. } | Call::Arrive { .. } | Call::Sysv(_)
        );
        // An attachment is given back when it comes, and what a node has nobody misses.
        let spare = matches!(outgoing.then, Then::Open { .. } | Then::Survey(..));
        let inquires = asks && !spare && outgoing.backoff.is_some();
        if inquires {
            outgoing.cancelled = true;
            cx.send(outgoing.to, Message::CancelCall { call });
        }
        inquires
    }

    /// A client is gone, with everything it waited for.
    pub(crate) fn client_gone(&mut self, cx: &mut Cx<'_>, client: ClientId) -> Vec<Caller> {
        let calls = self.calls_of(|_, of| of == client);
        let here = self.withdraw(cx, calls.clone());
        for call in calls {
            // What it did on its way out is known when these are answered.
            if let Some(outgoing) = self.outgoing.get_mut(&call)
                && matches!(outgoing.body, Call::Sysv(_))
                && outgoing.then == Then::Nothing
            {
                outgoing.then = Then::Mourn(client);
            }
        }
        here
    }

    /// Whether a home is still being told of processes of this node.
    pub(crate) fn tells(&self, home: NodeId) -> bool {
        let mut outgoing = self.outgoing.values();
        outgoing.any(|outgoing| outgoing.to == home && outgoing.then == Then::Told)
    }

    /// Whether calls of a process that is gone are still under way.
    pub(crate) fn mourns(&self, client: ClientId) -> bool {
        let mut outgoing = self.outgoing.values();
        outgoing.any(|outgoing| outgoing.then == Then::Mourn(client))
    }

    fn calls_of(&self, pick: impl Fn(Ticket, ClientId) -> bool) -> Vec<CallId> {
        let picked = |outgoing: &Outgoing| {
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
                // The segment will be opened; it is closed again then.
                Then::Open { client, .. } => {
                    *client = None;
                    continue;
                }
                // The object will be found or made.
                Then::Register(get) | Then::Visit(get) => {
                    get.client = None;
                    continue;
                }
                _ => {}
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

    /// A remote caller has the reply to a call, which need not be remembered for
    /// its sake any more.
    pub(crate) fn acknowledged(&mut self, caller: Caller) {
        let memory = self.served.get_mut(&caller.node);
        let served = memory.and_then(|memory| memory.calls.get_mut(&caller.call));
        if let Some(served) = served.filter(|served| served.reply.is_some()) {
            served.waits = false;
        }
    }

    /// Whether a call is still to be answered.
    pub(crate) fn waits(&self, me: NodeId, caller: Caller) -> bool {
        if caller.node == me {
            return self.outgoing.contains_key(&caller.call);
        }
        let memory = self.served.get(&caller.node);
        let served = memory.and_then(|memory| memory.calls.get(&caller.call));
        served.is_some_and(|served| served.reply.is_none())
    }

    /// A remote caller has withdrawn a call, which may not even have arrived yet.
    /// It is told that this is known, or the answer it had missed, and that is
    /// remembered until the caller has it.
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

    /// This node is no member any more: nobody will answer. Returns who waits.
    pub(crate) fn expelled(&mut self) -> Vec<Then> {
        self.served.clear();
        core::mem::take(&mut self.outgoing)
            .into_values()
            .map(|outgoing| outgoing.then)
            .collect()
    }

    /// What this node has executed, for its heir.
    pub(crate) fn legacy(&self) -> Vec<Service> {
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

    /// A home that leaves has executed this call, and will not answer any more.
    pub(crate) fn inherit(&mut self, service: Service) {
        let memory = self.served.entry(service.node).or_default();
        memory.calls.insert(
            service.call,
            Served {
                reply: service.reply,
                waits: service.waits,
                for_home: true,
            },
        );
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
