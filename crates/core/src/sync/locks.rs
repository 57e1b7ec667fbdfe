//! Queue locks. The token of a lock moves like a page without bytes: it stays
//! where it was last used, and the queue of waiting nodes travels with it.
//!
//! While the token is on this node it can be *lent* to the node's clients, who
//! take and release it through a shared word without the daemon (decision 6).

use crate::effect::{Effect, Reply};
use crate::event::Event;
use crate::membership::Forsaken;
use crate::ownership::{ASTRAY, Extra, Found, Ownership, Route, acknowledge, grant};
use crate::policies::{After, Release};
use crate::segment::Segments;
use crate::shell::Cx;
use crate::timers::Timer;
use pagemesh_wire::peer::{
    Access, Acquire, Ask, Grant, Locate, Located, Lost, Message, News, Owner, Pass, PassAck,
    Refusal, Spare, Subject, Waiter,
};
use pagemesh_wire::{ClientId, NodeId, SegmentId, SyncKey, Ticket, VectorTime, Version};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// A token made anew after its holder died has a version no other can have reached.
const REMADE: u64 = 1 << 40;

/// One lock as this node knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Lock {
    own: Ownership<Payload>,
    /// The token is with this node's clients.
    lent: bool,
    /// They were asked to give it back.
    reclaiming: bool,
    /// Clients here that wait.
    waiting: VecDeque<(Ticket, ClientId)>,
    /// A holder died; whoever comes next is told.
    recovered: bool,
    /// The token is here, but not all that happened before it is known: it is
    /// neither lent nor given.
    uninformed: bool,
}

/// What travels with a token where locks keep the order of accesses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Payload {
    /// What those know who wish for the token.
    times: BTreeMap<NodeId, VectorTime>,
    /// What goes with the grant under way, to be repeated with it.
    granted: Option<Box<(News, Times)>>,
}

type Times = Vec<(NodeId, VectorTime)>;

impl Extra for Payload {
    fn say(&self, ask: Ask) -> Message {
        match self.times.get(&ask.waiter.node).cloned() {
            Some(time) => Message::Acquire(Acquire { ask, time }),
            None => Message::Ask(ask),
        }
    }
}

impl Lock {
    /// Frees what nothing needs any more.
    fn settle(&mut self) {
        if let Some(busy) = self.own.busy_if_any() {
            let (queue, want) = (&busy.queue, &busy.want);
            let waits = |node: NodeId| {
                let wanted = want.as_ref().is_some_and(|want| want.waiter.node == node);
                wanted || queue.iter().any(|waiter| waiter.node == node)
            };
            busy.more.times.retain(|node, _| waits(*node));
            if busy.passing.is_none() {
                busy.more.granted = None;
            }
        }
        self.own.settle();
    }
}

/// All locks this node has ever dealt with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Locks(BTreeMap<SyncKey, Lock>);

/// One lock, opened for the length of one input.
struct Desk<'a, 'b> {
    cx: &'a mut Cx<'b>,
    key: SyncKey,
    lock: &'a mut Lock,
    /// Who keeps the order of accesses to the segment, if the lock does.
    order: Option<&'a mut Release>,
}

impl Locks {
    fn at(
        &mut self,
        cx: &mut Cx<'_>,
        segments: &mut Segments,
        key: SyncKey,
        work: impl FnOnce(&mut Desk<'_, '_>),
    ) {
        let lock = self.0.entry(key).or_insert_with(|| Lock {
            own: Ownership::new(key.segment.home()),
            lent: false,
            reclaiming: false,
            waiting: VecDeque::new(),
            recovered: false,
            uninformed: false,
        });
        let order = segments.get_mut(&key.segment);
        let order = order.and_then(|segment| segment.policy.order());
        work(&mut Desk {
            cx,
            key,
            lock,
            order,
        });
        lock.settle();
    }

    /// A client could not take the lock by itself.
    pub(crate) fn lock(
        &mut self,
        cx: &mut Cx<'_>,
        segments: &mut Segments,
        (ticket, client): (Ticket, ClientId),
        key: SyncKey,
    ) {
        self.at(cx, segments, key, |desk| {
            desk.lock.waiting.push_back((ticket, client));
            desk.wish();
        });
    }

    /// Who should have the token has been silent for so long, and so has the first node,
    /// which would bury it: who has waited as long is refused. A lock that anybody else
    /// holds may take as long as it likes.
    pub(crate) fn forsake(&mut self, cx: &mut Cx<'_>, key: SyncKey, forsaken: Forsaken) {
        let Some(lock) = self.0.get_mut(&key) else {
            return;
        };
        let waits = lock.own.want().map(|want| cx.now - want.since);
        let there = lock.own.hint;
        let late = waits.is_some_and(|waits| waits >= forsaken.patience);
        if late && forsaken.silent.contains(there) {
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
        self.at(cx, segments, key, |desk| desk.returned(recovered));
    }

    /// All that happened before the token came is known now.
    pub(crate) fn informed(&mut self, cx: &mut Cx<'_>, segments: &mut Segments, key: SyncKey) {
        self.at(cx, segments, key, |desk| {
            desk.lock.uninformed = false;
            desk.arrived();
        });
    }

    /// A client withdraws a request. True if it waited here.
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

    /// A client is gone.
    pub(crate) fn client_gone(&mut self, client: ClientId) {
        for lock in self.0.values_mut() {
            lock.waiting.retain(|(_, waiting)| *waiting != client);
        }
    }

    /// A peer said something about a token.
    pub(crate) fn message(
        &mut self,
        cx: &mut Cx<'_>,
        segments: &mut Segments,
        from: NodeId,
        (key, forsaken): (SyncKey, Option<Forsaken>),
        message: Letter,
    ) {
        self.at(cx, segments, key, |desk| match message {
            Letter::Ask(ask) => {
                desk.asked(&ask);
                desk.disappoint(&ask, forsaken);
            }
            Letter::Acquire(acquire) => {
                desk.acquire(&acquire);
                desk.disappoint(&acquire.ask, forsaken);
            }
            Letter::Pass(pass) => desk.pass_arrived(from, &pass, None),
            Letter::Grant(grant) => {
                desk.pass_arrived(from, &grant.pass, Some((grant.news, grant.times)));
            }
            Letter::PassAck(ack) => {
                desk.lock.own.passed(desk.cx, from, ack.version);
            }
            Letter::Locate(locate) => desk.lock.own.answer(desk.cx, from, &locate, Spare::None),
            Letter::Located(located) => desk.located(from, &located),
            Letter::Lost(lost) => desk.lost(&lost, forsaken),
        });
    }

    /// Something about a token may be due.
    pub(crate) fn due(&mut self, cx: &mut Cx<'_>, segments: &mut Segments, key: SyncKey) {
        if self.0.contains_key(&key) {
            self.at(cx, segments, key, |desk| desk.due());
        }
    }

    /// A member is gone.
    pub(crate) fn member_gone(&mut self, cx: &mut Cx<'_>, segments: &mut Segments, node: NodeId) {
        for key in self.0.keys().copied().collect::<Vec<_>>() {
            self.at(cx, segments, key, |desk| desk.member_gone(node));
        }
    }

    /// This node is no member any more: nobody here gets a lock, and free ones
    /// can no longer be taken without asking.
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

    /// This node leaves: every free token goes to its home. Returns how many
    /// are still here or on their way.
    pub(crate) fn hand_over(&mut self, cx: &mut Cx<'_>, segments: &mut Segments) -> usize {
        let me = cx.me();
        let mut left = 0;
        for key in self.0.keys().copied().collect::<Vec<_>>() {
            self.at(cx, segments, key, |desk| {
                if desk.lock.own.hint == me {
                    desk.hand_over();
                    left += 1;
                } else if desk.lock.own.passing().is_some() {
                    left += 1;
                }
            });
        }
        left
    }

    /// Who has which tokens, as far as this home knows, for its heir.
    pub(crate) fn legacy(&self, me: NodeId) -> Vec<Owner> {
        let mine = self.0.iter().filter(|(key, _)| key.segment.home() == me);
        let owners = mine.map(|(key, lock)| Owner {
            subject: Subject::Lock(*key),
            node: lock.own.hint,
            version: lock.own.version,
        });
        owners.filter(|owner| owner.node != me).collect()
    }

    /// A home that leaves knew who has the token.
    pub(crate) fn learn(
        &mut self,
        cx: &mut Cx<'_>,
        segments: &mut Segments,
        key: SyncKey,
        (node, version): (NodeId, Version),
    ) {
        self.at(cx, segments, key, |desk| {
            desk.lock.own.learn(desk.cx, node, version);
        });
    }

    /// A segment is gone, with its locks.
    pub(crate) fn forget(&mut self, segment: SegmentId) {
        self.0.retain(|key, _| key.segment != segment);
    }
}

/// What arrived about a token.
#[derive(Clone, Debug)]
pub(crate) enum Letter {
    Ask(Ask),
    Acquire(Acquire),
    Pass(Pass),
    Grant(Grant),
    PassAck(PassAck),
    Locate(Locate),
    Located(Located),
    Lost(Lost),
}

impl Desk<'_, '_> {
    fn subject(&self) -> Subject {
        Subject::Lock(self.key)
    }

    /// Wishes for the token on behalf of the clients that wait, unless a wish is open.
    fn wish(&mut self) {
        if self.lock.waiting.is_empty() || self.lock.own.want().is_some() {
            return;
        }
        let subject = self.subject();
        let waiter = self.lock.own.wish(self.cx, subject, Access::Write, None);
        self.submit(waiter);
    }

    fn submit(&mut self, waiter: Waiter) {
        let subject = self.subject();
        if let Some(order) = &self.order {
            let times = &mut self.lock.own.busy_mut().more.times;
            times.insert(waiter.node, order.time());
        }
        if self.lock.own.hint == self.cx.me() {
            self.lock.own.enqueue(waiter);
            self.serve();
        } else if !self.lock.own.forward(self.cx, subject, waiter, 0, false) {
            self.astray(waiter);
        }
    }

    fn astray(&mut self, waiter: Waiter) {
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

    /// Somebody wishes for the token, and says what it knows.
    fn acquire(&mut self, acquire: &Acquire) {
        if self.order.is_some() && acquire.ask.waiter.node != self.cx.me() {
            let times = &mut self.lock.own.busy_mut().more.times;
            times.insert(acquire.ask.waiter.node, acquire.time.clone());
        }
        self.asked(&acquire.ask);
    }

    fn asked(&mut self, ask: &Ask) {
        if ask.waiter.node == self.cx.me() {
            let open = self
                .lock
                .own
                .want()
                .is_some_and(|want| want.waiter.request == ask.waiter.request);
            if open && ask.hops == ASTRAY && self.lock.own.hint != self.cx.me() {
                self.astray(ask.waiter);
            }
            return;
        }
        match self.lock.own.route(self.cx, ask) {
            Route::Queued => self.serve(),
            Route::PassAgain => self.pass_again(),
            Route::Gone => {}
            Route::Astray => self.astray(ask.waiter),
        }
    }

    /// Who asks here for a token that a silent node has cannot know that: it asked
    /// another one.
    fn disappoint(&mut self, ask: &Ask, forsaken: Option<Forsaken>) {
        let there = self.lock.own.hint;
        let silent = forsaken.is_some_and(|forsaken| forsaken.silent.contains(there));
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
                let (news, times) = *granted;
                Message::Grant(Grant { pass, news, times })
            }
            None => Message::Pass(pass),
        };
        self.cx.send(to, message);
    }

    fn pass_arrived(&mut self, from: NodeId, pass: &Pass, with: Option<(News, Times)>) {
        if !self.lock.own.accept(self.cx, from, pass) {
            self.cx.emit(Event::Stale {});
            return;
        }
        self.cx.emit(Event::TokenArrived { key: self.key });
        self.lock.recovered |= pass.recovered;
        if let Some((news, times)) = with
            && let Some(order) = &mut self.order
        {
            let more = &mut self.lock.own.busy_mut().more;
            for (node, time) in times {
                more.times.entry(node).or_insert(time);
            }
            let after = After::Lend(self.key);
            self.lock.uninformed = !order.acquire(self.cx, from, &news, after);
        }
        self.arrived();
        acknowledge(self.cx, from, pass);
    }

    /// The token is in our hands: our own wish, if any, is the first served.
    fn arrived(&mut self) {
        let busy = self.lock.own.busy_mut();
        if let Some(want) = &busy.want {
            let waiter = want.waiter;
            busy.queue.retain(|other| other.node != waiter.node);
            busy.queue.push_front(waiter);
        }
        self.serve();
    }

    /// Serves whoever waits while the token is in our hands.
    fn serve(&mut self) {
        let me = self.cx.me();
        while self.lock.own.hint == me && !self.lock.uninformed {
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
            self.lock.own.busy_mut().queue.pop_front();
            if waiter.node == me {
                if let Some(want) = self.lock.own.busy_mut().want.take() {
                    self.cx.end(&want.backoff, Timer::Subject(self.subject()));
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
        // Those who wait here stand behind the other nodes now.
        self.wish();
    }

    fn returned(&mut self, recovered: bool) {
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

    /// A release towards another node: what it must know goes with the token (T13).
    fn prepare_payload(&mut self, to: NodeId, pass: &Pass) {
        let Some(order) = &mut self.order else { return };
        let more = &mut self.lock.own.busy_mut().more;
        let known = more.times.remove(&to).unwrap_or_default();
        let next = pass.queue.iter().filter_map(|waiter| {
            let time = more.times.get(&waiter.node)?;
            Some((waiter.node, time.clone()))
        });
        let times: Times = next.take(Grant::TIMES).collect();
        let news = order.release(self.cx, to, &known);
        order.attach(self.cx, to, &news);
        more.granted = Some(Box::new((news, times)));
    }

    fn hand_over(&mut self) {
        if self.lock.uninformed {
            return;
        }
        if self.lock.lent {
            self.reclaim();
            return;
        }
        let heir = Waiter {
            node: self.cx.heir(self.key.segment),
            request: pagemesh_wire::RequestId(0),
            access: Access::Write,
            have: None,
        };
        self.give(heir);
    }

    fn due(&mut self) {
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

    fn located(&mut self, from: NodeId, located: &Located) {
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

    /// The token died with its node: the home makes a new one, and whoever gets
    /// it first is told.
    fn remake(&mut self, last: Version) {
        self.lock.own.regain(self.cx, Version(last.0 + REMADE));
        self.lock.recovered = true;
        self.cx.emit(Event::LockRecovered { key: self.key });
        if let Some(order) = &mut self.order {
            // Who had the token before cannot be asked what happened.
            self.lock.uninformed = true;
            order.hear_everybody(self.cx, After::Lend(self.key));
        }
        self.serve();
    }

    /// The token is out of reach. If it is because of a node that is only silent, its
    /// time to come back is counted from our wish.
    fn lost(&mut self, lost: &Lost, forsaken: Option<Forsaken>) {
        let want = self.lock.own.want();
        let Some(want) = want.filter(|want| want.waiter.request == lost.request) else {
            return;
        };
        let silent = !self.cx.is_gone(lost.with);
        let waited = self.cx.now - want.since;
        if !silent || forsaken.is_some_and(|forsaken| waited >= forsaken.patience) {
            self.refuse_all(lost.with);
        }
    }

    fn member_gone(&mut self, node: NodeId) {
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
