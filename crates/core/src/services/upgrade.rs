//! Which program each member is, so that a cluster speaks the newest version of the protocol that
//! all members speak, and no newer one (decision 47).

use super::Services;
use crate::event::Event;
use crate::membership::{Standing, Upgrade, knows_programs};
use crate::shell::Cx;
use pagemesh_wire::peer::{Member, MemberView, Message};
use pagemesh_wire::{NodeId, Program, Versions};

impl Services {
    /// This node goes on as this program, if it is one of these sources.
    pub(super) fn runs(&mut self, cx: &mut Cx<'_>, program: Program) {
        if program.speaks.common(Versions::SPOKEN) == Some(program.speaks) {
            self.membership.upgrade.runs(cx, program);
            self.tell_program(cx, Upgrade::tells);
        }
    }

    /// Tells the coordinator which program this node is, if it has to be told now.
    pub(super) fn tell_program(
        &mut self,
        cx: &mut Cx<'_>,
        tells: fn(&mut Upgrade, &Cx<'_>) -> Option<Program>,
    ) {
        if self.membership.standing != Standing::Member {
            return;
        }
        let Some(program) = tells(&mut self.membership.upgrade, cx) else {
            return;
        };
        if self.coordinator.is_some() {
            return self.spread_view(cx, view_with(cx, cx.me(), program));
        }
        let epoch = cx.shell.view.epoch;
        cx.send(cx.coordinator(), Message::Runs { epoch, program });
    }

    /// A member says which program it is. What it said in a former view is no news, since it may be
    /// another program now; what it says makes a new view, even if nothing else changes.
    pub(crate) fn told_program(
        &mut self,
        cx: &mut Cx<'_>,
        node: NodeId,
        epoch: u64,
        program: Program,
    ) {
        let speaks = program.speaks;
        let is_other = |member: &&Member| member.id != node;
        let fits = |member: &Member| member.program.speaks.common(speaks).is_some();
        let fits = speaks.is_range() && cx.shell.view.living().filter(is_other).all(fits);
        if !knows_programs(cx.shell.config.program) || !fits {
            return cx.emit(Event::Malformed {});
        }
        if epoch != cx.shell.view.epoch {
            return cx.emit(Event::Stale {});
        }
        if self.coordinator.is_some() {
            self.spread_view(cx, view_with(cx, node, program));
        }
    }
}

/// The view in which a member is this program.
fn view_with(cx: &Cx<'_>, node: NodeId, program: Program) -> MemberView {
    let mut view = cx.shell.view.clone();
    view.epoch += 1;
    for member in &mut view.members {
        if member.id == node {
            member.program = program;
        }
    }
    view
}
