//! Ranges in which nodes accumulate: what pages of them have to be told.

use super::Release;
use pagemesh_wire::PageIndex;
use pagemesh_wire::peer::Rule;

impl Release {
    /// What of declared ranges lies in a page.
    pub(super) fn rules(&self, page: PageIndex) -> Vec<Rule> {
        let ranges = self.reductions.iter();
        ranges.filter_map(|range| range.rule(page)).collect()
    }
}
