//! One page, opened for the length of one input.

use super::page_here::PageHere;
use crate::effect::Rights;
use crate::event::Event;
use pagemesh_wire::peer::{Access, Ask, Message, Waiter};
use pagemesh_wire::{MappingId, NodeId, RequestId, Ticket, Version};

/// A page with everything needed to work on it, and to request it.
pub(super) struct PageContext<'a, 'b> {
    pub(super) here: PageHere<'a, 'b>,
    pub(super) after: Deferred,
}

/// What the segment must do when the page is closed again.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    /// Requests of this node for the library site, which is this node.
    pub(super) to_library: Vec<Waiter>,
    /// A request of this node that is served, or never will be. This node is the library site, so
    /// no message is needed.
    pub(super) served_here: Option<(NodeId, RequestId, Option<Version>)>,
    /// Pins that got this page.
    pub(super) pinned: Vec<Ticket>,
    /// Pins for which the page is lost, each with the node that had it.
    pub(super) pins_lost: Vec<(Ticket, NodeId)>,
    /// The page was asked for ahead and has arrived.
    pub(super) came_ahead: bool,
    /// The node whose message was handled.
    pub(super) from: Option<NodeId>,
    /// The page was asked for ahead and will not arrive.
    pub(super) stays_out: bool,
}

impl PageContext<'_, '_> {
    /// A thread faulted. Returns false if that fault is known already, or if the page is lost.
    pub(super) fn fault(&mut self, mapping: MappingId, access: Access) -> bool {
        let (segment, page) = self.here.at();
        if access == Access::Write {
            self.here.page.note_store(self.here.rules);
        }
        if self.here.page.allows(access) {
            self.here.cx.emit(Event::LocalFault { segment, page });
            self.here.map(mapping, self.here.page.rights);
            return true;
        }
        if let Some(with) = self.here.page.busy().and_then(|busy| busy.more.lost) {
            self.here.fail(mapping, with);
            return false;
        }
        let faults = &mut self.here.page.more().faults;
        if faults.contains(&(mapping, access)) {
            self.here.cx.emit(Event::RepeatedFault { segment, page });
            return false;
        }
        faults.push((mapping, access));
        self.request();
        true
    }

    /// The library site hands a request to the clock site (M8, M9).
    pub(super) fn check_out(&mut self, waiter: Waiter) {
        if let Some(with) = self.here.page.busy().and_then(|busy| busy.more.lost) {
            self.tell_lost(waiter, with);
            self.after.served_here = Some((waiter.node, waiter.request, None));
        } else if self.here.is_owner() {
            self.here.page.own.enqueue(waiter);
            self.serve();
        } else if !self.here.forward(waiter, 0, true) {
            self.search_owner(waiter);
        }
    }

    /// A message of another node about the page.
    pub(super) fn message(&mut self, from: NodeId, message: Message) {
        match message {
            Message::Ask(ask) => self.asked(&ask),
            Message::Data(data) => {
                self.after.from = Some(from);
                self.data_arrived(&data);
            }
            Message::Pass(pass) => {
                self.after.from = Some(from);
                self.pass_arrived(from, &pass);
            }
            Message::PassAck(ack) => {
                if self.here.page.own.passed(self.here.cx, from, ack.version) {
                    self.here.drop_stash();
                } else {
                    self.here.cx.emit(Event::Stale {});
                }
            }
            Message::Invalidate(invalidate) => self.here.invalidate_arrived(invalidate),
            Message::InvalidateAck(ack) => self.ack_arrived(from, ack.version),
            Message::Locate(locate) => {
                let here = &mut self.here;
                let spare = here.spare();
                here.page.own.answer(here.cx, from, &locate, spare);
            }
            Message::Located(located) => {
                let here = &mut self.here;
                let reads = here.page.rights > Rights::None;
                let found = here.page.own.located(here.cx, from, &located, reads);
                self.found(found);
            }
            Message::Regain(regain) => self.regain(&regain),
            Message::Lost(lost) => {
                if self.here.page.own.wants(lost.request) {
                    self.lost(lost.with);
                }
            }
            _ => self.here.cx.emit(Event::Stale {}),
        }
    }

    pub(super) fn asked(&mut self, ask: &Ask) {
        use crate::ownership::Route;
        let waiter = ask.waiter;
        if waiter.node == self.here.cx.me() {
            self.asked_by_self(ask);
            return;
        }
        if self.here.serve_at_once(waiter) {
            return;
        }
        let (segment, page) = self.here.at();
        match self.here.page.own.route(self.here.cx, ask) {
            Route::Queued => self.serve(),
            Route::PassAgain => self.here.pass_again(waiter),
            Route::Gone => self.here.cx.emit(Event::Forwarded { segment, page }),
            Route::Unknown => match self.here.page.busy().and_then(|busy| busy.more.lost) {
                Some(with) => self.tell_lost(waiter, with),
                None => self.search_owner(waiter),
            },
        }
    }
}
