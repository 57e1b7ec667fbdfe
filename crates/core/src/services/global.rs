//! Global memory: dispatch between the policies and [`Global`](crate::global::Global).

use super::Services;
use crate::effect::PageRange;
use crate::event::Event;
use crate::global::{Begin, Budgets, Frames, MemoryReport};
use crate::input::Request;
use crate::shell::Cx;
use pagemesh_wire::peer::{self, AgeSummary, Message, Policy, Refusal};
use pagemesh_wire::{ClientId, NodeId, PageIndex, RequestId, SegmentId, Ticket, Version};

impl Services {
    /// The ages of all pages on this node.
    fn ages(&self, cx: &Cx<'_>) -> AgeSummary {
        let mut ages = AgeSummary::default();
        for segment in self.segments.values() {
            segment.policy.summarize(cx.now, &mut ages);
        }
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
                return self.take_back(cx, from, segment, pages);
            }
            Message::Global(peer::Global::Wanted {
                question,
                segment,
                pages,
            }) => return self.wanted(cx, from, question, (segment, &pages)),
            Message::Global(message) => self.global.message(cx, from, message),
            other => unreachable!("not of global memory: {other:?}"),
        };
        self.begin_epoch(cx, begin);
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

    /// The driver has written pages to the disk, or could not.
    pub(super) fn stored(&mut self, cx: &mut Cx<'_>, pages: PageRange, done: bool) {
        if let Some(segment) = self.segments.get_mut(&pages.segment) {
            segment.policy.stored(cx, pages, done);
        }
    }

    /// The host gives more memory, or less.
    pub(super) fn budgets(&mut self, cx: &mut Cx<'_>, budgets: Budgets) {
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
