//! Reading ahead: recognises who walks through a segment, says which pages to
//! ask for before they are touched, and which of those asked for got lost.
//!
//! [`walk`] follows the faults of one process; [`flight`] follows what was asked
//! of one node and has not come; [`errands`] goes on with what processes announced; [`gather`]
//! puts many wishes into one datagram.
//! Nothing here knows of rights, owners or diffs: a page asked for ahead is asked for
//! like any other (`policies/*/ahead.rs`), so that whatever holds for those holds for it.

mod errands;
mod flight;
mod gather;
mod walk;

pub(crate) use errands::Errands;
pub(crate) use flight::Flights;
pub(crate) use gather::gather;
pub(crate) use walk::{Burst, Habit, Walks};

use crate::shell::Cx;
use core::time::Duration;
use pagemesh_wire::local::Advice;
use pagemesh_wire::{ClientId, MappingId, PageIndex};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Everything about reading ahead in one segment on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Prefetch {
    /// What each process does with its memory.
    pub(crate) walks: BTreeMap<ClientId, Walks>,
    /// What is on its way.
    pub(crate) flights: Flights,
    /// What somebody wants to have soon, in order.
    pub(crate) errands: VecDeque<Errand>,
}

/// A range that a process will need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Errand {
    pub(crate) mapping: MappingId,
    pub(crate) next: PageIndex,
    pub(crate) end: PageIndex,
}

/// How a page asked for ahead is to be put where it is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Ahead {
    /// Who is expected to touch it.
    pub(crate) mapping: MappingId,
    /// The first page of a burst is not mapped: touching it says that the pages
    /// before it were wanted, and it is time to ask for more.
    pub(crate) mark: bool,
}

/// Of the first wait for an answer this part is enough to notice that nothing comes.
const NOTICED: u32 = 5;

/// After this long without an arrival something that was asked for ahead stays out.
pub(crate) fn quiet(cx: &Cx<'_>) -> Duration {
    cx.pace().resend_first / NOTICED
}

impl Prefetch {
    /// Heeds what a process says of pages from `first` up to `end`, except that it does not need them.
    fn heed(
        &mut self,
        (client, mapping): (ClientId, Option<MappingId>),
        (first, end): (PageIndex, PageIndex),
        advice: Advice,
    ) {
        let habit = match advice {
            Advice::Normal => Habit::Unknown,
            Advice::Sequential => Habit::Sequential,
            Advice::Random => Habit::Random,
            Advice::WillNeed => {
                let next = first;
                let errand = mapping.map(|mapping| Errand { mapping, next, end });
                return self.errands.extend(errand);
            }
            Advice::DontNeed => return,
        };
        self.walks.entry(client).or_default().set_habit(habit);
    }

    /// Whether there is more of what was announced, and one more of `limit` may be under way.
    fn has_errand(&mut self, limit: u32) -> bool {
        while self
            .errands
            .front()
            .is_some_and(|errand| errand.next >= errand.end)
        {
            self.errands.pop_front();
        }
        !self.errands.is_empty() && self.flights.fare(limit).room > 0
    }

    /// The next page of what was announced, and where it is wanted, if there is one.
    fn next_errand(&mut self, limit: u32) -> Option<(PageIndex, MappingId)> {
        if !self.has_errand(limit) {
            return None;
        }
        let errand = self.errands.front_mut()?;
        let page = errand.next;
        errand.next.0 += 1;
        Some((page, errand.mapping))
    }

    /// The process is gone.
    pub(crate) fn client_gone(&mut self, client: ClientId) {
        self.walks.remove(&client);
    }

    /// The mapping is gone.
    pub(crate) fn unmapped(&mut self, mapping: MappingId) {
        self.errands.retain(|errand| errand.mapping != mapping);
    }
}
