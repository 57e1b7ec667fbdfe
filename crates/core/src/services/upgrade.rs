//! Which program each member is, so that a cluster speaks the newest version of the protocol that
//! all members speak, and no newer one (decision 47).

use super::Services;
use crate::effect::Reply;
use crate::event::Event;
use crate::membership::Standing;
use crate::shell::Cx;
use pagemesh_wire::notice::Notice;
use pagemesh_wire::peer::{Member, MemberView, Message, Refusal};
use pagemesh_wire::{NodeId, Program, Ticket, Versions};

impl Services {
    /// This node goes on as this program.
    pub(super) fn runs(&mut self, cx: &mut Cx<'_>, program: Program) {
        let speaks = program.speaks;
        if speaks.common(Versions::SPOKEN) != Some(speaks) {
            // No program of these sources.
            return;
        }
        cx.shell.config.program = program;
        let upgrade = core::mem::take(&mut self.membership.upgrade);
        if let Some(ticket) = upgrade.wants_room {
            let why = "another daemon has taken the place of the one that was to make room";
            cx.refuse(ticket, Refusal::Invalid(why.into()));
        }
        let mut view = cx.shell.view.clone();
        if !knows_programs(program) {
            forget_programs(&mut view);
        }
        cx.shell.set_view(view);
        self.tell_program(cx);
    }

    /// A program that speaks these versions is to take the place of this one. It is answered when
    /// nobody will speak any other version to it.
    pub(super) fn make_room(&mut self, cx: &mut Cx<'_>, ticket: Ticket, speaks: Versions) {
        // This node included: it speaks with the others until it ends.
        let members = cx.shell.view.living();
        let alone = members
            .map(|member| member.program.speaks)
            .find(|theirs| theirs.common(speaks).is_none());
        if let Some(cluster) = alone {
            let here = speaks;
            return cx.refuse(ticket, Refusal::Versions { cluster, here });
        }
        if self.membership.upgrade.room.is_some() {
            let why = "another daemon is about to take the place of this one";
            return cx.refuse(ticket, Refusal::Invalid(why.into()));
        }
        self.membership.upgrade.room = Some(speaks);
        self.membership.upgrade.wants_room = Some(ticket);
        self.tell_program(cx);
    }

    /// The daemon that was to take the place of this one does not come.
    pub(super) fn withdraw_room(&mut self, cx: &mut Cx<'_>, ticket: Ticket) -> bool {
        let upgrade = &mut self.membership.upgrade;
        let had = upgrade.wants_room.take_if(|of| *of == ticket).is_some();
        if had {
            upgrade.room = None;
            self.tell_program(cx);
        }
        had
    }

    /// This node is no member any more, so that no other program needs its place.
    pub(super) fn end_room(&mut self, cx: &mut Cx<'_>) {
        let upgrade = core::mem::take(&mut self.membership.upgrade);
        if let Some(ticket) = upgrade.wants_room {
            cx.refuse(ticket, Refusal::NotMember);
        }
    }

    /// The coordinator knows of the program that is to take the place of this one: it may come.
    pub(super) fn go_on_making_room(&mut self, cx: &mut Cx<'_>) {
        let upgrade = &self.membership.upgrade;
        let (Some(speaks), Some(ticket)) = (upgrade.room, upgrade.wants_room) else {
            return;
        };
        let epoch = cx.shell.view.epoch;
        let program = |node| cx.shell.view.member(node).map(|member| member.program);
        let known = program(cx.me()).is_none_or(|here| here.speaks.newest <= speaks.newest);
        let told = known && !self.membership.may_be_misheard(epoch);
        // A coordinator that cannot be told lets nobody speak a newer version than its own. This
        // node's former program may have been the one that did not know programs, so it waits a
        // little for the coordinator's view.
        let silent = program(cx.coordinator()).is_some_and(|program| !knows_programs(program))
            && self.membership.is_unheard(epoch);
        if told || silent {
            self.membership.upgrade.wants_room = None;
            cx.reply(ticket, Reply::Done);
        }
    }

    /// Tells the coordinator at once which program this node is, if it has to be told.
    fn tell_program(&mut self, cx: &mut Cx<'_>) {
        if self.has_to_tell_program(cx) {
            self.membership.tells_program(cx.shell.view.epoch);
            self.send_program(cx);
        }
    }

    /// As [`Services::tell_program`], with every heartbeat, and ever less often.
    pub(super) fn tell_program_again(&mut self, cx: &mut Cx<'_>) {
        let epoch = cx.shell.view.epoch;
        if self.has_to_tell_program(cx) && self.membership.may_tell_program(epoch) {
            self.send_program(cx);
        }
    }

    /// Whether the view is wrong about this node's program, or may be soon: something else was said,
    /// and is perhaps under way.
    fn has_to_tell_program(&self, cx: &Cx<'_>) -> bool {
        let makes_room = self.membership.upgrade.wants_room.is_some();
        let unsure = makes_room && self.membership.may_be_misheard(cx.shell.view.epoch);
        let program = self.membership.program(cx);
        let known = cx.shell.view.member(cx.me());
        self.membership.standing == Standing::Member
            && known.is_some_and(|here| here.program != program || unsure)
    }

    fn send_program(&mut self, cx: &mut Cx<'_>) {
        let program = self.membership.program(cx);
        if self.coordinator.is_some() {
            return self.change_program(cx, cx.me(), program);
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
            self.change_program(cx, node, program);
        }
    }

    fn change_program(&mut self, cx: &mut Cx<'_>, node: NodeId, program: Program) {
        let mut view = cx.shell.view.clone();
        view.epoch += 1;
        for member in &mut view.members {
            if member.id == node {
                member.program = program;
            }
        }
        self.spread_view(cx, view);
    }

    /// A node that is asked for admission speaks other versions than the one it was asked in: this
    /// node asks again in one that both speak, or gives up.
    pub(crate) fn noticed(&mut self, cx: &mut Cx<'_>, notice: Notice) {
        let joining = matches!(self.membership.standing, Standing::Joining(_));
        if !joining || notice.to != cx.shell.config.incarnation {
            return;
        }
        let (cluster, here) = (notice.speaks, cx.shell.config.program.speaks);
        match here.common(cluster) {
            Some(both) => self.membership.ask_in(cx, both.newest),
            None => self.membership.out(cx, Refusal::Versions { cluster, here }),
        }
    }
}

/// Whether a program knows that members have programs: those of version 4 do not.
fn knows_programs(program: Program) -> bool {
    program.speaks.newest > Program::SILENT.speaks.newest
}

fn forget_programs(view: &mut MemberView) {
    for member in &mut view.members {
        member.program = Program::SILENT;
    }
}

/// The view with which a node succeeds a coordinator. If that did not know of programs, nobody knows
/// which members have become older ones since it came: they are told anew.
pub(super) fn with_known_programs(mut view: MemberView, former: NodeId) -> MemberView {
    let former = view.member(former).map(|member| member.program);
    if former.is_some_and(|program| !knows_programs(program)) {
        forget_programs(&mut view);
    }
    view
}
