//! A hold of a whole segment, for a snapshot: what this node has of it stays here and does not change
//! anywhere, until the process that saves has copied it.
//!
//! While a hold lasts, this node gives no page away for writing, acknowledges no invalidation, and
//! lets no process of its own store. It still fetches pages for reading, and serves readers. So
//! once every page of the segment is readable here, no process of the cluster can store to any of
//! them: the contents are those of one instant (*INV-held-unchanged*).

use super::memory::Memory;
use super::page_here::PageHere;
use crate::effect::Rights;
use crate::event::Event;
use crate::limits::HOLD_LEASE;
use crate::shell::Cx;
use crate::time::Time;
use pagemesh_wire::ClientId;
use pagemesh_wire::peer::{Access, Refusal, Waiter};
use serde::{Deserialize, Serialize};

/// The hold that lasts, or was the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Hold(Option<Held>);

/// A hold that a process has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Held {
    client: ClientId,
    /// When it ends, if it is not released before.
    until: Time,
}

impl Hold {
    /// When the present hold ends.
    pub(super) fn until(self) -> Time {
        self.0.map_or(Time::ZERO, |held| held.until)
    }

    /// The process that has the hold, or had the last one and has not released it.
    pub(super) fn client(self) -> Option<ClientId> {
        self.0.map(|held| held.client)
    }

    fn begin(&mut self, now: Time, client: ClientId) -> Result<(), Refusal> {
        if self.until() > now {
            let why = "another process of this node saves the segment now; try again";
            return Err(Refusal::Limit(why.into()));
        }
        let until = now + HOLD_LEASE;
        self.0 = Some(Held { client, until });
        Ok(())
    }

    /// Why a hold that ended by itself is no success.
    pub(super) fn over() -> Refusal {
        Refusal::Limit(format!(
            "pages of the segment were kept from changing for {HOLD_LEASE:?}, and not all of \
             them arrived here in that time; try again when programs store less"
        ))
    }

    /// Ends the hold of a process; none if it has none.
    fn end(&mut self, client: ClientId) -> Option<Held> {
        self.0.take_if(|held| held.client == client)
    }
}

impl Memory {
    /// Begins a hold. Stores of this node's processes stop now.
    pub(super) fn hold(&mut self, cx: &mut Cx<'_>, client: ClientId) -> Result<(), Refusal> {
        self.hold.begin(cx.now, client)?;
        let writable = self.pages.those(|page| page.rights == Rights::Write);
        self.each(cx, writable, |context| context.here.downgrade());
        Ok(())
    }

    /// Ends the hold of a process, and lets the pages change again. False if it had ended by itself:
    /// pages may have changed since.
    pub(super) fn end_hold(&mut self, cx: &mut Cx<'_>, client: ClientId) -> bool {
        let Some(held) = self.hold.end(client) else {
            return false;
        };
        let waiting = self.pages.those(|page| page.own.busy().is_some());
        self.each(cx, waiting, |context| context.leave_if_due());
        held.until > cx.now
    }
}

impl PageHere<'_, '_> {
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
        let (segment, page) = self.at();
        self.fill_if_empty();
        self.page.rights = self.page.rights.max(Rights::Read);
        let faults = core::mem::take(&mut self.page.more().faults);
        for (mapping, access) in faults {
            if access == Access::Write {
                self.page.more().faults.push((mapping, access));
                continue;
            }
            self.map(mapping, Rights::Read);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_holds_at_a_time_until_its_lease_ends() {
        let (first, second) = (ClientId(1), ClientId(2));
        let mut hold = Hold::default();
        hold.begin(Time(1), first).unwrap();
        assert!(hold.begin(Time(2), second).is_err());
        assert!(hold.end(second).is_none());
        let over = hold.until();
        assert_eq!(over, Time(1) + HOLD_LEASE);
        hold.begin(over, second).unwrap();
        assert!(hold.end(first).is_none(), "its lease has ended");
        assert_eq!(hold.client(), Some(second));
        assert!(hold.end(second).is_some());
        assert_eq!(hold.until(), Time::ZERO);
    }
}
