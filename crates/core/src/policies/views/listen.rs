//! The listeners of a segment: the nodes on which a process maps it; they get refreshes. The home
//! knows the listeners and tells each of them, since any may become the holder of a page.

use super::messages::Body;
use super::say;
use crate::backoff::Backoff;
use crate::event::Event;
use crate::shell::Cx;
use crate::timers::Timer;
use pagemesh_wire::{NodeId, NodeSet, SegmentId};
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

impl Listeners {
    /// A process maps the segment: this node gets refreshes from now on.
    pub(super) fn listen(&mut self, cx: &mut Cx<'_>, segment: SegmentId) {
        let (me, home) = (cx.me(), cx.home(segment));
        if (home == me || self.nodes.contains(me))
            && let Some(asking) = self.asking.take()
        {
            cx.end(&asking, Timer::Segment(segment));
        }
        if home == me {
            return self.admit(cx, segment, me);
        }
        if self.nodes.contains(me) {
            return;
        }
        if self.asking.is_none() {
            self.asking = Some(cx.backoff(Timer::Segment(segment)));
        }
        say(cx, segment, home, &Body::Listen);
    }

    /// A refresh came, and no process maps the segment any more.
    pub(super) fn deaf(&mut self, cx: &mut Cx<'_>, segment: SegmentId) {
        let (me, home) = (cx.me(), cx.home(segment));
        self.nodes.remove(me);
        if home == me {
            self.dismiss(cx, segment, me);
        } else {
            let generation = self.generation;
            say(cx, segment, home, &Body::Deaf { generation });
        }
    }

    /// At the home: a node listens.
    pub(super) fn admit(&mut self, cx: &mut Cx<'_>, segment: SegmentId, node: NodeId) {
        if self.nodes.contains(node) && node == cx.me() {
            return;
        }
        // A new generation even if it listened already: it may have said in between that it does
        // not, and that may come later.
        self.nodes.insert(node);
        self.spread(cx, segment);
    }

    /// At the home: a node says that it does not listen any more.
    pub(super) fn is_deaf(
        &mut self,
        cx: &mut Cx<'_>,
        segment: SegmentId,
        node: NodeId,
        generation: u64,
    ) {
        if generation == self.generation {
            self.dismiss(cx, segment, node);
        }
    }

    /// At the home: a node does not listen any more.
    pub(super) fn dismiss(&mut self, cx: &mut Cx<'_>, segment: SegmentId, node: NodeId) {
        if self.nodes.remove(node) {
            self.spread(cx, segment);
        }
    }

    fn spread(&mut self, cx: &mut Cx<'_>, segment: SegmentId) {
        self.generation += 1;
        self.unheard = self.nodes.without(&NodeSet::only(cx.me()));
        self.tell_all(cx, segment);
        if let Some(telling) = self.telling.take() {
            cx.end(&telling, Timer::Segment(segment));
        }
        if !self.unheard.is_empty() {
            self.telling = Some(cx.backoff(Timer::Segment(segment)));
        }
    }

    fn tell_all(&self, cx: &mut Cx<'_>, segment: SegmentId) {
        for node in self.unheard.iter() {
            self.tell(cx, segment, node);
        }
    }

    fn tell(&self, cx: &mut Cx<'_>, segment: SegmentId, node: NodeId) {
        let said = Body::Listeners {
            generation: self.generation,
            nodes: self.nodes.clone(),
        };
        say(cx, segment, node, &said);
    }

    /// The home says who listens.
    pub(super) fn told(
        &mut self,
        cx: &mut Cx<'_>,
        segment: SegmentId,
        from: NodeId,
        generation: u64,
        nodes: NodeSet,
    ) {
        if from != cx.home(segment) {
            return cx.emit(Event::Stale {});
        }
        if generation >= self.generation {
            self.generation = generation;
            self.nodes = nodes.clone();
            if nodes.contains(cx.me())
                && let Some(asking) = self.asking.take()
            {
                cx.end(&asking, Timer::Segment(segment));
            }
        }
        say(cx, segment, from, &Body::Heard { generation });
    }

    pub(super) fn heard(
        &mut self,
        cx: &mut Cx<'_>,
        segment: SegmentId,
        from: NodeId,
        generation: u64,
    ) {
        if generation != self.generation {
            return cx.emit(Event::Stale {});
        }
        self.unheard.remove(from);
        if self.unheard.is_empty()
            && let Some(telling) = self.telling.take()
        {
            cx.end(&telling, Timer::Segment(segment));
        }
    }

    /// A member is gone. If it was the home, this node tells the new one that it listens, if it maps
    /// the segment.
    pub(super) fn member_gone(
        &mut self,
        cx: &mut Cx<'_>,
        segment: SegmentId,
        node: NodeId,
        maps: bool,
    ) {
        self.unheard.remove(node);
        let home = cx.home(segment);
        if cx.was_home(node, segment) {
            // The new home counts from the beginning, and must hear of every listener.
            self.generation = 0;
            let me = NodeSet::only(cx.me());
            if home != cx.me() {
                self.nodes = self.nodes.without(&me);
            }
            self.nodes.remove(node);
            if maps {
                self.listen(cx, segment);
            }
        } else if home == cx.me() {
            self.dismiss(cx, segment, node);
        } else {
            self.nodes.remove(node);
        }
    }

    pub(super) fn due(&mut self, cx: &mut Cx<'_>, segment: SegmentId) {
        let timer = Timer::Segment(segment);
        if let Some(mut asking) = self.asking.take() {
            let due = cx.fire(&mut asking, timer);
            self.asking = Some(asking);
            if due {
                self.listen(cx, segment);
            }
        }
        if let Some(mut telling) = self.telling.take() {
            let due = cx.fire(&mut telling, timer);
            self.telling = Some(telling);
            if due {
                self.tell_all(cx, segment);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::{Effect, Effects};
    use crate::shell::Shell;
    use crate::time::Time;
    use pagemesh_wire::peer::Message;

    /// The home of the segment, which is node 1.
    struct Home {
        shell: Shell,
        listeners: Listeners,
    }

    impl Home {
        /// The nodes that a step tells something.
        fn step(
            &mut self,
            work: impl FnOnce(&mut Listeners, &mut Cx<'_>, SegmentId),
        ) -> Vec<NodeId> {
            let mut effects = Effects::default();
            let mut cx = Cx {
                now: Time(0),
                shell: &mut self.shell,
                effects: &mut effects,
            };
            let segment = SegmentId::new(NodeId(1), 1);
            work(&mut self.listeners, &mut cx, segment);
            let told = effects.drain().filter_map(|effect| match effect {
                Effect::Send {
                    header, message, ..
                } if matches!(*message, Message::Policy(_)) => Some(header.to),
                _ => None,
            });
            told.collect()
        }
    }

    fn home() -> Home {
        Home {
            shell: Shell::of_four(NodeId(1)),
            listeners: Listeners::default(),
        }
    }

    #[test]
    fn every_listener_hears_of_every_change() {
        let mut home = home();
        let told = home.step(|of, cx, segment| of.admit(cx, segment, NodeId(2)));
        assert_eq!(told, [NodeId(2)]);
        let told = home.step(|of, cx, segment| of.admit(cx, segment, NodeId(3)));
        assert_eq!(told, [NodeId(2), NodeId(3)]);
        let told = home.step(|of, cx, segment| of.dismiss(cx, segment, NodeId(2)));
        assert_eq!(told, [NodeId(3)]);
        assert_eq!(home.listeners.nodes, NodeSet::only(NodeId(3)));
    }

    #[test]
    fn who_listens_again_is_not_dismissed_by_what_it_said_before() {
        let mut home = home();
        home.step(|of, cx, segment| of.admit(cx, segment, NodeId(2)));
        let before = home.listeners.generation;
        home.step(|of, cx, segment| of.admit(cx, segment, NodeId(2)));
        home.step(|of, cx, segment| of.is_deaf(cx, segment, NodeId(2), before));
        assert!(home.listeners.nodes.contains(NodeId(2)));
        let now = home.listeners.generation;
        home.step(|of, cx, segment| of.is_deaf(cx, segment, NodeId(2), now));
        assert!(!home.listeners.nodes.contains(NodeId(2)));
    }

    #[test]
    fn the_home_waits_until_all_have_heard() {
        let mut home = home();
        home.step(|of, cx, segment| of.admit(cx, segment, NodeId(2)));
        let generation = home.listeners.generation;
        home.step(|of, cx, segment| of.heard(cx, segment, NodeId(2), generation - 1));
        assert!(home.listeners.telling.is_some());
        home.step(|of, cx, segment| of.heard(cx, segment, NodeId(2), generation));
        assert_eq!(home.listeners.telling, None);
    }
}
