//! Locks and barriers: when an interval of this node ends, and what is told and learnt there.

use super::Release;
use super::inquiries::OnReply;
use super::messages::News;
use crate::continuation::Continuation;
use crate::event::Event;
use crate::policies::hooks::{Outgoing, SyncHooks};
use crate::shell::Cx;
use pagemesh_wire::peer::Payload;
use pagemesh_wire::{NodeId, NodeSet, PageIndex, VectorTime};

impl Release {
    /// The present interval ends because this node releases to a node: the next holder of a lock (T12,
    /// T13), or the home when a process reaches a barrier (T14). Before that the driver has looked at
    /// pages kept writable, and the pages in `barrier` had not changed.
    fn end_for(&mut self, cx: &mut Cx<'_>, to: NodeId, barrier: Option<&[PageIndex]>) {
        self.releases_at_locks = match barrier {
            Some(_) => 0,
            None => self.releases_at_locks.saturating_add(1),
        };
        let untouched = barrier.unwrap_or_default().iter().copied().collect();
        let written = self.memory.pages.written(&untouched);
        let named = self.end_interval_of(cx, &written);
        self.memory.pages.named_at(barrier.is_some(), &named);
        self.supply(cx).show_use();
        let holder = Some(to).filter(|_| barrier.is_none());
        self.supply(cx).push(holder, &named);
    }

    /// The present interval ends, unless that was [prepared](SyncHooks::prepare), and a node that
    /// knows `known` gets what it lacks.
    fn release_to(
        &mut self,
        cx: &mut Cx<'_>,
        (to, known): (NodeId, &VectorTime),
        barrier: Option<&[PageIndex]>,
    ) -> News {
        self.intervals.heard.knows(to, known);
        if !self.replicas.on {
            self.end_for(cx, to, barrier);
        }
        self.intervals.news_after(cx, known, &self.replicas)
    }
}

impl SyncHooks for Release {
    fn request(&self) -> Payload {
        Payload::of(self.intervals.history.time())
    }

    fn prepare(&mut self, cx: &mut Cx<'_>, out: Outgoing<'_>, then: &Continuation) -> bool {
        if !self.replicas.on {
            return true;
        }
        match out {
            Outgoing::Token(to, request) => {
                self.intervals
                    .heard
                    .knows(to, &request.read().unwrap_or_default());
                self.end_for(cx, to, None);
            }
            Outgoing::Arrival(untouched) => {
                let home = cx.home(self.rules.segment);
                self.end_for(cx, home, Some(untouched));
            }
        }
        self.backup(cx).is_kept(then)
    }

    fn release(&mut self, cx: &mut Cx<'_>, to: NodeId, request: &Payload) -> Payload {
        let known = request.read().unwrap_or_default();
        let news = self.release_to(cx, (to, &known), None);
        self.supply(cx).attach(to, &news);
        Payload::of(&news)
    }

    fn looked_at(&mut self, cx: &mut Cx<'_>, untouched: &[PageIndex]) {
        self.memory
            .settle_guesses(cx, &untouched.iter().copied().collect());
    }

    fn arrive(&mut self, cx: &mut Cx<'_>, untouched: &[PageIndex]) -> Payload {
        let (home, known) = (
            cx.home(self.rules.segment),
            self.intervals.heard.home().clone(),
        );
        Payload::of(&self.release_to(cx, (home, &known), Some(untouched)))
    }

    fn acquire(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        payload: &Payload,
        then: Continuation,
    ) -> bool {
        match payload.read() {
            Some(news) => self.learn_news(cx, from, &news, then),
            None => {
                cx.emit(Event::Malformed {});
                true
            }
        }
    }

    fn acquire_from_all(&mut self, cx: &mut Cx<'_>, then: Continuation) {
        let hear = cx.shell.peers();
        if hear.is_empty() {
            return cx.ready(then);
        }
        let then = (hear, OnReply::Ready(then));
        let known = self.intervals.history.time();
        self.intervals.inquiries.ask_nodes(cx, known, None, then);
    }

    fn depart(&mut self, cx: &mut Cx<'_>, to: NodeId) -> Payload {
        let news = self.intervals.news_for(cx, to, &self.replicas);
        self.supply(cx).attach(to, &news);
        Payload::of(&news)
    }

    fn opened(&mut self, cx: &mut Cx<'_>, nodes: NodeSet) {
        let next = self.collection(cx).barrier_opened(&nodes);
        self.lead(cx, next);
    }
}
