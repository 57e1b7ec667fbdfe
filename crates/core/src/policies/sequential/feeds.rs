//! One to many: which node sends copies to which reader while several nodes walk through the same
//! pages.
//!
//! An owner that serves every reader itself sends each page once for each of them, and its link is the
//! limit of all. So the owner leaves the bursts of a reader to another one that has, or is about to
//! have, copies of the same pages: readers form a chain, in which each node sends what it received. The
//! first to ask for a page gets it from the owner, and so does a node that reads alone.
//!
//! *INV-copyset*: the owner counts the reader among the nodes with a copy before the other node sends
//! one, and names the only version that may be sent. Once that is invalidated, a copy of it that is
//! still on its way is refused for its version, and if its owner has died meanwhile, for its owner: the
//! search for the page may have counted the copies already.

use super::context::PageContext;
use super::memory::Memory;
use super::page::{More, Page};
use super::page_here::PageHere;
use crate::effect::{Rights, Source};
use crate::event::Event;
use crate::limits::READS;
use crate::shell::Cx;
use crate::time::Time;
use core::cmp::Reverse;
use core::time::Duration;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::{
    Access, Ask, AskMany, Contents, CopyToSend, Data, Manager, Message, PageRequest, SendCopies,
    Waiter,
};
use pagemesh_wire::{NodeId, NodeSet, PageIndex, RequestId, Version};
use serde::{Deserialize, Serialize};

/// A node whose copies did not come feeds nobody for this long.
const BARRED: Duration = Duration::from_millis(50);

/// At the owner of a segment's pages: who sends bursts to each node that reads now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Feeds {
    readers: SortedMap<NodeId, Feed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Feed {
    from: NodeId,
    asked: Time,
    /// It feeds nobody until then.
    barred: Time,
}

impl Feeds {
    /// The node that sends its next burst to `reader`: the owner, or one of `holders`, which have
    /// copies of all of its pages.
    fn choose(&mut self, now: Time, owner: NodeId, reader: NodeId, holders: &NodeSet) -> NodeId {
        self.readers
            .retain(|_, feed| now < feed.asked + READS || now < feed.barred);
        let from = self.least_busy(now, owner, reader, holders);
        self.asks(now, reader, from);
        from
    }

    /// A reader asks for a burst, which that node sends.
    fn asks(&mut self, now: Time, reader: NodeId, from: NodeId) {
        let before = self.readers.get(&reader);
        let barred = before.map_or(Time::ZERO, |feed| feed.barred);
        let feed = Feed {
            from,
            asked: now,
            barred,
        };
        self.readers.insert(reader, feed);
    }

    fn may_feed(&self, now: Time, node: NodeId, holders: &NodeSet) -> bool {
        let reads = self.readers.get(&node);
        let may = |feed: &Feed| now < feed.asked + READS && now >= feed.barred;
        holders.contains(node) && reads.is_some_and(may)
    }

    /// The nodes of these that read now, but for the reader itself.
    fn reading(&self, now: Time, reader: NodeId, nodes: &NodeSet) -> NodeSet {
        let all = self.readers.keys().copied();
        let reading = all.filter(|&node| node != reader && self.may_feed(now, node, nodes));
        reading.collect()
    }

    /// The owner, if it feeds no other node; else the holder that feeds the fewest. Of those, the one
    /// farthest from the owner: else a reader would stay with the first of the chain though the second
    /// could feed it, and each of two would get half of what the first can send.
    fn least_busy(&self, now: Time, owner: NodeId, reader: NodeId, holders: &NodeSet) -> NodeId {
        let before = self.readers.get(&reader).map(|feed| feed.from);
        let fed = |node| {
            let others = self.readers.iter().filter(|(other, _)| **other != reader);
            others.filter(|(_, feed)| feed.from == node).count()
        };
        let reading = self.reading(now, reader, holders);
        let least = reading
            .iter()
            .min_by_key(|&node| (fed(node), Reverse(self.depth(node)), Some(node) != before));
        least.filter(|_| fed(owner) > 0).unwrap_or(owner)
    }

    /// Nodes between the owner and this one, along which its last burst came. Readers that feed each
    /// other in a circle are all deep.
    fn depth(&self, node: NodeId) -> usize {
        let step = |feed: &Feed| self.readers.get(&feed.from);
        let chain = core::iter::successors(self.readers.get(&node), |feed| step(feed));
        chain.take(self.readers.len()).count()
    }

    /// A node is gone.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.readers
            .retain(|reader, feed| *reader != node && feed.from != node);
    }

    /// A reader asks again for pages that it was to have: the node that was to send them is slow.
    fn failed(&mut self, now: Time, reader: NodeId) {
        let from = self.readers.get(&reader).map(|feed| feed.from);
        if let Some(slow) = from.and_then(|from| self.readers.get_mut(&from)) {
            slow.barred = now + BARRED;
        }
    }

    /// The nodes that send the pages of a burst, each with the length of the run that it sends, in the
    /// order of the pages.
    pub(super) fn feeders(
        &mut self,
        cx: &Cx<'_>,
        memory: &Memory,
        reader: NodeId,
        many: &AskMany,
    ) -> Vec<(usize, NodeId)> {
        let owner = cx.me();
        let least = usize::from(cx.pace().left_to_reader);
        let burst = many.access == Access::Read && many.requests.len() >= least;
        let by_owner = vec![(many.requests.len(), owner)];
        if !burst || memory.rules.manager != Manager::Dynamic {
            return by_owner;
        }
        let runs = self.held_alike(cx, memory, reader, &many.requests);
        if runs.iter().all(|(_, holders)| holders.is_empty()) {
            self.asks(cx.now, reader, owner);
            return by_owner;
        }
        let feeders = runs.into_iter().map(|(count, holders)| {
            let feeder = match holders.is_empty() {
                true => owner,
                false => self.choose(cx.now, owner, reader, &holders),
            };
            (count, feeder)
        });
        feeders.collect()
    }

    /// The pages as runs of which the same nodes have copies that read now; none has, if the reader was
    /// to have a page already, and asks again.
    fn held_alike(
        &mut self,
        cx: &Cx<'_>,
        memory: &Memory,
        reader: NodeId,
        requests: &[PageRequest],
    ) -> Vec<(usize, NodeSet)> {
        let mut runs: Vec<(usize, NodeSet)> = Vec::new();
        for request in requests {
            let copies = memory.shared_with(cx.me(), request.page);
            let mut copies = copies.unwrap_or(NodeSet::EMPTY);
            if copies.contains(reader) {
                self.failed(cx.now, reader);
                copies = NodeSet::EMPTY;
            }
            let holders = copies.intersection(&cx.shell.alive);
            let holders = self.reading(cx.now, reader, &holders);
            match runs.last_mut() {
                Some((count, of)) if of.is_empty() && holders.is_empty() => *count += 1,
                Some((count, of)) if !of.intersection(&holders).is_empty() => {
                    *count += 1;
                    *of = of.intersection(&holders);
                }
                _ => runs.push((1, holders)),
            }
        }
        runs
    }
}

/// A reader to whom this node is to send its copy when that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct CopyWaiter {
    reader: NodeId,
    request: RequestId,
    version: Version,
}

impl Memory {
    /// The nodes that may have a copy of a page that this node owns, if nothing is under way about it.
    fn shared_with(&self, owner: NodeId, index: PageIndex) -> Option<NodeSet> {
        let page = self.pages.get(index)?;
        let owned = page.own.hint == owner && page.own.busy().is_none();
        let kept = !self.replicas.book.behind.contains(&index);
        let shared = kept && page.rights < Rights::Write && page.filled && !page.pristine;
        let shared = owned && shared;
        shared.then_some(page.copies.clone())
    }

    /// Leaves requests of a reader to another one.
    pub(super) fn leave_to(
        &mut self,
        cx: &mut Cx<'_>,
        feeder: NodeId,
        reader: NodeId,
        requests: &[PageRequest],
    ) {
        let segment = self.rules.segment;
        let mut copies = Vec::with_capacity(requests.len());
        for request in requests {
            let page = request.page;
            let version = self.at(cx, page, |context| context.here.leave_to_reader(reader));
            copies.push(CopyToSend {
                page,
                request: request.request,
                version,
            });
        }
        let message = SendCopies {
            segment,
            reader,
            copies,
        };
        cx.send(feeder, Message::SendCopies(message));
    }

    /// The owner of some pages leaves a reader's requests to this node.
    pub(super) fn send_copies(&mut self, cx: &mut Cx<'_>, message: &SendCopies) {
        let reader = message.reader;
        if message.copies.len() > AskMany::LIMIT {
            return cx.emit(Event::Malformed {});
        }
        if !cx.is_alive(reader) || reader == cx.me() || self.rules.manager != Manager::Dynamic {
            return cx.emit(Event::Stale {});
        }
        for copy in &message.copies {
            let waiter = CopyWaiter {
                reader,
                request: copy.request,
                version: copy.version,
            };
            self.at(cx, copy.page, |context| context.send_copy(waiter));
        }
    }
}

impl More {
    /// A member is gone: it waits for no copy.
    pub(super) fn forget_copy_waiter(&mut self, node: NodeId) {
        self.copy_waiters.retain(|waiter| waiter.reader != node);
    }
}

impl Page {
    /// Whether this node has a copy of this version, and may send it to others.
    fn is_copy_of(&self, cx: &Cx<'_>, version: Version) -> bool {
        let has = self.rights > Rights::None && self.filled;
        let owner = self.own.hint;
        has && self.own.version == version && !cx.is_gone(owner) && owner != cx.me()
    }
}

impl PageContext<'_, '_> {
    fn send_copy(&mut self, waiter: CopyWaiter) {
        let own = &self.here.page.own;
        let comes = own.want().is_some() && own.version <= waiter.version;
        if self.here.page.is_copy_of(self.here.cx, waiter.version) {
            self.here.send_copy_on(waiter);
        } else if comes && !self.here.is_owner() {
            let waiters = &mut self.here.page.more().copy_waiters;
            waiters.retain(|other| other.reader != waiter.reader);
            waiters.push(waiter);
        } else {
            self.leave_to_owner(waiter);
        }
    }

    /// This node has not that version: the request goes where others go.
    fn leave_to_owner(&mut self, waiter: CopyWaiter) {
        self.asked(&Ask {
            subject: self.here.subject(),
            waiter: Waiter {
                node: waiter.reader,
                request: waiter.request,
                access: Access::Read,
                have: None,
            },
            since: Version(0),
            hops: 1,
            by_library: false,
        });
    }

    /// This node's own request is over: serves the readers that waited for its copy.
    pub(super) fn serve_copy_waiters(&mut self) {
        let Some(busy) = self.here.page.own.busy_if_any() else {
            return;
        };
        if busy.want.is_some() || busy.more.copy_waiters.is_empty() {
            return;
        }
        for waiter in core::mem::take(&mut busy.more.copy_waiters) {
            if self.here.cx.is_alive(waiter.reader) {
                self.send_copy(waiter);
            }
        }
    }
}

impl PageHere<'_, '_> {
    /// Another node is to send `reader` a copy of this version.
    fn leave_to_reader(&mut self, reader: NodeId) -> Version {
        let (segment, page) = self.at();
        self.page.copies.insert(reader);
        self.cx.emit(Event::CopyLeftToReader { segment, page });
        self.page.own.version
    }

    fn send_copy_on(&mut self, waiter: CopyWaiter) {
        let (segment, page) = self.at();
        let data = Data {
            segment,
            page,
            request: waiter.request,
            version: waiter.version,
            owner: self.page.own.hint,
            contents: Contents::Bytes,
        };
        self.send_contents(waiter.reader, Message::Data(data), Source::Frame);
        self.cx.emit(Event::CopySentOn { segment, page });
    }
}
