//! What becomes of copies when a node is gone.
//!
//! *INV-dead-tell-nothing*: what nobody alive knows of a node that is gone never
//! happened, for anybody. So nobody hears it any more who has told what it knows
//! ([`inquired`](Release::inquired)), and no copy has any of it.

use super::Release;
use super::page::Copy;
use crate::shell::Cx;
use pagemesh_wire::VectorTime;

impl Release {
    /// Whether a copy has modifications of somebody who is gone, that this node does not
    /// know of.
    pub(super) fn has_what_is_unknown(&self, cx: &Cx<'_>, applied: &VectorTime) -> bool {
        let known = &self.history.time;
        let mut all = applied.iter();
        all.any(|(node, index)| cx.is_gone(node) && index > known.get(node))
    }

    /// A copy may have come from somebody who knew more than this node, and nobody may
    /// be left who knows it: such copies are made anew. What was stored here since is
    /// written down first.
    pub(super) fn drop_what_nobody_told(&mut self, cx: &mut Cx<'_>) {
        let doubtful = self.pages_where(|page| {
            page.copy != Copy::None && self.has_what_is_unknown(cx, page.notices.applied())
        });
        if doubtful.is_empty() {
            return;
        }
        self.end_interval(cx);
        for index in doubtful {
            if self
                .pages
                .get(&index)
                .is_some_and(|page| page.copy == Copy::Frame)
            {
                self.stow(cx, index);
            }
            self.drop_copy(cx, index);
        }
    }
}
