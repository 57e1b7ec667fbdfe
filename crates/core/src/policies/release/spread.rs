//! Pushes: diffs that are sent before they are requested (`eager`, `hybrid`).
//!
//! Correctness does not depend on them: a diff that does not arrive is requested when its page is
//! touched. A diff that arrives before its write notice is kept until then, and is applied in
//! place, without a fault.

use super::Release;
use super::messages::{Body, DiffRequest, IntervalReply, News};
use super::page::Copy;
use crate::effect::{DiffWork, Effect};
use crate::limits::{ATTACHED, ATTACHED_BYTES, EARLY, PUSHED};
use crate::shell::Cx;
use pagemesh_wire::peer::{DiffName, Spread};
use pagemesh_wire::{NodeId, PageIndex, RequestId};

impl Release {
    /// A node is about to get news because it acquires. With `hybrid`, small diffs are sent ahead
    /// of the news (TB4).
    pub(super) fn attach(&mut self, cx: &mut Cx<'_>, to: NodeId, news: &News) {
        if self.spread != Spread::Hybrid || to == cx.me() {
            return;
        }
        let named = news.records.iter().flat_map(|record| {
            let name = |page| DiffName {
                page,
                node: record.node,
                interval: record.index,
            };
            record.each_page().map(name)
        });
        let named: Vec<_> = named
            .filter(|name| self.is_used_by(name.page, to))
            .take(ATTACHED)
            .collect();
        self.push_diffs(cx, to, named, ATTACHED_BYTES);
    }

    /// An interval has ended because of a release. With `eager`, the nodes that use a page written
    /// in it get the diffs now (T20).
    pub(super) fn push(&mut self, cx: &mut Cx<'_>, named: &[(PageIndex, u64)]) {
        if self.spread != Spread::Eager {
            return;
        }
        let me = cx.me();
        for to in cx.shell.peers().iter() {
            let name = |(page, interval): &(PageIndex, u64)| DiffName {
                page: *page,
                node: me,
                interval: *interval,
            };
            let names: Vec<_> = named
                .iter()
                .filter(|(page, _)| self.is_used_by(*page, to))
                .map(name)
                .take(PUSHED)
                .collect();
            if names.is_empty() {
                continue;
            }
            self.push_diffs(cx, to, names, u16::MAX);
            let known = self.heard.get(&to).cloned().unwrap_or_default();
            let told = IntervalReply {
                request: RequestId::NONE,
                news: self.history.since(&known),
            };
            self.say(cx, to, &Body::IntervalReply(told));
        }
    }

    /// Whether a node has used a page, as far as this node knows.
    fn is_used_by(&self, page: PageIndex, node: NodeId) -> bool {
        let page = self.pages.get(&page);
        page.is_some_and(|page| page.users.contains(node))
    }

    /// Pushes those of the diffs that are here or can be made here.
    pub(super) fn push_diffs(
        &mut self,
        cx: &mut Cx<'_>,
        to: NodeId,
        mut names: Vec<DiffName>,
        at_most: u16,
    ) {
        let me = cx.me();
        names.retain(|name| {
            let page = self.pages.get(&name.page);
            let made = page.is_some_and(|page| page.undiffed == Some(name.interval));
            if name.node == me && made {
                self.make_diff(cx, name.page, false);
            }
            self.held.contains(name)
        });
        for names in names.chunks(DiffRequest::LIMIT) {
            self.send_diffs(cx, to, RequestId::NONE, names.to_vec(), at_most);
        }
    }

    /// Whether a pushed diff is kept although its write notice has not arrived.
    pub(super) fn is_welcome(&self, name: &DiffName) -> bool {
        let page = self.pages.get(&name.page);
        page.is_some_and(|page| page.copy != Copy::None)
            && !self.history.time.has(name.node, name.interval)
            && self.early.len() < EARLY
    }

    /// Whether a diff of another node arrived before its write notice, and can be applied while
    /// threads use the page.
    pub(super) fn goes_in_place(&self, name: &DiffName) -> bool {
        self.early.contains(name) && !self.is_in_doubt(name.page)
    }

    /// A page was written elsewhere. Applies the diff in place if it is here already. Returns true
    /// if nothing else is missing.
    pub(super) fn update(&mut self, cx: &mut Cx<'_>, index: PageIndex, by: (NodeId, u64)) -> bool {
        let name = DiffName {
            page: index,
            node: by.0,
            interval: by.1,
        };
        if !self.goes_in_place(&name) {
            self.early.remove(&name);
            return false;
        }
        self.early.remove(&name);
        // The diff of what this node has named is made first, so that it has only this node's
        // changes. Later stores belong to the next interval.
        self.make_diff(cx, index, true);
        self.compare(cx, index, &[name]);
        let rules = self.rules(index);
        let Some(page) = self.pages.get_mut(&index) else {
            return false;
        };
        page.notices.apply(by.0, by.1);
        page.staying.in_place = true;
        cx.push(Effect::Diffs(DiffWork::Update {
            segment: self.segment,
            page: index,
            names: vec![name],
            rules,
        }));
        true
    }

    /// Diffs were pushed. With `eager` they are merged at once if nothing else is missing.
    pub(super) fn merge_pushed(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let Some(page) = self.pages.get(&index) else {
            return;
        };
        let idle = page.copy == Copy::Stash && page.miss.is_none() && page.lost.is_none();
        let pending = page.notices.pending(index);
        if self.spread == Spread::Eager
            && idle
            && pending.iter().all(|name| self.held.contains(name))
        {
            self.open_miss(cx, index, None);
        }
    }
}
