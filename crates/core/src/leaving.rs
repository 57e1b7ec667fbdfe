//! A node leaves gracefully: it hands over every page and token that it owns, then its state as the
//! home of segments, and then ends its membership. From then on the coordinator answers for its
//! segments: `Cx::home` is the acting home.

use crate::caller::Caller;
use crate::calls::Redirected;
use crate::continuation::Continuation;
use crate::limits::{INHERITED, LEAVE_BURST};
use crate::on_reply::OnReply;
use crate::services::Services;
use crate::shell::Cx;
use pagemesh_wire::peer::{Arrival, Call, Inheritance, Owner, Refusal, Reply, Service, Subject};
use pagemesh_wire::{NodeId, Ticket};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The progress of a node that leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Leaving {
    /// Leaving has begun.
    begun: bool,
    /// The request of the client that waits for the end.
    pub(crate) asked: Option<Ticket>,
    /// All pages and tokens are handed over: this node must not take any more.
    pub(crate) empty: bool,
    /// Pieces of the handover that the coordinator has not been sent yet, in this order.
    #[serde(rename = "will")]
    handover: VecDeque<Inheritance>,
}

impl Leaving {
    fn begin(&mut self, ticket: Ticket) {
        self.begun = true;
        self.asked = Some(ticket);
    }

    /// Whether this node is leaving or has left.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }
}

impl Services {
    /// A client asks this node to leave.
    pub(crate) fn leave(&mut self, cx: &mut Cx<'_>, ticket: Ticket) {
        if self.membership.coordinator_silent(cx) {
            let why =
                "the coordinator does not answer; let this node leave when it does, or end it";
            cx.refuse(ticket, Refusal::CannotLeave(why.into()));
        } else if self.coordinator.is_none() {
            let steps = self.sysv.leave(cx);
            self.follow(cx, steps);
            self.leaving.begin(ticket);
            self.global.hand_back(cx);
        } else if cx.shell.peers().is_empty() {
            self.leaving.begin(ticket);
            self.leaving.empty = true;
            self.expelled(cx);
        } else {
            let why = "this node is the coordinator; let the other nodes leave first";
            cx.refuse(ticket, Refusal::CannotLeave(why.into()));
        }
    }

    /// The coordinator went silent while this node leaves: refuses the client's request, so that it
    /// does not wait forever. This node goes on handing over, and leaves if it ever can.
    pub(crate) fn despair_of_leaving(&mut self, cx: &mut Cx<'_>) {
        if self.membership.coordinator_silent(cx)
            && let Some(ticket) = self.leaving.asked.take()
        {
            let why = "the coordinator has stopped answering; this node leaves as soon as it does";
            cx.refuse(ticket, Refusal::CannotLeave(why.into()));
        }
    }

    /// Hands over more while this node leaves; called after each input.
    pub(crate) fn go_on_leaving(&mut self, cx: &mut Cx<'_>) {
        if !self.leaving.has_begun() || self.leaving.empty {
            return;
        }
        let mut left = self.locks.hand_over(cx, &mut self.segments);
        left += self.global.donor.only_copies() as usize;
        for segment in self.segments.values_mut() {
            let successor = cx.successor(segment.info.id);
            left += segment.policy.hand_over(cx, successor, LEAVE_BURST);
        }
        if left == 0 {
            self.leaving.empty = true;
            self.leaving.handover = self.make_handover(cx.me());
            self.send_handover(cx);
        }
    }

    /// The state of this node as a home, in pieces.
    fn make_handover(&self, me: NodeId) -> VecDeque<Inheritance> {
        let mut owners = self.locks.handover(me);
        for segment in self.segments.values() {
            let id = segment.info.id;
            if id.home() == me {
                let known = segment.policy.handover(me);
                owners.extend(known.into_iter().map(|(page, version, node)| Owner {
                    subject: Subject::Page { segment: id, page },
                    node,
                    version,
                }));
            }
        }
        let arrivals: Vec<Arrival> = self.barriers.handover();
        let waiters = self.conditions.handover();
        let served: Vec<Service> = self.calls.handover();
        let owners = owners.chunks(INHERITED).map(|part| part.to_vec());
        let arrivals = arrivals.chunks(INHERITED).map(|part| part.to_vec());
        let waiters = waiters.chunks(INHERITED).map(|part| part.to_vec());
        let served = served.chunks(INHERITED).map(|part| part.to_vec());
        // Served calls go before arrivals, because an arrival counts only if its call is known to
        // wait.
        owners
            .map(Inheritance::Owners)
            .chain(served.map(Inheritance::Served))
            .chain(arrivals.map(Inheritance::Arrivals))
            .chain(waiters.map(Inheritance::Waiters))
            .collect()
    }

    /// Sends the coordinator the next piece; after the last, ends the membership.
    pub(crate) fn send_handover(&mut self, cx: &mut Cx<'_>) {
        let (call, then) = match self.leaving.handover.pop_front() {
            Some(piece) => (Call::Inherit(piece), OnReply::HandedOver),
            None => (Call::Leave, OnReply::Left),
        };
        self.call(cx, cx.coordinator(), call, then);
    }

    /// The coordinator takes over a piece of a leaving home's state.
    pub(crate) fn inherit(&mut self, cx: &mut Cx<'_>, piece: Inheritance) {
        match piece {
            Inheritance::Owners(owners) => {
                for owner in owners {
                    self.inherit_owner(cx, owner);
                }
            }
            Inheritance::Arrivals(arrivals) => {
                for arrival in arrivals {
                    if !cx.is_gone(arrival.node) {
                        self.inherit_arrival(cx, arrival);
                    }
                }
            }
            Inheritance::Waiters(waiters) => {
                for (key, node, call) in waiters {
                    if !cx.is_gone(node) {
                        self.conditions.wait(Caller { node, call }, key);
                    }
                }
            }
            Inheritance::Served(served) => {
                for service in served {
                    if !cx.is_gone(service.node) {
                        self.calls.inherit(service);
                    }
                }
            }
        }
    }

    /// If a policy sends payloads with barriers, this node must learn what the arrived nodes told
    /// the home before it lets any of them depart.
    fn inherit_arrival(&mut self, cx: &mut Cx<'_>, arrival: Arrival) {
        let (node, call) = (arrival.node, arrival.call);
        let caller = Caller { node, call };
        self.adopt(arrival.key.segment);
        match self.sync_of(arrival.key.segment) {
            Some(sync) => {
                let then = Continuation::Arrive {
                    caller,
                    key: arrival.key,
                    parties: arrival.parties,
                };
                sync.acquire_from_all(cx, then);
            }
            None => self.barriers.inherit(arrival, caller),
        }
    }

    fn inherit_owner(&mut self, cx: &mut Cx<'_>, owner: Owner) {
        let Owner {
            subject,
            node,
            version,
        } = owner;
        self.adopt(subject.segment());
        match subject {
            Subject::Lock(key) if self.segments.contains_key(&key.segment) => {
                self.locks
                    .learn(cx, &mut self.segments, key, (node, version));
            }
            Subject::Lock(_) => {}
            Subject::Page { segment, page } => {
                let known = self.segments.get_mut(&segment);
                if let Some(segment) = known.filter(|segment| segment.has(page)) {
                    segment.policy.learn(cx, page, node, version);
                }
            }
        }
    }

    /// The home of segments has left: sends open calls to it to its successor.
    pub(crate) fn ask_successor(&mut self, cx: &mut Cx<'_>, home: NodeId) {
        let about_segments = |call: &Call| call.key().is_some();
        let coordinator = cx.coordinator();
        for call in self.calls.redirect(cx, (home, about_segments), coordinator) {
            self.serve_own(cx, call);
        }
        self.calls.forget_own(cx.me());
    }

    /// Serves a call of this node that went to the home before.
    pub(crate) fn serve_own(&mut self, cx: &mut Cx<'_>, redirected: Redirected) {
        let Redirected {
            caller,
            body,
            served,
            cancelled,
        } = redirected;
        if cancelled {
            self.forget_caller(caller);
            let done = served.flatten();
            let reply = done.unwrap_or(Reply::Refused(Refusal::Cancelled));
            self.replied(cx, caller.node, caller.call, reply);
            return;
        }
        match served {
            None => self.execute(cx, caller, body),
            Some(reply) => {
                let reply = reply.unwrap_or(Reply::Waiting);
                self.replied(cx, caller.node, caller.call, reply);
            }
        }
    }
}
