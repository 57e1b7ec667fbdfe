//! One page, opened for the length of one input.

use super::super::Letter;
use super::Rules;
use super::page::{More, Page};
use crate::effect::{Effect, Reply, Rights, Source};
use crate::event::Event;
use crate::ownership::{ASTRAY, Busy, Found};
use crate::patience::Awaited;
use crate::shell::Cx;
use crate::timers::Timer;
use core::time::Duration;
use pagemesh_wire::peer::{
    Access, Ask, Lost, Manager, Message, Refusal, Regain, Served, Spare, Subject, Waiter,
};
use pagemesh_wire::{MappingId, NodeId, PageIndex, RequestId, Ticket, Version};

/// A page with everything needed to work on it.
pub(super) struct Desk<'a, 'b> {
    pub(super) cx: &'a mut Cx<'b>,
    pub(super) rules: &'a Rules,
    pub(super) index: PageIndex,
    pub(super) page: &'a mut Page,
    pub(super) after: After,
}

/// What is to be done at the segment when the page is closed again.
#[derive(Debug, Default)]
pub(super) struct After {
    /// This node is the library site and wants the page itself.
    pub(super) to_library: Vec<Waiter>,
    /// This node is the library site, and knows without a message that this wish
    /// of this node is fulfilled, or never will be.
    pub(super) served_here: Option<(NodeId, RequestId, Option<Version>)>,
    /// Pins that got this page.
    pub(super) pinned: Vec<Ticket>,
    /// Pins that never will, and with whom the page was lost.
    pub(super) pins_lost: Vec<(Ticket, NodeId)>,
    /// What was asked for ahead has come.
    pub(super) came_ahead: bool,
    /// What was asked for ahead will not come.
    pub(super) stays_out: bool,
}

impl Desk<'_, '_> {
    pub(super) fn subject(&self) -> Subject {
        self.rules.subject(self.index)
    }

    pub(super) fn timer(&self) -> Timer {
        Timer::Subject(self.subject())
    }

    pub(super) fn home(&self) -> NodeId {
        self.cx.home(self.rules.segment)
    }

    pub(super) fn is_owner(&self) -> bool {
        self.page.own.hint == self.cx.me()
    }

    pub(super) fn more(&mut self) -> &mut More {
        &mut self.page.own.busy_mut().more
    }

    pub(super) fn more_if_any(&mut self) -> Option<&mut More> {
        self.page.own.busy_if_any().map(|busy| &mut busy.more)
    }

    pub(super) fn busy(&self) -> Option<&Busy<More>> {
        self.page.own.busy()
    }

    /// A thread stopped here. False if that was known.
    pub(super) fn fault(&mut self, mapping: MappingId, access: Access) -> bool {
        let (segment, page) = (self.rules.segment, self.index);
        if access == Access::Write {
            self.note_store();
        }
        if self.page.allows(access) {
            self.cx.emit(Event::LocalFault { segment, page });
            let rights = self.page.rights;
            self.cx.push(Effect::Map {
                mapping,
                segment,
                page,
                rights,
            });
            return true;
        }
        if let Some(with) = self.busy().and_then(|busy| busy.more.lost) {
            self.fail(mapping, with);
            return false;
        }
        let faults = &mut self.more().faults;
        if faults.contains(&(mapping, access)) {
            self.cx.emit(Event::RepeatedFault { segment, page });
            return false;
        }
        faults.push((mapping, access));
        self.wish();
        true
    }

    /// Wishes for what the waiting accesses and pins need, unless a wish is open.
    pub(super) fn wish(&mut self) {
        let Some(busy) = self.busy() else { return };
        if busy.want.is_some() {
            return;
        }
        let more = &busy.more;
        let writes = !more.pinning.is_empty()
            || more
                .faults
                .iter()
                .any(|(_, access)| *access == Access::Write);
        if !writes && more.faults.is_empty() {
            return;
        }
        let access = if writes { Access::Write } else { Access::Read };
        let (segment, page) = (self.rules.segment, self.index);
        let readable = self.page.rights >= Rights::Read;
        self.cx.emit(match access {
            Access::Read => Event::ReadFault { segment, page },
            Access::Write if readable => Event::Upgrade { segment, page },
            Access::Write => Event::WriteFault { segment, page },
        });
        let access = match access {
            Access::Read => self.expected(),
            Access::Write => access,
        };
        self.open_wish(access);
    }

    /// Wishes for the page; no wish is open.
    pub(super) fn open_wish(&mut self, access: Access) {
        let readable = self.page.rights >= Rights::Read;
        let have = readable.then_some(self.page.own.version);
        let (subject, timer) = (self.subject(), self.timer());
        let ahead = self.more_if_any().is_some_and(|more| more.ahead.is_some());
        // What is asked for ahead is missed in other ways, and stands behind many of its kind.
        let backoff = match ahead {
            true => self.cx.backoff(timer),
            false => self.cx.prompt_backoff(Awaited::Page, timer),
        };
        let wish = (access, have);
        let waiter = self.page.own.wish(self.cx, subject, backoff, wish);
        self.submit(waiter);
    }

    /// Brings this node's wish before whoever decides.
    pub(super) fn submit(&mut self, waiter: Waiter) {
        let (segment, page, home) = (self.rules.segment, self.index, self.home());
        let subject = self.subject();
        match self.rules.manager {
            Manager::Fixed if home == self.cx.me() => {
                self.after.to_library.push(waiter);
                return;
            }
            Manager::Fixed if !self.cx.is_gone(home) => {
                let ask = Ask {
                    subject,
                    waiter,
                    since: Version(0),
                    hops: 0,
                    by_library: false,
                };
                self.cx.send(home, Message::Ask(ask));
            }
            Manager::Dynamic if self.is_owner() => {
                self.page.own.enqueue(waiter);
                self.serve();
                return;
            }
            Manager::Dynamic if self.page.own.forward(self.cx, subject, waiter, 0, false) => {}
            Manager::Dynamic | Manager::Fixed => {
                self.astray(waiter);
                return;
            }
        }
        self.cx.emit(Event::Asked { segment, page });
    }

    /// The trail to the owner is cold: the home searches. If there is no home
    /// any more, nobody can.
    fn astray(&mut self, waiter: Waiter) {
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
    fn spare(&self) -> Spare {
        if self.page.rights > Rights::None {
            return Spare::Copy;
        }
        match self.page.own.passing() {
            Some(passing) if self.cx.has_left(passing.to) => Spare::Stash,
            _ => Spare::None,
        }
    }

    /// The search ended or goes on.
    fn found(&mut self, found: Found) {
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
    fn regain(&mut self, regain: &Regain) {
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

    /// This node is no member any more: nothing here is the truth any more.
    pub(super) fn expelled(&mut self) {
        let with = self.cx.me();
        self.evict(false);
        // Who waits here for others' pages asks on: what is nothing to this node any
        // more is not lost.
        if let Some(busy) = self.page.own.busy_if_any() {
            busy.queue.clear();
            busy.search = None;
        }
        self.lost(with);
    }

    /// Hands a waiter of the library to the clock site (M8, M9).
    pub(super) fn check_out(&mut self, waiter: Waiter) {
        let subject = self.subject();
        if let Some(with) = self.busy().and_then(|busy| busy.more.lost) {
            self.tell_lost(waiter, with);
            self.after.served_here = Some((waiter.node, waiter.request, None));
        } else if self.is_owner() {
            self.page.own.enqueue(waiter);
            self.serve();
        } else if !self.page.own.forward(self.cx, subject, waiter, 0, true) {
            self.astray(waiter);
        }
    }

    /// A peer said something about the page.
    pub(super) fn letter(&mut self, from: NodeId, letter: Letter) {
        match letter {
            Letter::Ask(ask) => self.asked(&ask),
            Letter::Data(data) => self.data_arrived(from, &data),
            Letter::Pass(pass) => self.pass_arrived(from, &pass),
            Letter::PassAck(ack) => {
                if self.page.own.passed(self.cx, from, ack.version) {
                    self.drop_stash();
                } else {
                    self.cx.emit(Event::Stale {});
                }
            }
            Letter::Invalidate(invalidate) => self.invalidate_arrived(invalidate),
            Letter::InvalidateAck(ack) => self.ack_arrived(from, ack.version),
            Letter::Locate(locate) => {
                let spare = self.spare();
                self.page.own.answer(self.cx, from, &locate, spare);
            }
            Letter::Located(located) => {
                let reads = self.page.rights > Rights::None;
                let found = self.page.own.located(self.cx, from, &located, reads);
                self.found(found);
            }
            Letter::Regain(regain) => self.regain(&regain),
            Letter::Lost(lost) => {
                let mine = self
                    .page
                    .own
                    .want()
                    .is_some_and(|want| want.waiter.request == lost.request);
                if mine {
                    self.lost(lost.with);
                }
            }
            Letter::Served(_) => unreachable!("the library takes these"),
        }
    }

    fn asked(&mut self, ask: &Ask) {
        use crate::ownership::Route;
        let waiter = ask.waiter;
        if waiter.node == self.cx.me() {
            self.asked_by_self(ask);
            return;
        }
        if self.serve_at_once(waiter) {
            return;
        }
        let (segment, page) = (self.rules.segment, self.index);
        match self.page.own.route(self.cx, ask) {
            Route::Queued => self.serve(),
            Route::PassAgain => self.pass_again(waiter),
            Route::Gone => self.cx.emit(Event::Forwarded { segment, page }),
            Route::Astray => match self.busy().and_then(|busy| busy.more.lost) {
                Some(with) => self.tell_lost(waiter, with),
                None => self.astray(waiter),
            },
        }
    }

    /// Our own wish came back to us: we are the clock site, or the library
    /// thinks so, or it is an old one.
    fn asked_by_self(&mut self, ask: &Ask) {
        let waiter = ask.waiter;
        let open = self
            .page
            .own
            .want()
            .is_some_and(|want| want.waiter.request == waiter.request);
        if !open {
            self.tell_served(waiter.request);
        } else if self.is_owner() {
            self.page.own.enqueue(waiter);
            self.serve();
        } else if ask.hops == ASTRAY {
            self.astray(waiter);
        } else if ask.by_library {
            // Whoever names a newer version is right: a grant is on its way here,
            // unless its sender died and it was lost with him. This node's own
            // hint would only lead back to where the ask comes from.
            let grant_comes = ask.since > self.page.own.version;
            if grant_comes && !self.cx.somebody_died() {
                return;
            }
            let subject = self.subject();
            let hops = if grant_comes { ASTRAY } else { ask.hops + 1 };
            if !self.page.own.forward(self.cx, subject, waiter, hops, true) {
                self.astray(waiter);
            }
        }
    }

    /// Tells the library site, if there is one, that a wish of ours is fulfilled.
    pub(super) fn tell_served(&mut self, request: RequestId) {
        if self.rules.manager != Manager::Fixed {
            return;
        }
        let (segment, page, home) = (self.rules.segment, self.index, self.home());
        let clock = self.is_owner().then_some(self.page.own.version);
        if home == self.cx.me() {
            self.after.served_here = Some((home, request, clock));
        } else {
            self.cx.send(
                home,
                Message::Served(Served {
                    segment,
                    page,
                    request,
                    clock,
                }),
            );
        }
    }

    /// The page will never come.
    pub(super) fn lost(&mut self, with: NodeId) {
        let busy = self.page.own.busy_mut();
        busy.want = None;
        self.after.stays_out |= busy.more.ahead.take().is_some();
        busy.more.lost = Some(with);
        let faults = core::mem::take(&mut busy.more.faults);
        let pinning = core::mem::take(&mut busy.more.pinning);
        let waiting = core::mem::take(&mut busy.queue);
        self.forget_orphaned_grant();
        for (mapping, _) in faults {
            self.fail(mapping, with);
        }
        self.after
            .pins_lost
            .extend(pinning.into_iter().map(|ticket| (ticket, with)));
        for waiter in waiting {
            self.tell_lost(waiter, with);
        }
    }

    /// What waits here has waited in vain for too long, with the first node silent:
    /// it fails. The wish stays open, and whoever comes later waits anew, for the
    /// node may come back.
    pub(super) fn forsake(&mut self, patience: Duration) {
        let Some(want) = self.page.own.want() else {
            return;
        };
        // Everybody else may use the page for as long as its window says.
        let turns = self.cx.shell.alive.iter().count() as u32;
        let patience = patience + self.rules.longest_window() * turns;
        if self.cx.now - want.since < patience {
            return;
        }
        let with = NodeId::COORDINATOR;
        let more = self.more();
        let faults = core::mem::take(&mut more.faults);
        let pinning = core::mem::take(&mut more.pinning);
        for (mapping, _) in faults {
            self.fail(mapping, with);
        }
        let pins = pinning.into_iter().map(|ticket| (ticket, with));
        self.after.pins_lost.extend(pins);
    }

    fn tell_lost(&mut self, waiter: Waiter, with: NodeId) {
        if waiter.node == self.cx.me() {
            let open = self
                .page
                .own
                .want()
                .is_some_and(|want| want.waiter.request == waiter.request);
            if open {
                self.lost(with);
            }
        } else {
            let lost = Lost {
                subject: self.subject(),
                request: waiter.request,
                with,
            };
            self.cx.send(waiter.node, Message::Lost(lost));
        }
    }

    fn fail(&mut self, mapping: MappingId, with: NodeId) {
        let (segment, page) = (self.rules.segment, self.index);
        self.cx.emit(Event::Failed { segment, page });
        self.cx.push(Effect::Fail {
            mapping,
            segment,
            page,
            why: Refusal::NodeGone(with),
        });
    }

    /// Tells whoever watches that the page may change from now on (F7).
    pub(super) fn wake_watchers(&mut self) {
        let Some(more) = self.more_if_any() else {
            return;
        };
        for ticket in core::mem::take(&mut more.watchers) {
            self.cx.reply(ticket, Reply::Changed);
        }
    }

    /// Guarantees that the page does not change before the watcher is told.
    pub(super) fn watch(&mut self, ticket: Ticket) {
        if self.page.rights == Rights::None || !self.page.filled {
            self.cx.reply(ticket, Reply::Changed);
            return;
        }
        if self.page.rights == Rights::Write {
            self.downgrade();
        }
        self.more().watchers.push(ticket);
        self.cx.reply(ticket, Reply::Waiting);
    }

    /// The writer here becomes a reader (M11).
    pub(super) fn downgrade(&mut self) {
        let (segment, page) = (self.rules.segment, self.index);
        self.cx.push(Effect::Protect { segment, page });
        self.page.rights = Rights::Read;
        self.note_end();
        self.cx.emit(Event::Downgraded { segment, page });
    }

    pub(super) fn drop_stash(&mut self) {
        let (segment, page) = (self.rules.segment, self.index);
        self.cx.push(Effect::DropStash { segment, page });
    }

    /// Takes the page away from all mappings here.
    pub(super) fn evict(&mut self, keep: bool) {
        let (segment, page) = (self.rules.segment, self.index);
        if self.page.filled {
            self.cx.push(Effect::Evict {
                segment,
                page,
                keep,
            });
        }
        self.note_end();
        self.page.filled = false;
        self.page.rights = Rights::None;
        self.page.unused = false;
        if let Some(more) = self.more_if_any() {
            more.seen_unused = false;
        }
        self.wake_watchers();
    }
}
