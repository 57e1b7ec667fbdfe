//! Bytes that two nodes wrote without knowing of each other (`Config::check_races`).
//!
//! Intervals are compared by their vector times, contents by the driver. A diff may have stores of
//! later intervals than the one that names it; none of them was made by a node that knew of the
//! other's interval, since learning of that makes the diff first. So every reported race is one. A
//! race is not reported if one of its diffs was collected before the two met, or came as part of a
//! copy.

use super::diff_store::DiffStore;
use super::history::History;
use super::memory::Memory;
use crate::effect::{DiffWork, Effect};
use crate::shell::Cx;
use pagemesh_wire::PageIndex;
use pagemesh_wire::peer::DiffName;

/// The longest list of pairs of diffs to compare for one page.
const PAIRS: usize = 1024;

impl Memory {
    /// Diffs are about to be applied to a page: compares them with concurrent ones. Pages in which
    /// nodes accumulate are exempt, because nodes write the same bytes of them on purpose.
    pub(super) fn compare(
        &self,
        cx: &mut Cx<'_>,
        history: &History,
        index: PageIndex,
        fresh: &[DiffName],
    ) {
        if !cx.checks_races() || !self.reductions.rules(index).is_empty() {
            return;
        }
        let pairs = pairs(history, &self.diffs, index, fresh);
        if !pairs.is_empty() {
            let segment = self.segment;
            cx.push(Effect::Diffs(DiffWork::Compare { segment, pairs }));
        }
    }
}

/// The pairs of concurrent diffs, which are compared.
fn pairs(
    history: &History,
    diffs: &DiffStore,
    index: PageIndex,
    fresh: &[DiffName],
) -> Vec<(DiffName, DiffName)> {
    let id = |name: &DiffName| (name.node, name.interval);
    let meet = |one: &DiffName, other: &DiffName| {
        history.is_concurrent(id(one), id(other)) && diffs.has(one)
    };
    let mut pairs = Vec::new();
    for (place, name) in fresh.iter().enumerate() {
        let before = diffs.of(index).filter(|held| !fresh.contains(held));
        let others = before.chain(fresh[..place].iter().copied());
        pairs.extend(
            others
                .filter(|other| meet(name, other))
                .map(|other| (other, *name)),
        );
    }
    pairs.truncate(PAIRS);
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::{NodeId, VectorTime};
    use std::collections::BTreeSet;

    #[test]
    fn diffs_of_concurrent_intervals_are_compared_and_no_others() {
        const A: NodeId = NodeId(1);
        const B: NodeId = NodeId(2);
        let page = PageIndex(0);
        let name = |node, interval| DiffName {
            page,
            node,
            interval,
        };
        let (mut mine, mut theirs) = (History::default(), History::default());
        mine.end(A, &BTreeSet::from([page]));
        theirs.end(B, &BTreeSet::from([page]));
        for record in &theirs.since(&VectorTime::ZERO, theirs.time()).records {
            assert!(mine.take(A, 1, record));
        }
        mine.end(A, &BTreeSet::from([page]));
        let mut diffs = DiffStore::default();
        for name in [name(A, 1), name(A, 2), name(B, 1)] {
            diffs.keep(name);
        }
        let found = pairs(&mine, &diffs, page, &[name(B, 1)]);
        assert_eq!(found, [(name(A, 1), name(B, 1))], "A's second was later");
    }
}
