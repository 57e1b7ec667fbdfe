//! Diffs that a page lacks: which nodes are asked for them, and what arrives (T15).

use super::memory::Memory;
use super::messages::{Body, DiffMissing, DiffRequest};
use super::miss::{PageContext, is_out_of_reach};
use super::page::{Copy, Miss};
use super::requests::Requests;
use super::{Release, say};
use crate::effect::{DiffWork, Effect};
use crate::shell::Cx;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::{DiffName, Diffs};
use pagemesh_wire::{NodeId, NodeSet, PageIndex, RequestId};
use std::collections::BTreeSet;

/// Pages that are considered after one that is needed, at most.
pub(super) const LOOK_AROUND: usize = 64;

impl PageContext<'_, '_> {
    /// Requests diffs, together from as few nodes as possible. If no node has one of them, returns
    /// the node with which it was lost.
    pub(super) fn ask_diffs(
        &mut self,
        missing: &[DiffName],
        requests: &mut Requests,
    ) -> Option<NodeId> {
        let mut asks: SortedMap<NodeId, BTreeSet<DiffName>> = SortedMap::new();
        let page = self.memory.pages.get(&self.index)?;
        let miss = page.miss.as_deref()?;
        for name in missing.iter().filter(|name| !miss.awaits(name)) {
            match self.helper(miss, *name, missing) {
                Some(node) => {
                    let names = asks.entry(node).or_default();
                    if names.len() < DiffRequest::LIMIT {
                        names.insert(*name);
                    }
                }
                None if is_out_of_reach(self.cx, name.node) => {}
                None => return Some(name.node),
            }
        }
        if !asks.is_empty() {
            let diffs = asks.values().map(BTreeSet::len).sum();
            self.push.requests(self.index, diffs);
        }
        for (node, names) in asks {
            let open = requests.number(node, names.len());
            let request = open.unwrap_or_else(|| self.cx.next_request());
            let mut diffs: Vec<_> = names.iter().copied().collect();
            if !requests.are_many() {
                diffs.extend(self.companions(node, DiffRequest::LIMIT - names.len()));
            }
            if let Some(miss) = self.miss() {
                miss.asked.insert(request, (node, names));
            }
            if let Some(want) = requests.diffs(node, request, diffs) {
                say(self.cx, self.rules.segment, node, &Body::DiffRequest(want));
            }
        }
        None
    }

    /// Diffs of later pages that the same node wrote, and that will be requested soon if the
    /// program goes on as before: each page was in use until it was put out of sight. They are
    /// requested together with the needed ones and kept until their pages are touched. No thread
    /// waits for them, and until such a page is used again no more of its diffs are requested in
    /// this way.
    fn companions(&mut self, node: NodeId, most: usize) -> Vec<DiffName> {
        let mut found = Vec::new();
        let mut asked = Vec::new();
        for (other, page) in self.memory.pages.habits(self.index, LOOK_AROUND) {
            if other == self.index || page.copy != Copy::Stash || !page.is_idle() {
                continue;
            }
            let mut lacking = page.notices.pending(other);
            lacking.retain(|name| !self.memory.diffs.has(name));
            let theirs = lacking.iter().all(|name| name.node == node);
            if theirs && !lacking.is_empty() && found.len() + lacking.len() <= most {
                asked.push((other, lacking.len()));
                found.extend(lacking);
            }
        }
        for (index, changes) in asked {
            self.memory.pages.end_habit(index);
            self.push.requests(index, changes);
        }
        found
    }

    /// The node that is asked for a diff: the last that wrote the page after it, and so had it;
    /// else its writer; else, if that node is gone, any member.
    fn helper(&self, miss: &Miss, name: DiffName, missing: &[DiffName]) -> Option<NodeId> {
        let none = NodeSet::EMPTY;
        let absent = miss.absent.get(&name).unwrap_or(&none);
        let may =
            |node: NodeId| node != self.cx.me() && self.cx.is_alive(node) && !absent.contains(node);
        let early = (name.node, name.interval);
        let later = missing.iter().rev().find(|other| {
            let late = (other.node, other.interval);
            other.node != name.node
                && may(other.node)
                && self.intervals.history.is_after(late, early)
        });
        if let Some(later) = later {
            return Some(later.node);
        }
        if may(name.node) {
            return Some(name.node);
        }
        self.cx.shell.peers().iter().find(|node| may(*node))
    }
}

impl Release {
    /// Diffs have arrived.
    pub(super) fn diffs(&mut self, cx: &mut Cx<'_>, from: NodeId, diffs: &Diffs) {
        let segment = self.rules.segment;
        let unasked = diffs.request == RequestId::NONE;
        let mut names = Vec::new();
        let mut pages = BTreeSet::new();
        let mut pushed = BTreeSet::new();
        for (name, length) in &diffs.diffs {
            self.sizes.came(cx.pace(), name.node, *length);
            let (size, floor) = (self.rules.size, self.intervals.history.floor());
            if self.replicas.is_of_ward(name, size, floor) && self.memory.diffs.keep(*name) {
                names.push(*name);
            }
            let Some(page) = self.memory.pages.get_mut(&name.page) else {
                continue;
            };
            if page.miss.is_none() {
                pushed.insert(name.page);
            }
            if let Some(miss) = &mut page.miss {
                if miss
                    .asked
                    .get(&diffs.request)
                    .is_some_and(|(node, _)| *node == from)
                {
                    cx.progressed(from, &miss.backoff);
                }
                for (_, asked) in miss.asked.values_mut() {
                    asked.remove(name);
                }
                miss.asked.retain(|_, (_, names)| !names.is_empty());
                pages.insert(name.page);
            }
            // With credit, the sender of a push is the writer.
            if unasked && name.node != cx.me() {
                self.push.came(name.page, name.node);
            }
            let wanted = page.notices.is_pending(name.node, name.interval);
            let early = unasked && self.memory.welcomes(name, &self.intervals.history);
            if (wanted || early) && self.memory.diffs.keep(*name) {
                names.push(*name);
                if early {
                    self.memory.diffs.keep_early(*name);
                }
            }
        }
        if !names.is_empty() {
            cx.push(Effect::Diffs(DiffWork::Keep { segment, names }));
        }
        self.go_on(cx, pages);
        for page in pushed {
            if self.at(cx, page).merges_at_once() {
                self.open_miss(cx, page, None);
            }
        }
        let came: Vec<_> = diffs.diffs.iter().map(|(name, _)| *name).collect();
        let wards = self.replicas.came(&came);
        self.advance_wards(cx, wards);
    }
}

impl Memory {
    /// The asked node does not have these diffs. Returns the pages that lack them.
    pub(super) fn absent(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        absent: &DiffMissing,
    ) -> BTreeSet<PageIndex> {
        let mut pages = BTreeSet::new();
        for name in &absent.diffs {
            let Some(miss) = self.pages.miss(name.page) else {
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
            cx.progressed(from, &miss.backoff);
            pages.insert(name.page);
            if absent.floor.has(name.node, name.interval) {
                // The diff is collected there, so the keeper of the page has it.
                miss.floor.join(&absent.floor);
                self.drop_copy(cx, name.page);
            }
        }
        pages
    }
}
