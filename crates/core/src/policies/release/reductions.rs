//! Ranges in which nodes accumulate: the rules for their pages.

use pagemesh_wire::PageIndex;
use pagemesh_wire::peer::{Reduction, Rule};
use serde::{Deserialize, Serialize};

/// The declared ranges of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Reductions {
    ranges: Vec<Reduction>,
}

impl Reductions {
    /// The home has told which ranges are declared; there are only ever more.
    pub(super) fn declare(&mut self, ranges: &[Reduction]) {
        if ranges.len() > self.ranges.len() {
            self.ranges = ranges.to_vec();
        }
    }

    /// The rules for the parts of declared ranges that lie in a page.
    pub(super) fn rules(&self, page: PageIndex) -> Vec<Rule> {
        let ranges = self.ranges.iter();
        ranges.filter_map(|range| range.rule(page)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::PAGE_SIZE;
    use pagemesh_wire::peer::{Kind, Merge};

    #[test]
    fn pages_of_declared_ranges_have_rules_and_ranges_are_not_forgotten() {
        let mut reductions = Reductions::default();
        let range = Reduction {
            offset: PAGE_SIZE as u64,
            length: 8,
            merge: Merge::Sum,
            kind: Kind::U64,
        };
        reductions.declare(&[range]);
        reductions.declare(&[]);
        assert_eq!(reductions.rules(PageIndex(1)).len(), 1);
        assert!(reductions.rules(PageIndex(0)).is_empty());
    }
}
