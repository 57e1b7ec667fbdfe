//! Pages whose owner cannot be found: the home searches, and a node with a copy or a stashed grant
//! becomes the owner again.

use super::context::PageContext;
use super::page_here::PageHere;
use crate::effect::{Rights, Source};
use crate::event::Event;
use crate::ownership::Found;
use pagemesh_wire::Version;
use pagemesh_wire::peer::{Message, Regain, Spare, Waiter};

impl PageContext<'_, '_> {
    /// No owner hint leads to the owner: the home searches. If the home is gone, too, the page is
    /// lost.
    pub(super) fn search_owner(&mut self, waiter: Waiter) {
        let here = &mut self.here;
        let home = here.home();
        if home == here.cx.me() {
            let (subject, spare) = (here.subject(), here.spare());
            let found = here.page.own.search_for(here.cx, subject, waiter, spare);
            self.found(found);
        } else if here.cx.is_gone(home) {
            let with = here.page.own.hint;
            self.tell_lost(waiter, with);
        }
    }

    /// Acts on the result of a search.
    pub(super) fn found(&mut self, found: Found) {
        match found {
            Found::NotYet | Found::Owner => {}
            Found::Nobody(with, version)
                if self.here.page.own.is_untouched(self.here.cx, with, version) =>
            {
                self.begin(version.next());
            }
            Found::Zeros(version) if version >= self.here.page.own.version => {
                self.begin(version.next())
            }
            Found::Zeros(_) => {}
            Found::Nobody(with, version) if version >= self.here.page.own.version => {
                self.lost(with)
            }
            Found::Nobody(..) => {}
            Found::Regain(node, regain) if node == self.here.cx.me() => self.regain(&regain),
            Found::Regain(node, regain) => self.here.cx.send(node, Message::Regain(regain)),
        }
    }

    /// The page is in its initial state, and its home has left: this node becomes its first owner.
    fn begin(&mut self, version: Version) {
        self.here.page.own.regain(self.here.cx, version);
        self.here.notes.came(self.here.cx);
        self.here.page.pristine = true;
        self.submit_again();
        self.serve();
    }

    /// The page has no owner any more: this node becomes its owner.
    pub(super) fn regain(&mut self, regain: &Regain) {
        let (segment, page) = self.here.at();
        if self.here.is_owner() || regain.version <= self.here.page.own.version {
            return self.here.cx.emit(Event::Stale {});
        }
        match self.here.spare() {
            Spare::None => return,
            Spare::Replica { version, seen, .. } => match version {
                // A copy that the home counted on may be gone meanwhile.
                Some(version) if version >= seen => self.here.fill_from_replica(),
                _ => return,
            },
            Spare::Copy => self.here.page.pristine = false,
            Spare::Stash => {
                let passing = self.here.page.own.passing();
                let passing = passing.expect("the stash is for a grant");
                self.here.page.pristine = passing.pass.pristine;
                if !self.here.page.pristine {
                    self.here.fill(Source::Stash);
                    self.here.drop_stash();
                }
            }
        }
        self.here.page.own.regain(self.here.cx, regain.version);
        self.here.notes.came(self.here.cx);
        self.here.page.copies = regain.copies.clone();
        self.here.page.more().deferred = None;
        self.here.cx.emit(Event::Regained { segment, page });
        self.submit_again();
        self.serve();
    }

    /// Starts another round of the search if that is due.
    pub(super) fn search_due(&mut self) {
        let (subject, spare) = (self.here.subject(), self.here.spare());
        let found = self.here.page.own.search_due(self.here.cx, subject, spare);
        self.found(found);
    }
}

impl PageHere<'_, '_> {
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
}
