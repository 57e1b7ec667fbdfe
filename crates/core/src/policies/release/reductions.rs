//! Ranges in which nodes accumulate: what pages of them have to be told.

use super::Release;
use pagemesh_wire::PageIndex;
use pagemesh_wire::peer::{Reduction, Rule};

impl Release {
    /// These ranges are declared, all that there are.
    pub(crate) fn declare(&mut self, reductions: &[Reduction]) {
        if reductions.len() > self.reductions.len() {
            self.reductions = reductions.to_vec();
        }
    }

    /// What of declared ranges lies in a page.
    pub(super) fn rules(&self, page: PageIndex) -> Vec<Rule> {
        let ranges = self.reductions.iter();
        ranges.filter_map(|range| range.rule(page)).collect()
    }
}
