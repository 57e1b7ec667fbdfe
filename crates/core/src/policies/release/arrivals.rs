//! Messages of this policy that arrive from other nodes, and those that come back.

use super::messages::{
    Body, CopyReply, DiffMissing, DiffRequest, Full, IntervalReply, IntervalRequest, News,
};
use super::{Release, feeds, say};
use crate::event::Event;
use crate::shell::Cx;
use pagemesh_wire::peer::{Contents, Payload};
use pagemesh_wire::{NodeId, PageIndex, RequestId, VectorTime};

impl Release {
    /// A message of this policy on another node arrived, perhaps with the contents of a page.
    pub(super) fn received(&mut self, cx: &mut Cx<'_>, from: NodeId, said: &Payload, page: bool) {
        let body = Body::read(said);
        let is_page =
            matches!(&body, Some(Body::CopyReply(base)) if base.contents == Contents::Bytes);
        match body {
            // Contents that follow the message are put into the frame: both must be there, or
            // neither.
            _ if is_page != page => cx.emit(Event::Malformed {}),
            None => cx.emit(Event::Malformed {}),
            Some(Body::IntervalRequest(inquire)) => self.backup(cx).inquired(from, &inquire),
            Some(Body::IntervalReply(told)) => self.told(cx, from, &told),
            Some(Body::CopyRequest(fetch)) => self.supply(cx).fetch(fetch),
            Some(Body::CopyRequests(many)) => self.supply(cx).fetch_many(from, &many),
            Some(Body::CopyReply(base)) => self.base_arrived(cx, from, &base),
            Some(Body::DiffRequest(want)) => self.supply(cx).wanted(from, &want),
            Some(Body::DiffMissing(absent)) => {
                let pages = self.memory.absent(cx, from, &absent);
                self.go_on(cx, pages);
            }
            Some(Body::Full(Full { floor, leaving })) => {
                let next = self.collection(cx).somebody_is_full(from, &floor, leaving);
                self.lead(cx, next);
            }
            Some(Body::Keep(keep)) => self.keep(cx, from, keep),
            Some(Body::Kept(kept)) => self.backup(cx).kept(from, &kept),
            Some(Body::Leaving) => self.backup(cx).leaves(from),
        }
    }

    /// A node that does not know the segment, or has forgotten it, returns a message: it has
    /// nothing of what was requested.
    pub(super) fn came_back(&mut self, cx: &mut Cx<'_>, from: NodeId, said: &Payload) {
        match Body::read(said) {
            Some(Body::IntervalRequest(IntervalRequest { request, .. })) => {
                let news = News::default();
                self.told(cx, from, &IntervalReply { request, news });
            }
            Some(Body::DiffRequest(DiffRequest { request, diffs })) => {
                let floor = VectorTime::ZERO;
                let absent = DiffMissing {
                    request,
                    diffs,
                    floor,
                };
                let pages = self.memory.absent(cx, from, &absent);
                self.go_on(cx, pages);
            }
            Some(Body::CopyRequests(many)) => {
                for (page, request) in many.copies {
                    self.base_arrived(cx, from, &no_copy(page, request));
                }
            }
            Some(Body::CopyRequest(fetch)) if fetch.hops == feeds::LEFT => {
                self.supply(cx).left_in_vain(from, fetch);
            }
            Some(Body::CopyRequest(fetch)) => {
                let base = no_copy(fetch.page, fetch.request);
                if fetch.reader == cx.me() {
                    self.base_arrived(cx, from, &base);
                } else {
                    say(cx, self.rules.segment, fetch.reader, &Body::CopyReply(base));
                }
            }
            Some(Body::Keep(_)) => self.backup(cx).knows_nothing(from),
            _ => cx.emit(Event::Stale {}),
        }
    }
}

/// Says that the sender has no copy of a page.
fn no_copy(page: PageIndex, request: RequestId) -> CopyReply {
    CopyReply {
        page,
        request,
        contents: Contents::None,
        applied: VectorTime::ZERO,
    }
}
