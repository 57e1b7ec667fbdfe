//! Bytes that two nodes wrote without knowing of each other (`Config::check_races`).
//!
//! Intervals are compared by their vector times, contents by the driver. A diff may have stores of
//! later intervals than the one that names it; none of them was made by a node that knew of the
//! other's interval, since learning of that makes the diff first. So every reported race is one. A
//! race is not reported if one of its diffs was collected before the two met, or came as part of a
//! copy.

use super::Release;
use super::page::Page;
use crate::effect::{DiffWork, Effect};
use crate::shell::Cx;
use pagemesh_wire::peer::DiffName;
use pagemesh_wire::{NodeId, PageIndex};

/// The longest list of pairs of diffs to compare for one page.
const PAIRS: usize = 1024;

impl Release {
    /// Diffs are about to be applied to a page: compares them with concurrent ones. Pages in which
    /// nodes accumulate are exempt, because nodes write the same bytes of them on purpose.
    pub(super) fn compare(&self, cx: &mut Cx<'_>, index: PageIndex, fresh: &[DiffName]) {
        if !cx.checks_races() || !self.rules(index).is_empty() {
            return;
        }
        let id = |name: &DiffName| (name.node, name.interval);
        let meet = |one: &DiffName, other: &DiffName| {
            self.history.is_concurrent(id(one), id(other)) && self.held.contains(one)
        };
        let mut pairs = Vec::new();
        for (place, name) in fresh.iter().enumerate() {
            let before = self.held_of(index).filter(|held| !fresh.contains(held));
            let others = before.chain(fresh[..place].iter().copied());
            pairs.extend(
                others
                    .filter(|other| meet(name, other))
                    .map(|other| (other, *name)),
            );
        }
        pairs.truncate(PAIRS);
        if !pairs.is_empty() {
            let segment = self.segment;
            cx.push(Effect::Diffs(DiffWork::Compare { segment, pairs }));
        }
    }

    /// Another node wrote a page that this node wrote, too. If their intervals are concurrent, the
    /// diff is requested, though the page may never be touched here again.
    pub(super) fn suspect(&mut self, cx: &mut Cx<'_>, index: PageIndex, by: (NodeId, u64)) {
        if !cx.checks_races() {
            return;
        }
        let me = cx.me();
        let concurrent = |page: &Page| {
            let mut mine = page.notices.of(me);
            mine.any(|own| self.history.is_concurrent((me, own), by))
        };
        if self.pages.get(&index).is_some_and(concurrent) {
            self.open_miss(cx, index, None);
        }
    }

    /// Diffs of a page in the driver's diff store.
    fn held_of(&self, page: PageIndex) -> impl Iterator<Item = DiffName> {
        let name = |node, interval| DiffName {
            page,
            node: NodeId(node),
            interval,
        };
        let all = name(0, 0)..=name(u16::MAX, u64::MAX);
        self.held.range(all).copied()
    }
}
