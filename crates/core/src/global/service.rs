//! What the parts of global memory do together.

use super::{Budgets, Donor, Frames, Global, MemoryReport, Taken};
use crate::effect::Reply;
use crate::event::Event;
use crate::input::Request;
use crate::shell::Cx;
use crate::timers::Timer;
use core::time::Duration;
use pagemesh_wire::peer::{self, AgeSummary, Forward, Put, SharedPut};
use pagemesh_wire::{NodeId, Ticket};

/// An epoch is to begin: the node is to collect the ages of its pages.
#[must_use]
pub(crate) struct Begin(pub(crate) bool);

impl Global {
    /// Adds the ages of the pages kept for others and of the frames for files to those of the
    /// policies' pages.
    pub(crate) fn summarize(&self, cx: &Cx<'_>, leaves: bool, ages: &mut AgeSummary) {
        let (now, budgets) = (cx.now, cx.shell.memory.budgets);
        self.shared.summarize(now, &mut ages.local);
        let lend = if leaves { 0 } else { budgets.lend.0 };
        let lends = (lend, budgets.busy);
        self.donor.summarize(now, lends, &self.shared, ages);
    }

    /// A page of another node comes to be kept.
    pub(crate) fn put(&mut self, cx: &mut Cx<'_>, from: NodeId, put: &Put, leaves: bool) -> Begin {
        if leaves {
            Donor::refuse(cx, from, put);
            return Begin(false);
        }
        match self.donor.put(cx, from, put, &mut self.shared) {
            Taken::New => return Begin(self.epochs.taken(cx)),
            Taken::Refused => cx.shell.memory.wants_plan = true,
            Taken::Known => {}
        }
        Begin(false)
    }

    /// The last copy of a page of a file comes to be kept. One that is not kept is dropped: its
    /// sender does not wait.
    pub(crate) fn shared_put(&mut self, cx: &mut Cx<'_>, put: &SharedPut, leaves: bool) -> Begin {
        let age = Duration::from_millis(put.age.into());
        let used = cx.shell.memory.used(cx.now, age);
        let Self { donor, shared, .. } = self;
        if put.rounds == 0 || shared.has_already(put) {
            cx.emit(Event::Stale {});
        } else if leaves || !donor.make_room(cx, None, used, shared) {
            cx.shell.memory.wants_plan |= !leaves;
            cx.emit(Event::PutRefused {});
        } else if shared.keep(cx, put, used) {
            return Begin(self.epochs.taken(cx));
        }
        Begin(false)
    }

    /// A donor sends on a page that it has no room for.
    pub(crate) fn sent_on(&mut self, cx: &mut Cx<'_>, on: &Forward, leaves: bool) {
        if leaves {
            return cx.emit(Event::PutRefused {});
        }
        self.donor.sent_on(cx, on, &mut self.shared);
    }

    /// A message to the donor, or about epochs or files.
    pub(crate) fn message(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        message: peer::Global,
    ) -> Begin {
        match message {
            peer::Global::Get {
                segment,
                pages,
                forget,
            } => self.donor.get(cx, from, segment, (&pages, forget)),
            peer::Global::Drop { segment, pages } => {
                self.donor.release(cx, from, segment, &pages);
            }
            peer::Global::EndEpoch { epoch } => return Begin(self.epochs.end(cx, from, epoch)),
            peer::Global::Summary { epoch, ages } => self.epochs.summary(cx, from, epoch, *ages),
            peer::Global::Begin(plan) => self.epochs.told(cx, plan),
            peer::Global::Unwanted {
                question,
                segment,
                pages,
            } => self.donor.unwanted(cx, from, question, (segment, &pages)),
            about_files @ (peer::Global::Find { .. }
            | peer::Global::Fetch { .. }
            | peer::Global::NotCached { .. }
            | peer::Global::Hold { .. }
            | peer::Global::Gone { .. }
            | peer::Global::Copies { .. }) => self.shared.message(cx, from, about_files),
            own @ (peer::Global::Summarize { .. }
            | peer::Global::TakeBack { .. }
            | peer::Global::Wanted { .. }) => {
                unreachable!("about the pages of this node: {own:?}");
            }
        }
        Begin(false)
    }

    /// This node leaves: asks the owners of pages that are nowhere else to take them back, again and
    /// again, since messages get lost.
    pub(crate) fn hand_back(&mut self, cx: &mut Cx<'_>) {
        if self.donor.only_copies() > 0 {
            self.donor.hand_back(cx);
            let again = cx.now + cx.pace().resend_first;
            cx.arm(again, Timer::HandBack);
        }
    }

    /// Pages kept for others go, as far as there are too many.
    pub(crate) fn give_back(&mut self, cx: &mut Cx<'_>) {
        self.donor.shrink(cx, &mut self.shared);
    }

    /// A request about pages of files.
    pub(crate) fn about_files(
        &mut self,
        cx: &mut Cx<'_>,
        ticket: Ticket,
        frames: Frames,
        request: &Request,
    ) {
        match request {
            Request::FilePages { part, .. } => self.shared.ask(cx, ticket, frames, *part),
            Request::FilePagesDone {
                part,
                filled,
                frames: of,
                ..
            } => {
                self.shared.done(cx, frames.segment, *part, (*filled, of));
                cx.reply(ticket, Reply::Done);
            }
            _ => {}
        }
    }

    /// Asks for a new epoch if a page was to be sent and no plan says where to.
    pub(crate) fn want_plan(&mut self, cx: &mut Cx<'_>, has_left: bool) -> Begin {
        let wants = core::mem::take(&mut cx.shell.memory.wants_plan);
        Begin(wants && !has_left && self.epochs.want(cx))
    }

    /// What this node keeps for others, and what the plan says.
    pub(crate) fn report(&self, budgets: Budgets, me: NodeId) -> MemoryReport {
        let mut report = MemoryReport {
            borrowed: (self.donor.len() + self.shared.kept()).into(),
            lend: budgets.lend.0.into(),
            budget: budgets.memory.0,
            placement: budgets.placement,
            epoch: self.epochs.number(),
            files: self.shared.frames(),
            ..MemoryReport::default()
        };
        if let Some(plan) = self.epochs.current() {
            report.min_age = plan.min_age;
            let mine = plan.weights.iter().find(|(node, _)| *node == me);
            report.weight = mine.map_or(0, |(_, weight)| *weight);
        }
        report
    }
}
