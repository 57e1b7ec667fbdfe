//! What of a segment is lost when its node is declared dead and joins again as another.
//!
//! The consistent copy of a page is on one node. A node that has none has lost nothing: what it
//! stored went away with the copies, and its inconsistent copies may be old anyhow. Boards and pipes
//! ([`Advice::Renew`]) are lost: a member that is declared dead ends the turn of its writer, and the
//! other end of a pipe has been told that this end is gone.
//!
//! [`Advice::Renew`]: pagemesh_wire::local::Advice::Renew

use super::Views;
use super::page::Page;
use crate::effect::Reply;
use crate::event::Event;
use crate::policies::{Waiting, named};
use crate::shell::Cx;
use pagemesh_wire::PageIndex;
use pagemesh_wire::peer::Access;

impl Views {
    /// What of this segment only this node had, as far as it knows; none if nothing.
    pub(super) fn only_here(&self, cx: &Cx<'_>) -> Option<String> {
        if [self.segment.home(), cx.home(self.segment)].contains(&cx.me()) {
            let lost = "the pages that no other node has touched, since this node is their home";
            return Some(lost.into());
        }
        if self.renews {
            let lost =
                "the place of its programs at a board or pipe: others were told that they ended";
            return Some(lost.into());
        }
        let orphans = &self.replicas.orphans;
        let is_here = |(index, page): &(&PageIndex, &Page)| {
            page.holds || page.passing.is_some() || orphans.contains(**index)
        };
        let here = self.pages.iter().filter(is_here);
        let pages: Vec<PageIndex> = here.map(|(index, _)| *index).collect();
        (!pages.is_empty()).then(|| named(&pages))
    }

    /// Drops everything; returns the accesses that wait. Processes that watch pages look again.
    pub(super) fn drop_all(&mut self, cx: &mut Cx<'_>) -> Vec<Waiting> {
        let mut waiting = Vec::new();
        for (index, page) in &mut self.pages {
            let faults = core::mem::take(&mut page.faults).into_iter();
            waiting.extend(faults.map(|(mapping, view)| {
                let access = if view.consistent {
                    Access::Write
                } else {
                    Access::Read
                };
                (mapping, *index, access)
            }));
        }
        for ticket in self.watches.end() {
            cx.reply(ticket, Reply::Changed);
        }
        cx.emit(Event::ViewChanged {
            segment: self.segment,
        });
        self.expelled(cx);
        waiting
    }
}
