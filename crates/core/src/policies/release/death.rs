//! What becomes of copies when a node is gone.
//!
//! *INV-dead-tell-nothing*: intervals of a gone node that no survivor knows are discarded by all
//! nodes. So a node that has told what it knows of that node (`BackupContext::inquired`)
//! takes nothing from it any more, and no copy has any of those intervals.

use super::Release;
use super::lead::Lead;
use super::page::Copy;
use crate::shell::Cx;
use pagemesh_wire::NodeId;

impl Release {
    /// A member is gone.
    pub(super) fn member_gone(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        self.intervals.heard.gone(node);
        self.push.gone(node);
        self.sizes.gone(node);
        let endangered = self.replicas.on && self.backup(cx).gone(node);
        if self.replicas.on {
            self.replicas.introduce_coordinator(cx, self.rules.segment);
            self.memory.mind_partners(cx);
            self.doubt(cx);
        } else {
            self.drop_what_nobody_told(cx);
        }
        let next = self.collection(cx).gone(node);
        self.lead(cx, next);
        // No home will say what is to be dropped, unless some node has dropped it already.
        if cx.was_home(node, self.rules.segment) && self.collector.leader_gone() {
            self.lead(cx, Lead::MindTheBound);
        }
        self.intervals
            .inquiries
            .gone(cx, self.intervals.history.time(), node);
        self.check_goals(cx);
        let waiting = self.memory.pages.which(|page| page.miss.is_some());
        for index in waiting {
            let outcome = self.at(cx, index).helper_gone(node);
            self.conclude(cx, index, outcome);
        }
        self.repair(cx, endangered);
        self.backup(cx).pump();
    }

    /// A copy may have come from a node that knew more than this node, and perhaps no survivor
    /// knows it: such copies are dropped and made whole anew. The diff of what was stored here
    /// since is made first.
    pub(super) fn drop_what_nobody_told(&mut self, cx: &mut Cx<'_>) {
        let doubtful = self.memory.pages.which(|page| {
            page.copy != Copy::None && self.intervals.lacks_of_gone(cx, page.notices.applied())
        });
        if doubtful.is_empty() {
            return;
        }
        self.end_interval(cx);
        for index in doubtful {
            if self
                .memory
                .pages
                .get(&index)
                .is_some_and(|page| page.copy == Copy::Frame)
            {
                self.memory.stow(cx, index, true);
            }
            self.memory.drop_copy(cx, index);
        }
    }
}
