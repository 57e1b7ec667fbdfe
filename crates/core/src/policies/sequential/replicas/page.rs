//! What replicas mean for one page: when it may leave, and when it must not change.

use super::super::book::Replica;
use super::super::context::PageContext;
use crate::effect::Rights;
use pagemesh_wire::{NodeId, Version};

impl PageContext<'_, '_> {
    /// Whether the page may leave: this node's backup has its contents. If not, a commit leads to
    /// another call.
    pub(in super::super) fn is_kept(&mut self) -> bool {
        let page = self.index;
        let Some(book) = &mut self.book else {
            return true;
        };
        if book.alone || !book.behind.contains(&page) {
            return true;
        }
        book.wanted.insert(page);
        false
    }

    /// Whether a commit under way keeps the page from changing.
    pub(in super::super) fn is_frozen(&self) -> bool {
        let book = self.book.as_ref();
        book.is_some_and(|book| book.frozen.contains(&self.index))
    }

    /// Stops stores for a commit. Returns the version of the contents, and whether they are zeros; none
    /// if the page is about to become another one.
    pub(super) fn freeze(&mut self) -> Option<(Version, bool)> {
        let gathers = self.busy().is_some_and(|busy| busy.more.gather.is_some());
        let empty = !self.page.filled && !self.page.pristine;
        if !self.is_owner() || gathers || empty {
            return None;
        }
        if self.page.rights == Rights::Write {
            self.protect();
        }
        Some((self.page.own.version, self.page.pristine))
    }

    /// This node has become the owner.
    pub(in super::super) fn now_owned(&mut self) {
        let at = (self.rules.segment, self.index);
        if let Some(book) = &mut self.book {
            book.came(self.cx, at);
        }
    }

    /// Ownership goes to a node, as this version. The frame is in the stash.
    pub(in super::super) fn note_given(&mut self, to: NodeId, version: Version) {
        let at = (self.rules.segment, self.index);
        let Some(book) = &mut self.book else { return };
        book.went(at.1);
        book.given.insert(at.1, (to, version));
        if book.backup == Some(to) {
            // Two nodes have the page: what the backup has would be gone with the new owner.
            book.drop_replica(self.cx, at, true);
            let replica = Replica {
                version: self.page.own.version,
                place: (!self.page.pristine).then_some(at.1),
                of: to,
            };
            book.replicas.insert(at.1, replica);
        }
    }
}
