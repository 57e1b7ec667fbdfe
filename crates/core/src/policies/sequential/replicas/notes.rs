//! What replicas mean for one page: when it may leave, and when it must not change.

use super::super::book::{Book, Replica};
use super::super::page::Page;
use crate::shell::Cx;
use pagemesh_wire::peer::Spare;
use pagemesh_wire::{NodeId, PageIndex, SegmentId, Version};

/// What the book says of one page, if the segment has a book.
pub(in super::super) struct Notes<'a> {
    pub(in super::super) book: Option<&'a mut Book>,
    pub(in super::super) segment: SegmentId,
    pub(in super::super) page: PageIndex,
}

impl Notes<'_> {
    /// Whether the page may leave: this node's backup has its contents. If not, a commit leads to
    /// another call.
    pub(in super::super) fn is_kept(&mut self) -> bool {
        let Some(book) = &mut self.book else {
            return true;
        };
        if book.alone || !book.behind.contains(&self.page) {
            return true;
        }
        book.wanted.insert(self.page);
        false
    }

    /// Whether a commit under way keeps the page from changing.
    pub(in super::super) fn is_frozen(&self) -> bool {
        let book = self.book.as_ref();
        book.is_some_and(|book| book.frozen.contains(&self.page))
    }

    /// This node has become the owner.
    pub(in super::super) fn came(&mut self, cx: &mut Cx<'_>) {
        if let Some(book) = &mut self.book {
            book.came(cx, (self.segment, self.page));
        }
    }

    /// This node has become the owner, and that node was.
    pub(in super::super) fn came_from(&mut self, cx: &mut Cx<'_>, giver: NodeId) {
        self.came(cx);
        if let Some(book) = &mut self.book {
            book.givers.insert(self.page, giver);
        }
    }

    /// The page may be stored to from now on.
    pub(in super::super) fn store(&mut self) {
        if let Some(book) = &mut self.book {
            book.store(self.page);
        }
    }

    /// Contents of the page leave this node's memory.
    pub(in super::super) fn saw(&mut self, version: Version) {
        if let Some(book) = &mut self.book {
            book.saw(self.page, version);
        }
    }

    /// Ownership goes to a node, as this version. The frame is in the stash.
    pub(in super::super) fn gave(
        &mut self,
        cx: &mut Cx<'_>,
        page: &Page,
        (to, version): (NodeId, Version),
    ) {
        let at = (self.segment, self.page);
        let Some(book) = &mut self.book else { return };
        book.went(at.1);
        book.given.insert(at.1, (to, version));
        if book.backup == Some(to) {
            // Two nodes have the page: what the backup has would be gone with the new owner.
            book.drop_replica(cx, at, true);
            let replica = Replica {
                version: page.own.version,
                place: (!page.pristine).then_some(at.1),
                of: to,
            };
            book.replicas.insert(at.1, replica);
        }
    }

    /// Whether the stash of the page itself is a replica.
    pub(in super::super) fn keep_stash(&self) -> bool {
        let book = self.book.as_ref();
        book.is_some_and(|book| book.keeps_stash(self.page))
    }

    /// What this node could restore the page from, if it has no copy and no stash.
    pub(in super::super) fn spare(&self) -> Spare {
        let book = self.book.as_ref();
        book.map_or(Spare::None, |book| book.spare(self.page))
    }

    /// Where in the stash the contents are; nowhere if they are zeros.
    pub(in super::super) fn place(&self) -> Option<PageIndex> {
        let replica = self.book.as_ref()?.replicas.get(&self.page)?;
        replica.place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effects;
    use crate::shell::Shell;
    use crate::time::Time;

    const ME: NodeId = NodeId(1);
    const BACKUP: NodeId = NodeId(2);
    const OTHER: NodeId = NodeId(3);

    /// The notes of the second page, which this node owns at version 4, in such a book.
    fn with_notes(book: Option<&mut Book>, work: impl FnOnce(&mut Notes<'_>, &mut Cx<'_>, &Page)) {
        let mut page = Page::new(ME);
        (page.own.version, page.pristine) = (Version(4), false);
        let mut notes = Notes {
            book,
            segment: SegmentId::new(ME, 1),
            page: PageIndex(1),
        };
        let mut cx = Cx {
            now: Time(0),
            shell: &mut Shell::of_four(ME),
            effects: &mut Effects::default(),
        };
        work(&mut notes, &mut cx, &page);
    }

    #[test]
    fn without_a_book_a_page_leaves_at_any_time() {
        with_notes(None, |notes, cx, page| {
            notes.store();
            assert!(notes.is_kept() && !notes.is_frozen());
            notes.gave(cx, page, (BACKUP, Version(5)));
            assert!(!notes.keep_stash());
            assert_eq!((notes.spare(), notes.place()), (Spare::None, None));
        });
    }

    #[test]
    fn a_page_that_came_or_is_stored_to_is_wanted_at_the_backup_before_it_leaves() {
        let mut book = Book::default();
        with_notes(Some(&mut book), |notes, cx, _| {
            assert!(notes.is_kept());
            notes.came_from(cx, OTHER);
            assert!(!notes.is_kept());
        });
        assert!(book.wanted.contains(&PageIndex(1)) && book.stored.is_empty());
        assert_eq!(book.givers.get(&PageIndex(1)), Some(&OTHER));
        let mut book = Book::default();
        with_notes(Some(&mut book), |notes, _, _| {
            notes.store();
            assert!(!notes.is_kept());
        });
        assert_eq!(book.wanted, book.stored);
    }

    #[test]
    fn the_stash_of_a_page_given_to_the_backup_is_a_replica() {
        for (to, keeps) in [(BACKUP, true), (OTHER, false)] {
            let mut book = Book::default();
            book.backup = Some(BACKUP);
            with_notes(Some(&mut book), |notes, cx, page| {
                notes.store();
                notes.gave(cx, page, (to, Version(5)));
                assert!(notes.is_kept(), "it is another node's matter");
                assert_eq!(notes.keep_stash(), keeps);
                assert_eq!(notes.place(), keeps.then_some(PageIndex(1)));
            });
            assert_eq!(book.given.get(&PageIndex(1)), Some(&(to, Version(5))));
        }
    }
}
