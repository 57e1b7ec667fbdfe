//! The state of one page on a node.

use super::feeds::CopyWaiter;
use super::pins_here::PinsHere;
use super::predictor::RmwPredictor;
use crate::backoff::Backoff;
use crate::effect::{Reply, Rights};
use crate::limits::WINDOW_LIMIT;
use crate::ownership::{Busy, Extra, Ownership};
use crate::prefetch::Ahead;
use crate::shell::Cx;
use crate::time::Time;
use core::time::Duration;
use pagemesh_wire::peer::{Access, Invalidate};
use pagemesh_wire::{MappingId, NodeId, NodeSet, Ticket};
use serde::{Deserialize, Serialize};

/// Bits of a time window, and the longest window they can express, in microseconds.
const WINDOW_BITS: u32 = 24;
const LONGEST: u32 = (1 << WINDOW_BITS) - 1;

const _: () = assert!(WINDOW_LIMIT.as_micros() < LONGEST as u128);

/// One page on one node.
///
/// *INV-single-writer*: at most one node has `rights` Write, and then no other node has Read. Only
/// the owner can have Write.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Page {
    pub(super) own: Ownership<More>,
    /// At the owner: nodes that may hold a copy; never too few.
    pub(super) copies: NodeSet,
    /// When the present rights were granted.
    pub(super) granted: Time,
    /// In the lower bits, how long the rights last at least (Δ), in microseconds; above them the
    /// state of the read-modify-write predictor.
    window_and_predictor: u32,
    /// The rights of this node's mappings.
    pub(super) rights: Rights,
    /// At the owner: the page was never written, so no bytes are sent for it.
    pub(super) pristine: bool,
    /// The frame has the page's current contents.
    pub(super) filled: bool,
    /// The access that fetched the page may not have happened yet (M12).
    pub(super) unused: bool,
}

/// State of operations under way on a page, beside its ownership.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct More {
    /// Faults that wait; each mapping and kind of access once.
    pub(super) faults: Vec<(MappingId, Access)>,
    /// At the owner, before it writes: invalidations of copies under way.
    pub(super) gather: Option<Gather>,
    /// At a reader: an invalidation that waits for the end of the time window.
    pub(super) deferred: Option<Invalidate>,
    /// Requests to be answered when the page may change.
    pub(super) watchers: Vec<Ticket>,
    /// Pins of clients that keep the page here.
    pub(super) pins: PinsHere,
    /// Pins that wait for the right to write.
    pub(super) pinning: Vec<Ticket>,
    /// The driver was asked whether the page has been used.
    pub(super) confirming: bool,
    /// The driver has answered at least once that the page has not been used.
    pub(super) seen_unused: bool,
    /// The page is lost: only this node, which died, had its contents.
    pub(super) lost: Option<NodeId>,
    /// Set if the page was requested before a thread touched it.
    pub(super) ahead: Option<Ahead>,
    /// Readers to whom the owner said that this node will send its copy.
    #[serde(default)]
    pub(super) copy_waiters: Vec<CopyWaiter>,
}

/// Invalidations under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Gather {
    pub(super) missing: NodeSet,
    pub(super) backoff: Backoff,
}

impl Extra for More {
    fn is_idle(&self) -> bool {
        // This runs for every page after every input. All fields are named, so that a new field
        // cannot be forgotten here.
        let Self {
            faults,
            gather,
            deferred,
            watchers,
            pins,
            pinning,
            confirming,
            seen_unused,
            lost,
            ahead,
            copy_waiters,
        } = self;
        let nobody = faults.is_empty() && watchers.is_empty() && copy_waiters.is_empty();
        let pinned = !pins.is_empty() || !pinning.is_empty();
        let nothing = gather.is_none() && deferred.is_none() && lost.is_none() && ahead.is_none();
        nobody && nothing && !(pinned || *confirming || *seen_unused)
    }
}

impl More {
    /// Whether the page was only asked for ahead, and no fault or pin waits for it.
    pub(super) fn nobody_waits(&self) -> bool {
        self.ahead.is_some() && self.faults.is_empty() && self.pinning.is_empty()
    }

    /// Tells all watchers that the page may change from now on (F7).
    pub(super) fn wake_watchers(&mut self, cx: &mut Cx<'_>) {
        for ticket in core::mem::take(&mut self.watchers) {
            cx.reply(ticket, Reply::Changed);
        }
    }

    /// A request is withdrawn. True if it waited for the page to change.
    pub(super) fn cancel(&mut self, ticket: Ticket) -> bool {
        let had = self.watchers.contains(&ticket);
        self.watchers.retain(|watcher| *watcher != ticket);
        self.pinning.retain(|waiting| *waiting != ticket);
        had
    }

    /// A mapping is gone, with the threads that waited in it.
    pub(super) fn unmapped(&mut self, mapping: MappingId) {
        self.faults.retain(|(waiting, _)| *waiting != mapping);
        if let Some(ahead) = &mut self.ahead {
            ahead.mark |= ahead.mapping == mapping;
        }
    }
}

impl Page {
    /// The initial state: the home owns the page, and it was never written.
    pub(super) fn new(home: NodeId) -> Self {
        Self {
            own: Ownership::new(home),
            copies: NodeSet::EMPTY,
            granted: Time::ZERO,
            window_and_predictor: 0,
            rights: Rights::None,
            pristine: true,
            filled: false,
            unused: false,
        }
    }

    /// When the time window ends.
    pub(super) fn held_until(&self) -> Time {
        let micros = self.window_and_predictor & LONGEST;
        self.granted + Duration::from_micros(micros.into())
    }

    /// Sets the length of the time window, counted from the grant.
    pub(super) fn hold_for(&mut self, window: Duration) {
        let micros = u32::try_from(window.as_micros()).unwrap_or(LONGEST);
        self.window_and_predictor = self.window_and_predictor & !LONGEST | micros.min(LONGEST);
    }

    /// Lives are over, and their numbers are to be forgotten.
    pub(super) fn forget_names(&mut self, home: NodeId, over: &NodeSet) {
        self.own.forget_names(home, over);
        if let Some(busy) = self.own.busy_if_any()
            && let Some(lost) = &mut busy.more.lost
            && over.contains(*lost)
        {
            *lost = NodeId::NONE;
        }
    }

    pub(super) fn busy(&self) -> Option<&Busy<More>> {
        self.own.busy()
    }

    pub(super) fn more(&mut self) -> &mut More {
        &mut self.own.busy_mut().more
    }

    pub(super) fn more_if_any(&mut self) -> Option<&mut More> {
        self.own.busy_if_any().map(|busy| &mut busy.more)
    }

    /// Whether its owner, this node, is about to write.
    pub(super) fn gathers(&self) -> bool {
        self.busy().is_some_and(|busy| busy.more.gather.is_some())
    }

    pub(super) fn predictor(&self) -> RmwPredictor {
        RmwPredictor::of((self.window_and_predictor >> WINDOW_BITS) as u8)
    }

    pub(super) fn set_predictor(&mut self, predictor: RmwPredictor) {
        let bits = u32::from(predictor.bits()) << WINDOW_BITS;
        self.window_and_predictor = self.window_and_predictor & LONGEST | bits;
    }

    /// Whether this node has the page, no node has stored to it, and no other one has a copy.
    pub(super) fn is_new_at(&self, node: NodeId) -> bool {
        let alone = self.own.hint == node && self.copies.is_empty() && self.own.busy().is_none();
        alone && self.pristine && self.rights == Rights::None
    }

    /// Whether mappings have the right to this access.
    pub(super) fn allows(&self, access: Access) -> bool {
        self.rights
            >= match access {
                Access::Read => Rights::Read,
                Access::Write => Rights::Write,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pins_here::Pin;
    use super::*;
    use crate::limits::RESEND_FIRST;
    use pagemesh_wire::{ClientId, PageIndex, SegmentId, Version};

    #[test]
    fn a_window_and_a_predictor_do_not_touch() {
        let mut page = Page::new(NodeId(1));
        page.set_predictor(RmwPredictor::of(0xa5));
        for (window, held) in [(0, 0), (300, 300), (1 << 30, u64::from(LONGEST))] {
            page.hold_for(Duration::from_micros(window));
            assert_eq!(page.held_until(), Time::ZERO + Duration::from_micros(held));
            assert_eq!(page.predictor(), RmwPredictor::of(0xa5));
        }
        page.hold_for(WINDOW_LIMIT);
        page.set_predictor(RmwPredictor::of(0xff));
        assert_eq!(page.held_until(), Time::ZERO + WINDOW_LIMIT);
    }

    #[test]
    fn only_what_has_nothing_under_way_is_idle() {
        assert!(More::default().is_idle());
        let changes: [fn(&mut More); 10] = [
            |more| more.faults.push((MappingId(1), Access::Read)),
            |more| {
                let backoff = Backoff::start(Time::ZERO, RESEND_FIRST);
                let missing = NodeSet::EMPTY;
                more.gather = Some(Gather { missing, backoff });
            },
            |more| {
                more.deferred = Some(Invalidate {
                    segment: SegmentId(1),
                    page: PageIndex(0),
                    version: Version(1),
                    writer: NodeId(1),
                });
            },
            |more| more.watchers.push(Ticket(1)),
            |more| {
                more.pins.put(Pin {
                    client: ClientId(1),
                    ticket: Ticket(1),
                    until: Time::ZERO,
                });
            },
            |more| more.pinning.push(Ticket(1)),
            |more| more.confirming = true,
            |more| more.seen_unused = true,
            |more| more.lost = Some(NodeId(1)),
            |more| {
                let mapping = MappingId(1);
                more.ahead = Some(Ahead {
                    mapping,
                    mark: false,
                });
            },
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut more = More::default();
            change(&mut more);
            assert!(!more.is_idle() && more != More::default(), "{number}");
        }
    }
}
