//! A page whose owner cannot be found: its home searches, and somebody starts it again.

use super::desk::Desk;
use crate::effect::{Effect, Rights, Source};
use crate::event::Event;
use crate::ownership::Found;
use pagemesh_wire::Version;
use pagemesh_wire::peer::{Message, Regain, Spare, Waiter};

impl Desk<'_, '_> {
    /// The trail to the owner is cold: the home searches. If there is no home
    /// any more, nobody can.
    pub(super) fn astray(&mut self, waiter: Waiter) {
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

    /// What this node could start from again if nobody owned the page.
    pub(super) fn spare(&self) -> Spare {
        if self.page.rights > Rights::None {
            return Spare::Copy;
        }
        match self.page.own.passing() {
            Some(passing) if self.cx.has_left(passing.to) => Spare::Stash,
            _ => Spare::None,
        }
    }

    /// The search ended or goes on.
    pub(super) fn found(&mut self, found: Found) {
        match found {
            Found::NotYet | Found::Owner => {}
            Found::Nobody(with, version) if self.page.own.is_untouched(self.cx, with, version) => {
                self.begin(version.next());
            }
            Found::Nobody(with, version) if version >= self.page.own.version => self.lost(with),
            Found::Nobody(..) => {}
            Found::Regain(node, regain) if node == self.cx.me() => self.regain(&regain),
            Found::Regain(node, regain) => self.cx.send(node, Message::Regain(regain)),
        }
    }

    /// Nobody ever touched the page, and its home has left: it begins here.
    fn begin(&mut self, version: Version) {
        self.page.own.regain(self.cx, version);
        self.page.pristine = true;
        if let Some(want) = self.page.own.want() {
            let waiter = want.waiter;
            self.submit(waiter);
        }
        self.serve();
    }

    /// Nobody owns the page any more; this node does from now on.
    pub(super) fn regain(&mut self, regain: &Regain) {
        let (segment, page) = (self.rules.segment, self.index);
        if self.is_owner() || regain.version <= self.page.own.version {
            self.cx.emit(Event::Stale {});
            return;
        }
        match self.spare() {
            Spare::None => return,
            Spare::Copy => self.page.pristine = false,
            Spare::Stash => {
                let passing = self.page.own.passing().expect("the stash is for a grant");
                self.page.pristine = passing.pass.pristine;
                if !self.page.pristine {
                    self.cx.push(Effect::Fill {
                        segment,
                        page,
                        source: Source::Stash,
                    });
                    self.page.filled = true;
                    self.drop_stash();
                }
            }
        }
        self.page.own.regain(self.cx, regain.version);
        self.page.copies = regain.copies;
        self.more().deferred = None;
        self.cx.emit(Event::Regained { segment, page });
        if let Some(want) = self.page.own.want() {
            let waiter = want.waiter;
            self.submit(waiter);
        }
        self.serve();
    }

    /// The search may be due for another round.
    pub(super) fn search_due(&mut self) {
        let (subject, spare) = (self.subject(), self.spare());
        let found = self.page.own.search_due(self.cx, subject, spare);
        self.found(found);
    }
}
