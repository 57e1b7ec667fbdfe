//! Pages whose owner cannot be found: the home searches, and a node with a copy or a stashed grant
//! becomes the owner again.

use super::context::PageContext;
use crate::effect::{Rights, Source};
use crate::event::Event;
use crate::ownership::Found;
use pagemesh_wire::Version;
use pagemesh_wire::peer::{Message, Regain, Spare, Waiter};

impl PageContext<'_, '_> {
    /// No owner hint leads to the owner: the home searches. If the home is gone, too, the page is
    /// lost.
    pub(super) fn search_owner(&mut self, waiter: Waiter) {
        let home = self.home();
        let subject = self.subject();
        if home == self.cx.me() {
            let spare = self.spare();
            let found = self.page.own.search_for(self.cx, subject, waiter, spare);
            self.found(found);
        } else if self.cx.is_gone(home) {
            self.tell_lost(waiter, self.page.own.hint);
        }
    }

    /// What this node could become owner from if the page had no owner.
    pub(super) fn spare(&self) -> Spare {
        if self.page.rights > Rights::None {
            return Spare::Copy;
        }
        match self.page.own.passing() {
            Some(passing) if self.cx.has_left(passing.to) => Spare::Stash,
            _ => self.notes.spare(),
        }
    }

    /// Acts on the result of a search.
    pub(super) fn found(&mut self, found: Found) {
        match found {
            Found::NotYet | Found::Owner => {}
            Found::Nobody(with, version) if self.page.own.is_untouched(self.cx, with, version) => {
                self.begin(version.next());
            }
            Found::Zeros(version) if version >= self.page.own.version => self.begin(version.next()),
            Found::Zeros(_) => {}
            Found::Nobody(with, version) if version >= self.page.own.version => self.lost(with),
            Found::Nobody(..) => {}
            Found::Regain(node, regain) if node == self.cx.me() => self.regain(&regain),
            Found::Regain(node, regain) => self.cx.send(node, Message::Regain(regain)),
        }
    }

    /// The page is in its initial state, and its home has left: this node becomes its first owner.
    fn begin(&mut self, version: Version) {
        self.page.own.regain(self.cx, version);
        self.notes.came(self.cx);
        self.page.pristine = true;
        self.submit_again();
        self.serve();
    }

    /// The page has no owner any more: this node becomes its owner.
    pub(super) fn regain(&mut self, regain: &Regain) {
        let (segment, page) = (self.rules.segment, self.index);
        if self.is_owner() || regain.version <= self.page.own.version {
            return self.cx.emit(Event::Stale {});
        }
        match self.spare() {
            Spare::None => return,
            Spare::Replica { version, seen, .. } => match version {
                // A copy that the home counted on may be gone meanwhile.
                Some(version) if version >= seen => self.fill_from_replica(),
                _ => return,
            },
            Spare::Copy => self.page.pristine = false,
            Spare::Stash => {
                let passing = self.page.own.passing().expect("the stash is for a grant");
                self.page.pristine = passing.pass.pristine;
                if !self.page.pristine {
                    self.fill(Source::Stash);
                    self.drop_stash();
                }
            }
        }
        self.page.own.regain(self.cx, regain.version);
        self.notes.came(self.cx);
        self.page.copies = regain.copies.clone();
        self.more().deferred = None;
        self.cx.emit(Event::Regained { segment, page });
        self.submit_again();
        self.serve();
    }

    /// The frame gets what this node has kept of the page.
    fn fill_from_replica(&mut self) {
        let place = self.notes.place();
        self.page.pristine = place.is_none();
        if let Some(place) = place {
            self.fill(Source::Replica(place));
        }
    }

    /// Starts another round of the search if that is due.
    pub(super) fn search_due(&mut self) {
        let (subject, spare) = (self.subject(), self.spare());
        let found = self.page.own.search_due(self.cx, subject, spare);
        self.found(found);
    }
}
