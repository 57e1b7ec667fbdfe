//! The listeners of a segment: the nodes on which a process maps it; they get refreshes. The home
//! knows the listeners and tells each of them, since any may become the holder of a page.

use super::Views;
use super::messages::Body;
use crate::backoff::Backoff;
use crate::event::Event;
use crate::shell::Cx;
use pagemesh_wire::{NodeId, NodeSet};
use serde::{Deserialize, Serialize};

/// The nodes that get refreshes, as this node knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Listeners {
    pub(super) nodes: NodeSet,
    /// Counts the changes; of the home that this node knows.
    generation: u64,
    /// This node has told the home that it listens, and has no answer.
    asking: Option<Backoff>,
    /// At the home: who has not acknowledged the present set.
    unheard: NodeSet,
    telling: Option<Backoff>,
}

impl Views {
    /// A process maps the segment: this node gets refreshes from now on.
    pub(super) fn listen(&mut self, cx: &mut Cx<'_>) {
        let (me, home) = (cx.me(), cx.home(self.segment));
        if (home == me || self.listeners.nodes.contains(me))
            && let Some(asking) = self.listeners.asking.take()
        {
            cx.end(&asking, self.timer());
        }
        if home == me {
            return self.admit(cx, me);
        }
        if self.listeners.nodes.contains(me) {
            return;
        }
        if self.listeners.asking.is_none() {
            self.listeners.asking = Some(cx.backoff(self.timer()));
        }
        self.say(cx, home, &Body::Listen);
    }

    /// A refresh came, and no process maps the segment any more.
    pub(super) fn deaf(&mut self, cx: &mut Cx<'_>) {
        let (me, home) = (cx.me(), cx.home(self.segment));
        self.listeners.nodes.remove(me);
        if home == me {
            self.dismiss(cx, me);
        } else {
            let generation = self.listeners.generation;
            self.say(cx, home, &Body::Deaf { generation });
        }
    }

    /// At the home: a node listens.
    pub(super) fn admit(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        if self.listeners.nodes.contains(node) && node == cx.me() {
            return;
        }
        // A new generation even if it listened already: it may have said in between that it does
        // not, and that may come later.
        self.listeners.nodes.insert(node);
        self.spread(cx);
    }

    /// At the home: a node says that it does not listen any more.
    pub(super) fn is_deaf(&mut self, cx: &mut Cx<'_>, node: NodeId, generation: u64) {
        if generation == self.listeners.generation {
            self.dismiss(cx, node);
        }
    }

    /// At the home: a node does not listen any more.
    pub(super) fn dismiss(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        if self.listeners.nodes.remove(node) {
            self.spread(cx);
        }
    }

    fn spread(&mut self, cx: &mut Cx<'_>) {
        self.listeners.generation += 1;
        self.listeners.unheard = self.listeners.nodes.without(&NodeSet::only(cx.me()));
        self.tell_all(cx);
        if let Some(telling) = self.listeners.telling.take() {
            cx.end(&telling, self.timer());
        }
        if !self.listeners.unheard.is_empty() {
            self.listeners.telling = Some(cx.backoff(self.timer()));
        }
    }

    fn tell_all(&self, cx: &mut Cx<'_>) {
        for node in self.listeners.unheard.iter() {
            self.tell(cx, node);
        }
    }

    fn tell(&self, cx: &mut Cx<'_>, node: NodeId) {
        let said = Body::Listeners {
            generation: self.listeners.generation,
            nodes: self.listeners.nodes.clone(),
        };
        self.say(cx, node, &said);
    }

    /// The home says who listens.
    pub(super) fn told(&mut self, cx: &mut Cx<'_>, from: NodeId, generation: u64, nodes: NodeSet) {
        if from != cx.home(self.segment) {
            return cx.emit(Event::Stale {});
        }
        if generation >= self.listeners.generation {
            self.listeners.generation = generation;
            self.listeners.nodes = nodes.clone();
            if nodes.contains(cx.me())
                && let Some(asking) = self.listeners.asking.take()
            {
                cx.end(&asking, self.timer());
            }
        }
        self.say(cx, from, &Body::Heard { generation });
    }

    pub(super) fn heard(&mut self, cx: &mut Cx<'_>, from: NodeId, generation: u64) {
        if generation != self.listeners.generation {
            return cx.emit(Event::Stale {});
        }
        self.listeners.unheard.remove(from);
        if self.listeners.unheard.is_empty()
            && let Some(telling) = self.listeners.telling.take()
        {
            cx.end(&telling, self.timer());
        }
    }

    /// A member is gone. If it was the home, this node tells the new one that it listens.
    pub(super) fn listener_gone(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        self.listeners.unheard.remove(node);
        let home = cx.home(self.segment);
        if cx.was_home(node, self.segment) {
            // The new home counts from the beginning, and must hear of every listener.
            self.listeners.generation = 0;
            let me = NodeSet::only(cx.me());
            if home != cx.me() {
                self.listeners.nodes = self.listeners.nodes.without(&me);
            }
            self.listeners.nodes.remove(node);
            if !self.mappings.is_empty() {
                self.listen(cx);
            }
        } else if home == cx.me() {
            self.dismiss(cx, node);
        } else {
            self.listeners.nodes.remove(node);
        }
    }

    pub(super) fn listeners_due(&mut self, cx: &mut Cx<'_>) {
        let timer = self.timer();
        if let Some(mut asking) = self.listeners.asking.take() {
            let due = cx.fire(&mut asking, timer);
            self.listeners.asking = Some(asking);
            if due {
                self.listen(cx);
            }
        }
        if let Some(mut telling) = self.listeners.telling.take() {
            let due = cx.fire(&mut telling, timer);
            self.listeners.telling = Some(telling);
            if due {
                self.tell_all(cx);
            }
        }
    }
}
