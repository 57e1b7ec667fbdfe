//! The base copy of a page: which node is asked for it, and what it lacks (T15).

use super::messages::{Body, CopyReply, CopyRequest};
use super::miss::{Need, Outcome, PageContext, is_out_of_reach, schedule};
use super::page::{Copy, Miss, Page};
use super::requests::Requests;
use super::say;
use crate::effect::{Effect, Source};
use crate::event::Event;
use pagemesh_wire::peer::{Contents, DiffName};
use pagemesh_wire::{NodeId, RequestId, VectorTime};

/// With more pending diffs than this, a whole copy that has them costs less.
const DIFFS_WORTH: usize = 6;

impl PageContext<'_, '_> {
    /// Where a page without a copy here starts: at its last writer, which has what came before;
    /// else at its keeper; else, if nothing is collected, at zeros.
    pub(super) fn need_base(&self, page: &Page, miss: &Miss, pending: &[DiffName]) -> Need {
        let me = self.cx.me();
        let may =
            |node: NodeId| node != me && self.cx.is_alive(node) && !miss.baseless.contains(node);
        let last = pending.last().map(|name| name.node);
        if let Some(last) = last.filter(|last| may(*last)) {
            return Need::CopyReply(last);
        }
        if self.intervals.history.floor().is_empty() && miss.floor.is_empty() {
            return Need::Zeros;
        }
        let home = self.cx.home(self.rules.segment);
        if let Some(keeper) = page.keeper.filter(|keeper| may(*keeper)) {
            return Need::CopyReply(keeper);
        }
        if let Some(deputy) = page.deputy.filter(|deputy| may(*deputy)) {
            return Need::CopyReply(deputy);
        }
        let created_at = self.rules.segment.home();
        let knows = self.intervals.has_keepers(self.cx, created_at);
        if page.keeper.is_none() && home == me && knows {
            return Need::Zeros;
        }
        if may(home) {
            return Need::CopyReply(home);
        }
        match self.cx.shell.peers().iter().find(|node| may(*node)) {
            Some(anybody) => Need::CopyReply(anybody),
            None if page
                .keeper
                .is_some_and(|keeper| is_out_of_reach(self.cx, keeper)) =>
            {
                Need::Patience
            }
            None => Need::Lost(page.keeper.unwrap_or(created_at)),
        }
    }

    /// If many diffs are pending, or large ones, the node to ask for a whole copy instead: the last
    /// writer, if it has all of them.
    pub(super) fn prefers_copy(
        &self,
        page: &Page,
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
        let large = || {
            self.sizes
                .prefer_copy(self.cx.pace(), (last.node, self.index))
                && !self.cx.checks_races()
        };
        let fits = (pending.len() > DIFFS_WORTH || large())
            && miss.asked.is_empty()
            && !miss.based
            && !page.is_kept_by(self.cx.me())
            // This node may be the next keeper.
            && self.collector.time().is_none()
            && self.cx.is_alive(last.node)
            && last.node != self.cx.me()
            && !miss.baseless.contains(last.node)
            && rest.iter().all(after);
        fits.then_some(last.node)
    }

    pub(super) fn start_from_zeros(&mut self) -> Outcome {
        let (segment, page, source) = (self.rules.segment, self.index, Source::Zero);
        let Some(known) = self.memory.pages.get_mut(&page) else {
            return Outcome::Waits;
        };
        known.notices.restart(VectorTime::ZERO);
        let pending = known.notices.pending(page);
        if self.memory.diffs.has_all(&pending) {
            return Outcome::Whole(source, pending);
        }
        // A copy that lacks diffs waits in the stash.
        self.cx.push(Effect::Fill {
            pages: (segment, page).into(),
            source,
        });
        self.keep_as_base(VectorTime::ZERO)
    }

    /// Moves contents from the frame to the stash, because they must not be seen yet.
    fn keep_as_base(&mut self, applied: VectorTime) -> Outcome {
        let index = self.index;
        self.cx.push(Effect::Evict {
            pages: (self.rules.segment, index).into(),
            keep: true,
        });
        let timer = self.rules.timer(index);
        self.memory.put(self.cx, index, Copy::Stash);
        if let Some(page) = self.memory.pages.get_mut(&index) {
            page.notices.restart(applied);
            if let Some(miss) = &mut page.miss {
                self.cx.end(&miss.backoff, timer);
                miss.backoff = schedule(self.cx, timer, !miss.faults.is_empty());
            }
        }
        self.go_on_alone()
    }

    pub(super) fn ask_base(&mut self, from: NodeId, requests: &mut Requests) {
        let request = self.cx.next_request();
        let floor = self.copy_floor();
        if floor != *self.intervals.history.floor() {
            return self.request_copy(floor, (from, request));
        }
        if let Some(miss) = self.miss() {
            miss.base = Some((from, request));
        }
        requests.copy(from, self.index, request);
    }

    /// What a copy of a page must have that is being made whole.
    pub(super) fn copy_floor(&self) -> VectorTime {
        let mut floor = self.intervals.history.floor().clone();
        let page = self.memory.pages.get(&self.index);
        if let Some(miss) = page.and_then(|page| page.miss.as_ref()) {
            floor.join(&miss.floor);
        }
        floor
    }

    /// Requests a copy, which must have all of `floor`, under this number.
    pub(super) fn request_copy(&mut self, floor: VectorTime, (from, request): (NodeId, RequestId)) {
        if let Some(miss) = self.miss() {
            miss.base = Some((from, request));
        }
        let fetch = CopyRequest {
            page: self.index,
            reader: self.cx.me(),
            request,
            floor,
            hops: 0,
        };
        say(self.cx, self.rules.segment, from, &Body::CopyRequest(fetch));
    }

    /// A base copy has arrived, or the news that the asked node has none.
    pub(super) fn base(&mut self, from: NodeId, base: &CopyReply) -> Outcome {
        let asked = |miss: &mut Miss| miss.base.take_if(|(_, request)| *request == base.request);
        let Some((asked, _)) = self.miss().and_then(asked) else {
            self.cx.emit(Event::Stale {});
            return Outcome::Waits;
        };
        let Some(miss) = self.memory.pages.miss(self.index) else {
            return Outcome::Waits;
        };
        match asked == from {
            true => self.cx.progressed(from, &miss.backoff),
            false => self.cx.progressed_elsewhere(asked, &miss.backoff),
        }
        if self.intervals.lacks_of_gone(self.cx, &base.applied) {
            // Perhaps the asked node knows more; if not, it will not have this copy any more once
            // it knows which node is gone. Either way the copy is requested again.
            self.intervals.inquire(self.cx, from);
            return Outcome::Waits;
        }
        if matches!(base.contents, Contents::None | Contents::Same) {
            // The asked node may have left the request to another one, which lost its copy meanwhile.
            if asked == from || miss.baseless.contains(from) {
                miss.baseless.insert(asked);
            }
            miss.baseless.insert(from);
            return self.go_on_alone();
        }
        miss.based = true;
        self.replace_copy(base)
    }

    /// Takes a base copy in place of what is here.
    fn replace_copy(&mut self, base: &CopyReply) -> Outcome {
        let (segment, index) = (self.rules.segment, self.index);
        // A copy that was here is dropped: what the new one lacks is pending again.
        self.memory.drop_copy(self.cx, index);
        let source = if base.contents == Contents::Bytes {
            Source::Payload
        } else {
            Source::Zero
        };
        let mut applied = base.applied.clone();
        applied.join(self.intervals.history.floor());
        let Some(page) = self.memory.pages.get_mut(&index) else {
            return Outcome::Waits;
        };
        page.notices.restart(applied.clone());
        self.push.fetched(index);
        let pending = page.notices.pending(index);
        if self.memory.diffs.has_all(&pending) {
            return Outcome::Whole(source, pending);
        }
        self.cx.push(Effect::Fill {
            pages: (segment, index).into(),
            source,
        });
        self.keep_as_base(applied)
    }
}
