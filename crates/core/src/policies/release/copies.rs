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
        if self.intervals.history.floor().is_empty() && miss.floor.is_empty() {
            return Need::Zeros;
        }
        let home = cx.home(self.rules.segment);
        if let Some(keeper) = page.keeper.filter(|keeper| may(*keeper)) {
            return Need::CopyReply(keeper);
        }
        if let Some(deputy) = page.deputy.filter(|deputy| may(*deputy)) {
            return Need::CopyReply(deputy);
        }
        if page.keeper.is_none()
            && home == me
            && self.intervals.has_keepers(cx, self.rules.segment.home())
        {
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
            None => Need::Lost(page.keeper.unwrap_or(self.rules.segment.home())),
        }
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
                    .intervals
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
        let (segment, source) = (self.rules.segment, Source::Zero);
        let Some(page) = self.memory.pages.get_mut(&index) else {
            return;
        };
        page.notices.restart(VectorTime::ZERO);
        let pending = page.notices.pending(index);
        if self.memory.diffs.has_all(&pending) {
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
            pages: (self.rules.segment, index).into(),
            keep: true,
        });
        let timer = self.rules.timer(index);
        if let Some(page) = self.memory.pages.get_mut(&index) {
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
        if floor != *self.intervals.history.floor() {
            return self.request_copy(cx, (index, floor), (from, request));
        }
        if let Some(miss) = self.memory.pages.miss(index) {
            miss.base = Some((from, request));
        }
        requests.copy(from, index, request);
    }

    /// What a copy of a page must have that is being made whole.
    pub(super) fn copy_floor(&self, index: PageIndex) -> VectorTime {
        let mut floor = self.intervals.history.floor().clone();
        let miss = self
            .memory
            .pages
            .get(&index)
            .and_then(|page| page.miss.as_ref());
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
        if let Some(miss) = self.memory.pages.miss(page) {
            miss.base = Some((from, request));
        }
        let fetch = CopyRequest {
            page,
            reader: cx.me(),
            request,
            floor,
            hops: 0,
        };
        say(cx, self.rules.segment, from, &Body::CopyRequest(fetch));
    }

    /// A base copy has arrived, or the news that the asked node has none.
    pub(super) fn base(&mut self, cx: &mut Cx<'_>, from: NodeId, base: &CopyReply) {
        let (segment, index) = (self.rules.segment, base.page);
        let floor = self.intervals.history.floor().clone();
        let Some(miss) = self.memory.pages.miss(index) else {
            return cx.emit(Event::Stale {});
        };
        let Some((asked, _)) = miss.base.filter(|(_, request)| *request == base.request) else {
            return cx.emit(Event::Stale {});
        };
        miss.base = None;
        if asked == from {
            cx.progressed(from, &miss.backoff);
        }
        if self.intervals.lacks_of_gone(cx, &base.applied) {
            // Perhaps the asked node knows more; if not, it will not have this copy any more once
            // it knows which node is gone. Either way the copy is requested again.
            return self
                .intervals
                .inquiries
                .inquire(cx, self.intervals.history.time(), from);
        }
        let Some(miss) = self.memory.pages.miss(index) else {
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
        self.memory.drop_copy(cx, index);
        let source = if base.contents == Contents::Bytes {
            Source::Payload
        } else {
            Source::Zero
        };
        let mut applied = base.applied.clone();
        applied.join(&floor);
        let Some(page) = self.memory.pages.get_mut(&index) else {
            return;
        };
        page.notices.restart(applied.clone());
        self.push.fetched(index);
        let pending = page.notices.pending(index);
        if self.memory.diffs.has_all(&pending) {
            return self.finish(cx, index, source, pending);
        }
        cx.push(Effect::Fill {
            pages: (segment, index).into(),
            source,
        });
        self.keep_as_base(cx, index, applied);
    }
}
