//! Pages that will not come: all waiting threads are told.

use super::context::PageContext;
use core::time::Duration;
use pagemesh_wire::NodeId;
use pagemesh_wire::peer::{Lost, Message, Waiter};

impl PageContext<'_, '_> {
    /// The page is lost: fails everything that waits for it.
    pub(super) fn lost(&mut self, with: NodeId) {
        let busy = self.here.page.own.busy_mut();
        busy.want = None;
        self.after.stays_out |= busy.more.ahead.take().is_some();
        busy.more.lost = Some(with);
        let faults = core::mem::take(&mut busy.more.faults);
        let pinning = core::mem::take(&mut busy.more.pinning);
        let waiting = core::mem::take(&mut busy.queue);
        self.here.forget_orphaned_grant();
        for (mapping, _) in faults {
            self.here.fail(mapping, with);
        }
        self.after
            .pins_lost
            .extend(pinning.into_iter().map(|ticket| (ticket, with)));
        for waiter in waiting {
            self.tell_lost(waiter, with);
        }
    }

    /// Requests here that have waited in vain for too long, while the first node was silent, fail.
    /// The request itself stays open, and a later thread waits anew, for the node may come back.
    pub(super) fn time_out(&mut self, patience: Duration) {
        let Some(want) = self.here.page.own.want() else {
            return;
        };
        // Every other node may keep the page for as long as its window says.
        let turns = self.here.cx.shell.alive.iter().count() as u32;
        let patience = patience + self.here.rules.longest_window() * turns;
        if self.here.cx.now - want.since < patience {
            return;
        }
        let with = self.here.cx.coordinator();
        let more = self.here.page.more();
        let faults = core::mem::take(&mut more.faults);
        let pinning = core::mem::take(&mut more.pinning);
        for (mapping, _) in faults {
            self.here.fail(mapping, with);
        }
        let pins = pinning.into_iter().map(|ticket| (ticket, with));
        self.after.pins_lost.extend(pins);
    }

    pub(super) fn tell_lost(&mut self, waiter: Waiter, with: NodeId) {
        if waiter.node == self.here.cx.me() {
            if self.here.page.own.wants(waiter.request) {
                self.lost(with);
            }
        } else {
            let lost = Lost {
                subject: self.here.subject(),
                request: waiter.request,
                with,
            };
            self.here.cx.send(waiter.node, Message::Lost(lost));
        }
    }

    /// This node is no member any more: its pages are invalid.
    pub(super) fn expelled(&mut self) {
        let with = self.here.cx.me();
        self.here.evict(false);
        // Other nodes that wait here repeat their requests elsewhere: a page that this node has
        // dropped is not lost.
        if let Some(busy) = self.here.page.own.busy_if_any() {
            busy.queue.clear();
            busy.search = None;
        }
        self.lost(with);
    }
}
