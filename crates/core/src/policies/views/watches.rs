//! The pages that processes watch.

use crate::effect::Reply;
use crate::event::Event;
use crate::executor::At;
use crate::shell::Cx;
use pagemesh_wire::{PageIndex, Ticket};
use serde::{Deserialize, Serialize};

/// The first page of each watch, the number of its pages, and who waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Watches(Vec<(PageIndex, u32, Ticket)>);

impl Watches {
    pub(super) fn add(
        &mut self,
        cx: &mut Cx<'_>,
        (first, count): (PageIndex, u32),
        ticket: Ticket,
    ) {
        self.0.push((first, count, ticket));
        cx.reply(ticket, Reply::Waiting);
    }

    /// Ends the watches of a page. Processes that watch without a request hear of it, too.
    pub(super) fn changed(&mut self, cx: &mut Cx<'_>, (segment, page): At) {
        cx.emit(Event::ViewChanged { segment });
        let over = |(first, count, _): &mut (PageIndex, u32, Ticket)| {
            let step = page.0.checked_sub(first.0);
            step.is_some_and(|step| step < *count)
        };
        for (.., ticket) in self.0.extract_if(.., over) {
            cx.reply(ticket, Reply::Changed);
        }
    }

    /// Ends all watches, and says for whom.
    pub(super) fn end(&mut self) -> impl Iterator<Item = Ticket> + use<> {
        let all = core::mem::take(&mut self.0);
        all.into_iter().map(|(.., ticket)| ticket)
    }

    /// Ends a watch. True if there was such a one.
    pub(super) fn cancel(&mut self, ticket: Ticket) -> bool {
        let over = |watch: &mut (PageIndex, u32, Ticket)| watch.2 == ticket;
        self.0.extract_if(.., over).next().is_some()
    }
}
