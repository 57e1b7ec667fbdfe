//! Reading ahead: recognises walks through a segment, says which pages to ask for before they are
//! touched, and which of those asked for got lost.
//!
//! [`walk`] follows the faults of one process, [`rows`] says where they go; [`flight`] follows the
//! pages that one node was asked for and that have not come; [`willneed_ranges`] asks for the
//! announced pages of processes;
//! [`gather`] puts many requests into one datagram. This module does not know rights, owners or
//! diffs: a page asked for ahead is asked for like any other (`policies/*/ahead.rs`), so that all
//! rules for other requests hold for it.

mod flight;
mod gather;
mod rows;
mod walk;
mod willneed_ranges;

pub(crate) use flight::Flights;
pub(crate) use gather::gather;
pub(crate) use walk::{AccessPattern, Burst, Walks, beside};
pub(crate) use willneed_ranges::WillneedRanges;

use crate::limits::WILLNEED_RANGES;
use crate::shell::Cx;
use core::time::Duration;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::local::Advice;
use pagemesh_wire::{ClientId, MappingId, PageIndex};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The state of reading ahead in one segment on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Prefetch {
    /// The access patterns of each process.
    pub(crate) walks: SortedMap<ClientId, Walks>,
    /// The pages on their way.
    pub(crate) flights: Flights,
    /// The announced ranges, in order.
    pub(crate) willneed_ranges: VecDeque<WillneedRange>,
}

/// A range that a process will need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct WillneedRange {
    pub(crate) mapping: MappingId,
    pub(crate) next: PageIndex,
    pub(crate) end: PageIndex,
}

/// How a page asked for ahead is to be put where it is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Ahead {
    /// The mapping in which the page is expected to be touched.
    pub(crate) mapping: MappingId,
    /// The first page of a burst is not mapped: touching it says that the pages
    /// before it were wanted, and it is time to ask for more.
    pub(crate) mark: bool,
}

impl Ahead {
    /// Of a page that a process has announced: it is mapped when it comes.
    pub(crate) fn announced(mapping: MappingId) -> Self {
        let mark = false;
        Self { mapping, mark }
    }
}

/// Of the first wait for an answer this part is enough to notice that nothing comes.
const NOTICED: u32 = 5;

/// After this long without an arrival something that was asked for ahead stays out.
pub(crate) fn quiet(cx: &Cx<'_>) -> Duration {
    cx.pace().resend_first / NOTICED
}

impl Prefetch {
    /// Handles a process's announcement for pages from `first` up to `end`, except that it does not
    /// need them.
    fn heed(
        &mut self,
        (client, mapping): (ClientId, Option<MappingId>),
        (first, end): (PageIndex, PageIndex),
        advice: Advice,
    ) {
        let pattern = match advice {
            Advice::Normal => AccessPattern::Unknown,
            Advice::Sequential => AccessPattern::Sequential,
            Advice::Random => AccessPattern::Random,
            Advice::WillNeed => {
                let next = first;
                let willneed_range = mapping.map(|mapping| WillneedRange { mapping, next, end });
                let has_room = self.willneed_ranges.len() < WILLNEED_RANGES;
                return self
                    .willneed_ranges
                    .extend(willneed_range.filter(|_| has_room));
            }
            Advice::DontNeed | Advice::DontNeedShort | Advice::Renew => return,
        };
        self.walks.entry(client).or_default().set_pattern(pattern);
    }

    /// True if there are more announced pages, and one more of `limit` may be under way.
    fn has_willneed_range(&mut self, limit: u32) -> bool {
        while self
            .willneed_ranges
            .front()
            .is_some_and(|willneed_range| willneed_range.next >= willneed_range.end)
        {
            self.willneed_ranges.pop_front();
        }
        !self.willneed_ranges.is_empty() && self.flights.fare(limit).room > 0
    }

    /// The next announced pages, `most` at most, and of `limit` as many as may be under way besides.
    fn take_announced(&mut self, limit: u32, most: u32) -> Vec<(PageIndex, MappingId)> {
        let room = self.flights.fare(limit).room.min(most) as usize;
        let mut taken = Vec::new();
        while taken.len() < room && self.has_willneed_range(limit) {
            let Some(range) = self.willneed_ranges.front_mut() else {
                break;
            };
            taken.push((range.next, range.mapping));
            range.next.0 += 1;
        }
        taken
    }

    /// The process is gone.
    pub(crate) fn client_gone(&mut self, client: ClientId) {
        self.walks.remove(&client);
    }

    /// The mapping is gone.
    pub(crate) fn unmapped(&mut self, mapping: MappingId) {
        self.willneed_ranges
            .retain(|willneed_range| willneed_range.mapping != mapping);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_that_are_too_many_are_forgotten() {
        let mut prefetch = Prefetch::default();
        let who = (ClientId(1), Some(MappingId(1)));
        for page in 0..WILLNEED_RANGES as u32 + 9 {
            let range = (PageIndex(page), PageIndex(page + 1));
            prefetch.heed(who, range, Advice::WillNeed);
        }
        assert_eq!(prefetch.willneed_ranges.len(), WILLNEED_RANGES);
        assert_eq!(prefetch.take_announced(64, 9).len(), 9);
        assert_eq!(prefetch.take_announced(64, 999).len(), 64);
    }
}
