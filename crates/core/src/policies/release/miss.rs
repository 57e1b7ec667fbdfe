//! Making a page whole: a copy to start from, and the diffs it lacks (T15).

use super::memory::fail;
use super::page::{Copy, Miss, Page};
use super::{Greeting, Release};
use crate::effect::{DiffWork, Effect, Source};
use crate::event::Event;
use crate::shell::Cx;
use pagemesh_wire::peer::{Absent, Base, Contents, DiffName, Diffs, Fetch, Message, Spread, Want};
use pagemesh_wire::{NodeId, NodeSet, PageIndex, RequestId, VectorTime};
use std::collections::{BTreeMap, BTreeSet};

/// Whether this node has not heard yet that there is such a member.
fn is_out_of_reach(cx: &Cx<'_>, node: NodeId) -> bool {
    !cx.is_alive(node) && !cx.is_gone(node)
}

/// More diffs than this are more than a copy that has them.
const DIFFS_WORTH: usize = 6;

/// So many pages behind one that is needed are considered, too.
const LOOK_AROUND: usize = 64;

/// What a page needs next.
enum Need {
    /// Nothing of it was ever collected: it starts from zeros.
    Zeros,
    /// A copy of somebody, asked for here.
    Base(NodeId),
    /// Who was asked has not answered yet.
    Patience,
    /// These diffs.
    Diffs(Vec<DiffName>),
    /// Nothing: these are to be merged.
    Merge(Vec<DiffName>),
    /// Nobody has what it needs.
    Lost(NodeId),
}

impl Release {
    /// Does what can be done for a page that is being made whole.
    pub(super) fn go_on(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let Some(page) = self.pages.get(&index) else {
            return;
        };
        let Some(miss) = &page.miss else { return };
        match self.need(cx, index, page, miss) {
            Need::Zeros => self.start_from_zeros(cx, index),
            Need::Base(from) => self.ask_base(cx, index, from),
            Need::Patience => {}
            Need::Diffs(names) => {
                if let Some(lost) = self.ask_diffs(cx, index, &names) {
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
        if miss.base.is_some() || self.greeted != Greeting::Done {
            return Need::Patience;
        }
        let pending = page.pending(index, &self.history);
        if page.copy == Copy::None {
            return self.need_base(cx, page, miss, &pending);
        }
        if let Some(from) = self.prefers_copy(cx, page, miss, &pending) {
            return Need::Base(from);
        }
        let missing: Vec<_> = pending
            .iter()
            .filter(|name| !self.held.contains(name))
            .copied()
            .collect();
        if missing.is_empty() {
            Need::Merge(pending)
        } else {
            Need::Diffs(missing)
        }
    }

    /// Where a page without any copy here starts: at its last writer, who has what
    /// came before; else at its keeper; else, it being untouched, at zeros.
    fn need_base(&self, cx: &Cx<'_>, page: &Page, miss: &Miss, pending: &[DiffName]) -> Need {
        let me = cx.me();
        let may = |node: NodeId| node != me && cx.is_alive(node) && !miss.baseless.contains(node);
        let last = pending.last().map(|name| name.node);
        if let Some(last) = last.filter(|last| may(*last)) {
            return Need::Base(last);
        }
        if self.history.floor.is_empty() && miss.floor.is_empty() {
            return Need::Zeros;
        }
        let home = cx.home(self.segment);
        if let Some(keeper) = page.keeper.filter(|keeper| may(*keeper)) {
            return Need::Base(keeper);
        }
        if page.keeper.is_none() && home == me {
            return Need::Zeros;
        }
        if may(home) {
            return Need::Base(home);
        }
        match cx.shell.peers().iter().find(|node| may(*node)) {
            Some(anybody) => Need::Base(anybody),
            None if page
                .keeper
                .is_some_and(|keeper| is_out_of_reach(cx, keeper)) =>
            {
                Need::Patience
            }
            None => Need::Lost(page.keeper.unwrap_or(home)),
        }
    }

    /// Many diffs are more than one copy that has them: the last writer's.
    fn prefers_copy(
        &self,
        cx: &Cx<'_>,
        page: &Page,
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
        let fits = pending.len() > DIFFS_WORTH
            && miss.asked.is_empty()
            && page.keeper != Some(cx.me())
            && cx.is_alive(last.node)
            && last.node != cx.me()
            && !miss.baseless.contains(last.node)
            && rest.iter().all(after);
        fits.then_some(last.node)
    }

    fn start_from_zeros(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let (segment, source) = (self.segment, Source::Zero);
        let Some(page) = self.pages.get_mut(&index) else {
            return;
        };
        page.applied = VectorTime::ZERO;
        let pending = page.pending(index, &self.history);
        if pending.iter().all(|name| self.held.contains(name)) {
            return self.finish(cx, index, source, pending);
        }
        // The stash is where copies wait for what they lack.
        let page = index;
        cx.push(Effect::Fill {
            segment,
            page,
            source,
        });
        self.keep_as_base(cx, index, VectorTime::ZERO);
    }

    /// The frame has contents that nobody may see yet.
    fn keep_as_base(&mut self, cx: &mut Cx<'_>, index: PageIndex, applied: VectorTime) {
        cx.push(Effect::Evict {
            segment: self.segment,
            page: index,
            keep: true,
        });
        if let Some(page) = self.pages.get_mut(&index) {
            page.copy = Copy::Stash;
            page.applied = applied;
        }
        self.go_on(cx, index);
    }

    fn ask_base(&mut self, cx: &mut Cx<'_>, index: PageIndex, from: NodeId) {
        let request = cx.next_request();
        let mut floor = self.history.floor.clone();
        if let Some(miss) = self.miss(index) {
            floor.join(&miss.floor);
        }
        let fetch = Fetch {
            segment: self.segment,
            page: index,
            reader: cx.me(),
            request,
            floor,
            hops: 0,
        };
        if let Some(miss) = self.miss(index) {
            miss.base = Some((from, request));
        }
        cx.send(from, Message::Fetch(fetch));
    }

    pub(super) fn miss(&mut self, index: PageIndex) -> Option<&mut Miss> {
        self.pages.get_mut(&index)?.miss.as_deref_mut()
    }

    /// A copy to start from has come, or there is none where we asked.
    pub(super) fn base(&mut self, cx: &mut Cx<'_>, from: NodeId, base: &Base) {
        let (segment, index) = (self.segment, base.page);
        let floor = self.history.floor.clone();
        let Some(miss) = self.miss(index) else {
            return cx.emit(Event::Stale {});
        };
        let Some((asked, _)) = miss.base.filter(|(_, request)| *request == base.request) else {
            return cx.emit(Event::Stale {});
        };
        miss.base = None;
        if self.has_what_is_unknown(cx, &base.applied) {
            // Perhaps the other one knows; if not, it will have no such copy when it has
            // heard who is gone. Either way it is asked again.
            return self.inquire(cx, from);
        }
        let Some(miss) = self.miss(index) else { return };
        if matches!(base.contents, Contents::None | Contents::Same) {
            miss.baseless.insert(from);
            miss.baseless.insert(asked);
            return self.go_on(cx, index);
        }
        // A copy that was here goes: what the new one lacks is pending again.
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
        page.applied = applied.clone();
        let pending = page.pending(index, &self.history);
        if pending.iter().all(|name| self.held.contains(name)) {
            return self.finish(cx, index, source, pending);
        }
        cx.push(Effect::Fill {
            segment,
            page: index,
            source,
        });
        self.keep_as_base(cx, index, applied);
    }

    /// Asks for diffs, each of the fewest nodes together. Returns who took one
    /// with it that nobody has.
    fn ask_diffs(
        &mut self,
        cx: &mut Cx<'_>,
        index: PageIndex,
        missing: &[DiffName],
    ) -> Option<NodeId> {
        let mut asks: BTreeMap<NodeId, BTreeSet<DiffName>> = BTreeMap::new();
        let page = self.pages.get(&index)?;
        let miss = page.miss.as_deref()?;
        for name in missing.iter().filter(|name| !miss.awaits(name)) {
            match self.helper(cx, miss, *name, missing) {
                Some(node) => {
                    let names = asks.entry(node).or_default();
                    if names.len() < Want::LIMIT {
                        names.insert(*name);
                    }
                }
                None if is_out_of_reach(cx, name.node) => {}
                None => return Some(name.node),
            }
        }
        if let Some(page) = self.pages.get_mut(&index).filter(|_| !asks.is_empty()) {
            page.unasked.is_shown();
        }
        for (node, names) in asks {
            let request = cx.next_request();
            let mut diffs: Vec<_> = names.iter().copied().collect();
            diffs.extend(self.companions(index, node, Want::LIMIT - names.len()));
            let want = Want {
                segment: self.segment,
                request,
                diffs,
            };
            if let Some(miss) = self.miss(index) {
                miss.asked.insert(request, (node, names));
            }
            cx.send(node, Message::Want(want));
        }
        None
    }

    /// Diffs of pages behind this one that the same node wrote, and that will be asked for
    /// soon if the program goes on as before: each page was used until it was put out of
    /// sight. They come with what is waited for and rest until they are needed. Nobody
    /// waits for them, and until the page is used again none are asked for ahead.
    fn companions(&mut self, index: PageIndex, node: NodeId, most: usize) -> Vec<DiffName> {
        let mut found = Vec::new();
        let mut asked = Vec::new();
        for other in self.habits.range(index..).take(LOOK_AROUND).copied() {
            let Some(page) = self.pages.get(&other) else {
                continue;
            };
            let idle = page.copy == Copy::Stash && page.miss.is_none() && page.lost.is_none();
            if other == index || !idle {
                continue;
            }
            let mut lacking = page.pending(other, &self.history);
            lacking.retain(|name| !self.held.contains(name));
            let theirs = lacking.iter().all(|name| name.node == node);
            if theirs && !lacking.is_empty() && found.len() + lacking.len() <= most {
                found.extend(lacking);
                asked.push(other);
            }
        }
        for page in asked {
            self.habits.remove(&page);
        }
        found
    }

    /// Who is asked for a diff: the last who wrote the page after it, and so had it;
    /// else its writer; else, that one being gone, anybody.
    fn helper(
        &self,
        cx: &Cx<'_>,
        miss: &Miss,
        name: DiffName,
        missing: &[DiffName],
    ) -> Option<NodeId> {
        let none = NodeSet::EMPTY;
        let absent = miss.absent.get(&name).unwrap_or(&none);
        let may = |node: NodeId| node != cx.me() && cx.is_alive(node) && !absent.contains(node);
        let early = (name.node, name.interval);
        let later = missing.iter().rev().find(|other| {
            let late = (other.node, other.interval);
            other.node != name.node && may(other.node) && self.history.is_after(late, early)
        });
        if let Some(later) = later {
            return Some(later.node);
        }
        if may(name.node) {
            return Some(name.node);
        }
        cx.shell.peers().iter().find(|node| may(*node))
    }

    /// Diffs have come.
    pub(super) fn diffs(&mut self, cx: &mut Cx<'_>, diffs: &Diffs) {
        let segment = self.segment;
        let unasked = diffs.request == RequestId(0);
        let mut names = Vec::new();
        let mut pages = BTreeSet::new();
        let mut pushed = BTreeSet::new();
        for (name, _) in &diffs.diffs {
            let Some(page) = self.pages.get_mut(&name.page) else {
                continue;
            };
            if page.miss.is_none() {
                pushed.insert(name.page);
            }
            if let Some(miss) = &mut page.miss {
                for (_, asked) in miss.asked.values_mut() {
                    asked.remove(name);
                }
                miss.asked.retain(|_, (_, names)| !names.is_empty());
                pages.insert(name.page);
            }
            // With `lazy`, who made it sent it.
            if unasked && self.spread == Spread::Lazy && name.node != cx.me() {
                page.unasked.came(name.node);
            }
            let known = page.notices.contains(&(name.node, name.interval));
            let wanted = known && !page.applied.has(name.node, name.interval);
            let early = unasked && self.is_welcome(name);
            if (wanted || early) && self.held.insert(*name) {
                names.push(*name);
                if early {
                    self.early.insert(*name);
                }
            }
        }
        if !names.is_empty() {
            cx.push(Effect::Diffs(DiffWork::Keep { segment, names }));
        }
        for page in pages {
            self.go_on(cx, page);
        }
        for page in pushed {
            self.merge_pushed(cx, page);
        }
    }

    /// Who was asked does not have these.
    pub(super) fn absent(&mut self, cx: &mut Cx<'_>, from: NodeId, absent: &Absent) {
        let mut pages = BTreeSet::new();
        for name in &absent.diffs {
            let Some(miss) = self.miss(name.page) else {
                continue;
            };
            let Some((asked, names)) = miss.asked.get_mut(&absent.request) else {
                continue;
            };
            if *asked != from || !names.remove(name) {
                continue;
            }
            if names.is_empty() {
                miss.asked.remove(&absent.request);
            }
            miss.absent.entry(*name).or_default().insert(from);
            pages.insert(name.page);
            if absent.floor.has(name.node, name.interval) {
                // It is collected there, so whoever keeps the page has it.
                miss.floor.join(&absent.floor);
                self.drop_copy(cx, name.page);
            }
        }
        for page in pages {
            self.go_on(cx, page);
        }
    }

    /// What this node has of a page is of no use: it starts anew from a copy.
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
            page.applied = VectorTime::ZERO;
        }
    }

    fn merge(&mut self, cx: &mut Cx<'_>, index: PageIndex, names: Vec<DiffName>) {
        let Some(page) = self.pages.get(&index) else {
            return;
        };
        if page.copy == Copy::Frame {
            return self.serve_faults(cx, index);
        }
        self.finish(cx, index, Source::Stash, names);
        let segment = self.segment;
        let page = index;
        cx.push(Effect::DropStash { segment, page });
    }

    /// The page is whole: into the frame with it, and accesses may happen.
    fn finish(&mut self, cx: &mut Cx<'_>, index: PageIndex, source: Source, names: Vec<DiffName>) {
        let segment = self.segment;
        self.compare(cx, index, &names);
        let rules = self.rules(index);
        let Some(page) = self.pages.get_mut(&index) else {
            return;
        };
        for name in &names {
            page.applied.raise(name.node, name.interval);
        }
        page.copy = Copy::Frame;
        self.habits.remove(&index);
        let page = index;
        cx.push(if names.is_empty() {
            Effect::Fill {
                segment,
                page,
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
        let timer = self.timer(index);
        let Some(page) = self.pages.get_mut(&index) else {
            return;
        };
        if let Some(miss) = page.miss.take() {
            cx.end(&miss.backoff, timer);
            self.map(cx, index, &miss.faults);
            self.came_ahead(cx, index, &miss);
        }
        self.is_whole(cx, index);
    }

    /// Some of it is gone for ever.
    fn is_lost(&mut self, cx: &mut Cx<'_>, index: PageIndex, with: NodeId) {
        let (segment, timer) = (self.segment, self.timer(index));
        let Some(page) = self.pages.get_mut(&index) else {
            return;
        };
        page.lost = Some(with);
        let miss = page.miss.take();
        self.prefetch.flights.forget(index);
        if let Some(miss) = miss {
            cx.end(&miss.backoff, timer);
            for (mapping, _) in miss.faults {
                fail(cx, mapping, (segment, index), with);
            }
        }
        self.is_whole(cx, index);
    }

    /// A page that is being made whole may have to ask again.
    pub(super) fn miss_due(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let timer = self.timer(index);
        let Some(miss) = self.miss(index) else { return };
        if cx.fire(&mut miss.backoff, timer) {
            miss.base = None;
            miss.asked.clear();
            self.go_on(cx, index);
        }
    }

    /// Accesses that have waited so long fail; the page is still made whole, for
    /// whoever comes later.
    pub(super) fn miss_forsaken(
        &mut self,
        cx: &mut Cx<'_>,
        index: PageIndex,
        patience: core::time::Duration,
    ) {
        let segment = self.segment;
        let now = cx.now;
        let Some(miss) = self.miss(index).filter(|miss| now - miss.since >= patience) else {
            return;
        };
        for (mapping, _) in core::mem::take(&mut miss.faults) {
            fail(cx, mapping, (segment, index), NodeId::COORDINATOR);
        }
    }

    /// A node is gone, which may have been asked.
    pub(super) fn helper_gone(&mut self, cx: &mut Cx<'_>, index: PageIndex, node: NodeId) {
        if let Some(miss) = self.miss(index) {
            miss.base = miss.base.filter(|(asked, _)| *asked != node);
            miss.asked.retain(|_, (asked, _)| *asked != node);
            self.go_on(cx, index);
        }
    }
}
