//! One page, opened for the length of one input.

use super::page::{More, Page};
use super::replicas::Notes;
use super::rules::Rules;
use crate::effect::{Effect, Mappings, Reply, Rights, Source};
use crate::event::Event;
use crate::ownership::Busy;
use crate::shell::Cx;
use crate::time::Time;
use crate::timers::Timer;
use pagemesh_wire::peer::{Access, Ask, Message, Subject, Waiter};
use pagemesh_wire::{MappingId, NodeId, PageIndex, RequestId, Ticket, Version};

/// A page with everything needed to work on it.
pub(super) struct PageContext<'a, 'b> {
    pub(super) cx: &'a mut Cx<'b>,
    pub(super) rules: &'a Rules,
    pub(super) index: PageIndex,
    pub(super) page: &'a mut Page,
    /// When the segment's hold ends.
    pub(super) held_until: Time,
    /// About its replicas.
    pub(super) notes: Notes<'a>,
    pub(super) after: Deferred,
}

/// What the segment must do when the page is closed again.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    /// Requests of this node for the library site, which is this node.
    pub(super) to_library: Vec<Waiter>,
    /// A request of this node that is served, or never will be. This node is the library site, so
    /// no message is needed.
    pub(super) served_here: Option<(NodeId, RequestId, Option<Version>)>,
    /// Pins that got this page.
    pub(super) pinned: Vec<Ticket>,
    /// Pins for which the page is lost, each with the node that had it.
    pub(super) pins_lost: Vec<(Ticket, NodeId)>,
    /// The page was asked for ahead and has arrived.
    pub(super) came_ahead: bool,
    /// The node whose message was handled.
    pub(super) from: Option<NodeId>,
    /// The page was asked for ahead and will not arrive.
    pub(super) stays_out: bool,
}

impl PageContext<'_, '_> {
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

    /// A thread faulted. Returns false if that fault is known already, or if the page is lost.
    pub(super) fn fault(&mut self, mapping: MappingId, access: Access) -> bool {
        let (segment, page) = (self.rules.segment, self.index);
        if access == Access::Write {
            self.page.note_store(self.rules);
        }
        if self.page.allows(access) {
            self.cx.emit(Event::LocalFault { segment, page });
            self.map(mapping, self.page.rights);
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
        self.request();
        true
    }

    /// The library site hands a request to the clock site (M8, M9).
    pub(super) fn check_out(&mut self, waiter: Waiter) {
        let subject = self.subject();
        if let Some(with) = self.busy().and_then(|busy| busy.more.lost) {
            self.tell_lost(waiter, with);
            self.after.served_here = Some((waiter.node, waiter.request, None));
        } else if self.is_owner() {
            self.page.own.enqueue(waiter);
            self.serve();
        } else if !self.page.own.forward(self.cx, subject, waiter, 0, true) {
            self.search_owner(waiter);
        }
    }

    /// A message of another node about the page.
    pub(super) fn message(&mut self, from: NodeId, message: Message) {
        match message {
            Message::Ask(ask) => self.asked(&ask),
            Message::Data(data) => {
                self.after.from = Some(from);
                self.data_arrived(&data);
            }
            Message::Pass(pass) => {
                self.after.from = Some(from);
                self.pass_arrived(from, &pass);
            }
            Message::PassAck(ack) => {
                if self.page.own.passed(self.cx, from, ack.version) {
                    self.drop_stash();
                } else {
                    self.cx.emit(Event::Stale {});
                }
            }
            Message::Invalidate(invalidate) => self.invalidate_arrived(invalidate),
            Message::InvalidateAck(ack) => self.ack_arrived(from, ack.version),
            Message::Locate(locate) => {
                let spare = self.spare();
                self.page.own.answer(self.cx, from, &locate, spare);
            }
            Message::Located(located) => {
                let reads = self.page.rights > Rights::None;
                let found = self.page.own.located(self.cx, from, &located, reads);
                self.found(found);
            }
            Message::Regain(regain) => self.regain(&regain),
            Message::Lost(lost) => {
                if self.page.own.wants(lost.request) {
                    self.lost(lost.with);
                }
            }
            _ => self.cx.emit(Event::Stale {}),
        }
    }

    pub(super) fn asked(&mut self, ask: &Ask) {
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
            Route::Unknown => match self.busy().and_then(|busy| busy.more.lost) {
                Some(with) => self.tell_lost(waiter, with),
                None => self.search_owner(waiter),
            },
        }
    }

    /// Tells all watchers that the page may change from now on (F7).
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

    /// A mapping may use the page.
    pub(super) fn map(&mut self, mapping: MappingId, rights: Rights) {
        self.cx.push(Effect::Map {
            mappings: Mappings::One(mapping),
            pages: (self.rules.segment, self.index).into(),
            rights,
        });
    }

    /// The frame gets the page's contents.
    pub(super) fn fill(&mut self, source: Source) {
        let (segment, page) = (self.rules.segment, self.index);
        if source == Source::Payload {
            self.cx.emit(Event::BytesArrived { segment, page });
        }
        self.cx.push(Effect::Fill {
            pages: (segment, page).into(),
            source,
        });
        self.page.filled = true;
    }

    /// No mapping may store to the page any more.
    pub(super) fn protect(&mut self) {
        self.cx.push(Effect::Protect {
            pages: (self.rules.segment, self.index).into(),
            mappings: Mappings::All,
        });
        self.page.rights = Rights::Read;
    }

    /// The writer here becomes a reader (M11).
    pub(super) fn downgrade(&mut self) {
        let (segment, page) = (self.rules.segment, self.index);
        self.protect();
        self.page.note_end(self.rules);
        self.cx.emit(Event::Downgraded { segment, page });
    }

    pub(super) fn drop_stash(&mut self) {
        let (segment, page) = (self.rules.segment, self.index);
        if !self.notes.keep_stash() {
            self.cx.push(Effect::DropStash { segment, page });
        }
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

    /// Takes the page away from all mappings here.
    pub(super) fn evict(&mut self, keep: bool) {
        let (segment, page) = (self.rules.segment, self.index);
        if self.page.filled {
            self.cx.push(Effect::Evict {
                pages: (segment, page).into(),
                keep,
            });
            self.notes.saw(self.page.own.version);
        }
        self.page.note_end(self.rules);
        self.page.filled = false;
        self.page.rights = Rights::None;
        self.page.unused = false;
        if let Some(more) = self.more_if_any() {
            more.seen_unused = false;
        }
        self.wake_watchers();
    }
}
