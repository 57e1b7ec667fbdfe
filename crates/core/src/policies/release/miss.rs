//! Making a page whole: what it needs next, until accesses may happen (T15). The base copy is in
//! [`super::copies`], the diffs it lacks are in [`super::diff_requests`].

use super::Release;
use super::page::{Copy, Miss, Page};
use super::requests::Requests;
use crate::backoff::Backoff;
use crate::effect::{DiffWork, Effect, Source};
use crate::shell::Cx;
use crate::timers::Timer;
use pagemesh_wire::peer::{DiffName, Refusal};
use pagemesh_wire::{NodeId, PageIndex};

/// Whether this node does not know yet that there is such a member.
pub(super) fn is_out_of_reach(cx: &Cx<'_>, node: NodeId) -> bool {
    !cx.is_alive(node) && !cx.is_gone(node)
}

/// When what a page needs is requested again.
pub(super) fn schedule(cx: &mut Cx<'_>, timer: Timer, thread_waits: bool) -> Backoff {
    match thread_waits {
        true => cx.backoff(timer),
        false => cx.unhurried_backoff(timer),
    }
}

/// What a page needs next.
pub(super) enum Need {
    /// Nothing: no modification of it was ever collected, so it starts from zeros.
    Zeros,
    /// A base copy of this node.
    CopyReply(NodeId),
    /// An answer that has not arrived yet.
    Patience,
    /// These diffs.
    Diffs(Vec<DiffName>),
    /// Nothing from other nodes: these diffs are to be merged.
    Merge(Vec<DiffName>),
    /// Something that no node has: the page is lost with this node.
    Lost(NodeId),
}

impl Release {
    /// Does the next step for a page that is being made whole.
    pub(super) fn go_on(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let mut requests = Requests::default();
        self.go_on_with(cx, index, &mut requests);
        requests.send(cx, self.rules.segment, self.intervals.history.floor());
    }

    /// As [`Release::go_on`], but what is to be requested is added to `requests`.
    pub(super) fn go_on_with(
        &mut self,
        cx: &mut Cx<'_>,
        index: PageIndex,
        requests: &mut Requests,
    ) {
        let Some(page) = self.memory.pages.get(&index) else {
            return;
        };
        let Some(miss) = &page.miss else { return };
        match self.need(cx, index, page, miss) {
            Need::Zeros => self.start_from_zeros(cx, index),
            Need::CopyReply(from) => self.ask_base(cx, index, from, requests),
            Need::Patience => {}
            Need::Diffs(names) => {
                if let Some(lost) = self.ask_diffs(cx, index, &names, requests) {
                    self.is_lost(cx, index, lost);
                }
            }
            Need::Merge(names) => self.merge(cx, index, names),
            Need::Lost(with) => self.is_lost(cx, index, with),
        }
    }

    fn need(&self, cx: &Cx<'_>, index: PageIndex, page: &Page, miss: &Miss) -> Need {
        if page.copy == Copy::Frame {
            return Need::Merge(Vec::new());
        }
        if miss.base.is_some() || !self.intervals.inquiries.is_synced() {
            return Need::Patience;
        }
        if self.replicas.on && self.intervals.is_doubtful(cx, page) {
            return Need::Patience;
        }
        let pending = page.notices.pending(index);
        if page.copy == Copy::None {
            return self.need_base(cx, page, miss, &pending);
        }
        // A backup has diffs that it never asked for.
        let here = self.replicas.on && self.memory.diffs.has_all(&pending);
        if !here && let Some(from) = self.prefers_copy(cx, (index, page), miss, &pending) {
            return Need::CopyReply(from);
        }
        let missing: Vec<_> = pending
            .iter()
            .filter(|name| !self.memory.diffs.has(name))
            .copied()
            .collect();
        if missing.is_empty() {
            Need::Merge(pending)
        } else {
            Need::Diffs(missing)
        }
    }

    fn merge(&mut self, cx: &mut Cx<'_>, index: PageIndex, names: Vec<DiffName>) {
        let Some(page) = self.memory.pages.get(&index) else {
            return;
        };
        if page.copy == Copy::Frame {
            return self.serve_faults(cx, index);
        }
        self.finish(cx, index, Source::Stash, names);
        let segment = self.rules.segment;
        let page = index;
        cx.push(Effect::DropStash { segment, page });
    }

    /// The page is whole: fills its frame, and serves the accesses.
    pub(super) fn finish(
        &mut self,
        cx: &mut Cx<'_>,
        index: PageIndex,
        source: Source,
        names: Vec<DiffName>,
    ) {
        let segment = self.rules.segment;
        self.memory
            .compare(cx, &self.intervals.history, index, &names);
        let rules = self.memory.reductions.rules(index);
        let Some(page) = self.memory.pages.get_mut(&index) else {
            return;
        };
        let merged = names.iter().map(|name| (name.node, name.interval));
        page.notices.apply_all(merged);
        page.copy = Copy::Frame;
        page.blank = source == Source::Zero && names.is_empty();
        self.memory.pages.end_habit(index);
        let page = index;
        cx.push(if names.is_empty() {
            Effect::Fill {
                pages: (segment, page).into(),
                source,
            }
        } else {
            Effect::Diffs(DiffWork::Merge {
                segment,
                page,
                source,
                names,
                rules,
            })
        });
        self.serve_faults(cx, index);
    }

    fn serve_faults(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let timer = self.rules.timer(index);
        let Some(page) = self.memory.pages.get_mut(&index) else {
            return;
        };
        if let Some(miss) = page.miss.take() {
            cx.end(&miss.backoff, timer);
            self.memory.map(cx, index, &miss.faults);
            self.came_ahead(cx, index, &miss);
            let mut requests = self.requests(cx);
            for fetch in miss.readers {
                requests.fetch(fetch);
            }
        }
        self.collector.is_whole(cx, index);
    }

    /// A modification of the page is lost with a node.
    fn is_lost(&mut self, cx: &mut Cx<'_>, index: PageIndex, with: NodeId) {
        let (segment, timer) = (self.rules.segment, self.rules.timer(index));
        let Some(page) = self.memory.pages.get_mut(&index) else {
            return;
        };
        page.lost = Some(with);
        let miss = page.miss.take();
        self.prefetch.flights.forget(index);
        if let Some(miss) = miss {
            cx.end(&miss.backoff, timer);
            for (mapping, _) in miss.faults {
                cx.fail(mapping, (segment, index), Refusal::NodeGone(with));
            }
        }
        self.collector.is_whole(cx, index);
    }

    /// Repeats the requests for a page that is being made whole, if that is due.
    pub(super) fn miss_due(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let timer = self.rules.timer(index);
        let Some(miss) = self.memory.pages.miss(index) else {
            return;
        };
        let asked: Vec<NodeId> = miss.all_asked().collect();
        if !cx.fire_to(asked, &mut miss.backoff, timer) {
            return;
        }
        miss.asked.clear();
        let Some((from, request)) = miss.base.take() else {
            return self.go_on(cx, index);
        };
        // An answer that is still under way answers the repetition, too.
        let floor = self.copy_floor(index);
        self.request_copy(cx, (index, floor), (from, request));
    }

    /// Accesses that have waited longer than `patience` fail; the page is still made whole, for
    /// later accesses.
    pub(super) fn miss_forsaken(
        &mut self,
        cx: &mut Cx<'_>,
        index: PageIndex,
        patience: core::time::Duration,
    ) {
        let segment = self.rules.segment;
        let now = cx.now;
        let Some(miss) = self
            .memory
            .pages
            .miss(index)
            .filter(|miss| now - miss.since >= patience)
        else {
            return;
        };
        for (mapping, _) in core::mem::take(&mut miss.faults) {
            cx.fail(
                mapping,
                (segment, index),
                Refusal::NodeGone(cx.coordinator()),
            );
        }
    }

    /// A node is gone, which may have been asked: another node is asked.
    pub(super) fn helper_gone(&mut self, cx: &mut Cx<'_>, index: PageIndex, node: NodeId) {
        if let Some(miss) = self.memory.pages.miss(index) {
            miss.base = miss.base.filter(|(asked, _)| *asked != node);
            miss.asked.retain(|_, (asked, _)| *asked != node);
            self.go_on(cx, index);
        }
    }
}
