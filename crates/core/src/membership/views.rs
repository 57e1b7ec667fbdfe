//! The changes that a member view brings: nodes that joined, and nodes that ended.

use super::Membership;
use crate::event::Event;
use crate::shell::Cx;
use pagemesh_wire::NodeId;
use pagemesh_wire::peer::{Health, Member, MemberView, Numbered, Refusal, ViewChange};

/// The meaning of a coordinator's view for this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ViewNews {
    /// This node knows a newer one, or has promised to believe no such coordinator.
    Old,
    /// The others have gone on without this node, or with lives that are over here.
    Superseding,
    Next,
}

impl Membership {
    pub(crate) fn news(&self, cx: &Cx<'_>, view: &MemberView) -> ViewNews {
        let known = &cx.shell.view;
        if view.age() <= known.age() || view.term < self.fence(cx) {
            return ViewNews::Old;
        }
        let (lives, known_lives) = (view.numbered(), known.numbered());
        // If a life that is over here lives, this node went on with a coordinator that another one
        // has replaced, and with deaths that the new one knows nothing of.
        let revives = |member: &Member| is_over_in(&known_lives, member);
        let here = known.member(cx.me());
        let forgotten = here.is_some_and(|here| !has_life(&lives, here));
        match view.living().any(revives) || forgotten {
            true => ViewNews::Superseding,
            false => ViewNews::Next,
        }
    }
}

/// The view of this node if lives that it takes for alive have no numbers in the next view, or their
/// numbers have other lives: they end before anything else happens. A coordinator gives a number
/// again only after all members know the end of its last life, so that happens only if it is faulty.
pub(crate) fn without_unheard(
    known: &MemberView,
    view: &MemberView,
) -> Option<(MemberView, Vec<NodeId>)> {
    let lives = view.numbered();
    if known.living().all(|member| has_life(&lives, member)) {
        return None;
    }
    let (mut between, mut ended) = (known.clone(), Vec::new());
    for member in &mut between.members {
        if member.health == Health::Alive && !has_life(&lives, member) {
            member.health = Health::Dead;
            ended.push(member.id);
        }
    }
    Some((between, ended))
}

/// Goes on with this view. Returns the nodes that are gone in it, including those of which this node
/// had never heard: other nodes have, and grants name them.
pub(crate) fn follow_view(cx: &mut Cx<'_>, view: MemberView) -> Vec<NodeId> {
    let known = cx.shell.view.numbered();
    let ids = |pick: &dyn Fn(&Member) -> bool| -> Vec<_> {
        let some = view.members.iter().filter(|member| pick(member));
        some.map(|member| member.id).collect()
    };
    let gone = ids(&|one| one.health != Health::Alive && !is_over_in(&known, one));
    for node in ids(&|one| !has_life(&known, one)) {
        cx.emit(Event::Joined { node });
    }
    let spoken = cx.shell.spoken;
    cx.shell.set_view(view);
    let version = cx.shell.spoken;
    if version != spoken {
        cx.emit(Event::Speaks { version });
    }
    gone
}

/// The view that a change of this coordinator leads to, unless this node knows that already. A view
/// that lacks what is still to be told is that of an earlier epoch.
pub(crate) fn changed(
    known: &MemberView,
    change: ViewChange,
) -> Result<Option<MemberView>, Refusal> {
    let fits = change.view.term == known.term && change.since <= known.epoch;
    if !fits {
        let why = "this node does not know the members that this change is about";
        return Err(Refusal::Invalid(why.into()));
    }
    let is_news = change.view.epoch > known.epoch;
    Ok(is_news.then(|| change.applied_to(known)))
}

/// Whether this life is in the view, alive or not.
fn has_life(view: &Numbered<'_>, member: &Member) -> bool {
    let known = view.member(member.id);
    known.is_some_and(|known| known.incarnation == member.incarnation)
}

/// Whether this life is over in the view.
fn is_over_in(view: &Numbered<'_>, member: &Member) -> bool {
    let known = view.member(member.id);
    known.is_some_and(|known| {
        known.incarnation == member.incarnation && known.health != Health::Alive
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effects;
    use crate::shell::Shell;
    use crate::time::Time;
    use pagemesh_wire::Incarnation;

    const ME: NodeId = NodeId(2);

    fn with<T>(shell: &mut Shell, work: impl FnOnce(&mut Cx<'_>) -> T) -> T {
        let mut effects = Effects::default();
        work(&mut Cx {
            now: Time(0),
            shell,
            effects: &mut effects,
        })
    }

    /// The next view of a node, with one change.
    fn next(shell: &Shell, change: impl FnOnce(&mut Vec<Member>)) -> MemberView {
        let mut view = shell.view.clone();
        view.epoch += 1;
        change(&mut view.members);
        view
    }

    fn news(shell: &mut Shell, view: &MemberView) -> ViewNews {
        with(shell, |cx| Membership::new().news(cx, view))
    }

    #[test]
    fn a_view_that_brings_back_the_dead_or_lacks_this_node_supersedes_it() {
        let mut shell = Shell::of_four(ME);
        let known = shell.view.clone();
        assert_eq!(news(&mut shell, &known), ViewNews::Old);
        let dead = next(&shell, |members| members[2].health = Health::Dead);
        assert_eq!(news(&mut shell, &dead), ViewNews::Next);
        let without = next(&shell, |members| drop(members.remove(1)));
        assert_eq!(news(&mut shell, &without), ViewNews::Superseding);
        shell.set_view(dead);
        let back = next(&shell, |members| members[2].health = Health::Alive);
        assert_eq!(news(&mut shell, &back), ViewNews::Superseding);
        let new_life = next(&shell, |members| {
            members[2].health = Health::Alive;
            members[2].incarnation = Incarnation(9);
        });
        assert_eq!(news(&mut shell, &new_life), ViewNews::Next);
    }

    #[test]
    fn lives_of_which_a_view_knows_nothing_end_first() {
        let shell = Shell::of_four(ME);
        let same = next(&shell, |_| ());
        assert_eq!(without_unheard(&shell.view, &same), None);
        let view = next(&shell, |members| {
            members[2].incarnation = Incarnation(9);
            members.remove(3);
        });
        let (between, ended) = without_unheard(&shell.view, &view).unwrap();
        assert_eq!(ended, [NodeId(3), NodeId(4)]);
        assert_eq!((between.epoch, between.living().count()), (1, 2));
    }

    #[test]
    fn the_gone_are_told_once_even_if_nobody_heard_of_them() {
        let mut shell = Shell::of_four(ME);
        let view = next(&shell, |members| {
            let mut unheard = members[3].clone();
            (unheard.id, unheard.health) = (NodeId(5), Health::Left);
            members.push(unheard);
            members[2].health = Health::Dead;
        });
        let gone = with(&mut shell, |cx| follow_view(cx, view));
        assert_eq!(gone, [NodeId(3), NodeId(5)]);
        let again = next(&shell, |_| ());
        assert!(with(&mut shell, |cx| follow_view(cx, again)).is_empty());
    }

    #[test]
    fn a_change_is_taken_where_nothing_is_missing_and_once() {
        let shell = Shell::of_four(ME);
        let change = |since, epoch| ViewChange {
            since,
            freed: Vec::new(),
            more: false,
            view: MemberView {
                epoch,
                members: Vec::new(),
                ..shell.view.clone()
            },
        };
        let take = |change| changed(&shell.view, change);
        assert!(take(change(2, 3)).is_err(), "something is missing between");
        assert_eq!(take(change(0, 1)), Ok(None));
        let view = take(change(1, 2)).unwrap().unwrap();
        assert_eq!((view.epoch, view.members.len()), (2, 4));
    }
}
