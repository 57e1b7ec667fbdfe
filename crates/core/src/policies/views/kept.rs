//! The pages that a node keeps for their holders, as the backup (see [`replicas`](super::replicas)).

use super::context::PageContext;
use super::messages::{Body, Refresh, Run, Want, Wish};
use super::page::{Page, Valid};
use super::page_here::PageHere;
use super::replicas::{FLIGHT, Replicas};
use super::{HOPS, Views, say};
use crate::event::Event;
use crate::limits::LEAVE_BURST;
use crate::shell::Cx;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::{NodeId, PAGE_SIZE, PageIndex, SegmentId};

impl PageContext<'_, '_> {
    /// A holder does not count on the copy here any more.
    pub(super) fn released(&mut self, from: NodeId, version: u64, holder: NodeId) {
        if version >= 1 << 62 {
            return self.cx.emit(Event::Malformed {});
        }
        self.learn_holder(version, holder);
        // A later promise to the same holder is not ended by an old message.
        let leaves = self.views.replicas.leaving.is_some();
        let page = self.page();
        let over = version > page.kept_at || leaves;
        if page.keeps == Some(from) && over && !page.holds {
            self.here().unkeep();
            self.has_holder();
        }
    }

    /// The consistent copy has arrived where this node has sent it, or went on from there. Without a
    /// replica, nobody counts on the copy here any more.
    pub(super) fn given(&mut self) {
        let replicas = self.views.replicas.on;
        let page = self.page();
        if !replicas && page.keeps.is_some() && page.passing.is_none() {
            self.here().unkeep();
            self.has_holder();
        }
    }

    /// The holder that counted on the copy here has left.
    fn holder_left(&mut self) {
        self.here().unkeep();
        self.has_holder();
    }

    /// A page that was kept for a node that is gone has another holder.
    fn has_holder(&mut self) {
        if self.views.replicas.orphans.adopted(self.at.1) {
            self.page().orphaned = false;
            self.ask();
            self.views.pump_replicas(self.cx);
        }
    }
}

impl PageHere<'_, '_> {
    /// The copy here is one like any other from now on; what is veiled is dropped.
    fn unkeep(&mut self) {
        let veiled = self.page.veiled;
        self.page.unveil();
        self.page.valid = veiled.unwrap_or(self.page.valid);
        if veiled == Some(Valid::Nothing) {
            self.evict(false);
        }
    }
}

impl Page {
    /// A refresh has come. A node that `backs` its sender, as it answers for pages that never moved,
    /// keeps them once they move, too.
    pub(super) fn keep_refreshed(&mut self, from: NodeId, backs: bool, refresh: &Refresh) {
        let (holds, version) = (refresh.holder == from, refresh.stamp.version);
        if self.keeps == Some(from) && holds {
            self.kept_at = self.kept_at.max(version);
        } else if self.keeps.is_none() && backs {
            self.keeps = Some(from);
            self.kept_at = version.saturating_sub(u64::from(!holds));
        }
    }
}

impl Replicas {
    /// Whether this node is to keep all pages of that one.
    pub(super) fn backs(&self, node: NodeId) -> bool {
        self.zeros.of == Some(node) && self.leaving.is_none()
    }

    /// The node that answers for pages that never moved counts on this one.
    pub(super) fn keep_zeros(&mut self, cx: &mut Cx<'_>, segment: SegmentId, from: NodeId) {
        if !self.on || segment.home() == cx.me() {
            return cx.emit(Event::Malformed {});
        }
        if self.leaving.is_some() {
            let (pages, zeros) = (Vec::new(), true);
            return say(cx, segment, from, &Body::Leaving { pages, zeros });
        }
        (self.zeros.of, self.zeros.inherited) = (Some(from), false);
        say(cx, segment, from, &Body::ZerosKept);
    }

    /// Another node answers for zeros.
    pub(super) fn zeros_released(&mut self, cx: &mut Cx<'_>, from: NodeId) {
        if self.zeros.of.take_if(|of| *of == from).is_none() {
            cx.emit(Event::Stale {});
        }
    }
}

impl Views {
    /// A holder counts on copies here.
    pub(super) fn keep(&mut self, cx: &mut Cx<'_>, from: NodeId, run: Run) {
        if !self.replicas.on || !run.fits(self.size) {
            return cx.emit(Event::Malformed {});
        }
        if self.replicas.leaving.is_some() {
            let pages = run.pages().take(FLIGHT).collect();
            let zeros = false;
            return self.say(cx, from, &Body::Leaving { pages, zeros });
        }
        let moved = self.page(cx, run.first).version > run.stamp.version;
        if moved || run.pages().any(|page| self.page(cx, page).holds) {
            return cx.emit(Event::Stale {});
        }
        self.at(cx, run.first).learn_holder(run.stamp.version, from);
        let number = run.stamp.number;
        let (mut older, mut partial) = (Vec::new(), Vec::new());
        for index in run.pages() {
            let page = self.page(cx, index);
            page.keeps = Some(from);
            page.kept_at = page.version;
            self.at(cx, index).has_holder();
            let page = self.page(cx, index);
            if page.stamp.number < number {
                older.push(index);
            } else if page.copy().is_none_or(|copy| !copy.whole) {
                partial.push(index);
            }
        }
        if older.is_empty() && partial.is_empty() {
            return self.say(cx, from, &Body::Kept { run });
        }
        if !older.is_empty() {
            return self.newest(cx, from, (run, PAGE_SIZE as u16));
        }
        for page in partial.into_iter().take(FLIGHT) {
            let want = Want {
                page,
                count: 1,
                wish: Wish::Whole,
                asker: cx.me(),
                request: cx.next_request(),
                hops: HOPS,
                tries: 0,
            };
            self.say(cx, from, &Body::Want(want));
        }
    }

    /// This node leaves: those that count on it must find another backup first. Returns how much is
    /// left.
    pub(super) fn give_back(&mut self, cx: &mut Cx<'_>) -> usize {
        let mut left = self.replicas.orphans.len();
        if !self.replicas.on {
            return left;
        }
        let mut holders: SortedMap<NodeId, Vec<PageIndex>> = SortedMap::new();
        for (index, page) in &self.pages {
            if let Some(holder) = page.keeps.filter(|_| !page.holds)
                && cx.is_alive(holder)
            {
                left += 1;
                holders.entry(holder).or_default().push(*index);
            }
        }
        let zeros = self.replicas.zeros.of.filter(|of| cx.is_alive(*of));
        if let Some(of) = zeros {
            left += 1;
            holders.entry(of).or_default();
        }
        let timer = self.timer();
        let due = match self.replicas.leaving.take() {
            None => {
                self.replicas.leaving = Some(cx.backoff(timer));
                true
            }
            Some(mut backoff) => {
                let due = left > 0 && cx.fire(&mut backoff, timer);
                self.replicas.leaving = Some(backoff);
                due
            }
        };
        for (holder, pages) in holders.into_iter().filter(|_| due) {
            let zeros = zeros == Some(holder);
            let mut parts = pages.chunks(FLIGHT).take(LEAVE_BURST);
            let first = parts.next().unwrap_or_default();
            for pages in core::iter::once(first).chain(parts) {
                let pages = pages.to_vec();
                self.say(cx, holder, &Body::Leaving { pages, zeros });
            }
        }
        left
    }

    /// A node has left. What it held has another holder, and a backup there; only its word that it counts
    /// on nothing here any more may be lost. What this node has given to it, and has not arrived, it keeps.
    pub(super) fn holder_left(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        let over = |page: &Page| page.keeps == Some(node) && !page.holds && page.passing.is_none();
        let pages = self.pages.iter().filter(|(_, page)| over(page));
        for index in pages.map(|(index, _)| *index).collect::<Vec<_>>() {
            self.at(cx, index).holder_left();
        }
    }

    /// Sees to it that pages whose holder is gone get this node as the next, some at a time.
    pub(super) fn ask_for_orphans(&mut self, cx: &mut Cx<'_>) {
        let mut asked = 0;
        while let Some(index) = self.replicas.orphans.next(cx, &mut self.pages, &mut asked) {
            self.at(cx, index).ask();
        }
    }
}
