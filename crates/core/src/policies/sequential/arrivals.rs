//! Messages of other nodes.

use super::Sequential;
use crate::event::Event;
use crate::shell::Cx;
use pagemesh_wire::NodeId;
use pagemesh_wire::peer::{Addressee, AskMany, Message, Subject};

impl Sequential {
    pub(super) fn arrived(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Message) {
        let memory = &mut self.memory;
        match message {
            Message::AskMany(many) => self.asked_for_many(cx, from, &many),
            Message::SendCopies(copies) => memory.send_copies(cx, &copies),
            Message::Policy(said) => memory.about_replicas(cx, from, &said.body, false),
            Message::PolicyPage(said) => memory.about_replicas(cx, from, &said.body, true),
            Message::PolicyUndelivered(_) => {
                let (replicas, mut segment) = memory.replicas(cx);
                replicas.came_back(&mut segment, from);
            }
            message => self.about_page(cx, from, message),
        }
    }

    /// Many requests in one message: each is handled like one that came alone, unless another reader
    /// is to send the pages.
    fn asked_for_many(&mut self, cx: &mut Cx<'_>, from: NodeId, many: &AskMany) {
        if many.requests.len() > AskMany::LIMIT {
            return cx.emit(Event::Malformed {});
        }
        let mut start = 0;
        for (count, feeder) in self.feeds.feeders(cx, &self.memory, from, many) {
            if feeder == cx.me() {
                for ask in many.each(from).skip(start).take(count) {
                    self.about_page(cx, from, Message::Ask(ask));
                }
            } else {
                let run = &many.requests[start..start + count];
                self.memory.leave_to(cx, feeder, from, run);
            }
            start += count;
        }
    }

    fn about_page(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Message) {
        let Addressee::Subject(Subject::Page { page, .. }) = message.addressee() else {
            return cx.emit(Event::Stale {});
        };
        // A search is answered by nodes, too, that do not know the segment.
        if !matches!(message, Message::Located(_)) {
            self.pressure.meet(cx, from);
        }
        let memory = &mut self.memory;
        // A page that came unasked must not push out another: two full nodes would go on for ever.
        let asked = cx.shell.memory.is_bounded() && memory.pages.wants(page);
        match message {
            Message::Ask(ask) if memory.rules.goes_to_library(&ask) => {
                if cx.home(memory.rules.segment) == cx.me() {
                    memory.ask_library(cx, page, ask.waiter);
                } else {
                    cx.emit(Event::Stale {});
                }
            }
            Message::Served(served) => {
                memory.served(cx, page, (from, served.request), served.clock);
            }
            message => memory.at(cx, page, |context| context.message(from, message)),
        }
        if asked {
            self.pressure.relieve(cx, memory);
        }
    }
}
