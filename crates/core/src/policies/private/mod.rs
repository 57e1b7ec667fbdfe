//! The memory of one node, larger than its frames (GMS): pages that do not fit are in the idle
//! memory of other nodes and on the disk of the segment's home.
//!
//! Only the home has the segment open; so pages need no coherence, and the directory entry of each
//! is here (G17). A page is in a frame; then *staged*, that is, in the stash without a mapping; then
//! out. Frames are taken away in the order in which threads faulted at them. A staged page comes
//! back by a fault without any message, which makes it young again: that is how use is known
//! without an accessed bit. Pages that a walk brought are replaced by those that it brings next
//! ([`scan`]). From the stage the oldest pages go out, in runs: to the disk, and then, unless they are
//! older than MinAge, to a donor that the epoch's weights choose.
//!
//! With [`Backing::File`](pagemesh_wire::peer::Backing) every page that is out is on the disk (G12). So a putpage need not be
//! acknowledged, a donor may drop a page at any time, and an answer that does not come costs a
//! disk access, never contents. With `Backing::Copies` two donors must have said that they keep a
//! page before it leaves the stash (GB1); the disk takes only what finds no two donors.
//!
//! A version is one set of contents. A donor is asked for a version and the driver opens only what
//! was sealed as that version: an older one never comes back (INV-private-version).
//!
//! [`Private`] joins parts that own their state: [`memory`] has the pages and counts what they take,
//! [`scan`] the order in which frames are taken away, [`stores`] whether stores follow loads,
//! [`outgoing`] what is under way to donors. [`stored`] is how the segment is written down.

mod ahead;
mod fetch;
mod hooks;
mod leavers;
mod memory;
mod orphans;
mod outgoing;
mod page;
mod replace;
mod scan;
mod stored;
mod stores;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod traces;

use super::hooks::Open;
use crate::effect::{Effect, Rights, Source};
use crate::event::Event;
use crate::prefetch::Prefetch;
use crate::shell::Cx;
use crate::time::Time;
use fetch::Fetch;
use memory::{Memory, Rules, rights_for};
use outgoing::Outgoing;
use page::Place;
use pagemesh_sorted::LongMap;
use pagemesh_wire::peer::{Access, Policy, Refusal};
use pagemesh_wire::{MappingId, PageIndex, SegmentId};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use stored::Stored;

/// One private segment at its home.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(from = "Stored<'_>")]
pub(crate) struct Private {
    memory: Memory,
    /// Pages asked for.
    fetches: LongMap<PageIndex, Fetch>,
    /// Accesses that wait for room.
    blocked: VecDeque<Blocked>,
    /// Pages on their way to donors.
    outgoing: Outgoing,
    /// Since when the disk takes nothing.
    full: Option<Time>,
    prefetch: Prefetch,
}

/// An access that waits for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Blocked {
    mapping: MappingId,
    page: PageIndex,
    access: Access,
    since: Time,
}

impl Open for Private {
    fn open(segment: SegmentId, _: u32, chosen: Policy) -> Option<Result<Self, Refusal>> {
        let Policy::Private { local, backing } = chosen else {
            return None;
        };
        let rules = Rules {
            segment,
            local: local.0,
            backing,
        };
        Some(Ok(Self {
            memory: Memory::new(rules),
            fetches: LongMap::new(),
            blocked: VecDeque::new(),
            outgoing: Outgoing::default(),
            full: None,
            prefetch: Prefetch::default(),
        }))
    }
}

impl Private {
    /// Serves an access if the page is in the memory of this node.
    fn serve_here(
        &mut self,
        cx: &mut Cx<'_>,
        (mapping, page): (MappingId, PageIndex),
        access: Access,
    ) -> bool {
        let Some(known) = self.memory.pages.get(&page).copied() else {
            return false;
        };
        let segment = self.memory.rules.segment;
        match known.place {
            Place::Frame { rights, used } => {
                if (rights, access) == (Rights::Read, Access::Write) {
                    self.memory.stores.stored(page);
                }
                let rights = rights.max(rights_for(access));
                self.memory.pages.entry(page).and_modify(|known| {
                    known.place = Place::Frame { rights, used };
                });
                cx.emit(Event::LocalFault { segment, page });
                self.memory.map(cx, mapping, page, rights);
                true
            }
            Place::Staged { used } | Place::Sending { used } => {
                self.memory.staged.remove(used, page);
                self.outgoing.withdraw(page);
                cx.push(Effect::Fill {
                    pages: self.memory.range(page),
                    source: Source::Stash,
                });
                // What was stored to and is nowhere else yet has to be written anyway: its next store
                // need not fault.
                let only_here = !known.on_disk && known.donors.all().is_empty();
                let rights = match only_here {
                    true => Rights::Write,
                    false => rights_for(access),
                };
                self.memory.framed(cx.now, page, rights);
                cx.emit(Event::SoftFault { segment, page });
                self.memory.map(cx, mapping, page, rights);
                cx.push(Effect::DropStash { segment, page });
                true
            }
            // The driver's answer comes next.
            Place::Storing { .. } | Place::Out => false,
        }
    }

    /// Gets a page for which there is room: zeros, or from a donor, or from the disk.
    fn bring(&mut self, cx: &mut Cx<'_>, (mapping, page): (MappingId, PageIndex), access: Access) {
        let segment = self.memory.rules.segment;
        let Some(known) = self.memory.pages.get(&page).copied() else {
            cx.emit(Event::LocalFault { segment, page });
            self.memory.hold(cx);
            let zeros = Source::Zero;
            return self.memory.fill(cx, page, zeros, &[(mapping, access)]);
        };
        match access {
            Access::Read => cx.emit(Event::ReadFault { segment, page }),
            Access::Write => cx.emit(Event::WriteFault { segment, page }),
        }
        if self.memory.reads_disk(cx, &known) {
            self.memory.hold(cx);
            return self.memory.load(cx, page, &[(mapping, access)]);
        }
        if known.donors.is_empty() {
            let why = Refusal::NodeGone(segment.home());
            return self.memory.fail(cx, mapping, page, why);
        }
        self.memory.hold(cx);
        self.fetch(cx, page, Some((mapping, access)));
    }
}
