//! A hold of a whole segment, for a snapshot: what this node has of it stays here and does not change
//! anywhere, until the process that saves has copied it.
//!
//! While a hold lasts, this node gives no page away for writing, acknowledges no invalidation, and
//! lets no process of its own store. It still fetches pages for reading, and serves readers. So
//! once every page of the segment is readable here, no process of the cluster can store to any of
//! them: the contents are those of one instant (*INV-held-unchanged*).

use super::Sequential;
use super::context::PageContext;
use super::page::Page;
use crate::effect::{Effect, Mappings, Reply, Rights};
use crate::event::Event;
use crate::limits::HOLD_LEASE;
use crate::shell::Cx;
use crate::time::Time;
use pagemesh_wire::local::PageState;
use pagemesh_wire::peer::{Access, Refusal, Waiter};
use pagemesh_wire::{ClientId, NodeId, PageIndex, Ticket};
use serde::{Deserialize, Serialize};

/// A hold that a process has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Hold {
    client: ClientId,
    /// When it ends, if it is not released before.
    until: Time,
}

impl Hold {
    pub(super) fn client(self) -> ClientId {
        self.client
    }
}

impl Sequential {
    /// When the present hold ends.
    pub(super) fn held_until(&self) -> Time {
        self.hold.map_or(Time::ZERO, |hold| hold.until)
    }

    /// Begins a hold. Stores of this node's processes stop now.
    pub(super) fn hold(&mut self, cx: &mut Cx<'_>, (ticket, client): (Ticket, ClientId)) {
        if self.held_until() > cx.now {
            let why = "another process of this node saves the segment now; try again";
            return cx.refuse(ticket, Refusal::Limit(why.into()));
        }
        let until = cx.now + HOLD_LEASE;
        self.hold = Some(Hold { client, until });
        for page in self.pages.those(|page| page.rights == Rights::Write) {
            self.at(cx, page, |context| context.downgrade());
        }
        cx.reply(ticket, Reply::Done);
    }

    /// Ends the hold of a process. Refuses if it had ended by itself: pages may have changed since.
    pub(super) fn stop_holding(&mut self, cx: &mut Cx<'_>, (ticket, client): (Ticket, ClientId)) {
        let lasted = self
            .hold
            .is_some_and(|hold| hold.client == client && hold.until > cx.now);
        self.end_hold(cx, client);
        if lasted {
            cx.reply(ticket, Reply::Done);
        } else {
            let why = format!(
                "pages of the segment were kept from changing for {HOLD_LEASE:?}, and not all of \
                 them arrived here in that time; try again when programs store less"
            );
            cx.refuse(ticket, Refusal::Limit(why));
        }
    }

    /// Lets the pages change again that this process holds.
    pub(super) fn end_hold(&mut self, cx: &mut Cx<'_>, client: ClientId) {
        if self.hold.take_if(|hold| hold.client == client).is_none() {
            return;
        }
        for page in self.pages.those(|page| page.own.busy().is_some()) {
            self.at(cx, page, |context| context.leave_if_due());
        }
    }

    /// What this node knows of pages, for a process that saves the segment.
    pub(super) fn states(&self, me: NodeId, first: PageIndex, count: u32) -> Vec<PageState> {
        let pages = first.0..first.0.saturating_add(count);
        let unknown = Page::new(self.rules.segment.home());
        let state = |page| state(me, self.pages.get(page).unwrap_or(&unknown));
        pages.map(PageIndex).map(state).collect()
    }
}

fn state(me: NodeId, page: &Page) -> PageState {
    let gathers = page
        .own
        .busy()
        .is_some_and(|busy| busy.more.gather.is_some());
    match page.rights {
        // The version is that of a store which is to come.
        _ if gathers => PageState::Unsure,
        _ if page.own.hint == me && page.pristine && page.rights < Rights::Write => PageState::Zero,
        Rights::Read => PageState::Version(page.own.version),
        Rights::None | Rights::Write => PageState::Unsure,
    }
}

impl PageContext<'_, '_> {
    /// Whether a hold keeps the page from changing; if so, a timer leads to another call.
    pub(super) fn is_held(&mut self) -> bool {
        let held = self.held_until > self.cx.now;
        if held {
            let timer = self.timer();
            self.cx.arm(self.held_until, timer);
        }
        held
    }

    /// This node owns the page and one of its processes wants to store, but the page is held: it
    /// may be loaded from meanwhile.
    pub(super) fn grant_loads_only(&mut self) {
        let (segment, page) = (self.rules.segment, self.index);
        self.fill_if_empty();
        self.page.rights = self.page.rights.max(Rights::Read);
        let faults = core::mem::take(&mut self.more().faults);
        for (mapping, access) in faults {
            if access == Access::Write {
                self.more().faults.push((mapping, access));
                continue;
            }
            self.cx.push(Effect::Map {
                mappings: Mappings::One(mapping),
                pages: (segment, page).into(),
                rights: Rights::Read,
            });
            self.cx.emit(Event::Granted { segment, page });
        }
    }

    /// Ownership has arrived for this node's request to store, but the page is held: the request
    /// waits in the queue, before those of other nodes.
    pub(super) fn store_later(&mut self, waiter: Waiter) {
        self.grant_loads_only();
        let me = self.cx.me();
        let queue = &mut self.page.own.busy_mut().queue;
        queue.retain(|waiter| waiter.node != me);
        queue.push_front(waiter);
    }
}
