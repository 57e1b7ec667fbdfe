//! How the coordinator ends the membership of a node.

use super::Coordinator;
use crate::shell::Cx;
use crate::steps::Step;
use pagemesh_wire::NodeId;
use pagemesh_wire::peer::{Health, Message, Refusal};

impl Coordinator {
    /// Ends a node's membership for good. That is possible for dead nodes, too, so that they cannot
    /// come back.
    pub(crate) fn revoke(
        this: Option<&mut Self>,
        cx: &mut Cx<'_>,
        node: NodeId,
    ) -> Result<Option<Step>, Refusal> {
        let this = this.ok_or_else(|| no("only the coordinator can put a node out"))?;
        match health(cx, node)? {
            _ if node == cx.me() => Err(no(
                "the coordinator cannot be put out; stop its daemon, and promote the standby \
                 (`pagemesh promote` there)",
            )),
            Health::Revoked => Ok(None),
            _ => {
                cx.send(node, Message::Expelled);
                Ok(Some(this.end(cx, node, Health::Revoked)))
            }
        }
    }

    /// Marks a dead node as forgotten: its loss has been dealt with.
    pub(crate) fn forget(
        this: Option<&mut Self>,
        cx: &Cx<'_>,
        node: NodeId,
    ) -> Result<Option<Step>, Refusal> {
        let this = this.ok_or_else(|| no("only the coordinator can forget a node"))?;
        match health(cx, node)? {
            Health::Alive => Err(no(
                "the node is alive: let it leave (`pagemesh leave` there), or put it out \
                 (`pagemesh key revoke`)",
            )),
            Health::Dead => Ok(Some(this.end(cx, node, Health::Forgotten))),
            Health::Left | Health::Revoked | Health::Forgotten => Ok(None),
        }
    }

    /// A member may be dead.
    pub(crate) fn suspect(&mut self, cx: &mut Cx<'_>, node: NodeId) -> Option<Step> {
        let dead = cx.is_alive(node) && self.has_died(cx, node);
        dead.then(|| self.end(cx, node, Health::Dead))
    }

    /// All members are to know that the membership of a node has ended, and how.
    pub(crate) fn end(&mut self, cx: &Cx<'_>, node: NodeId, health: Health) -> Step {
        Step::SpreadView(self.without(cx, node, health))
    }
}

fn no(why: &str) -> Refusal {
    Refusal::Invalid(why.into())
}

fn health(cx: &Cx<'_>, node: NodeId) -> Result<Health, Refusal> {
    let known = cx.shell.view.member(node).map(|member| member.health);
    known.ok_or_else(|| no("there never was a node of this number"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effects;
    use crate::shell::Shell;
    use crate::time::Time;

    /// The coordinator n1 of four members; n3 has ended like this.
    fn ended<T>(health: Health, work: impl FnOnce(&mut Coordinator, &mut Cx<'_>) -> T) -> T {
        let (mut shell, mut effects) = (Shell::of_four(NodeId(1)), Effects::default());
        let mut view = shell.view.clone();
        view.members[2].health = health;
        shell.set_view(view);
        let mut cx = Cx {
            now: Time(0),
            shell: &mut shell,
            effects: &mut effects,
        };
        work(&mut Coordinator::default(), &mut cx)
    }

    /// How a node counts in the view that all members are to know.
    fn told(result: Result<Option<Step>, Refusal>, node: u16) -> Option<Health> {
        match result.unwrap()? {
            Step::SpreadView(view) => view.member(NodeId(node)).map(|member| member.health),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_dead_and_the_living_can_be_put_out_but_not_the_coordinator() {
        for health in [Health::Alive, Health::Dead, Health::Left] {
            let result = ended(health, |of, cx| {
                Coordinator::revoke(Some(of), cx, NodeId(3))
            });
            assert_eq!(told(result, 3), Some(Health::Revoked));
        }
        let revoke = |node| {
            ended(Health::Revoked, |of, cx| {
                Coordinator::revoke(Some(of), cx, NodeId(node))
            })
        };
        assert_eq!(revoke(3), Ok(None));
        assert!(revoke(1).is_err() && revoke(9).is_err());
    }

    #[test]
    fn only_the_dead_are_forgotten() {
        let forget = |health| {
            ended(health, |of, cx| {
                Coordinator::forget(Some(of), cx, NodeId(3))
            })
        };
        assert_eq!(told(forget(Health::Dead), 3), Some(Health::Forgotten));
        assert!(forget(Health::Alive).is_err());
        assert_eq!(forget(Health::Left), Ok(None));
        let nobody = ended(Health::Dead, |_, cx| {
            Coordinator::forget(None, cx, NodeId(3))
        });
        assert!(nobody.is_err(), "it does not coordinate");
    }

    #[test]
    fn what_the_coordinator_slept_through_is_no_silence() {
        let slept = |of: &mut Coordinator, cx: &mut Cx<'_>| {
            of.watch(cx, NodeId(3));
            let (dead_after, away) = (cx.pace().dead_after, cx.pace().dead_after * 100);
            cx.now = cx.now + away;
            of.was_away(cx.now, away);
            let awake = of.suspect(cx, NodeId(3));
            cx.now = cx.now + dead_after;
            (awake, of.suspect(cx, NodeId(3)))
        };
        let (awake, due) = ended(Health::Alive, slept);
        assert_eq!((awake, told(Ok(due), 3)), (None, Some(Health::Dead)));
    }

    #[test]
    fn a_silent_member_dies_once() {
        let later = |of: &mut Coordinator, cx: &mut Cx<'_>| {
            of.watch(cx, NodeId(3));
            let early = of.suspect(cx, NodeId(3));
            cx.now = cx.now + cx.pace().dead_after;
            (early, of.suspect(cx, NodeId(3)), of.suspect(cx, NodeId(3)))
        };
        let (early, due, again) = ended(Health::Alive, later);
        assert_eq!((early, told(Ok(due), 3)), (None, Some(Health::Dead)));
        assert_eq!(again, None);
    }
}
