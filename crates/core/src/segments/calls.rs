//! Calls of programs that use segments, and what the segment's policy sends with barriers.

use super::Segments;
use crate::caller::Caller;
use crate::continuation::Continuation;
use crate::on_reply::OnReply;
use crate::policies::{Outgoing, SyncHooks};
use crate::shell::Cx;
use crate::steps::Step;
use pagemesh_wire::peer::{Call, Payload, PolicyMessage, Refusal, Reply};
use pagemesh_wire::{ClientId, NodeId, PageIndex, SegmentId, Ticket};

/// The untouched pages that the input directly before this one reported.
pub(crate) type Untouched = Option<(SegmentId, Vec<PageIndex>)>;

impl Segments {
    /// The hooks of a segment's policy for locks and barriers, if it has any.
    pub(crate) fn sync(&mut self, segment: SegmentId) -> Option<&mut dyn SyncHooks> {
        self.get_mut(&segment)?.policy.sync()
    }

    /// The driver has compared pages with their twins: these equal them.
    pub(crate) fn looked_at(
        &mut self,
        cx: &mut Cx<'_>,
        segment: SegmentId,
        untouched: Vec<PageIndex>,
    ) -> Untouched {
        if let Some(sync) = self.sync(segment) {
            sync.looked_at(cx, &untouched);
        }
        Some((segment, untouched))
    }

    /// A process makes a call. It may have to wait until the policy lets it arrive at a barrier.
    pub(crate) fn client_call(
        &mut self,
        cx: &mut Cx<'_>,
        untouched: &mut Untouched,
        (ticket, client): (Ticket, ClientId),
        (to, call): (Option<NodeId>, Call),
    ) -> Option<Step> {
        if let Some(key) = call.key()
            && !self.is_open_by(key.segment, client)
        {
            cx.refuse(ticket, Refusal::NotFound);
            return None;
        }
        if let Call::Barrier { key, .. } = &call {
            let segment = key.segment;
            let arrival = Continuation::SendArrival {
                ticket,
                client,
                to,
                call: call.clone(),
            };
            if !self.may_arrive(cx, untouched, segment, &arrival) {
                return None;
            }
        }
        self.send_call(cx, untouched, (ticket, client), (to, call))
    }

    /// Sends a call of a process, with what the policy has to tell with it.
    pub(crate) fn send_call(
        &mut self,
        cx: &mut Cx<'_>,
        untouched: &mut Untouched,
        (ticket, client): (Ticket, ClientId),
        (to, mut call): (Option<NodeId>, Call),
    ) -> Option<Step> {
        // A node that a person names must exist. The home of a segment exists, though this node may
        // not have heard of it yet.
        let gone = |node| match to {
            Some(_) => !cx.is_alive(node),
            None => cx.is_gone(node),
        };
        let server = to.or_else(|| home_of(cx, &call));
        let why = match server {
            Some(node) if gone(node) => Refusal::NodeGone(node),
            Some(node) => {
                self.add_payload(cx, untouched, &mut call);
                return Some(Step::Call(node, call, OnReply::Tell(ticket, client)));
            }
            None => Refusal::Invalid("not for clients".into()),
        };
        cx.refuse(ticket, why);
        None
    }

    /// Whether a process may arrive at a barrier now, as far as the segment's policy is concerned;
    /// else `then` is made ready when it may.
    fn may_arrive(
        &mut self,
        cx: &mut Cx<'_>,
        untouched: &Untouched,
        segment: SegmentId,
        then: &Continuation,
    ) -> bool {
        let untouched = match untouched {
            Some((of, pages)) if *of == segment => pages.as_slice(),
            _ => &[],
        };
        let sync = self.sync(segment);
        sync.is_none_or(|sync| sync.prepare(cx, Outgoing::Arrival(untouched), then))
    }

    /// Adds to a barrier call what the policy has to tell the barrier's home (T14).
    fn add_payload(&mut self, cx: &mut Cx<'_>, untouched: &mut Untouched, call: &mut Call) {
        if let Call::Barrier { key, payload, .. } = call {
            let looked_at = |(segment, _): &mut (SegmentId, _)| *segment == key.segment;
            let (_, untouched) = untouched.take_if(looked_at).unwrap_or_default();
            let sync = self.sync(key.segment);
            *payload = sync.map_or(Payload::EMPTY, |sync| sync.arrive(cx, &untouched));
        }
    }

    /// A call from the policy of another node. If the segment is not known here, there is nothing
    /// to do.
    pub(crate) fn called(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        call: &PolicyMessage,
    ) -> Option<Step> {
        match self.get_mut(&call.segment) {
            Some(segment) => {
                segment.policy.called(cx, caller, &call.body);
                None
            }
            None => Some(Step::Answer(caller, Reply::Done)),
        }
    }

    pub(crate) fn answered(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        (segment, number): (SegmentId, u64),
        reply: &Reply,
    ) {
        if let Some(segment) = self.get_mut(&segment) {
            segment.policy.answered(cx, from, number, reply);
        }
    }
}

/// The node that answers a call which names none.
fn home_of(cx: &Cx<'_>, call: &Call) -> Option<NodeId> {
    if let Some(key) = call.key() {
        let home = key.segment.home();
        // If the home died, its arrivals and waiters are lost, and no successor is asked.
        let successor = cx.has_left(home).then(|| cx.home(key.segment));
        return Some(successor.unwrap_or(home));
    }
    let names = matches!(
        call,
        Call::Remove { .. }
            | Call::Stat { .. }
            | Call::List { .. }
            | Call::Name { .. }
            | Call::Declare { .. }
    );
    names.then_some(cx.coordinator())
}
