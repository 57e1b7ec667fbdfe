//! Payloads that policies send with barriers, and calls from the policy on one node to that on
//! another. Nothing here reads the payloads.

use crate::caller::Caller;
use crate::continuation::Continuation;
use crate::on_reply::OnReply;
use crate::policies::{Outgoing, SyncHooks};
use crate::services::Services;
use crate::shell::Cx;
use pagemesh_wire::peer::{Call, Payload, PolicyMessage, Refusal, Reply};
use pagemesh_wire::{NodeId, NodeSet, SegmentId, SyncKey};
use serde::{Deserialize, Serialize};

/// An arrival at a barrier that came before its home knew the segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Early {
    pub(crate) caller: Caller,
    pub(crate) key: SyncKey,
    parties: u32,
    payload: Payload,
}

impl Services {
    /// The segment is known now: counts arrivals that came before.
    pub(crate) fn count_early(&mut self, cx: &mut Cx<'_>, segment: SegmentId) {
        let came = |early: &mut Early| early.key.segment == segment;
        let came: Vec<_> = self.early.extract_if(.., came).collect();
        for early in came {
            self.arrive(cx, early.caller, (early.key, early.parties), early.payload);
        }
    }

    /// The hooks of a segment's policy for locks and barriers, if it has any.
    pub(crate) fn sync_of(&mut self, segment: SegmentId) -> Option<&mut dyn SyncHooks> {
        self.segments.get_mut(&segment)?.policy.sync()
    }

    /// Whether a process may arrive at a barrier now, as far as the segment's policy is concerned;
    /// else `then` is made ready when it may.
    pub(crate) fn may_arrive(
        &mut self,
        cx: &mut Cx<'_>,
        segment: SegmentId,
        then: &Continuation,
    ) -> bool {
        let untouched = match &self.untouched {
            Some((of, pages)) if *of == segment => pages.as_slice(),
            _ => &[],
        };
        let known = self.segments.get_mut(&segment);
        let sync = known.and_then(|known| known.policy.sync());
        sync.is_none_or(|sync| sync.prepare(cx, Outgoing::Arrival(untouched), then))
    }

    /// Adds to a barrier call what the policy has to tell the barrier's home (T14).
    pub(crate) fn with_payload(&mut self, cx: &mut Cx<'_>, mut call: Call) -> Call {
        if let Call::Barrier { key, payload, .. } = &mut call {
            let looked_at = |(segment, _): &mut (SegmentId, _)| *segment == key.segment;
            let untouched = self.untouched.take_if(looked_at);
            let (_, untouched) = untouched.unwrap_or_default();
            let sync = self.sync_of(key.segment);
            *payload = sync.map_or(Payload::EMPTY, |sync| sync.arrive(cx, &untouched));
        }
        call
    }

    /// A call arrived at a barrier of this home.
    pub(crate) fn arrive(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        (key, parties): (SyncKey, u32),
        payload: Payload,
    ) {
        let is_known = self.segments.contains_key(&key.segment);
        let informed = match self.sync_of(key.segment) {
            Some(sync) => {
                let then = Continuation::Arrive {
                    caller,
                    key,
                    parties,
                };
                sync.acquire(cx, caller.node, &payload, then)
            }
            None if is_known || payload.is_empty() => true,
            // This node created the segment, but has not heard of it yet.
            None if key.segment.home() == cx.me() => {
                return self.early.push(Early {
                    caller,
                    key,
                    parties,
                    payload,
                });
            }
            None => return self.answer(cx, caller, Reply::Refused(Refusal::NotFound)),
        };
        if informed {
            self.arrived(cx, caller, key, parties);
        }
    }

    /// Counts an arrival whose payload the policy has taken in.
    fn arrived(&mut self, cx: &mut Cx<'_>, caller: Caller, key: SyncKey, parties: u32) {
        let segment = key.segment;
        let answers = self.barriers.arrive(caller, key, parties);
        let open = answers.iter().filter(|answer| answer.reply == Reply::Done);
        let nodes: NodeSet = open.map(|answer| answer.caller.node).collect();
        for answer in answers {
            let mut reply = answer.reply;
            if reply == Reply::Done
                && let Some(sync) = self.sync_of(segment)
            {
                let body = sync.depart(cx, answer.caller.node);
                if !body.is_empty() {
                    reply = Reply::Depart(PolicyMessage { segment, body });
                }
            }
            self.answer(cx, answer.caller, reply);
        }
        if !nodes.is_empty()
            && let Some(sync) = self.sync_of(segment)
        {
            sync.opened(cx, nodes);
        }
    }

    /// A barrier has opened: the policy takes in the payload of the departure.
    pub(crate) fn depart(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        departure: &PolicyMessage,
        then: OnReply,
    ) {
        let continuation = Continuation::Depart(then.clone());
        let informed = match self.sync_of(departure.segment) {
            Some(sync) => sync.acquire(cx, from, &departure.body, continuation),
            None => true,
        };
        if informed {
            self.carry_on(cx, from, then, Reply::Done);
        }
    }

    /// A call from the policy of another node. If the segment is not known here, there is nothing
    /// to do.
    pub(crate) fn policy_called(&mut self, cx: &mut Cx<'_>, caller: Caller, call: &PolicyMessage) {
        match self.segments.get_mut(&call.segment) {
            Some(segment) => segment.policy.called(cx, caller, &call.body),
            None => self.answer(cx, caller, Reply::Done),
        }
    }

    /// The reply to a call that a policy here has made.
    pub(crate) fn policy_answered(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        (segment, number): (SegmentId, u64),
        reply: &Reply,
    ) {
        if let Some(segment) = self.segments.get_mut(&segment) {
            segment.policy.answered(cx, from, number, reply);
        }
    }

    /// Runs all continuations that are ready.
    pub(crate) fn go_on(&mut self, cx: &mut Cx<'_>) {
        while let Some(next) = cx.shell.ready.pop_front() {
            match next {
                Continuation::Lend(key) => self.locks.informed(cx, &mut self.segments, key),
                Continuation::Arrive {
                    caller,
                    key,
                    parties,
                } => {
                    // A caller that does not wait any more has not arrived.
                    if self.calls.waits(cx.me(), caller) {
                        self.arrived(cx, caller, key, parties);
                    }
                }
                Continuation::Grant(key) => self.locks.prepared(cx, &mut self.segments, key),
                Continuation::SendArrival {
                    ticket,
                    client,
                    to,
                    call,
                } => self.send_arrival(cx, (ticket, client), to, call),
                Continuation::Depart(then) => {
                    let home = cx.me();
                    self.carry_on(cx, home, then, Reply::Done);
                }
                Continuation::Answer(caller, reply) => self.answer(cx, caller, reply),
                Continuation::Call { to, call, number } => {
                    let then = OnReply::Policy(call.segment, number);
                    self.call(cx, to, Call::Policy(call), then);
                }
                Continuation::Introduce { to, segment } => {
                    if let Some(known) = self.segments.get(&segment) {
                        let call = Call::TakePart(Box::new(known.info.clone()));
                        self.call(cx, to, call, OnReply::Nothing);
                    }
                }
            }
        }
    }
}
