//! Numbers of lives that are over are given again when nobody names them (decision 34).

use super::Services;
use crate::event::Event;
use crate::global::Memory;
use crate::names::{names, places};
use crate::shell::Cx;
use pagemesh_wire::peer;
use pagemesh_wire::{NodeId, NodeSet};

impl Services {
    /// At the coordinator: asks all members which lives they name, if few numbers are left.
    pub(super) fn check_names(&mut self, cx: &mut Cx<'_>) {
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        let view = &cx.shell.view;
        let peers = cx.shell.peers();
        let mine = (cx.me(), cx.shell.config.numbers());
        let Some(view) = coordinator.begin_check(cx.now, view, peers, mine) else {
            return;
        };
        let generation = view.generation;
        self.spread_view(cx, view);
        let named = self.forget_names(cx);
        if let Some(coordinator) = &mut self.coordinator {
            let me = cx.me();
            coordinator.checks.answered(me, generation, named);
        }
    }

    /// The answer to a new member view: if it is of a new generation, the lives that this node
    /// still names.
    pub(super) fn tell_names(&mut self, cx: &mut Cx<'_>) -> peer::Reply {
        let generation = cx.shell.view.generation;
        if !self.membership.has_names_to_tell(generation) {
            return peer::Reply::Done;
        }
        let named = self.forget_names(cx);
        if !named.is_near() {
            let names = named.words();
            return peer::Reply::FarNames { generation, names };
        }
        let names = named.near_bytes();
        peer::Reply::Names { generation, names }
    }

    /// Drops the names of lives that are over where this node can do without. Returns the lives
    /// that it still names: any that have ended, because the coordinator may have asked about more
    /// than are over in this view.
    fn forget_names(&mut self, cx: &mut Cx<'_>) -> NodeSet {
        let (over, alive) = (cx.shell.view.over(), cx.shell.alive.clone());
        self.membership.names_told(&cx.shell.view);
        self.locks.forget_names(&over);
        self.segments.forget_names(&over);
        self.copy.forget_names(&over);
        self.sysv.forget_names(&over);
        cx.shell.memory.forget_names(&over);
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.directory.forget_names(&over);
        }
        cx.emit(Event::NamesTold {});
        let named = names(self).union(&names(&cx.shell.memory));
        named.without(&alive)
    }

    /// At the coordinator, after every input: if all members have answered, lives that nobody names
    /// leave the member view, and their numbers are free.
    pub(super) fn conclude_check(&mut self, cx: &mut Cx<'_>) {
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        if let Some(view) = coordinator.checks.conclude(cx.now, &cx.shell.view) {
            let before = cx.shell.view.members.len();
            let freed = (before - view.members.len()) as u32;
            cx.emit(Event::NumbersFreed { count: freed });
            self.spread_view(cx, view);
        }
    }

    /// Where this node names some of these lives, for people.
    pub(crate) fn places_of(&self, memory: &Memory, lives: &NodeSet) -> Vec<(NodeId, String)> {
        let mut found = places(self, lives);
        found.extend(places(memory, lives));
        found
    }
}
