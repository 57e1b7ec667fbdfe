//! Pages of which no copy is left: their holder is gone, and no other node had one. An access fails
//! as under the other policies, and never finds zeros or old contents in their place, unless a
//! program has announced that it knows from the contents what a page is ([`Advice::Renew`], as
//! boards do): then a consistent view begins anew with zeros, and an inconsistent one shows zeros
//! until something is published.
//!
//! [`Advice::Renew`]: pagemesh_wire::local::Advice::Renew

use super::context::PageContext;
use super::messages::Wish;
use super::page::Valid;
use crate::effect::Source;
use crate::event::Event;
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::{MappingId, NodeId, RequestId};

impl PageContext<'_, '_> {
    /// At the home: a census has found no copy.
    pub(super) fn lost(&mut self, with: NodeId) {
        let page = self.page();
        page.lost = Some(with);
        let waits = !page.faults.is_empty();
        if !self.views.renews {
            self.fail(&Refusal::NodeGone(with));
        } else if waits {
            self.renew();
        }
    }

    /// At the home: an access of a lost page. True if it was refused.
    pub(super) fn is_lost_to(&mut self, mapping: MappingId) -> bool {
        let Some(with) = self.page().lost else {
            return false;
        };
        if self.views.renews {
            self.renew();
            return false;
        }
        self.cx.fail(mapping, self.at, Refusal::NodeGone(with));
        true
    }

    /// At the home: a lost page begins anew, with zeros.
    pub(super) fn renew(&mut self) {
        let page = self.page();
        (page.holds, page.filled, page.valid) = (true, false, Valid::Nothing);
        (page.stamp.version, page.purged) = (page.version, false);
        self.holds_again();
    }

    /// The home says that the page, which is wanted here, is lost.
    pub(super) fn told_lost(&mut self, request: RequestId, with: NodeId) {
        let renews = self.views.renews;
        let mut here = self.here();
        let page = &mut *here.page;
        let wish = page.want.as_ref().filter(|want| want.request == request);
        let Some(wish) = wish.map(|want| want.wish) else {
            return here.cx.emit(Event::Stale {});
        };
        if !renews || wish >= Wish::Move || page.passing.is_some() {
            return self.fail(&Refusal::NodeGone(with));
        }
        (page.valid, page.blank) = (Valid::Whole, true);
        (page.prefix_purged, page.purged) = (false, false);
        page.unanswered = None;
        here.drop_arriving();
        here.fill(Source::Zero);
        self.serve();
    }
}
