//! What the policies with replicas share: which node is the backup of this one, and what waits until it
//! has something.

use crate::continuation::Continuation;
use crate::shell::Cx;
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::{ClientId, NodeId, NodeSet, Ticket};
use serde::{Deserialize, Serialize};

/// What goes on when all up to a number is at the backup: tokens that are to leave, and processes that
/// arrive at barriers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Waiting(Vec<(u64, Continuation)>);

impl Waiting {
    pub(super) fn push(&mut self, number: u64, then: &Continuation) {
        self.0.push((number, then.clone()));
    }

    pub(super) fn is_any(&self) -> bool {
        !self.0.is_empty()
    }

    /// All up to this number is at the backup.
    pub(super) fn settle(&mut self, cx: &mut Cx<'_>, upto: u64) {
        for (_, then) in self.0.extract_if(.., |(number, _)| *number <= upto) {
            cx.ready(then);
        }
    }

    /// A process is gone, and arrives nowhere.
    pub(super) fn client_gone(&mut self, client: ClientId) {
        let of = |then: &Continuation| matches!(then, Continuation::SendArrival { client: of, .. } if *of == client);
        self.0.retain(|(_, then)| !of(then));
    }

    /// A request is withdrawn. True if it waited here.
    pub(super) fn cancel(&mut self, ticket: Ticket) -> bool {
        let of = |then: &Continuation| matches!(then, Continuation::SendArrival { ticket: of, .. } if *of == ticket);
        self.0.extract_if(.., |(_, then)| of(then)).count() > 0
    }

    /// Nothing will be at the backup any more.
    pub(super) fn refuse(&mut self, cx: &mut Cx<'_>, why: &Refusal) {
        for (_, then) in core::mem::take(&mut self.0) {
            if let Continuation::SendArrival { ticket, .. } = then {
                cx.refuse(ticket, why.clone());
            }
        }
    }
}

/// The next member, counted from this node, that uses the segment; if there is none, the next member.
/// `never` are nodes that leave. A member whose program does not speak version `since` of the protocol
/// is no backup: it does not know what it would be asked for.
pub(super) fn choose(
    cx: &Cx<'_>,
    users: impl IntoIterator<Item = NodeId>,
    never: &NodeSet,
    since: u8,
) -> Option<NodeId> {
    let view = &cx.shell.view;
    let able = |node: &NodeId| {
        let member = view.member(*node);
        member.is_some_and(|member| member.program.speaks.contains(since))
    };
    let others = cx.shell.peers().without(never);
    let others: NodeSet = others.iter().filter(able).collect();
    let users: NodeSet = users.into_iter().collect();
    let me = cx.me();
    let next = |nodes: NodeSet| {
        let next = nodes.iter().find(|node| *node > me);
        next.or_else(|| nodes.iter().next())
    };
    next(users.intersection(&others)).or_else(|| next(others))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effects;
    use crate::shell::Shell;
    use crate::time::Time;
    use pagemesh_wire::Program;

    fn chosen(shell: &mut Shell, users: &[u16], never: &[u16], since: u8) -> Option<u16> {
        let cx = Cx {
            now: Time::ZERO,
            shell,
            effects: &mut Effects::default(),
        };
        let never: NodeSet = never.iter().copied().map(NodeId).collect();
        let users = users.iter().copied().map(NodeId);
        choose(&cx, users, &never, since).map(|node| node.0)
    }

    #[test]
    fn the_next_user_is_the_backup_and_never_one_that_does_not_know_how() {
        let mut shell = Shell::of_four(NodeId(2));
        assert_eq!(chosen(&mut shell, &[], &[], 5), Some(3));
        assert_eq!(chosen(&mut shell, &[1, 2, 4], &[], 5), Some(4));
        assert_eq!(chosen(&mut shell, &[1, 2, 4], &[4], 5), Some(1));
        assert_eq!(chosen(&mut shell, &[4], &[1, 3, 4], 5), None);
        let mut view = shell.view.clone();
        for member in &mut view.members[2..] {
            member.program = Program::SILENT;
        }
        shell.set_view(view);
        assert_eq!(chosen(&mut shell, &[4], &[], 5), Some(1));
        assert_eq!(chosen(&mut shell, &[4], &[], 4), Some(4));
        assert_eq!(chosen(&mut shell, &[4], &[1], 5), None);
    }
}
