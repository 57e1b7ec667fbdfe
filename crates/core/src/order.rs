//! Where locks and barriers keep the order of accesses (policy `release`): what
//! the rooms do for each other at acquires and releases.

use crate::calls::{Caller, Then};
use crate::policies::{After, Release};
use crate::rooms::Rooms;
use crate::shell::Cx;
use pagemesh_wire::peer::{self, Call, Collect, News, Refusal};
use pagemesh_wire::{NodeId, NodeSet, SegmentId, SyncKey, VectorTime};
use serde::{Deserialize, Serialize};

/// Somebody reached a barrier before its home knew of the segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Early {
    pub(crate) caller: Caller,
    pub(crate) key: SyncKey,
    parties: u32,
    news: News,
}

impl Rooms {
    /// A segment is known now: whoever came before that is counted.
    pub(crate) fn count_early(&mut self, cx: &mut Cx<'_>, segment: SegmentId) {
        let came = |early: &mut Early| early.key.segment == segment;
        let came: Vec<_> = self.early.extract_if(.., came).collect();
        for early in came {
            self.arrive(cx, early.caller, (early.key, early.parties), &early.news);
        }
    }

    /// Who keeps the order of accesses to a segment, if locks and barriers do.
    pub(crate) fn order(&mut self, segment: SegmentId) -> Option<&mut Release> {
        self.segments.get_mut(&segment)?.policy.order()
    }

    /// A barrier is reached here: what its home must know goes with the call (T14).
    pub(crate) fn with_news(&mut self, cx: &mut Cx<'_>, call: Call) -> Call {
        let Call::Barrier { key, parties } = call else {
            return call;
        };
        let looked_at = |(segment, _): &mut (SegmentId, _)| *segment == key.segment;
        let untouched = self.untouched.take_if(looked_at);
        match self.order(key.segment) {
            Some(order) => {
                let (_, untouched) = untouched.unwrap_or_default();
                let news = order.arrive(cx, &untouched);
                Call::Arrive { key, parties, news }
            }
            None => call,
        }
    }

    /// Somebody reached a barrier of this home, and says what happened before.
    pub(crate) fn arrive(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        (key, parties): (SyncKey, u32),
        news: &News,
    ) {
        let time = news.goal.clone();
        let after = After::Arrive {
            caller,
            key,
            parties,
            time: time.clone(),
        };
        match self.order(key.segment) {
            Some(order) => {
                if order.acquire(cx, caller.node, news, after) {
                    self.arrived(cx, caller, key, parties, Some(time));
                }
            }
            // This node created the segment, but has not heard of it yet.
            None if key.segment.home() == cx.me() => {
                let news = news.clone();
                self.early.push(Early {
                    caller,
                    key,
                    parties,
                    news,
                });
            }
            None => self.answer(cx, caller, peer::Reply::Refused(Refusal::NotFound)),
        }
    }

    /// An arrival counts.
    pub(crate) fn arrived(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        key: SyncKey,
        parties: u32,
        time: Option<VectorTime>,
    ) {
        let segment = key.segment;
        let answers = self.barriers.arrive(caller, key, parties, time);
        let open = answers
            .iter()
            .filter(|answer| answer.reply == peer::Reply::Done);
        let nodes: NodeSet = open.map(|answer| answer.caller.node).collect();
        for answer in answers {
            let mut reply = answer.reply;
            if reply == peer::Reply::Done
                && let Some(order) = self.order(segment)
            {
                let news = order.news(&answer.time.unwrap_or_default());
                order.attach(cx, answer.caller.node, &news);
                reply = peer::Reply::Depart { segment, news };
            }
            self.answer(cx, answer.caller, reply);
        }
        if !nodes.is_empty()
            && let Some(order) = self.order(segment)
        {
            order.barrier_opened(cx, nodes);
        }
    }

    /// A barrier is open, and this happened before it.
    pub(crate) fn depart(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        segment: SegmentId,
        news: &News,
        then: Then,
    ) {
        let after = After::Depart(then.clone());
        let informed = match self.order(segment) {
            Some(order) => order.acquire(cx, from, news, after),
            None => true,
        };
        if informed {
            self.carry_on(cx, from, then, peer::Reply::Done);
        }
    }

    /// A step of the home's collection.
    pub(crate) fn collect(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        segment: SegmentId,
        step: Collect,
    ) {
        let leads = cx.home(segment) == caller.node;
        match self.order(segment) {
            Some(order) if leads => order.collect(cx, caller, step),
            // This node will hear soon that the home is gone.
            Some(_) => self.answer(cx, caller, peer::Reply::Refused(Refusal::NotFound)),
            None => self.answer(cx, caller, peer::Reply::Done),
        }
    }

    /// Somebody has done a step of this home's collection.
    pub(crate) fn step_done(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        (segment, round): (SegmentId, u64),
        reply: &peer::Reply,
    ) {
        if let Some(order) = self.order(segment) {
            order.collected(cx, from, round, reply);
        }
    }

    /// Lets everything go on that has become ready.
    pub(crate) fn go_on(&mut self, cx: &mut Cx<'_>) {
        while let Some(after) = cx.shell.ready.pop_front() {
            match after {
                After::Lend(key) => self.locks.informed(cx, &mut self.segments, key),
                After::Arrive {
                    caller,
                    key,
                    parties,
                    time,
                } => {
                    // Whoever waits no more has not arrived.
                    if self.calls.waits(cx.me(), caller) {
                        self.arrived(cx, caller, key, parties, Some(time));
                    }
                }
                After::Depart(then) => {
                    let home = cx.me();
                    self.carry_on(cx, home, then, peer::Reply::Done);
                }
                After::Answer(caller, reply) => self.answer(cx, caller, reply),
                After::Collect {
                    to,
                    segment,
                    step,
                    round,
                } => {
                    let call = Call::Collect { segment, step };
                    self.call(cx, to, call, Then::Collected(segment, round));
                }
            }
        }
    }
}
