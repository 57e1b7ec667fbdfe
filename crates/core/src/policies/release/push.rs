//! Pushes: diffs that are sent before they are requested, to nodes that have credit
//! ([`super::push_credit`]), and what becomes of them where they arrive.
//!
//! Correctness does not depend on them: a diff that does not arrive is requested when its page is
//! touched. A diff that arrives before its write notice is kept until then, and is applied in
//! place, without a fault.

use super::diff_requests::LOOK_AROUND;
use super::history::History;
use super::memory::Memory;
use super::messages::{Body, DiffRequest, IntervalRecord, IntervalReply, News};
use super::page::{Copy, Page};
use super::push_credit::PushCredit;
use super::say;
use super::serve::SupplyContext;
use crate::effect::{DiffWork, Effect};
use crate::limits::{ATTACHED, ATTACHED_BYTES, EARLY, PUSHED};
use crate::shell::Cx;
use pagemesh_wire::peer::{DiffName, Spread};
use pagemesh_wire::{NodeId, PageIndex, RequestId};

/// Diffs of one page pushed to a node at once, where credit is bounded: one that an earlier push
/// did not send (at a lock that another node took), and the new one.
const AT_ONCE: usize = 2;

impl SupplyContext<'_, '_> {
    /// A node is about to get news because it acquires. With `hybrid`, small diffs are sent ahead
    /// of the news (TB4).
    pub(super) fn attach(&mut self, to: NodeId, news: &News) {
        if self.rules.spread != Spread::Hybrid || to == self.cx.me() {
            return;
        }
        let named = news.records.iter().flat_map(IntervalRecord::diffs);
        let named: Vec<_> = named
            .filter(|name| self.push.is_subscribed(to, name.page))
            .take(ATTACHED)
            .collect();
        self.push_diffs(to, named, ATTACHED_BYTES);
    }

    /// An interval has ended that names these pages, because this node releases to one node, or at
    /// a barrier to all. With `eager`, all subscribers get the diffs now (T20); with `lazy`, those
    /// released to.
    pub(super) fn push(&mut self, to: Option<NodeId>, named: &[(PageIndex, u64)]) {
        match (self.rules.spread, to) {
            (Spread::Hybrid | Spread::Invalidate, _) => {}
            (Spread::Eager, _) => self.push_eagerly(named),
            (Spread::Lazy, Some(to)) => {
                let pages = named.iter().map(|(page, _)| *page);
                let due = pages.filter(|page| self.push.is_subscribed(to, *page));
                let due = due.collect();
                self.push_on_credit(to, due);
            }
            (Spread::Lazy, None) => {
                for (to, pages) in self.push.take_due() {
                    self.push_on_credit(to, pages);
                }
            }
        }
    }

    fn push_eagerly(&mut self, named: &[(PageIndex, u64)]) {
        let me = self.cx.me();
        for to in self.cx.shell.peers().iter() {
            let name = |(page, interval): &(PageIndex, u64)| DiffName {
                page: *page,
                node: me,
                interval: *interval,
            };
            let names: Vec<_> = named
                .iter()
                .filter(|(page, _)| self.push.is_subscribed(to, *page))
                .map(name)
                .take(PUSHED)
                .collect();
            if names.is_empty() {
                continue;
            }
            self.push_diffs(to, names, u16::MAX);
            let told = IntervalReply {
                request: RequestId::NONE,
                news: self.intervals.news_for(self.cx, to, self.replicas),
            };
            say(self.cx, self.rules.segment, to, &Body::IntervalReply(told));
        }
    }

    fn push_on_credit(&mut self, to: NodeId, pages: Vec<PageIndex>) {
        if !self.cx.is_alive(to) {
            return;
        }
        let me = self.cx.me();
        let mut names = Vec::new();
        for index in pages {
            let Some(page) = self.memory.pages.get(&index) else {
                continue;
            };
            let news = page.notices.since((me, self.push.seen(to, index)), index);
            if news.len() > AT_ONCE {
                continue;
            }
            if names.len() + news.len() > PUSHED {
                self.push.put_off(index);
                continue;
            }
            let Some(last) = news.last().map(|name| name.interval) else {
                continue;
            };
            self.push.pushed(to, index, last);
            // Other nodes write this page, too, and their changes are about to arrive. Unless they
            // arrive in time, the page is put out of sight then, and keeping it writable would only
            // name it once more.
            if page.staying.is_put_out_of_sight() && page.notices.any_but(me) {
                self.memory.make_diff(self.cx, index, true);
            }
            names.extend(news);
        }
        if !names.is_empty() {
            self.push_diffs(to, names, u16::MAX);
        }
    }

    /// Pushes those of the diffs that are here or can be made here.
    fn push_diffs(&mut self, to: NodeId, mut names: Vec<DiffName>, at_most: u16) {
        if self.replicas.backup() == Some(to) {
            return; // it gets all diffs in any case
        }
        names.retain(|name| {
            self.memory.make_named(self.cx, name);
            self.memory.diffs.has(name)
        });
        for names in names.chunks(DiffRequest::LIMIT) {
            self.memory
                .send_diffs(self.cx, to, RequestId::NONE, names.to_vec(), at_most);
        }
    }

    /// Tells the nodes that pushed diffs which of them are used.
    pub(super) fn show_use(&mut self) {
        for (node, pages) in self.push.show() {
            if !self.cx.is_alive(node) {
                continue;
            }
            let name = |page: &PageIndex| {
                let notices = &self.memory.pages.get(page)?.notices;
                Some(DiffName {
                    page: *page,
                    node,
                    interval: notices.applied().get(node),
                })
            };
            let names: Vec<_> = pages.iter().filter_map(name).collect();
            for diffs in names.chunks(DiffRequest::LIMIT) {
                let want = DiffRequest {
                    request: RequestId::NONE,
                    diffs: diffs.to_vec(),
                };
                say(self.cx, self.rules.segment, node, &Body::DiffRequest(want));
            }
        }
    }
}

/// At the node that gets diffs.
impl Memory {
    /// Whether a pushed diff is kept although its write notice has not arrived.
    pub(super) fn welcomes(&self, name: &DiffName, history: &History) -> bool {
        let page = self.pages.get(&name.page);
        page.is_some_and(|page| page.copy != Copy::None)
            && !history.time().has(name.node, name.interval)
            && self.diffs.early() < EARLY
    }

    /// A page was written elsewhere. Applies the diff in place if it arrived before its write
    /// notice and threads may go on using the page. Returns true if nothing else is missing.
    pub(super) fn update(
        &mut self,
        cx: &mut Cx<'_>,
        (history, push): (&History, &PushCredit),
        name: DiffName,
    ) -> bool {
        let index = name.page;
        if !self.diffs.take_early(&name) || push.is_running_out(index) {
            return false;
        }
        // The diff of what this node has named is made first, so that it has only this node's
        // changes. Later stores belong to the next interval.
        self.make_diff(cx, index, true);
        self.compare(cx, history, index, &[name]);
        let rules = self.reductions.rules(index);
        let Some(page) = self.pages.get_mut(&index) else {
            return false;
        };
        page.notices.apply(name.node, name.interval);
        page.staying.in_place = true;
        page.blank = false;
        cx.push(Effect::Diffs(DiffWork::Update {
            segment: self.segment,
            page: index,
            names: vec![name],
            rules,
        }));
        true
    }

    /// The page is used here. If all that it lacks was pushed, its writers would not learn of the
    /// use: notes it for them. Returns whether that is so.
    pub(super) fn note_own_use(&self, push: &mut PushCredit, index: PageIndex) -> bool {
        let page = self.pages.get(&index);
        let waits = page.is_some_and(|page| self.waits_to_show(push, index, page));
        if waits {
            push.uses(index);
        }
        waits
    }

    /// Whether a page is out of sight only so that its use causes a fault.
    fn waits_to_show(&self, push: &PushCredit, index: PageIndex, page: &Page) -> bool {
        page.copy == Copy::Stash
            && push.is_running_out(index)
            && self.diffs.has_all(&page.notices.pending(index))
    }

    /// Pages that were in use until they were put out of sight together with this one count as used, too,
    /// because each would cost a fault of its own.
    pub(super) fn also_used(&self, push: &PushCredit, index: PageIndex) -> Vec<PageIndex> {
        let around = self.pages.habits(index, LOOK_AROUND);
        let shows = |(other, page): &(PageIndex, &Page)| self.waits_to_show(push, *other, page);
        around.filter(shows).map(|(other, _)| other).collect()
    }
}
