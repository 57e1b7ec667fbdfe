//! Pages of which no copy is left: their holder is gone, and no other node had one. An access fails
//! as under the other policies, and never finds zeros or old contents in their place, unless a
//! program has announced that it knows from the contents what a page is ([`Advice::Renew`], as
//! boards do): then a consistent view begins anew with zeros, and an inconsistent one shows zeros
//! until something is published.
//!
//! [`Advice::Renew`]: pagemesh_wire::local::Advice::Renew

use super::Views;
use super::messages::Wish;
use super::page::Valid;
use crate::effect::{Effect, Source};
use crate::event::Event;
use crate::shell::Cx;
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::{MappingId, NodeId, PageIndex, RequestId};

impl Views {
    /// At the home: a census has found no copy.
    pub(super) fn lost(&mut self, cx: &mut Cx<'_>, index: PageIndex, with: NodeId) {
        self.page(cx, index).lost = Some(with);
        if !self.renews {
            self.fail(cx, index, &Refusal::NodeGone(with));
        } else if !self.page(cx, index).faults.is_empty() {
            self.renew(cx, index);
        }
    }

    /// At the home: an access of a lost page. True if it was refused.
    pub(super) fn is_lost_to(
        &mut self,
        cx: &mut Cx<'_>,
        index: PageIndex,
        mapping: MappingId,
    ) -> bool {
        let Some(with) = self.page(cx, index).lost else {
            return false;
        };
        if self.renews {
            self.renew(cx, index);
            return false;
        }
        cx.fail(mapping, (self.segment, index), Refusal::NodeGone(with));
        true
    }

    /// At the home: a lost page begins anew, with zeros.
    pub(super) fn renew(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let segment = self.segment;
        self.drop_runs(cx, index);
        let page = self.page(cx, index);
        (page.holds, page.filled, page.valid) = (true, false, Valid::Nothing);
        (page.stamp.version, page.purged) = (page.version, false);
        cx.emit(Event::Regained {
            segment,
            page: index,
        });
        self.holds_now(cx, index);
    }

    /// The home says that a page that is wanted here is lost.
    pub(super) fn told_lost(
        &mut self,
        cx: &mut Cx<'_>,
        index: PageIndex,
        request: RequestId,
        with: NodeId,
    ) {
        let segment = self.segment;
        let page = self.page(cx, index);
        let wish = page.want.as_ref().filter(|want| want.request == request);
        let Some(wish) = wish.map(|want| want.wish) else {
            return cx.emit(Event::Stale {});
        };
        if !self.renews || wish >= Wish::Move || self.page(cx, index).passing.is_some() {
            return self.fail(cx, index, &Refusal::NodeGone(with));
        }
        self.drop_runs(cx, index);
        cx.push(Effect::Fill {
            pages: (segment, index).into(),
            source: Source::Zero,
        });
        let page = self.page(cx, index);
        (page.valid, page.blank) = (Valid::Whole, true);
        (page.prefix_purged, page.purged) = (false, false);
        self.serve(cx, index);
    }
}
