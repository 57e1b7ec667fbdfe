//! This node's requests for a page: opened once, and sent to the node that decides.

use super::context::PageContext;
use crate::effect::Rights;
use crate::event::Event;
use crate::ownership::NO_ROUTE;
use crate::patience::Awaited;
use pagemesh_wire::peer::{Access, Ask, Manager, Message, Served, Waiter};
use pagemesh_wire::{RequestId, Version};

impl PageContext<'_, '_> {
    /// Opens a request for the rights that waiting accesses and pins need, unless one is open.
    pub(super) fn request(&mut self) {
        let busy = self.here.page.busy();
        let Some(busy) = busy.filter(|busy| busy.want.is_none()) else {
            return;
        };
        let more = &busy.more;
        let writes = !more.pinning.is_empty()
            || more
                .faults
                .iter()
                .any(|(_, access)| *access == Access::Write);
        if !writes && more.faults.is_empty() {
            return;
        }
        let access = if writes { Access::Write } else { Access::Read };
        let (segment, page) = self.here.at();
        let readable = self.here.page.rights >= Rights::Read;
        self.here.cx.emit(match access {
            Access::Read => Event::ReadFault { segment, page },
            Access::Write if readable => Event::Upgrade { segment, page },
            Access::Write => Event::WriteFault { segment, page },
        });
        let expected = self.here.page.expected(self.here.rules);
        if access < expected {
            self.here.cx.emit(Event::StoreExpected { segment, page });
        }
        self.open_request(access.max(expected));
    }

    /// Opens a request for the page; none may be open.
    pub(super) fn open_request(&mut self, access: Access) {
        let here = &mut self.here;
        let readable = here.page.rights >= Rights::Read;
        let have = readable.then_some(here.page.own.version);
        let (subject, timer) = (here.subject(), here.timer());
        let more = here.page.more_if_any();
        let ahead = more.is_some_and(|more| more.ahead.is_some());
        // Pages asked for ahead have a repair of their own, and their requests wait behind many
        // others: no prompt repetition.
        let backoff = match ahead {
            true => here.cx.backoff(timer),
            false => here.cx.prompt_backoff(Awaited::Page, timer),
        };
        let request = (access, have);
        let waiter = here.page.own.request(here.cx, subject, backoff, request);
        self.submit(waiter);
    }

    /// Repeats this node's request, if one is open.
    pub(super) fn submit_again(&mut self) {
        if let Some(want) = self.here.page.own.want() {
            let waiter = want.waiter;
            self.submit(waiter);
        }
    }

    /// Sends this node's request to the node that decides.
    pub(super) fn submit(&mut self, waiter: Waiter) {
        let (segment, page, home) = (self.here.rules.segment, self.here.index, self.here.home());
        let subject = self.here.subject();
        let manager = self.here.rules.manager;
        match manager {
            Manager::Fixed if home == self.here.cx.me() => {
                self.after.to_library.push(waiter);
                return;
            }
            Manager::Fixed if !self.here.cx.is_gone(home) => {
                let ask = Ask {
                    subject,
                    waiter,
                    since: Version(0),
                    hops: 0,
                    by_library: false,
                };
                self.here.cx.send(home, Message::Ask(ask));
            }
            Manager::Dynamic if self.here.is_owner() => {
                self.here.page.own.enqueue(waiter);
                self.serve();
                return;
            }
            Manager::Dynamic if self.here.forward(waiter, 0, false) => {}
            Manager::Dynamic | Manager::Fixed => {
                self.search_owner(waiter);
                return;
            }
        }
        self.here.cx.emit(Event::Asked { segment, page });
    }

    /// This node's own request came back: this node is the clock site, or the library site believes
    /// so, or the request is an old one.
    pub(super) fn asked_by_self(&mut self, ask: &Ask) {
        let waiter = ask.waiter;
        if !self.here.page.own.wants(waiter.request) {
            self.tell_served(waiter.request);
        } else if self.here.is_owner() {
            self.here.page.own.enqueue(waiter);
            self.serve();
        } else if ask.hops == NO_ROUTE {
            self.search_owner(waiter);
        } else if ask.by_library {
            // If the request names a newer version, a grant is on its way here, unless its sender
            // died and it was lost with that node. This node's own hint would only lead back to
            // where the request comes from.
            let grant_comes = ask.since > self.here.page.own.version;
            if grant_comes && !self.here.cx.somebody_died() {
                return;
            }
            let hops = if grant_comes { NO_ROUTE } else { ask.hops + 1 };
            if !self.here.forward(waiter, hops, true) {
                self.search_owner(waiter);
            }
        }
    }

    /// Tells the library site, if there is one, that a request of this node is served.
    pub(super) fn tell_served(&mut self, request: RequestId) {
        if self.here.rules.manager != Manager::Fixed {
            return;
        }
        let (segment, page, home) = (self.here.rules.segment, self.here.index, self.here.home());
        let clock = self.here.is_owner().then_some(self.here.page.own.version);
        if home == self.here.cx.me() {
            self.after.served_here = Some((home, request, clock));
        } else {
            self.here.cx.send(
                home,
                Message::Served(Served {
                    segment,
                    page,
                    request,
                    clock,
                }),
            );
        }
    }
}
