//! The base copy of a page: which node is asked for it, and what it lacks (T15).

use super::messages::{Body, CopyReply, CopyRequest};
use super::miss::{Need, is_out_of_reach, schedule};
use super::page::{Copy, Miss, Page};
use super::requests::Requests;
use super::{Release, say};
use crate::effect::{Effect, Source};
use crate::event::Event;
use crate::shell::Cx;
use pagemesh_wire::peer::{Contents, DiffName};
use pagemesh_wire::{NodeId, PageIndex, RequestId, VectorTime};

/// With more pending diffs than this, a whole copy that has them costs less.
const DIFFS_WORTH: usize = 6;

impl Release {
    /// Where a page without a copy here starts: at its last writer, which has what came before;
    /// else at its keeper; else, if nothing is collected, at zeros.
    pub(super) fn need_base(
        &self,
        cx: &Cx<'_>,
        page: &Page,
        miss: &Miss,
        pending: &[DiffName],
    ) -> Need {
        let me = cx.me();
        let may = |node: NodeId| node != me && cx.is_alive(node) && !miss.baseless.contains(node);
        let last = pending.last().map(|name| name.node);
        if let Some(last) = last.filter(|last| may(*last)) {
            return Need::CopyReply(last);
        }
        if self.history.floor().is_empty() && miss.floor.is_empty() {
            return Need::Zeros;
        }
        let home = cx.home(self.segment);
        if let Some(keeper) = page.keeper.filter(|keeper| may(*keeper)) {
            return Need::CopyReply(keeper);
        }
        if let Some(deputy) = page.deputy.filter(|deputy| may(*deputy)) {
            return Need::CopyReply(deputy);
        }
        if page.keeper.is_none() && home == me && self.knows_keepers(cx) {
            return Need::Zeros;
        }
        if may(home) {
            return Need::CopyReply(home);
        }
        match cx.shell.peers().iter().find(|node| may(*node)) {
            Some(anybody) => Need::CopyReply(anybody),
            None if page
                .keeper
                .is_some_and(|keeper| is_out_of_reach(cx, keeper)) =>
            {
                Need::Patience
            }
            None => Need::Lost(page.keeper.unwrap_or(self.segment.home())),
        }
    }

    /// Whether every page of which a change is collected has its keeper here: this node took part in
    /// all collections, or the home has handed over what it knew. A node that opened the segment
    /// later and leads in the place of a home that died must not take other pages for zeros.
    pub(super) fn knows_keepers(&self, cx: &Cx<'_>) -> bool {
        !self.missed_round || cx.has_left(self.segment.home())
    }

    /// If many diffs are pending, or large ones, the node to ask for a whole copy instead: the last
    /// writer, if it has all of them.
    pub(super) fn prefers_copy(
        &self,
        cx: &Cx<'_>,
        (index, page): (PageIndex, &Page),
        miss: &Miss,
        pending: &[DiffName],
    ) -> Option<NodeId> {
        let last = pending.last()?;
        let rest = &pending[..pending.len() - 1];
        let after = |name: &DiffName| {
            name.node == last.node
                || self
                    .history
                    .is_after((last.node, last.interval), (name.node, name.interval))
        };
        let large = || self.sizes.prefer_copy(cx.pace(), (last.node, index)) && !cx.checks_races();
        let fits = (pending.len() > DIFFS_WORTH || large())
            && miss.asked.is_empty()
            && !miss.based
            && !page.is_kept_by(cx.me())
            // This node may be the next keeper.
            && self.collector.time().is_none()
            && cx.is_alive(last.node)
            && last.node != cx.me()
            && !miss.baseless.contains(last.node)
            && rest.iter().all(after);
        fits.then_some(last.node)
    }

    pub(super) fn start_from_zeros(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let (segment, source) = (self.segment, Source::Zero);
        let Some(page) = self.pages.get_mut(&index) else {
            return;
        };
        page.notices.restart(VectorTime::ZERO);
        let pending = page.notices.pending(index);
        if self.diffs.has_all(&pending) {
            return self.finish(cx, index, source, pending);
        }
        // A copy that lacks diffs waits in the stash.
        let page = index;
        cx.push(Effect::Fill {
            pages: (segment, page).into(),
            source,
        });
        self.keep_as_base(cx, index, VectorTime::ZERO);
    }

    /// Moves contents from the frame to the stash, because they must not be seen yet.
    fn keep_as_base(&mut self, cx: &mut Cx<'_>, index: PageIndex, applied: VectorTime) {
        cx.push(Effect::Evict {
            pages: (self.segment, index).into(),
            keep: true,
        });
        let timer = self.timer(index);
        if let Some(page) = self.pages.get_mut(&index) {
            page.copy = Copy::Stash;
            page.notices.restart(applied);
            if let Some(miss) = &mut page.miss {
                cx.end(&miss.backoff, timer);
                miss.backoff = schedule(cx, timer, !miss.faults.is_empty());
            }
        }
        self.go_on(cx, index);
    }

    pub(super) fn ask_base(
        &mut self,
        cx: &mut Cx<'_>,
        index: PageIndex,
        from: NodeId,
        requests: &mut Requests,
    ) {
        let request = cx.next_request();
        let floor = self.copy_floor(index);
        if floor != *self.history.floor() {
            return self.request_copy(cx, (index, floor), (from, request));
        }
        if let Some(miss) = self.pages.miss(index) {
            miss.base = Some((from, request));
        }
        requests.copy(from, index, request);
    }

    /// What a copy of a page must have that is being made whole.
    pub(super) fn copy_floor(&self, index: PageIndex) -> VectorTime {
        let mut floor = self.history.floor().clone();
        let miss = self.pages.get(&index).and_then(|page| page.miss.as_ref());
        if let Some(miss) = miss {
            floor.join(&miss.floor);
        }
        floor
    }

    /// Requests a copy, which must have all of `floor`, under this number.
    pub(super) fn request_copy(
        &mut self,
        cx: &mut Cx<'_>,
        (page, floor): (PageIndex, VectorTime),
        (from, request): (NodeId, RequestId),
    ) {
        if let Some(miss) = self.pages.miss(page) {
            miss.base = Some((from, request));
        }
        let fetch = CopyRequest {
            page,
            reader: cx.me(),
            request,
            floor,
            hops: 0,
        };
        say(cx, self.segment, from, &Body::CopyRequest(fetch));
    }

    /// A base copy has arrived, or the news that the asked node has none.
    pub(super) fn base(&mut self, cx: &mut Cx<'_>, from: NodeId, base: &CopyReply) {
        let (segment, index) = (self.segment, base.page);
        let floor = self.history.floor().clone();
        let Some(miss) = self.pages.miss(index) else {
            return cx.emit(Event::Stale {});
        };
        let Some((asked, _)) = miss.base.filter(|(_, request)| *request == base.request) else {
            return cx.emit(Event::Stale {});
        };
        miss.base = None;
        if asked == from {
            cx.progressed(from, &miss.backoff);
        }
        if self.has_what_is_unknown(cx, &base.applied) {
            // Perhaps the asked node knows more; if not, it will not have this copy any more once
            // it knows which node is gone. Either way the copy is requested again.
            return self.inquiries.inquire(cx, self.history.time(), from);
        }
        let Some(miss) = self.pages.miss(index) else {
            return;
        };
        if matches!(base.contents, Contents::None | Contents::Same) {
            // The asked node may have left the request to another one, which lost its copy meanwhile.
            if asked == from || miss.baseless.contains(from) {
                miss.baseless.insert(asked);
            }
            miss.baseless.insert(from);
            return self.go_on(cx, index);
        }
        miss.based = true;
        // A copy that was here is dropped: what the new one lacks is pending again.
        self.drop_copy(cx, index);
        let source = if base.contents == Contents::Bytes {
            Source::Payload
        } else {
            Source::Zero
        };
        let mut applied = base.applied.clone();
        applied.join(&floor);
        let Some(page) = self.pages.get_mut(&index) else {
            return;
        };
        page.notices.restart(applied.clone());
        self.push.fetched(index);
        let pending = page.notices.pending(index);
        if self.diffs.has_all(&pending) {
            return self.finish(cx, index, source, pending);
        }
        cx.push(Effect::Fill {
            pages: (segment, index).into(),
            source,
        });
        self.keep_as_base(cx, index, applied);
    }

    /// Drops a copy in the stash that is of no use: the page starts again from a base copy.
    pub(super) fn drop_copy(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let segment = self.segment;
        let Some(page) = self.pages.get_mut(&index) else {
            return;
        };
        if page.copy == Copy::Stash {
            cx.push(Effect::DropStash {
                segment,
                page: index,
            });
            page.copy = Copy::None;
            page.notices.restart(VectorTime::ZERO);
        }
    }
}
