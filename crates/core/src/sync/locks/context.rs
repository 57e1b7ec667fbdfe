//! One lock: work on its token and its queue.

use super::{Granted, Lock};
use crate::continuation::Continuation;
use crate::effect::{Effect, Reply};
use crate::event::Event;
use crate::membership::CoordinatorSilent;
use crate::ownership::{Found, NO_ROUTE, Route, acknowledge, grant};
use crate::patience::Awaited;
use crate::policies::{Outgoing, SyncHooks};
use crate::shell::Cx;
use crate::timers::Timer;
use pagemesh_wire::peer::{
    Access, Acquire, Ask, Grant, Located, Lost, Message, Pass, Payload, Refusal, Spare, Subject,
    Waiter,
};
use pagemesh_wire::{NodeId, SyncKey, Version};

/// Added to the version of a token that is made anew after its holder died, so that no other
/// version can be as high.
const REMADE: u64 = 1 << 40;

/// The context of work on one lock for one input.
pub(super) struct LockContext<'a, 'b> {
    pub(super) cx: &'a mut Cx<'b>,
    pub(super) key: SyncKey,
    pub(super) lock: &'a mut Lock,
    /// The hooks of the segment's policy for locks, if it has any.
    pub(super) sync: Option<&'a mut dyn SyncHooks>,
}

impl LockContext<'_, '_> {
    fn subject(&self) -> Subject {
        Subject::Lock(self.key)
    }

    /// Requests the token if clients wait and no request is open.
    pub(super) fn request(&mut self) {
        if self.lock.waiting.is_empty() || self.lock.own.want().is_some() {
            return;
        }
        let subject = self.subject();
        let timer = Timer::Subject(subject);
        let backoff = self.cx.prompt_backoff(Awaited::Token, timer);
        let request = (Access::Write, None);
        let waiter = self.lock.own.request(self.cx, subject, backoff, request);
        self.submit(waiter);
    }

    fn submit(&mut self, waiter: Waiter) {
        let subject = self.subject();
        if let Some(sync) = &self.sync {
            let requests = &mut self.lock.own.busy_mut().more.requests;
            requests.insert(waiter.node, sync.request());
        }
        if self.lock.own.hint == self.cx.me() {
            self.lock.own.enqueue(waiter);
            self.serve();
        } else if !self.lock.own.forward(self.cx, subject, waiter, 0, false) {
            self.search_owner(waiter);
        }
    }

    fn search_owner(&mut self, waiter: Waiter) {
        let home = self.cx.home(self.key.segment);
        let subject = self.subject();
        if home == self.cx.me() {
            let found = self
                .lock
                .own
                .search_for(self.cx, subject, waiter, Spare::None);
            self.found(found);
        } else if self.cx.is_gone(home) {
            let with = self.lock.own.hint;
            if waiter.node == self.cx.me() {
                self.refuse_all(with);
            } else {
                let lost = Lost {
                    subject,
                    request: waiter.request,
                    with,
                };
                self.cx.send(waiter.node, Message::Lost(lost));
            }
        }
    }

    fn refuse_all(&mut self, gone: NodeId) {
        self.lock.own.busy_mut().want = None;
        for (ticket, _) in core::mem::take(&mut self.lock.waiting) {
            self.cx.refuse(ticket, Refusal::NodeGone(gone));
        }
    }

    /// A request for the token, with a payload for the policy of the segment.
    pub(super) fn acquire(&mut self, acquire: &Acquire) {
        if acquire.payload.len() > Acquire::PAYLOAD {
            return self.cx.emit(Event::Malformed {});
        }
        if self.sync.is_some() && acquire.ask.waiter.node != self.cx.me() {
            let requests = &mut self.lock.own.busy_mut().more.requests;
            requests.insert(acquire.ask.waiter.node, acquire.payload.clone());
        }
        self.asked(&acquire.ask);
    }

    pub(super) fn asked(&mut self, ask: &Ask) {
        if ask.waiter.node == self.cx.me() {
            let open = self.lock.own.wants(ask.waiter.request);
            if open && ask.hops == NO_ROUTE && self.lock.own.hint != self.cx.me() {
                self.search_owner(ask.waiter);
            }
            return;
        }
        match self.lock.own.route(self.cx, ask) {
            Route::Queued => self.serve(),
            Route::PassAgain => self.pass_again(),
            Route::Gone => {}
            Route::Unknown => self.search_owner(ask.waiter),
        }
    }

    /// Another node asks here for a token that a silent node has. It cannot know of the silence, so
    /// it is told.
    pub(super) fn disappoint(&mut self, ask: &Ask, overdue: Option<CoordinatorSilent>) {
        let there = self.lock.own.hint;
        let silent = overdue.is_some_and(|overdue| overdue.silent.contains(there));
        if silent && ask.waiter.node != self.cx.me() {
            let lost = Lost {
                subject: self.subject(),
                request: ask.waiter.request,
                with: there,
            };
            self.cx.send(ask.waiter.node, Message::Lost(lost));
        }
    }

    fn pass_again(&mut self) {
        let passing = self.lock.own.passing().expect("a grant is under way");
        let (to, pass) = (passing.to, passing.pass.clone());
        self.cx.emit(Event::Resent {});
        self.send_grant(to, pass);
    }

    fn send_grant(&mut self, to: NodeId, pass: Pass) {
        let granted = self.lock.own.busy_mut().more.granted.clone();
        let message = match granted {
            Some(granted) => {
                let (payload, waiting) = *granted;
                Message::Grant(Grant {
                    pass,
                    payload,
                    waiting,
                })
            }
            None => Message::Pass(pass),
        };
        self.cx.send(to, message);
    }

    pub(super) fn pass_arrived(&mut self, from: NodeId, pass: &Pass, with: Option<Granted>) {
        if !self.lock.own.accept(self.cx, from, pass) {
            self.cx.emit(Event::Stale {});
            return;
        }
        self.cx.emit(Event::TokenArrived { key: self.key });
        self.lock.recovered |= pass.recovered;
        if let Some((payload, waiting)) = with
            && let Some(sync) = &mut self.sync
        {
            let more = &mut self.lock.own.busy_mut().more;
            for (node, request) in waiting {
                if request.len() <= Acquire::PAYLOAD {
                    more.requests.entry(node).or_insert(request);
                }
            }
            let then = Continuation::Lend(self.key);
            self.lock.uninformed = !sync.acquire(self.cx, from, &payload, then);
        }
        self.arrived();
        acknowledge(self.cx, from, pass);
    }

    /// The token is here and not lent: serves this node's own request, if any, before the others.
    pub(super) fn arrived(&mut self) {
        let busy = self.lock.own.busy_mut();
        if let Some(want) = &busy.want {
            let waiter = want.waiter;
            busy.queue.retain(|other| other.node != waiter.node);
            busy.queue.push_front(waiter);
        }
        self.serve();
    }

    /// Serves waiting requests while the token is here and not lent.
    fn serve(&mut self) {
        self.serve_if(false);
    }

    /// The policy of the segment lets the token go.
    pub(super) fn prepared(&mut self) {
        self.lock.preparing = false;
        self.serve_if(true);
    }

    /// Whether the token may go to a node; else it is kept until it may.
    fn may_go(&mut self, to: NodeId) -> bool {
        let Some(sync) = &mut self.sync else {
            return true;
        };
        let none = Payload::EMPTY;
        let busy = self.lock.own.busy();
        let request = busy.and_then(|busy| busy.more.requests.get(&to));
        let request = request.unwrap_or(&none);
        let then = Continuation::Grant(self.key);
        let may = sync.prepare(self.cx, Outgoing::Token(to, request), &then);
        self.lock.preparing = !may;
        may
    }

    /// As [`LockContext::serve`]. `prepared` if the token may go to the first that waits.
    fn serve_if(&mut self, mut prepared: bool) {
        let me = self.cx.me();
        while self.lock.own.hint == me && !self.lock.uninformed && !self.lock.preparing {
            let Some(waiter) = self
                .lock
                .own
                .busy()
                .and_then(|busy| busy.queue.front())
                .copied()
            else {
                return;
            };
            if self.lock.lent {
                self.reclaim();
                return;
            }
            if waiter.node != me && !core::mem::take(&mut prepared) && !self.may_go(waiter.node) {
                return;
            }
            self.lock.own.busy_mut().queue.pop_front();
            if waiter.node == me {
                if let Some(want) = self.lock.own.busy_mut().want.take() {
                    self.cx.end(&want.backoff, Timer::Subject(self.subject()));
                    self.cx.answered(Awaited::Token, want.since, &want.backoff);
                }
                self.lend();
            } else {
                self.give(waiter);
            }
        }
    }

    fn reclaim(&mut self) {
        if !self.lock.reclaiming {
            self.lock.reclaiming = true;
            self.cx.push(Effect::ReclaimLock { key: self.key });
        }
    }

    fn lend(&mut self) {
        let Some((ticket, client)) = self.lock.waiting.pop_front() else {
            return;
        };
        let key = self.key;
        let wanted = !self.lock.waiting.is_empty() || self.lock.own.queue_len() > 0;
        self.lock.lent = true;
        self.lock.reclaiming = wanted;
        let recovered = core::mem::take(&mut self.lock.recovered);
        self.cx.push(Effect::LendLock {
            key,
            client,
            wanted,
        });
        self.cx.reply(ticket, Reply::Locked { recovered });
        self.cx.emit(Event::Locked { key });
        // The clients that still wait here go behind the other nodes in the queue.
        self.request();
    }

    pub(super) fn returned(&mut self, recovered: bool) {
        if recovered {
            self.cx.emit(Event::LockRecovered { key: self.key });
        }
        self.lock.lent = false;
        self.lock.reclaiming = false;
        self.lock.recovered |= recovered;
        self.serve();
    }

    fn give(&mut self, waiter: Waiter) {
        let queue = core::mem::take(&mut self.lock.own.busy_mut().queue);
        let pass = Pass {
            recovered: core::mem::take(&mut self.lock.recovered),
            queue: queue.into_iter().collect(),
            ..grant(self.subject(), waiter.request, self.lock.own.version.next())
        };
        self.prepare_payload(waiter.node, &pass);
        self.lock.own.pass(self.cx, waiter.node, pass.clone());
        self.send_grant(waiter.node, pass);
        self.cx.emit(Event::TokenGiven {
            key: self.key,
            to: waiter.node,
            version: self.lock.own.version,
        });
    }

    /// Prepares what the receiving node must know about releases; it travels with the token (T13).
    fn prepare_payload(&mut self, to: NodeId, pass: &Pass) {
        let Some(sync) = &mut self.sync else { return };
        let more = &mut self.lock.own.busy_mut().more;
        let request = more.requests.remove(&to).unwrap_or_default();
        let mut room = Grant::WAITING_BYTES;
        let next = pass.queue.iter().filter_map(|waiter| {
            let request = more.requests.get(&waiter.node)?;
            room = room.checked_sub(request.len())?;
            Some((waiter.node, request.clone()))
        });
        let waiting: Vec<_> = next.take(Grant::WAITING).collect();
        let payload = sync.release(self.cx, to, &request);
        let says = !payload.is_empty() || !waiting.is_empty();
        more.granted = says.then(|| Box::new((payload, waiting)));
    }

    pub(super) fn hand_over(&mut self) {
        if self.lock.uninformed || self.lock.preparing {
            return;
        }
        if self.lock.lent {
            self.reclaim();
            return;
        }
        if !self.may_go(self.cx.successor(self.key.segment)) {
            return;
        }
        let successor = Waiter {
            node: self.cx.successor(self.key.segment),
            request: pagemesh_wire::RequestId::NONE,
            access: Access::Write,
            have: None,
        };
        self.give(successor);
    }

    pub(super) fn due(&mut self) {
        let subject = self.subject();
        let timer = Timer::Subject(subject);
        if let Some(busy) = self.lock.own.busy_if_any()
            && let Some(want) = &mut busy.want
            && self.cx.fire(&mut want.backoff, timer)
        {
            let waiter = want.waiter;
            self.submit(waiter);
        }
        if let Some(busy) = self.lock.own.busy_if_any()
            && let Some(passing) = &mut busy.passing
            && self.cx.fire(&mut passing.backoff, timer)
        {
            self.pass_again();
        }
        let found = self.lock.own.search_due(self.cx, subject, Spare::None);
        self.found(found);
        self.serve();
    }

    pub(super) fn located(&mut self, from: NodeId, located: &Located) {
        let found = self.lock.own.located(self.cx, from, located, false);
        self.found(found);
    }

    fn found(&mut self, found: Found) {
        if let Found::Nobody(with, version) = found {
            if self.lock.own.is_untouched(self.cx, with, version) {
                self.lock.own.regain(self.cx, version.next());
                self.serve();
            } else {
                self.remake(version);
            }
        }
    }

    /// The token was lost with its node: the home makes a new one, whose first holder is told.
    fn remake(&mut self, last: Version) {
        self.lock.own.regain(self.cx, Version(last.0 + REMADE));
        self.lock.recovered = true;
        self.cx.emit(Event::LockRecovered { key: self.key });
        if let Some(sync) = &mut self.sync {
            // The last holder of the token cannot be asked what happened before.
            self.lock.uninformed = true;
            sync.acquire_from_all(self.cx, Continuation::Lend(self.key));
        }
        self.serve();
    }

    /// The token is out of reach. If its node is only silent, this node's request is refused after
    /// it has waited long enough for the node to come back.
    pub(super) fn lost(&mut self, lost: &Lost, overdue: Option<CoordinatorSilent>) {
        let want = self.lock.own.want();
        let Some(want) = want.filter(|want| want.waiter.request == lost.request) else {
            return;
        };
        let silent = !self.cx.is_gone(lost.with);
        let waited = self.cx.now - want.since;
        if !silent || overdue.is_some_and(|overdue| waited >= overdue.patience) {
            self.refuse_all(lost.with);
        }
    }

    pub(super) fn member_gone(&mut self, node: NodeId) {
        self.lock.own.forget_node(node);
        let me = self.cx.me();
        if let Some(busy) = self.lock.own.busy_if_any()
            && busy
                .passing
                .as_ref()
                .is_some_and(|passing| passing.to == node)
        {
            busy.passing = None;
        }
        if let Some(want) = self.lock.own.want()
            && self.lock.own.hint != me
        {
            let waiter = want.waiter;
            self.submit(waiter);
        }
    }
}
