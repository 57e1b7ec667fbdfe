//! What becomes of copies when a node is gone.
//!
//! *INV-dead-tell-nothing*: intervals of a gone node that no survivor knows are discarded by all
//! nodes. So a node that has told what it knows of that node ([`inquired`](Release::inquired))
//! takes nothing from it any more, and no copy has any of those intervals.

use super::Release;
use super::page::Copy;
use crate::shell::Cx;

impl Release {
    /// A copy may have come from a node that knew more than this node, and perhaps no survivor
    /// knows it: such copies are dropped and made whole anew. The diff of what was stored here
    /// since is made first.
    pub(super) fn drop_what_nobody_told(&mut self, cx: &mut Cx<'_>) {
        let doubtful = self.memory.pages.which(|page| {
            page.copy != Copy::None && self.intervals.lacks_of_gone(cx, page.notices.applied())
        });
        if doubtful.is_empty() {
            return;
        }
        self.end_interval(cx);
        for index in doubtful {
            if self
                .memory
                .pages
                .get(&index)
                .is_some_and(|page| page.copy == Copy::Frame)
            {
                self.memory.stow(cx, index, true);
            }
            self.memory.drop_copy(cx, index);
        }
    }
}
