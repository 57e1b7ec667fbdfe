//! Queue locks. The token of a lock moves like a page without bytes: it stays where it was last
//! used, and the queue of waiting nodes travels with it.
//!
//! While the token is on this node it can be *lent* to the node's clients, which take and release
//! it through a lock word without the daemon (decision 6).

mod context;

use crate::effect::Effect;
use crate::event::Event;
use crate::membership::CoordinatorSilent;
use crate::ownership::{Extra, Ownership};
use crate::segments::{Segments, answer_unknown};
use crate::shell::Cx;
use context::LockContext;
use pagemesh_sorted::{LongMap, SortedMap};
use pagemesh_wire::peer::{
    Acquire, Ask, Grant, Message, Owner, PassAck, Payload, Refusal, Spare, Subject,
};
use pagemesh_wire::{ClientId, NodeId, NodeSet, SegmentId, SyncKey, Ticket, Version};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The state of one lock on this node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Lock {
    own: Ownership<Payloads>,
    /// The token is lent to this node's clients.
    lent: bool,
    /// The clients have been asked to give the token back.
    reclaiming: bool,
    /// Clients here that wait for the lock.
    waiting: VecDeque<(Ticket, ClientId)>,
    /// A holder died; the next holder is told.
    recovered: bool,
    /// The token is here, but this node does not yet know all that happened before it: the token is
    /// neither lent nor granted.
    uninformed: bool,
    /// The token is here and goes to another node next, as soon as the policy of the segment lets it:
    /// until then it is not lent.
    #[serde(default)]
    preparing: bool,
}

/// Payloads of the segment's policy that travel with the token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Payloads {
    /// Payloads of the requests that wait.
    requests: SortedMap<NodeId, Payload>,
    /// Payloads of the grant under way, to be resent with it.
    granted: Option<Box<Granted>>,
}

/// Payloads of a grant: the policy's own, and those of the next requests.
type Granted = (Payload, Vec<(NodeId, Payload)>);

impl Extra for Payloads {
    fn say(&self, ask: Ask) -> Message {
        match self.requests.get(&ask.waiter.node).cloned() {
            Some(payload) => Message::Acquire(Acquire { ask, payload }),
            None => Message::Ask(ask),
        }
    }
}

impl Lock {
    /// Drops payloads that are not needed any more.
    fn settle(&mut self) {
        if let Some(busy) = self.own.busy_if_any() {
            let (queue, want) = (&busy.queue, &busy.want);
            let waits = |node: NodeId| {
                let wanted = want.as_ref().is_some_and(|want| want.waiter.node == node);
                wanted || queue.iter().any(|waiter| waiter.node == node)
            };
            busy.more.requests.retain(|node, _| waits(*node));
            if busy.passing.is_none() {
                busy.more.granted = None;
            }
        }
        self.own.settle();
    }
}

/// All locks that this node has ever dealt with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Locks(LongMap<SyncKey, Lock>);

impl Locks {
    fn at(
        &mut self,
        cx: &mut Cx<'_>,
        segments: &mut Segments,
        key: SyncKey,
        work: impl FnOnce(&mut LockContext<'_, '_>),
    ) {
        let lock = self.0.entry(key).or_insert_with(|| Lock {
            own: Ownership::new(key.segment.home()),
            lent: false,
            reclaiming: false,
            waiting: VecDeque::new(),
            recovered: false,
            uninformed: false,
            preparing: false,
        });
        let segment = segments.get_mut(&key.segment);
        let sync = segment.and_then(|segment| segment.policy.sync());
        work(&mut LockContext {
            cx,
            key,
            lock,
            sync,
        });
        lock.settle();
    }

    /// A client asks for a lock, because it could not swap the lock word.
    pub(crate) fn lock(
        &mut self,
        cx: &mut Cx<'_>,
        segments: &mut Segments,
        (ticket, client): (Ticket, ClientId),
        key: SyncKey,
    ) {
        self.at(cx, segments, key, |context| {
            context.lock.waiting.push_back((ticket, client));
            context.request();
        });
    }

    /// The probable owner of the token has been silent for too long, and so has the first node,
    /// which would declare it dead: refuses clients that have waited as long. A lock that a living
    /// node holds may take any time.
    pub(crate) fn time_out(&mut self, cx: &mut Cx<'_>, key: SyncKey, overdue: CoordinatorSilent) {
        let Some(lock) = self.0.get_mut(&key) else {
            return;
        };
        let waits = lock.own.want().map(|want| cx.now - want.since);
        let there = lock.own.hint;
        let late = waits.is_some_and(|waits| waits >= overdue.patience);
        if late && overdue.silent.contains(there) {
            for (ticket, _) in core::mem::take(&mut lock.waiting) {
                cx.refuse(ticket, Refusal::NodeGone(there));
            }
        }
    }

    /// The clients gave the token back.
    pub(crate) fn returned(
        &mut self,
        cx: &mut Cx<'_>,
        segments: &mut Segments,
        key: SyncKey,
        recovered: bool,
    ) {
        self.at(cx, segments, key, |context| context.returned(recovered));
    }

    /// This node has learnt all that happened before the token came.
    pub(crate) fn informed(&mut self, cx: &mut Cx<'_>, segments: &mut Segments, key: SyncKey) {
        self.at(cx, segments, key, |context| {
            context.lock.uninformed = false;
            context.arrived();
        });
    }

    /// The policy of the segment lets the token go.
    pub(crate) fn prepared(&mut self, cx: &mut Cx<'_>, segments: &mut Segments, key: SyncKey) {
        self.at(cx, segments, key, |context| context.prepared());
    }

    /// A client withdraws a request. Returns true if it waited here.
    pub(crate) fn cancel(&mut self, ticket: Ticket) -> bool {
        let mut had = false;
        for lock in self.0.values_mut() {
            lock.waiting.retain(|(waiting, _)| {
                had |= *waiting == ticket;
                *waiting != ticket
            });
        }
        had
    }

    /// A client is gone: drops its requests.
    pub(crate) fn client_gone(&mut self, client: ClientId) {
        for lock in self.0.values_mut() {
            lock.waiting.retain(|(_, waiting)| *waiting != client);
        }
    }

    /// A message of another node about a token. Locks of unknown segments are not kept; a late grant
    /// of one is acknowledged, so that it is not resent forever.
    pub(crate) fn message(
        &mut self,
        cx: &mut Cx<'_>,
        segments: &mut Segments,
        from: NodeId,
        (key, overdue): (SyncKey, Option<CoordinatorSilent>),
        message: Message,
    ) {
        if !segments.contains_key(&key.segment) {
            return match message {
                Message::Pass(pass) | Message::Grant(Grant { pass, .. }) => {
                    let (subject, version) = (pass.subject, pass.version);
                    cx.send(from, Message::PassAck(PassAck { subject, version }));
                }
                message => answer_unknown(cx, from, message),
            };
        }
        self.at(cx, segments, key, |context| match message {
            Message::Ask(ask) => {
                context.asked(&ask);
                context.disappoint(&ask, overdue);
            }
            Message::Acquire(acquire) => {
                context.acquire(&acquire);
                context.disappoint(&acquire.ask, overdue);
            }
            Message::Pass(pass) => context.pass_arrived(from, &pass, None),
            Message::Grant(grant) => {
                context.pass_arrived(from, &grant.pass, Some((grant.payload, grant.waiting)));
            }
            Message::PassAck(ack) => {
                context.lock.own.passed(context.cx, from, ack.version);
            }
            Message::Locate(locate) => {
                context
                    .lock
                    .own
                    .answer(context.cx, from, &locate, Spare::None)
            }
            Message::Located(located) => context.located(from, &located),
            Message::Lost(lost) => context.lost(&lost, overdue),
            _ => context.cx.emit(Event::Malformed {}),
        });
    }

    /// A timer of a token is due.
    pub(crate) fn due(&mut self, cx: &mut Cx<'_>, segments: &mut Segments, key: SyncKey) {
        if self.0.contains_key(&key) {
            self.at(cx, segments, key, |context| context.due());
        }
    }

    /// A member is gone.
    pub(crate) fn member_gone(&mut self, cx: &mut Cx<'_>, segments: &mut Segments, node: NodeId) {
        for key in self.0.keys().copied().collect::<Vec<_>>() {
            self.at(cx, segments, key, |context| context.member_gone(node));
        }
    }

    /// This node is no member any more: refuses all waiting clients, and reclaims lent tokens, so
    /// that clients cannot take free locks without asking.
    pub(crate) fn expelled(&mut self, cx: &mut Cx<'_>) {
        for (key, lock) in &mut self.0 {
            for (ticket, _) in core::mem::take(&mut lock.waiting) {
                cx.refuse(ticket, Refusal::NotMember);
            }
            if lock.lent && !lock.reclaiming {
                lock.reclaiming = true;
                cx.push(Effect::ReclaimLock { key: *key });
            }
        }
    }

    /// This node's membership has ended, and it joins again as another node: forgets all tokens.
    /// Returns the clients that wait, and the locks that were lent to clients, which are asked to
    /// give them back.
    pub(crate) fn leave_behind(
        &mut self,
        cx: &mut Cx<'_>,
    ) -> (Vec<(SyncKey, Ticket, ClientId)>, Vec<SyncKey>) {
        let (mut waiting, mut lent) = (Vec::new(), Vec::new());
        for (key, lock) in core::mem::take(&mut self.0) {
            let waits = lock.waiting.iter();
            waiting.extend(waits.map(|(ticket, client)| (key, *ticket, *client)));
            if lock.lent {
                lent.push(key);
                if !lock.reclaiming {
                    cx.push(Effect::ReclaimLock { key });
                }
            }
        }
        (waiting, lent)
    }

    /// This node leaves: sends every free token to its home. Returns how many tokens are still here
    /// or under way.
    pub(crate) fn hand_over(&mut self, cx: &mut Cx<'_>, segments: &mut Segments) -> usize {
        let me = cx.me();
        let mut left = 0;
        for key in self.0.keys().copied().collect::<Vec<_>>() {
            self.at(cx, segments, key, |context| {
                if context.lock.own.hint == me {
                    context.hand_over();
                    left += 1;
                } else if context.lock.own.passing().is_some() {
                    left += 1;
                }
            });
        }
        left
    }

    /// The probable owners of all tokens, as this home knows them, for its successor.
    pub(crate) fn handover(&self, me: NodeId) -> Vec<Owner> {
        let mine = self.0.iter().filter(|(key, _)| key.segment.home() == me);
        let owners = mine.map(|(key, lock)| Owner {
            subject: Subject::Lock(*key),
            node: lock.own.hint,
            version: lock.own.version,
        });
        owners.filter(|owner| owner.node != me).collect()
    }

    /// Learns from a leaving home which node has the token. Locks of unknown segments are not kept.
    pub(crate) fn learn(
        &mut self,
        cx: &mut Cx<'_>,
        segments: &mut Segments,
        key: SyncKey,
        (node, version): (NodeId, Version),
    ) {
        if !segments.contains_key(&key.segment) {
            return;
        }
        self.at(cx, segments, key, |context| {
            context.lock.own.learn(context.cx, node, version);
        });
    }

    /// Lives are over, and their numbers are to be forgotten.
    pub(crate) fn forget_names(&mut self, over: &NodeSet) {
        for (key, lock) in &mut self.0 {
            lock.own.forget_names(key.segment.home(), over);
        }
    }

    /// A segment is gone: drops its locks.
    pub(crate) fn forget(&mut self, segment: SegmentId) {
        self.0.retain(|key, _| key.segment != segment);
    }
}
