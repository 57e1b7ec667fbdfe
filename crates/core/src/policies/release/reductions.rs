//! Ranges in which nodes accumulate: the rules for their pages.

use super::Release;
use pagemesh_wire::PageIndex;
use pagemesh_wire::peer::Rule;

impl Release {
    /// The rules for the parts of declared ranges that lie in a page.
    pub(super) fn rules(&self, page: PageIndex) -> Vec<Rule> {
        let ranges = self.reductions.iter();
        ranges.filter_map(|range| range.rule(page)).collect()
    }
}
