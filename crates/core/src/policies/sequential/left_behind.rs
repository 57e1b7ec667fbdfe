//! The pages of a segment that are lost when its node is declared dead and joins again as another.
//!
//! While the node did not know that it was declared dead, its programs went on with the rights that
//! they had. All of that can be ordered at the moment of its death: copies that it read were current
//! then, and what it stored is in pages of which no other node has a copy (*INV-single-writer*).
//! Such pages are lost for every node, and no older contents of them ever come back: a grant that a
//! dead node did not acknowledge is dropped, not taken back. So a program whose node only read, or
//! owned pages of which others have copies, goes on as if nothing had happened. If such a copy had
//! not arrived, the page is lost, and the next access says so, here as on every other node.

use super::memory::Memory;
use super::page::Page;
use crate::effect::Rights;
use crate::policies::{Waiting, named};
use crate::shell::Cx;
use pagemesh_wire::{NodeId, NodeSet};

impl Memory {
    /// What of this segment only this node had, as far as it knows; none if nothing.
    fn only_here(&self, cx: &Cx<'_>) -> Option<String> {
        let me = cx.me();
        if self.rules.segment.home() == me {
            return Some(
                "the pages that no other node has touched, since this node is their home".into(),
            );
        }
        if self.hold.client().is_some() {
            return Some("a snapshot that was being taken".into());
        }
        if !self.pins.is_empty() {
            return Some("the write lock that a program waited for".into());
        }
        let pages = self.pages.those(|page| is_only_here(page, me));
        (!pages.is_empty()).then(|| named(&pages))
    }

    /// Drops everything. Returns the accesses that wait, or what is lost.
    pub(super) fn leave_behind(&mut self, cx: &mut Cx<'_>) -> Result<Vec<Waiting>, String> {
        if let Some(lost) = self.only_here(cx) {
            self.expelled(cx);
            return Err(lost);
        }
        let mut waiting = Vec::new();
        for index in self.pages.those(|_| true) {
            self.at(cx, index, |context| {
                context.here.evict(false);
                if let Some(busy) = context.here.page.own.busy_if_any() {
                    let faults = core::mem::take(&mut busy.more.faults).into_iter();
                    waiting.extend(faults.map(|(mapping, access)| (mapping, index, access)));
                }
            });
        }
        let (replicas, mut segment) = self.replicas(cx);
        replicas.forget(&mut segment);
        Ok(waiting)
    }
}

/// Whether other nodes may lack this page, or stores of this node into it.
fn is_only_here(page: &Page, me: NodeId) -> bool {
    let elsewhere = !page.copies.without(&NodeSet::only(me)).is_empty();
    let owned = page.own.hint == me && !elsewhere;
    owned || page.rights == Rights::Write || page.own.passing().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::Version;

    const ME: NodeId = NodeId(2);
    const HOME: NodeId = NodeId(1);

    #[test]
    fn only_what_others_may_lack_is_lost() {
        let mut page = Page::new(HOME);
        page.rights = Rights::Read;
        page.own.version = Version(3);
        assert!(!is_only_here(&page, ME), "a copy");
        page.own.hint = ME;
        assert!(is_only_here(&page, ME), "owned, and no other node has it");
        page.copies = NodeSet::only(ME);
        assert!(is_only_here(&page, ME), "its own copy is none elsewhere");
        page.copies.insert(NodeId(3));
        assert!(!is_only_here(&page, ME), "another node has it");
        page.rights = Rights::Write;
        assert!(is_only_here(&page, ME), "it may have been stored to since");
    }
}
