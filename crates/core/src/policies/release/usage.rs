//! Whether this node still uses a page whose diffs are pushed (`lazy`).
//!
//! Pushed diffs are applied in place, and threads see them without a fault; but the page's writer
//! sends only so many ([`super::regulars`]) to a node that does not show its use. To request the
//! next one would take until the writer's daemon gets its processor, on which its program runs: as
//! long as half a phase. So just before the credit is used up the page is put out of sight once,
//! though nothing is missing. The next access causes a fault that this node serves alone, and the
//! writer is told at the next barrier or lock.
//!
//! A node that writes the page shows its use by that, and needs no such fault.

use super::Release;
use super::diff_requests::LOOK_AROUND;
use super::messages::{Body, DiffRequest};
use super::page::Copy;
use super::regulars::{MOST, allowance};
use crate::prefetch::Ahead;
use crate::shell::Cx;
use pagemesh_wire::peer::{DiffName, Spread};
use pagemesh_wire::{MappingId, NodeId, NodeSet, PageIndex, RequestId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The fault is caused this many diffs before the credit is used up.
const BEFORE_THE_LAST: u8 = 2;

/// The pushed diffs of a page since this node last showed that it uses the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Unasked {
    /// Number of diffs.
    came: u8,
    /// The nodes that sent them.
    from: NodeSet,
    /// This node's request streak, as the page's writers count it.
    row: u8,
}

impl Unasked {
    /// Whether a writer may be about to send the last diff of its credit.
    fn is_running_out(self) -> bool {
        self.came > 0 && self.came + BEFORE_THE_LAST >= allowance(self.row.max(1))
    }

    /// The whole page was fetched.
    pub(super) fn is_fetched(&mut self) {
        self.row = self.row.max(1);
        self.is_shown();
    }

    /// This many diffs of the page were requested.
    pub(super) fn is_asked_for(&mut self, changes: usize) {
        self.row = if changes > 1 { 0 } else { self.row + 1 }.min(MOST);
        self.is_shown();
    }

    /// A pushed diff arrived.
    pub(super) fn came(&mut self, from: NodeId) {
        self.came = self.came.saturating_add(1).min(allowance(MOST));
        self.from.insert(from);
    }

    /// The writers learn in another way that the page is used.
    pub(super) fn is_shown(&mut self) {
        self.came = 0;
        self.from = NodeSet::EMPTY;
    }
}

impl Release {
    /// Whether a page is to be put out of sight, so that its next use causes a fault.
    pub(super) fn is_in_doubt(&self, index: PageIndex) -> bool {
        let page = self.pages.get(&index);
        self.spread == Spread::Lazy && page.is_some_and(|page| page.unasked.is_running_out())
    }

    /// A thread faulted. If all that the page lacks was pushed, its writers would not learn of the
    /// use: notes it for them. Returns whether that is so.
    pub(super) fn note_own_use(&mut self, index: PageIndex) -> bool {
        let waits = self.waits_to_show(index);
        if waits {
            self.used.insert(index);
        }
        waits
    }

    /// Whether a page is out of sight only so that its use causes a fault.
    fn waits_to_show(&self, index: PageIndex) -> bool {
        let Some(page) = self.pages.get(&index) else {
            return false;
        };
        let ready = page.copy == Copy::Stash && page.unasked.is_running_out();
        let pending = page.notices.pending(index);
        ready && pending.iter().all(|name| self.held.contains(name))
    }

    /// The page is known to be used without a fault, though it is out of sight to cause one: notes
    /// the use. This is valid once: the next time the use must show by a fault.
    pub(super) fn believe(&mut self, index: PageIndex) {
        let waits = self.note_own_use(index);
        if let Some(page) = self.pages.get_mut(&index).filter(|_| waits) {
            page.believed = true;
        }
    }

    /// Pages that were in use until they were put out of sight together with the page of this fault
    /// count as used, too, because each would cost a fault of its own.
    pub(super) fn show_companions(
        &mut self,
        cx: &mut Cx<'_>,
        index: PageIndex,
        mapping: MappingId,
    ) {
        let around = self.habits.range(index..).take(LOOK_AROUND).copied();
        let others: Vec<_> = around.filter(|other| self.waits_to_show(*other)).collect();
        let ahead = Ahead {
            mapping,
            mark: false,
        };
        for other in others {
            if self.open_ahead(cx, other, ahead) {
                self.go_on(cx, other);
            }
        }
    }

    /// Tells the nodes that pushed diffs which of them are used.
    pub(super) fn show_use(&mut self, cx: &mut Cx<'_>) {
        let mut by_node: BTreeMap<NodeId, Vec<DiffName>> = BTreeMap::new();
        for page in core::mem::take(&mut self.used) {
            let Some(state) = self.pages.get_mut(&page) else {
                continue;
            };
            for node in state.unasked.from.iter() {
                let interval = state.notices.applied().get(node);
                let name = DiffName {
                    page,
                    node,
                    interval,
                };
                by_node.entry(node).or_default().push(name);
            }
            state.unasked.row = (state.unasked.row + 1).min(MOST);
            state.unasked.is_shown();
        }
        by_node.retain(|node, _| cx.is_alive(*node));
        for (node, names) in by_node {
            for diffs in names.chunks(DiffRequest::LIMIT) {
                let want = DiffRequest {
                    request: RequestId::NONE,
                    diffs: diffs.to_vec(),
                };
                self.say(cx, node, &Body::DiffRequest(want));
            }
        }
    }
}
