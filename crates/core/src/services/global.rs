//! Global memory: dispatch between policies, the donor and epochs.

use super::Services;
use crate::effect::{PageRange, Reply};
use crate::event::Event;
use crate::global::{Budgets, Donor, Frames, Global, MemoryReport, Taken};
use crate::input::Request;
use crate::shell::Cx;
use crate::time::Time;
use crate::timers::Timer;
use core::time::Duration;
use pagemesh_wire::peer::{self, AgeSummary, Forward, Message, Policy, Put, Refusal, SharedPut};
use pagemesh_wire::{ClientId, NodeId, PageIndex, RequestId, SegmentId, Ticket, Version};

impl Services {
    /// The ages of all pages on this node.
    fn ages(&self, now: Time, budgets: Budgets) -> AgeSummary {
        let mut ages = AgeSummary::default();
        for segment in self.segments.values() {
            segment.policy.summarize(now, &mut ages);
        }
        self.global.shared.summarize(now, &mut ages.local);
        let lend = match self.leaving.has_begun() {
            true => 0,
            false => budgets.lend.0,
        };
        let files = &self.global.shared;
        let lends = (lend, budgets.busy);
        self.global.donor.summarize(now, lends, files, &mut ages);
        ages
    }

    fn begin_epoch(&mut self, cx: &mut Cx<'_>, begin: bool) {
        if begin {
            let ages = self.ages(cx.now, cx.shell.memory.budgets);
            self.global.epochs.begin(cx, ages);
        }
    }

    /// A page of another node comes to be kept.
    pub(crate) fn put(&mut self, cx: &mut Cx<'_>, from: NodeId, put: &Put) {
        if self.leaving.has_begun() {
            return Donor::refuse(cx, from, put);
        }
        let files = &mut self.global.shared;
        match self.global.donor.put(cx, from, put, files) {
            Taken::New => self.taken(cx),
            Taken::Refused => cx.shell.memory.wants_plan = true,
            Taken::Known => {}
        }
    }

    fn taken(&mut self, cx: &mut Cx<'_>) {
        let begin = self.global.epochs.taken(cx);
        self.begin_epoch(cx, begin);
    }

    /// The last copy of a page of a file comes to be kept. One that is not kept is dropped: its
    /// sender does not wait.
    pub(crate) fn shared_put(&mut self, cx: &mut Cx<'_>, put: &SharedPut) {
        let age = Duration::from_millis(put.age.into());
        let used = cx.shell.memory.used(cx.now, age);
        let Global { donor, shared, .. } = &mut self.global;
        if put.rounds == 0 || shared.has_already(put) {
            return cx.emit(Event::Stale {});
        }
        if self.leaving.has_begun() || !donor.make_room(cx, None, used, shared) {
            cx.shell.memory.wants_plan |= !self.leaving.has_begun();
            return cx.emit(Event::PutRefused {});
        }
        if shared.keep(cx, put, used) {
            self.taken(cx);
        }
    }

    /// A donor sends on a page that it has no room for.
    pub(crate) fn sent_on(&mut self, cx: &mut Cx<'_>, on: &Forward) {
        if self.leaving.has_begun() {
            return cx.emit(Event::PutRefused {});
        }
        let Global { donor, shared, .. } = &mut self.global;
        donor.sent_on(cx, on, shared);
    }

    /// A message of global memory.
    pub(crate) fn global_message(&mut self, cx: &mut Cx<'_>, from: NodeId, message: peer::Global) {
        match message {
            peer::Global::Get {
                segment,
                pages,
                forget,
            } => self.global.donor.get(cx, from, segment, (&pages, forget)),
            peer::Global::Drop { segment, pages } => {
                self.global.donor.release(cx, from, segment, &pages);
            }
            peer::Global::EndEpoch { epoch } => {
                let begin = self.global.epochs.end(cx, from, epoch);
                self.begin_epoch(cx, begin);
            }
            peer::Global::Summarize { epoch } => {
                let ages = self.ages(cx.now, cx.shell.memory.budgets);
                self.global.epochs.summarize(cx, from, epoch, ages);
            }
            peer::Global::Summary { epoch, ages } => {
                self.global.epochs.summary(cx, from, epoch, *ages)
            }
            peer::Global::Begin(plan) => self.global.epochs.told(cx, plan),
            about_files @ (peer::Global::Find { .. }
            | peer::Global::Fetch { .. }
            | peer::Global::NotCached { .. }
            | peer::Global::Hold { .. }
            | peer::Global::Gone { .. }
            | peer::Global::Copies { .. }) => self.global.shared.message(cx, from, about_files),
            peer::Global::TakeBack { segment, pages } => self.take_back(cx, from, segment, pages),
            peer::Global::Wanted {
                question,
                segment,
                pages,
            } => self.wanted(cx, from, question, (segment, &pages)),
            peer::Global::Unwanted {
                question,
                segment,
                pages,
            } => {
                let donor = &mut self.global.donor;
                donor.unwanted(cx, from, question, (segment, &pages));
            }
        }
    }

    /// A donor asks which of these copies this node counts on.
    fn wanted(
        &mut self,
        cx: &mut Cx<'_>,
        donor: NodeId,
        question: RequestId,
        (segment, pages): (SegmentId, &[(PageIndex, Version)]),
    ) {
        if segment.home() != cx.me() || pages.len() > peer::Global::PAGES {
            return cx.emit(Event::Malformed {});
        }
        let unwanted = match self.segments.get_mut(&segment) {
            Some(known) => known.policy.unwanted(cx, donor, pages),
            None => pages.iter().map(|(page, _)| *page).collect(),
        };
        if unwanted.is_empty() {
            return;
        }
        let pages = unwanted;
        let unwanted = peer::Global::Unwanted {
            question,
            segment,
            pages,
        };
        cx.send(donor, Message::Global(unwanted));
    }

    /// A donor leaves and gives back pages.
    fn take_back(
        &mut self,
        cx: &mut Cx<'_>,
        donor: NodeId,
        segment: SegmentId,
        pages: Vec<(PageIndex, Version)>,
    ) {
        if segment.home() != cx.me() || pages.len() > peer::Global::PAGES {
            return cx.emit(Event::Malformed {});
        }
        cx.shell.memory.leaves(donor);
        match self.segments.get_mut(&segment) {
            Some(known) => known.policy.take_back(cx, donor, &pages),
            // The segment ended, and the message that said so was lost.
            None => cx.send(
                donor,
                Message::Global(peer::Global::Drop { segment, pages }),
            ),
        }
    }

    /// This node leaves: asks the owners of pages that are nowhere else to take them back, again and
    /// again, since messages get lost.
    pub(crate) fn hand_back(&mut self, cx: &mut Cx<'_>) {
        if self.leaving.has_begun() && self.global.donor.only_copies() > 0 {
            self.global.donor.hand_back(cx);
            let again = cx.now + cx.pace().resend_first;
            cx.arm(again, Timer::HandBack);
        }
    }

    /// The driver has written pages to the disk, or could not.
    pub(super) fn stored(&mut self, cx: &mut Cx<'_>, pages: PageRange, done: bool) {
        if let Some(segment) = self.segments.get_mut(&pages.segment) {
            segment.policy.stored(cx, pages, done);
        }
    }

    /// The host gives more memory, or less.
    pub(super) fn budgets(&mut self, cx: &mut Cx<'_>, budgets: Budgets) {
        cx.shell.memory.budgets = budgets;
        self.give_back(cx);
        for segment in self.segments.values_mut() {
            segment.policy.pressed(cx);
        }
        self.global.shared.pressed(cx);
    }

    /// Pages kept for others go, as far as there are too many.
    pub(super) fn give_back(&mut self, cx: &mut Cx<'_>) {
        let Global { donor, shared, .. } = &mut self.global;
        donor.shrink(cx, shared);
    }

    /// A request about pages of files.
    pub(super) fn about_files(
        &mut self,
        cx: &mut Cx<'_>,
        (ticket, client): (Ticket, ClientId),
        request: &Request,
    ) {
        let (Request::FilePages { segment, .. } | Request::FilePagesDone { segment, .. }) = request
        else {
            return;
        };
        let (segment, known) = (*segment, self.segments.get(segment));
        let known = known.filter(|segment| segment.is_open_by(client));
        let Some(spec) = known.map(|segment| &segment.info.spec) else {
            return cx.refuse(ticket, Refusal::NotFound);
        };
        if spec.policy != Policy::Files {
            let why = "the segment has no frames for pages of files";
            return cx.refuse(ticket, Refusal::Invalid(why.into()));
        }
        let count = spec.size.pages().map_or(0, |pages| pages.0);
        let shared = &mut self.global.shared;
        match request {
            Request::FilePages { part, .. } => {
                shared.ask(cx, ticket, Frames { segment, count }, *part);
            }
            Request::FilePagesDone {
                part,
                filled,
                frames,
                ..
            } => {
                shared.done(cx, segment, *part, (*filled, frames));
                cx.reply(ticket, Reply::Done);
            }
            _ => {}
        }
    }

    /// Asks for a new epoch if a page was to be sent and no plan says where to.
    pub(super) fn want_plan(&mut self, cx: &mut Cx<'_>) {
        if core::mem::take(&mut cx.shell.memory.wants_plan) && !self.has_left() {
            let begin = self.global.epochs.want(cx);
            self.begin_epoch(cx, begin);
        }
    }

    /// The timer of the epoch is due.
    pub(super) fn epoch_due(&mut self, cx: &mut Cx<'_>) {
        if self.has_left() {
            return cx.emit(Event::Stale {});
        }
        let begin = self.global.epochs.due(cx);
        self.begin_epoch(cx, begin);
    }

    /// Where the pages are that can leave memory.
    pub(crate) fn memory(&self, budgets: Budgets, me: NodeId) -> MemoryReport {
        let mut report = MemoryReport {
            borrowed: (self.global.donor.len() + self.global.shared.kept()).into(),
            lend: budgets.lend.0.into(),
            budget: budgets.memory.0,
            placement: budgets.placement,
            epoch: self.global.epochs.number(),
            ..MemoryReport::default()
        };
        if let Some(plan) = self.global.epochs.current() {
            report.min_age = plan.min_age;
            let mine = plan.weights.iter().find(|(node, _)| *node == me);
            report.weight = mine.map_or(0, |(_, weight)| *weight);
        }
        for segment in self.segments.values() {
            segment.policy.memory(&mut report);
        }
        report.files = self.global.shared.frames();
        report
    }
}
