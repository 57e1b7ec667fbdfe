//! Payloads that policies send with barriers, and what goes on when a policy knows enough. Nothing
//! here reads the payloads.

use super::Services;
use crate::caller::Caller;
use crate::continuation::Continuation;
use crate::membership::Standing;
use crate::on_reply::OnReply;
use crate::shell::Cx;
use crate::sync::Early;
use pagemesh_wire::peer::{Call, PolicyMessage, Reply};
use pagemesh_wire::{NodeId, NodeSet, SyncKey};

impl Services {
    /// A call arrived at a barrier of this home.
    pub(super) fn arrive(&mut self, cx: &mut Cx<'_>, arrival: Early) {
        let (caller, key, parties) = (arrival.caller, arrival.key, arrival.parties);
        match self.early.take_in(cx, &mut self.segments, arrival) {
            Ok(true) => self.arrived(cx, caller, key, parties),
            Ok(false) => {}
            Err(why) => self.answer(cx, caller, Reply::Refused(why)),
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
                && let Some(sync) = self.segments.sync(segment)
            {
                let body = sync.depart(cx, answer.caller.node);
                if !body.is_empty() {
                    reply = Reply::Depart(PolicyMessage { segment, body });
                }
            }
            self.answer(cx, answer.caller, reply);
        }
        if !nodes.is_empty()
            && let Some(sync) = self.segments.sync(segment)
        {
            sync.opened(cx, nodes);
        }
    }

    /// A barrier has opened: the policy takes in the payload of the departure.
    pub(super) fn depart(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        departure: &PolicyMessage,
        then: OnReply,
    ) {
        let go_on = Continuation::Depart(then.clone());
        let sync = self.segments.sync(departure.segment);
        if sync.is_none_or(|sync| sync.acquire(cx, from, &departure.body, go_on)) {
            self.carry_on(cx, from, then, Reply::Done);
        }
    }

    /// Runs all continuations that are ready.
    pub(super) fn go_on(&mut self, cx: &mut Cx<'_>) {
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
                } => {
                    if let Standing::Out(why) = &self.membership.standing {
                        cx.refuse(ticket, why.clone());
                        continue;
                    }
                    let (who, untouched) = ((ticket, client), &mut self.untouched);
                    let call = self.segments.send_call(cx, untouched, who, (to, call));
                    self.follow(cx, call);
                }
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
