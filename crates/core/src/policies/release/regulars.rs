//! Push subscribers (`lazy`): a node that requests every diff of a page gets the next ones without
//! a request, as the neighbour of a band of rows or the next holder of a lock does.
//!
//! A node that requested the whole page, or one interval's diff of it, may want the next ones: it
//! gets a credit of two, sent ahead of its lock or barrier. If it uses them, or requests one diff
//! after the other, its credit rises to eight, then 32, then 64. Before the credit is used up it
//! must show that it still uses the page ([`super::usage`]), since a page changed in place is used
//! without a fault. A node that writes the page shows its use by that. A node that requests several
//! diffs at once has skipped some: it gets no push until it again requests one diff at a time.
//!
//! As with `hybrid`, correctness does not depend on pushes.

use super::Release;
use super::messages::DiffRequest;
use crate::limits::PUSHED;
use crate::shell::Cx;
use pagemesh_wire::peer::{DiffName, Spread};
use pagemesh_wire::{NodeId, PageIndex, VectorTime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The longest request streak that is counted: a node gets a credit of two, eight, then 32, then 64
/// diffs before it must show its use again. A request costs a fault, and both nodes the time until
/// the other's daemon gets its processor: as much as dozens of diffs that are not used.
pub(super) const MOST: u8 = 4;

/// Diffs of one page pushed to a node at once: one that an earlier push did not send (at a lock
/// that another node took), and the new one.
const AT_ONCE: usize = 2;

/// How a node uses the diffs that this one makes of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Regular {
    /// Its request streak: consecutive requests for one diff each.
    row: u8,
    /// Its credit: diffs that may still be pushed to it.
    left: u8,
    /// The last interval of this node whose diff it requested or was sent.
    seen: u64,
}

/// Ordered by node, since a grant is for one node.
pub(super) type Regulars = BTreeMap<(NodeId, PageIndex), Regular>;

/// The credit of a node with this request streak.
pub(super) fn allowance(row: u8) -> u8 {
    match row {
        0 => 0,
        row => (1 << (2 * row - 1)).min(64),
    }
}

impl Release {
    /// A node requests diffs: updates its streaks and credits.
    pub(super) fn note_regulars(&mut self, me: NodeId, from: NodeId, want: &DiffRequest) {
        if self.spread != Spread::Lazy {
            return;
        }
        // Of each page: how many diffs, and the last of their intervals.
        let mut asked: BTreeMap<PageIndex, (usize, u64)> = BTreeMap::new();
        let made_here = |name: &&DiffName| name.node == me && self.pages.contains_key(&name.page);
        for name in want.diffs.iter().filter(made_here) {
            let (count, last) = asked.entry(name.page).or_default();
            *count += 1;
            *last = name.interval.max(*last);
        }
        for (page, (count, last)) in asked {
            let regular = self.regulars.entry((from, page)).or_default();
            if last <= regular.seen {
                continue; // what was lost, or asked twice
            }
            regular.seen = last;
            regular.row = if count > 1 {
                0
            } else {
                (regular.row + 1).min(MOST)
            };
            regular.left = allowance(regular.row);
        }
    }

    /// A node has used diffs that were pushed to it: raises its streaks and credits.
    pub(super) fn note_renewal(&mut self, me: NodeId, from: NodeId, want: &DiffRequest) {
        for name in want.diffs.iter().filter(|name| name.node == me) {
            let regular = self.regulars.get_mut(&(from, name.page));
            if let Some(regular) = regular.filter(|regular| regular.row > 0) {
                regular.row = (regular.row + 1).min(MOST);
                regular.left = allowance(regular.row);
            }
        }
    }

    /// A node gets a whole page that was written here: that counts like a request for the last
    /// diff.
    pub(super) fn note_fetch(&mut self, me: NodeId, from: NodeId, index: PageIndex) {
        let page = self.pages.get(&index);
        let last = page.and_then(|page| page.notices.of(me).next());
        let Some(last) = last.filter(|_| self.spread == Spread::Lazy) else {
            return;
        };
        let regular = self.regulars.entry((from, index)).or_default();
        regular.seen = regular.seen.max(last);
        if regular.row == 0 {
            regular.row = 1;
            regular.left = allowance(regular.row);
        }
    }

    /// A node has written a page: that shows that it uses the page, so its credit is restored.
    pub(super) fn note_use(&mut self, by: NodeId, page: PageIndex) {
        let regular = self.regulars.get_mut(&(by, page));
        if let Some(regular) = regular.filter(|regular| regular.left > 0) {
            regular.left = allowance(regular.row);
        }
    }

    /// A lock goes to a node: pushes the changes just made in the pages that it subscribes to.
    pub(super) fn push_to_regular(
        &mut self,
        cx: &mut Cx<'_>,
        to: NodeId,
        named: &[(PageIndex, u64)],
    ) {
        let due = named
            .iter()
            .filter(|(page, _)| self.is_regular(to, *page))
            .map(|(page, _)| *page)
            .collect();
        self.push_changes(cx, to, due);
    }

    /// A barrier is reached: pushes to all subscribers what they have not got.
    pub(super) fn push_to_regulars(&mut self, cx: &mut Cx<'_>) {
        let mut due: BTreeMap<NodeId, Vec<PageIndex>> = BTreeMap::new();
        for ((to, page), regular) in &self.regulars {
            if regular.left > 0 {
                due.entry(*to).or_default().push(*page);
            }
        }
        for (to, pages) in due {
            self.push_changes(cx, to, pages);
        }
    }

    /// The last diff of a page turned out to be empty: gives its credit back.
    pub(super) fn give_back(&mut self, page: PageIndex) {
        for node in self.heard.keys() {
            let regular = self.regulars.get_mut(&(*node, page));
            if let Some(regular) = regular.filter(|regular| regular.row > 0) {
                regular.left = (regular.left + 1).min(allowance(regular.row));
            }
        }
    }

    fn is_regular(&self, to: NodeId, page: PageIndex) -> bool {
        let regular = self.regulars.get(&(to, page));
        regular.is_some_and(|regular| regular.left > 0)
    }

    fn push_changes(&mut self, cx: &mut Cx<'_>, to: NodeId, pages: Vec<PageIndex>) {
        if !cx.is_alive(to) {
            return;
        }
        let mut names = Vec::new();
        for page in pages {
            let news = self.news_for(cx.me(), to, page);
            if news.len() > AT_ONCE || names.len() + news.len() > PUSHED {
                continue;
            }
            let Some(last) = news.last().map(|name| name.interval) else {
                continue;
            };
            if let Some(regular) = self.regulars.get_mut(&(to, page)) {
                regular.left -= 1;
                regular.seen = last;
            }
            // Other nodes write this page, too, and their changes are about to arrive. Unless they
            // arrive in time, the page is put out of sight then, and keeping it writable would only
            // name it once more.
            if self.is_put_out_of_sight_by_others(cx.me(), page) {
                self.make_diff(cx, page, true);
            }
            names.extend(news);
        }
        if !names.is_empty() {
            self.push_diffs(cx, to, names, u16::MAX);
        }
    }

    fn is_put_out_of_sight_by_others(&self, me: NodeId, index: PageIndex) -> bool {
        let page = self.pages.get(&index);
        page.is_some_and(|page| page.staying.is_put_out_of_sight() && page.notices.any_but(me))
    }

    /// Diffs of this node of a page that a subscriber has not got.
    fn news_for(&self, me: NodeId, to: NodeId, index: PageIndex) -> Vec<DiffName> {
        let seen = self.regulars.get(&(to, index)).map_or(0, |one| one.seen);
        let page = self.pages.get(&index).into_iter();
        let mine = page.flat_map(|page| page.notices.of(me));
        let new = mine.take_while(|interval| *interval > seen);
        let name = |interval| DiffName {
            page: index,
            node: me,
            interval,
        };
        let mut names: Vec<_> = new.map(name).collect();
        names.reverse();
        names
    }

    /// Drops subscribers without credit whose last diff is collected.
    pub(super) fn forget_regulars(&mut self, me: NodeId, upto: &VectorTime) {
        let collected = |regular: &Regular| upto.has(me, regular.seen);
        self.regulars
            .retain(|_, regular| regular.left > 0 || !collected(regular));
    }
}
