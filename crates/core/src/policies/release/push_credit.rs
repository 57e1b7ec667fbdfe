//! Push credit: to which nodes a diff of a page is pushed before it is requested, and how the nodes
//! that get pushed diffs earn the next ones.
//!
//! With `invalidate` no diff is pushed. With `eager` and `hybrid`, each node that has used a page
//! subscribes to its diffs, without a bound. With `lazy`, a node that requested the whole page, or one interval's diff of it, may want
//! the next ones, as the neighbour of a band of rows or the next holder of a lock does: it gets a
//! credit of two, sent ahead of its lock or barrier. If it uses them, or requests one diff after the
//! other, its credit rises to eight, then 32, then 64. A node that writes the page shows its use by
//! that. A node that requests several diffs at once has skipped some: it gets no push until it again
//! requests one diff at a time.
//!
//! Pushed diffs are applied in place, and threads see them without a fault, so a node must show its
//! use before its credit is used up. To request the next diff would take until the writer's daemon
//! gets its processor, on which its program runs: as long as half a phase. So each node counts, as
//! the writers do, and just before the credit is used up the page is put out of sight once, though
//! nothing is missing. The next access causes a fault that this node serves alone, and the writers
//! are told at the next barrier or lock.
//!
//! Correctness does not depend on pushes.

use pagemesh_sorted::{LongMap, SortedMap};
use pagemesh_wire::peer::{DiffName, Spread};
use pagemesh_wire::{NodeId, NodeSet, PageIndex, VectorTime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The longest request streak that is counted. A request costs a fault, and both nodes the time
/// until the other's daemon gets its processor: as much as dozens of diffs that are not used.
const LONGEST: u8 = 4;

/// A page is put out of sight this many diffs before the credit is used up.
const BEFORE_THE_LAST: u8 = 2;

/// The credit of a node with this request streak, in diffs.
fn allowance(streak: u8) -> u8 {
    match streak {
        0 => 0,
        streak => (1 << (2 * streak - 1)).min(64),
    }
}

/// The push subscribers of each page, and what was pushed here, in one table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct PushCredit {
    spread: Spread,
    table: LongMap<PageIndex, Entry>,
    /// Pages whose pushed diffs were used, which their writers were not told yet.
    used: BTreeSet<PageIndex>,
    /// Pages with subscribers that this node named, or of which a subscriber earned credit, since the
    /// last barrier. Of the others nothing is to be pushed, and they may be very many.
    #[serde(default)]
    due: BTreeSet<PageIndex>,
}

/// The credit that other nodes have here for a page, and this node's credit with them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Entry {
    subscribers: SortedMap<NodeId, Subscriber>,
    received: Received,
}

/// How a node uses the diffs that this one makes of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Subscriber {
    /// Its request streak: consecutive requests for one diff each.
    streak: u8,
    credit: Credit,
    /// The last interval of this node whose diff it requested or was sent.
    seen: u64,
}

impl Subscriber {
    /// It has shown that it uses the page, with this request streak.
    fn earn(&mut self, streak: u8) {
        self.streak = streak.min(LONGEST);
        self.credit = Credit::Diffs(allowance(self.streak));
    }
}

/// What may still be pushed to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Credit {
    /// So many diffs.
    Diffs(u8),
    Unbounded,
}

impl Default for Credit {
    fn default() -> Self {
        Self::Diffs(0)
    }
}

impl Credit {
    fn is_used_up(self) -> bool {
        self == Self::Diffs(0)
    }
}

/// The pushed diffs of a page since this node last showed that it uses the page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Received {
    /// Number of diffs.
    diffs: u8,
    /// The nodes that sent them.
    from: NodeSet,
    /// This node's request streak, as the page's writers count it.
    streak: u8,
}

impl Received {
    /// Whether a writer may be about to send the last diff of this node's credit.
    fn is_running_out(&self) -> bool {
        self.diffs > 0 && self.diffs + BEFORE_THE_LAST >= allowance(self.streak.max(1))
    }

    /// The writers learn that the page is used.
    fn shown(&mut self) {
        self.diffs = 0;
        self.from = NodeSet::EMPTY;
    }
}

/// At the node that makes diffs: its subscribers.
impl PushCredit {
    pub(super) fn new(spread: Spread) -> Self {
        Self {
            spread,
            table: LongMap::new(),
            used: BTreeSet::new(),
            due: BTreeSet::new(),
        }
    }

    /// A node requests these diffs, all of known pages.
    pub(super) fn requested(&mut self, me: NodeId, from: NodeId, diffs: &[DiffName]) {
        match self.spread {
            Spread::Lazy => {}
            Spread::Eager | Spread::Hybrid => {
                return diffs
                    .iter()
                    .for_each(|name| self.subscribe(from, name.page));
            }
            Spread::Invalidate => return,
        }
        // Of each page: how many diffs, and the last of their intervals.
        let mut asked: LongMap<PageIndex, (usize, u64)> = LongMap::new();
        for name in diffs.iter().filter(|name| name.node == me) {
            let (count, last) = asked.entry(name.page).or_default();
            *count += 1;
            *last = name.interval.max(*last);
        }
        for (page, (count, last)) in asked {
            let subscriber = self.subscriber(from, page);
            if last <= subscriber.seen {
                continue; // what was lost, or asked twice
            }
            subscriber.seen = last;
            subscriber.earn(if count > 1 { 0 } else { subscriber.streak + 1 });
            self.due.insert(page);
        }
    }

    /// A node gets a whole page, with everything up to this node's interval `last`, if this node
    /// wrote it: that counts like a request for the last diff.
    pub(super) fn copied(&mut self, to: NodeId, page: PageIndex, last: Option<u64>) {
        match self.spread {
            Spread::Lazy => {}
            Spread::Eager | Spread::Hybrid => return self.subscribe(to, page),
            Spread::Invalidate => return,
        }
        let Some(last) = last else { return };
        let subscriber = self.subscriber(to, page);
        subscriber.seen = subscriber.seen.max(last);
        if subscriber.streak == 0 {
            subscriber.earn(1);
        }
    }

    /// A node has written a page: that shows that it uses the page, so its credit is restored.
    pub(super) fn written_by(&mut self, by: NodeId, page: PageIndex) {
        match self.spread {
            Spread::Lazy => {}
            Spread::Eager | Spread::Hybrid => return self.subscribe(by, page),
            Spread::Invalidate => return,
        }
        let subscriber = self.known(by, page);
        if let Some(subscriber) = subscriber.filter(|one| !one.credit.is_used_up()) {
            subscriber.earn(subscriber.streak);
        }
    }

    /// A node has used diffs that were pushed to it.
    pub(super) fn used_by(&mut self, me: NodeId, from: NodeId, diffs: &[DiffName]) {
        for name in diffs.iter().filter(|name| name.node == me) {
            let subscriber = self.known(from, name.page);
            if let Some(subscriber) = subscriber.filter(|one| one.streak > 0) {
                subscriber.earn(subscriber.streak + 1);
                self.due.insert(name.page);
            }
        }
    }

    /// The last diff of a page turned out to be empty: gives its credit back to these nodes.
    pub(super) fn give_back(&mut self, page: PageIndex, nodes: impl Iterator<Item = NodeId>) {
        for node in nodes {
            let Some(subscriber) = self.known(node, page) else {
                continue;
            };
            let most = allowance(subscriber.streak);
            if let Credit::Diffs(credit) = &mut subscriber.credit {
                *credit = (*credit + 1).min(most);
                self.due.insert(page);
            }
        }
    }

    /// Whether diffs of a page are to be pushed to a node.
    pub(super) fn is_subscribed(&self, node: NodeId, page: PageIndex) -> bool {
        let entry = self.table.get(&page);
        let subscriber = entry.and_then(|entry| entry.subscribers.get(&node));
        subscriber.is_some_and(|one| !one.credit.is_used_up())
    }

    /// Takes the pages of which diffs may have to be pushed, by subscriber.
    pub(super) fn take_due(&mut self) -> SortedMap<NodeId, Vec<PageIndex>> {
        let mut due: SortedMap<NodeId, Vec<PageIndex>> = SortedMap::new();
        for page in core::mem::take(&mut self.due) {
            let entry = self.table.get(&page);
            for (node, subscriber) in entry.iter().flat_map(|entry| &entry.subscribers) {
                if !subscriber.credit.is_used_up() {
                    due.entry(*node).or_default().push(page);
                }
            }
        }
        due
    }

    /// A diff of a page was not pushed, because others were enough at once.
    pub(super) fn put_off(&mut self, page: PageIndex) {
        self.due.insert(page);
    }

    /// The last interval of this node whose diff of a page a node has got.
    pub(super) fn seen(&self, node: NodeId, page: PageIndex) -> u64 {
        let entry = self.table.get(&page);
        let subscriber = entry.and_then(|entry| entry.subscribers.get(&node));
        subscriber.map_or(0, |one| one.seen)
    }

    /// The diffs of a page up to this interval are pushed to a node: that costs one of its credit.
    pub(super) fn pushed(&mut self, to: NodeId, page: PageIndex, last: u64) {
        if let Some(subscriber) = self.known(to, page) {
            subscriber.seen = last;
            if let Credit::Diffs(credit) = &mut subscriber.credit {
                *credit = credit.saturating_sub(1);
            }
        }
    }

    /// A member is gone.
    pub(super) fn gone(&mut self, node: NodeId) {
        for entry in self.table.values_mut() {
            entry.subscribers.remove(&node);
        }
    }

    /// Everything in this time is collected: drops subscribers without credit whose last diff is.
    pub(super) fn collect(&mut self, me: NodeId, upto: &VectorTime) {
        for entry in self.table.values_mut() {
            let kept = |one: &Subscriber| !one.credit.is_used_up() || !upto.has(me, one.seen);
            entry.subscribers.retain(|_, one| kept(one));
        }
        self.table.retain(|_, entry| *entry != Entry::default());
        self.due.retain(|page| self.table.contains_key(page));
    }

    fn subscribe(&mut self, node: NodeId, page: PageIndex) {
        self.subscriber(node, page).credit = Credit::Unbounded;
    }

    fn subscriber(&mut self, node: NodeId, page: PageIndex) -> &mut Subscriber {
        let entry = self.table.entry(page).or_default();
        entry.subscribers.entry(node).or_default()
    }

    fn known(&mut self, node: NodeId, page: PageIndex) -> Option<&mut Subscriber> {
        self.table.get_mut(&page)?.subscribers.get_mut(&node)
    }
}

/// At the node that gets diffs: its own credit.
impl PushCredit {
    /// A diff of a page came unasked from its writer.
    pub(super) fn came(&mut self, page: PageIndex, from: NodeId) {
        if self.spread == Spread::Lazy {
            let received = &mut self.table.entry(page).or_default().received;
            received.diffs = received.diffs.saturating_add(1).min(allowance(LONGEST));
            received.from.insert(from);
        }
    }

    /// This node has fetched a whole page.
    pub(super) fn fetched(&mut self, page: PageIndex) {
        if self.spread == Spread::Lazy {
            let received = &mut self.table.entry(page).or_default().received;
            received.streak = received.streak.max(1);
            received.shown();
        }
    }

    /// This node requests this many diffs of a page.
    pub(super) fn requests(&mut self, page: PageIndex, diffs: usize) {
        if self.spread == Spread::Lazy {
            let received = &mut self.table.entry(page).or_default().received;
            received.streak = if diffs > 1 { 0 } else { received.streak + 1 }.min(LONGEST);
            received.shown();
        }
    }

    /// An interval of this node names a page: its other writers learn that the page is used here, and
    /// its subscribers may get the diff.
    pub(super) fn writes(&mut self, page: PageIndex) {
        let Some(entry) = self.table.get_mut(&page) else {
            return;
        };
        entry.received.shown();
        if self.spread == Spread::Lazy && !entry.subscribers.is_empty() {
            self.due.insert(page);
        }
    }

    /// Whether the page is to be put out of sight, so that its next use causes a fault.
    pub(super) fn is_running_out(&self, page: PageIndex) -> bool {
        let entry = self.table.get(&page);
        entry.is_some_and(|entry| entry.received.is_running_out())
    }

    /// This node has used pushed diffs of a page; their writers are to be told.
    pub(super) fn uses(&mut self, page: PageIndex) {
        self.used.insert(page);
    }

    /// The pages whose use is shown now to the nodes that pushed their diffs, by node.
    pub(super) fn show(&mut self) -> SortedMap<NodeId, Vec<PageIndex>> {
        let mut shown: SortedMap<NodeId, Vec<PageIndex>> = SortedMap::new();
        for page in core::mem::take(&mut self.used) {
            let received = &mut self.table.entry(page).or_default().received;
            for node in received.from.iter() {
                shown.entry(node).or_default().push(page);
            }
            received.streak = (received.streak + 1).min(LONGEST);
            received.shown();
        }
        shown
    }
}

#[cfg(test)]
mod tests;
