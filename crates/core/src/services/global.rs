//! Global memory: dispatch between the policies and [`Global`](crate::global::Global).

use super::Services;
use crate::global::{Begin, Budgets, Frames, MemoryReport};
use crate::input::Request;
use crate::shell::Cx;
use crate::trapping::Delayed;
use pagemesh_wire::peer::{self, AgeSummary, Message, Policy, Refusal};
use pagemesh_wire::{ClientId, NodeId, Ticket};

impl Services {
    /// The ages of all pages on this node.
    fn ages(&self, cx: &Cx<'_>) -> AgeSummary {
        let mut ages = self.segments.ages(cx.now);
        self.global
            .summarize(cx, self.leaving.has_begun(), &mut ages);
        ages
    }

    pub(crate) fn begin_epoch(&mut self, cx: &mut Cx<'_>, Begin(begins): Begin) {
        if begins {
            let ages = self.ages(cx);
            self.global.epochs.begin(cx, ages);
        }
    }

    /// A message of global memory.
    pub(crate) fn global_message(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Message) {
        let leaves = self.leaving.has_begun();
        let begin = match message {
            Message::Put(put) => self.global.put(cx, from, &put, leaves),
            Message::SharedPut(put) => self.global.shared_put(cx, &put, leaves),
            Message::SharedPage(page) => return self.global.shared.came(cx, page),
            Message::Forward(on) => return self.global.sent_on(cx, &on, leaves),
            Message::Global(peer::Global::Summarize { epoch }) => {
                let ages = self.ages(cx);
                return self.global.epochs.summarize(cx, from, epoch, ages);
            }
            Message::Global(peer::Global::TakeBack { segment, pages }) => {
                return self.segments.take_back(cx, from, segment, pages);
            }
            Message::Global(peer::Global::Wanted {
                question,
                segment,
                pages,
            }) => return self.segments.wanted(cx, from, question, (segment, &pages)),
            Message::Global(message) => self.global.message(cx, from, message),
            other => unreachable!("not of global memory: {other:?}"),
        };
        self.begin_epoch(cx, begin);
    }

    /// The host gives more memory, or less.
    pub(crate) fn budgets(&mut self, cx: &mut Cx<'_>, budgets: Budgets) {
        self.trapping.forget_budgets();
        if self.delays_budgets(cx, budgets) {
            return self.trapping.wait(Delayed::Budgets(budgets));
        }
        cx.shell.memory.budgets = budgets;
        self.global.give_back(cx);
        for segment in self.segments.values_mut() {
            segment.policy.pressed(cx);
        }
        self.global.shared.pressed(cx);
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
        let frames = Frames { segment, count };
        self.global.about_files(cx, ticket, frames, request);
    }

    /// Where the pages are that can leave memory.
    pub(crate) fn memory(&self, budgets: Budgets, me: NodeId) -> MemoryReport {
        let mut report = self.global.report(budgets, me);
        for segment in self.segments.values() {
            segment.policy.memory(&mut report);
        }
        report
    }
}
