//! One to many: which node sends copies to a reader while several nodes read the same pages.
//!
//! A node that served every reader itself would send each page once for each of them. So it leaves a
//! burst of requests to the node that asked for the same pages before: readers form a chain, in which
//! each sends what it received, once it has it. The first is served here. Any copy is a base from which
//! a page can be made whole, whoever sends it; what it lacks is requested as diffs.
//!
//! A reader that has no copy and awaits none says so. A request that is left to a reader and gets lost
//! is repeated by the node that waits, like any other. Both times the node that waits is served here.

use super::messages::{Body, CopyRequest, CopyRequests};
use super::say;
use super::serve::SupplyContext;
use crate::event::Event;
use crate::limits::READS;
use crate::time::Time;
use pagemesh_sorted::LongMap;
use pagemesh_wire::{NodeId, PageIndex, RequestId};
use serde::{Deserialize, Serialize};

/// Pages whose readers are remembered, so many at most: those at the front of a segment are forgotten.
const PAGES: usize = 65_536;

/// The version of the protocol since which requests are left to readers: before, a reader that was
/// told of no copy asked the node no more that had left its request to another.
const SINCE: u8 = 5;

/// The hops of a request that is left to another reader.
pub(super) const LEFT: u8 = 2;

/// The hops of one that comes back from there.
const CAME_BACK: u8 = 3;

/// The ends of the chains, as far as this node began them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Feeds {
    last: LongMap<PageIndex, Reader>,
    asked: Time,
}

/// The node that asked for a page last, in a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Reader {
    node: NodeId,
    /// The last interval of this node that its copy has.
    interval: Option<u64>,
}

impl Feeds {
    /// A burst comes: chains that nobody asked for lately have ended.
    fn burst(&mut self, now: Time) {
        if now >= self.asked + READS {
            self.last.clear();
        }
        self.asked = now;
    }

    /// A reader becomes the end of a page's chain. Returns the end before.
    fn comes_last(&mut self, page: PageIndex, reader: Reader) -> Option<Reader> {
        let before = self.last.insert(page, reader);
        if self.last.len() > PAGES {
            self.last.pop_first();
        }
        before
    }

    /// No chain ends at this node any more.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.last.retain(|_, reader| reader.node != node);
    }
}

impl SupplyContext<'_, '_> {
    /// The pages of a burst that this node is to serve itself; the others are left to readers.
    pub(super) fn leave_to_readers(
        &mut self,
        from: NodeId,
        many: &CopyRequests,
    ) -> Vec<(PageIndex, RequestId)> {
        let few = many.copies.len() < usize::from(self.cx.pace().left_to_reader);
        if few || self.cx.shell.spoken < SINCE {
            return many.copies.clone();
        }
        self.feeds.burst(self.cx.now);
        let copies = many.copies.iter().copied();
        let own = copies.filter(|&(page, request)| {
            let fetch = CopyRequest {
                page,
                reader: from,
                request,
                floor: many.floor.clone(),
                hops: LEFT,
            };
            !self.leave_to_reader(fetch)
        });
        own.collect()
    }

    fn leave_to_reader(&mut self, fetch: CopyRequest) -> bool {
        let index = fetch.page;
        if !self.has_copy(&fetch) || !self.cx.is_alive(fetch.reader) {
            return false;
        }
        let page = self.memory.pages.get(&index);
        let interval = page.and_then(|page| page.notices.of(self.cx.me()).next());
        let next = Reader {
            node: fetch.reader,
            interval,
        };
        let Some(before) = self.feeds.comes_last(index, next) else {
            return false;
        };
        let current = before.interval == interval && self.cx.is_alive(before.node);
        if !current || [fetch.reader, self.cx.me()].contains(&before.node) {
            return false;
        }
        let segment = self.rules.segment;
        self.push.copied(fetch.reader, index, interval);
        say(self.cx, segment, before.node, &Body::CopyRequest(fetch));
        self.cx.emit(Event::CopyLeftToReader {
            segment,
            page: index,
        });
        true
    }

    /// A request that was left to a node which does not know the segment any more.
    pub(super) fn left_in_vain(&mut self, to: NodeId, fetch: CopyRequest) {
        self.feeds.forget(to);
        let hops = CAME_BACK;
        self.fetch(CopyRequest { hops, ..fetch });
    }
}
