//! What this node knows of the intervals of all nodes, what it has heard of the knowledge of others,
//! and what it asks them.

use super::heard::Heard;
use super::history::History;
use super::inquiries::Inquiries;
use super::messages::News;
use super::page::{Copy, Page};
use super::replicas::Replicas;
use crate::shell::Cx;
use pagemesh_wire::{NodeId, SegmentId, VectorTime};

/// The intervals of one segment, as one node knows them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Intervals {
    pub(super) history: History,
    pub(super) heard: Heard,
    pub(super) inquiries: Inquiries,
    /// This node took no part in a collection, or in one of what it knew: pages have keepers that it
    /// does not know of.
    pub(super) missed_round: bool,
}

impl Intervals {
    pub(super) fn new(segment: SegmentId) -> Self {
        Self {
            history: History::default(),
            heard: Heard::default(),
            inquiries: Inquiries::new(segment),
            missed_round: false,
        }
    }

    /// Asks a node for what it knows.
    pub(super) fn inquire(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        self.inquiries.inquire(cx, self.history.time(), node);
    }

    /// What a node lacks of what it may hear of.
    pub(super) fn news_for(&self, cx: &Cx<'_>, to: NodeId, replicas: &Replicas) -> News {
        self.news_after(cx, &self.heard.of(to), replicas)
    }

    /// What a node that knows `known` lacks of what it may hear of.
    pub(super) fn news_after(&self, cx: &Cx<'_>, known: &VectorTime, replicas: &Replicas) -> News {
        let told = replicas.tellable(&self.history, cx.me());
        self.history.since(known, &told)
    }

    /// Whether every page of which a change is collected has its keeper here: this node took part in
    /// all collections, or the home has handed over what it knew. A node that opened the segment
    /// later and leads in the place of a home that died must not take other pages for zeros.
    pub(super) fn has_keepers(&self, cx: &Cx<'_>, home: NodeId) -> bool {
        !self.missed_round || cx.has_left(home)
    }

    /// Whether a copy has modifications of a gone node that this node does not know of.
    pub(super) fn lacks_of_gone(&self, cx: &Cx<'_>, applied: &VectorTime) -> bool {
        let known = self.history.time();
        let mut all = applied.iter();
        all.any(|(node, index)| cx.is_gone(node) && index > known.get(node))
    }

    /// Whether the copy of a page has intervals of a gone node that this node does not know.
    pub(super) fn is_doubtful(&self, cx: &Cx<'_>, page: &Page) -> bool {
        page.copy != Copy::None && self.lacks_of_gone(cx, page.notices.applied())
    }
}
