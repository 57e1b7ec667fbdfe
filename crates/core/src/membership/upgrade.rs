//! What a node says of its program, and of the one that is to take its place.

use crate::effect::Reply;
use crate::shell::Cx;
use pagemesh_wire::peer::{MemberView, Refusal};
use pagemesh_wire::{NodeId, Program, Ticket, Versions};
use serde::{Deserialize, Serialize};

/// What a node says of its program, and of the one that is to take its place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Upgrade {
    /// The version in which this node asks for admission, if its newest was not understood.
    pub(crate) asks_in: Option<u8>,
    /// A program that speaks these versions, and not all that this one speaks, is to take its place.
    room: Option<Versions>,
    /// It waits for the answer to this request.
    wants_room: Option<Ticket>,
    /// The epoch of the view in which the coordinator was told of this node's program, and how many
    /// heartbeats ago first.
    told: (u64, u32),
}

/// A coordinator of version 4 never hears which program a member runs, so it is told ever less
/// often; but once in so many heartbeats, because a datagram may get lost.
const SELDOM: u32 = 64;

/// A coordinator that has not changed the view so many heartbeats after it was told of a program,
/// four times at least, does not know that members have programs.
const UNHEARD: u32 = 8;

impl Upgrade {
    /// The program that this node says it is: the next one, once it makes room for that.
    pub(crate) fn program(&self, cx: &Cx<'_>) -> Program {
        match self.room {
            Some(speaks) => Program::of(speaks),
            None => cx.shell.config.program,
        }
    }

    /// Whether another program is about to take the place of this one.
    pub(crate) fn makes_room(&self) -> bool {
        self.room.is_some()
    }

    /// The version in which this node asks for admission.
    pub(super) fn asks_in(&self, cx: &Cx<'_>) -> u8 {
        let newest = cx.shell.config.program.speaks.newest;
        self.asks_in.unwrap_or(newest)
    }

    /// This node goes on as this program.
    pub(crate) fn runs(&mut self, cx: &mut Cx<'_>, program: Program) {
        cx.shell.config.program = program;
        let before = core::mem::take(self);
        if let Some(ticket) = before.wants_room {
            let why = "another daemon has taken the place of the one that was to make room";
            cx.refuse(ticket, Refusal::Invalid(why.into()));
        }
        let mut view = cx.shell.view.clone();
        if !knows_programs(program) {
            forget_programs(&mut view);
        }
        cx.shell.set_view(view);
    }

    /// A program that speaks these versions is to take the place of this one. It is answered when
    /// nobody will speak any other version to it. Returns whether it may.
    pub(crate) fn make_room(&mut self, cx: &mut Cx<'_>, ticket: Ticket, speaks: Versions) -> bool {
        // This node included: it speaks with the others until it ends.
        let members = cx.shell.view.living();
        let alone = members
            .map(|member| member.program.speaks)
            .find(|theirs| theirs.common(speaks).is_none());
        if let Some(cluster) = alone {
            let here = speaks;
            cx.refuse(ticket, Refusal::Versions { cluster, here });
            return false;
        }
        if self.room.is_some() {
            let why = "another daemon is about to take the place of this one";
            cx.refuse(ticket, Refusal::Invalid(why.into()));
            return false;
        }
        (self.room, self.wants_room) = (Some(speaks), Some(ticket));
        true
    }

    /// The daemon that was to take the place of this one does not come.
    pub(crate) fn withdraw(&mut self, ticket: Ticket) -> bool {
        let had = self.wants_room.take_if(|of| *of == ticket).is_some();
        if had {
            self.room = None;
        }
        had
    }

    /// This node is no member any more, so that no other program needs its place.
    pub(crate) fn end(&mut self, cx: &mut Cx<'_>) {
        let before = core::mem::take(self);
        if let Some(ticket) = before.wants_room {
            cx.refuse(ticket, Refusal::NotMember);
        }
    }

    /// The coordinator knows of the program that is to take the place of this one: it may come.
    pub(crate) fn go_on(&mut self, cx: &mut Cx<'_>) {
        let (Some(speaks), Some(ticket)) = (self.room, self.wants_room) else {
            return;
        };
        let (epoch, view) = (cx.shell.view.epoch, &cx.shell.view);
        let program = |node| view.member(node).map(|member| member.program);
        let known = program(cx.me()).is_none_or(|here| here.speaks.newest <= speaks.newest);
        let told = known && !self.may_be_misheard(epoch);
        // A coordinator that cannot be told lets nobody speak a newer version than its own. This
        // node's former program may have been the one that did not know programs, so it waits a
        // little for the coordinator's view.
        let silent = program(cx.coordinator()).is_some_and(|program| !knows_programs(program))
            && self.may_be_misheard(epoch)
            && self.told.1 >= UNHEARD;
        if told || silent {
            self.wants_room = None;
            cx.reply(ticket, Reply::Done);
        }
    }

    /// The program of which the coordinator is to be told at once.
    pub(crate) fn tells(&mut self, cx: &Cx<'_>) -> Option<Program> {
        let program = self.unknown_program(cx)?;
        self.count_telling(cx.shell.view.epoch);
        Some(program)
    }

    /// As [`Upgrade::tells`], with every heartbeat, and ever less often.
    pub(crate) fn tells_again(&mut self, cx: &Cx<'_>) -> Option<Program> {
        let program = self.unknown_program(cx)?;
        let times = self.count_telling(cx.shell.view.epoch);
        (times.is_power_of_two() || times.is_multiple_of(SELDOM)).then_some(program)
    }

    /// This node's program, if the view is wrong about it, or may be soon: something else was said,
    /// and is perhaps under way.
    fn unknown_program(&self, cx: &Cx<'_>) -> Option<Program> {
        let unsure = self.wants_room.is_some() && self.may_be_misheard(cx.shell.view.epoch);
        let program = self.program(cx);
        let here = cx.shell.view.member(cx.me())?;
        (here.program != program || unsure).then_some(program)
    }

    /// Whether what this node has said of its program may still be under way: in the next view it is
    /// no news.
    fn may_be_misheard(&self, epoch: u64) -> bool {
        self.told.0 == epoch
    }

    /// The coordinator of this view is told of this node's program. Returns how often it was.
    fn count_telling(&mut self, epoch: u64) -> u32 {
        let (of, times) = &mut self.told;
        if *of != epoch {
            (*of, *times) = (epoch, 0);
        }
        *times = times.saturating_add(1);
        *times
    }
}

/// Whether a program knows that members have programs: those of version 4 do not.
pub(crate) fn knows_programs(program: Program) -> bool {
    program.speaks.newest > Program::SILENT.speaks.newest
}

fn forget_programs(view: &mut MemberView) {
    for member in &mut view.members {
        member.program = Program::SILENT;
    }
}

/// The view with which a node succeeds a coordinator. If that did not know of programs, nobody knows
/// which members have become older ones since it came: they are told anew.
pub(crate) fn with_known_programs(mut view: MemberView, former: NodeId) -> MemberView {
    let former = view.member(former).map(|member| member.program);
    if former.is_some_and(|program| !knows_programs(program)) {
        forget_programs(&mut view);
    }
    view
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::{Effect, Effects};
    use crate::shell::Shell;
    use crate::time::Time;

    /// What a step answers to requests.
    fn with<T>(
        shell: &mut Shell,
        work: impl FnOnce(&mut Cx<'_>) -> T,
    ) -> (T, Vec<(Ticket, Reply)>) {
        let mut effects = Effects::default();
        let mut cx = Cx {
            now: Time(0),
            shell,
            effects: &mut effects,
        };
        let result = work(&mut cx);
        let replies = effects.drain().filter_map(|effect| match effect {
            Effect::Reply { ticket, reply } => Some((ticket, *reply)),
            _ => None,
        });
        (result, replies.collect())
    }

    /// The versions that this program speaks, and one that it does not.
    fn newer(shell: &Shell) -> Versions {
        let mut speaks = shell.config.program.speaks;
        speaks.newest += 1;
        speaks
    }

    #[test]
    fn one_daemon_at_a_time_is_made_room_for() {
        let mut shell = Shell::of_four(NodeId(2));
        let speaks = newer(&shell);
        let mut upgrade = Upgrade::default();
        let (first, second) = (Ticket(1), Ticket(2));
        assert!(with(&mut shell, |cx| upgrade.make_room(cx, first, speaks)).0);
        let (may, replies) = with(&mut shell, |cx| upgrade.make_room(cx, second, speaks));
        assert!(!may && matches!(replies[..], [(Ticket(2), Reply::Refused(_))]));
        assert!(!upgrade.withdraw(second));
        assert!(upgrade.withdraw(first));
        assert!(with(&mut shell, |cx| upgrade.make_room(cx, second, speaks)).0);
    }

    #[test]
    fn room_is_made_when_the_coordinator_knows_the_next_program() {
        let mut shell = Shell::of_four(NodeId(2));
        let speaks = newer(&shell);
        let mut upgrade = Upgrade::default();
        with(&mut shell, |cx| upgrade.make_room(cx, Ticket(1), speaks));
        let (told, _) = with(&mut shell, |cx| upgrade.tells(cx));
        assert_eq!(told, Some(Program::of(speaks)));
        let ((), replies) = with(&mut shell, |cx| upgrade.go_on(cx));
        assert_eq!(replies, [], "what was said may be under way");
        let mut view = shell.view.clone();
        view.epoch += 1;
        view.members[1].program = Program::of(speaks);
        shell.set_view(view);
        let ((), replies) = with(&mut shell, |cx| upgrade.go_on(cx));
        assert_eq!(replies, [(Ticket(1), Reply::Done)]);
        assert_eq!(with(&mut shell, |cx| upgrade.tells(cx)).0, None);
    }

    #[test]
    fn a_coordinator_that_does_not_listen_is_told_ever_less_often() {
        let mut shell = Shell::of_four(NodeId(2));
        let speaks = newer(&shell);
        let mut upgrade = Upgrade::default();
        with(&mut shell, |cx| upgrade.make_room(cx, Ticket(1), speaks));
        let mut tells = || with(&mut shell, |cx| upgrade.tells_again(cx)).0;
        let told = (1..=3 * SELDOM).filter_map(|_| tells());
        assert_eq!(
            told.count(),
            9,
            "after 1, 2, 4 ... 128 heartbeats, and after 192"
        );
    }
}
