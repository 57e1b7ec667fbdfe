//! A node leaves, and the coordinator takes over what it was the home of.

use super::Services;
use crate::caller::Caller;
use crate::calls::Redirected;
use crate::leaving::Estate;
use crate::shell::Cx;
use pagemesh_wire::Ticket;
use pagemesh_wire::peer::{Inheritance, Owner, Refusal, Reply, Subject};

impl Services {
    pub(super) fn leave(&mut self, cx: &mut Cx<'_>, ticket: Ticket) {
        let alone = cx.shell.peers().is_empty();
        let why = if self.membership.coordinator_silent(cx) {
            "the coordinator does not answer; let this node leave when it does, or end it"
        } else if self.coordinator.is_none() {
            let steps = self.sysv.leave(cx);
            self.follow(cx, steps);
            self.leaving.begin(ticket, false);
            return self.global.hand_back(cx);
        } else if alone {
            self.leaving.begin(ticket, true);
            return self.expelled(cx);
        } else {
            "this node is the coordinator; let the other nodes leave first"
        };
        cx.refuse(ticket, Refusal::CannotLeave(why.into()));
    }

    /// Hands over more while this node leaves; called after each input.
    pub(super) fn go_on_leaving(&mut self, cx: &mut Cx<'_>) {
        let estate = Estate {
            segments: &mut self.segments,
            locks: &mut self.locks,
            barriers: &self.barriers,
            conditions: &self.conditions,
            calls: &self.calls,
            only_copies: self.global.donor.only_copies() as usize,
        };
        let step = self.leaving.go_on(cx, estate);
        self.follow(cx, step);
    }

    /// The coordinator takes over a piece of a leaving home's state.
    pub(super) fn inherit(&mut self, cx: &mut Cx<'_>, piece: Inheritance) {
        match piece {
            Inheritance::Owners(owners) => {
                for owner in owners {
                    self.inherit_owner(cx, owner);
                }
            }
            Inheritance::Arrivals(mut arrivals) => {
                arrivals.retain(|arrival| !cx.is_gone(arrival.node));
                for arrival in arrivals {
                    self.adopt(arrival.key.segment);
                    self.barriers.inherit(cx, &mut self.segments, arrival);
                }
            }
            Inheritance::Waiters(mut waiters) => {
                waiters.retain(|(_, node, _)| !cx.is_gone(*node));
                for (key, node, call) in waiters {
                    self.conditions.wait(Caller { node, call }, key);
                }
            }
            Inheritance::Served(mut served) => {
                served.retain(|service| !cx.is_gone(service.node));
                for service in served {
                    self.calls.inherit(service);
                }
            }
        }
    }

    fn inherit_owner(&mut self, cx: &mut Cx<'_>, owner: Owner) {
        self.adopt(owner.subject.segment());
        let known = (owner.node, owner.version);
        match owner.subject {
            Subject::Lock(key) => self.locks.learn(cx, &mut self.segments, key, known),
            Subject::Page { segment, page } => self.segments.learn(cx, (segment, page), known),
        }
    }

    /// Serves a call of this node that went to the home before.
    pub(super) fn serve_own(&mut self, cx: &mut Cx<'_>, redirected: Redirected) {
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
