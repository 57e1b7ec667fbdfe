//! The sender of a datagram: a member, whose messages this node takes, or none.

use super::{Membership, Standing};
use crate::effect::Effect;
use crate::event::Event;
use crate::link::Sender;
use crate::shell::Cx;
use core::net::SocketAddr;
use pagemesh_wire::header::Header;
use pagemesh_wire::notice::Notice;
use pagemesh_wire::peer::{Call, Health, Join, Message};

/// The sender of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SentBy {
    /// A living member, which addresses this node in this cluster.
    Member,
    Stranger,
    /// A node of a newer coordinator, for which this node is no member.
    Successor,
}

impl Membership {
    /// A datagram of a protocol version that is not spoken here. A host that wants to join is sent a
    /// notice.
    pub(crate) fn foreign(&mut self, cx: &mut Cx<'_>, source: SocketAddr, bytes: &[u8]) {
        let speaks = cx.shell.config.program.speaks;
        if let Some(notice) = Notice::decode(bytes) {
            self.noticed(cx, notice);
        } else if self.standing == Standing::Member
            && let Some(notice) = Notice::answering(bytes, speaks)
        {
            let address = source;
            cx.push(Effect::SendNotice { address, notice });
        }
    }

    /// This node does not admit hosts: it tells the host the coordinator's address.
    pub(crate) fn redirect(&self, cx: &mut Cx<'_>, host: (SocketAddr, u8), join: &Join) {
        let coordinator = cx.shell.view.member(cx.coordinator());
        let Some(to) = coordinator.map(|member| member.address) else {
            return;
        };
        let message = Message::Redirect {
            incarnation: join.incarnation,
            to,
        };
        cx.send_to_host(host, message);
    }

    /// The sender of a datagram. A member that was declared dead is told so, because it must not go
    /// on alone.
    pub(crate) fn sender(
        &self,
        cx: &mut Cx<'_>,
        coordinates: bool,
        (source, key): Sender,
        (header, message): (&Header, &Message),
    ) -> SentBy {
        if self.standing != Standing::Member
            || header.cluster != cx.shell.cluster
            || header.to != cx.me()
            || header.from == cx.me()
        {
            return SentBy::Stranger;
        }
        let from = (header.from, header.incarnation, key);
        let mut members = cx.shell.view.members.iter();
        let known = members.find(|member| (member.id, member.incarnation, member.key) == from);
        let newer = header.term > self.fence(cx);
        match known.map(|member| member.health) {
            Some(Health::Alive) => self.sent_by_living(cx, coordinates, header),
            None if self.awaits(header, key) => match message {
                // A coordinator sends heartbeats to members only that count as dead: it has gone on
                // without this node's answer.
                Message::Heartbeat { .. } => SentBy::Successor,
                Message::Call {
                    body: Call::Members(_),
                    ..
                } => SentBy::Member,
                _ => SentBy::Stranger,
            },
            // It went on from its disk, and did so without this node, which had been silent for too
            // long.
            None if newer && is_coordinator(header) && header.from.is_valid() => SentBy::Successor,
            Some(_) if newer => SentBy::Successor,
            None if !self.is_of_the_past(cx, coordinates, header) => SentBy::Stranger,
            // It is answered by nothing, or two nodes would say so to each other for ever.
            _ if *message == Message::Expelled => SentBy::Stranger,
            _ => {
                cx.answer_sender(source, header, Message::Expelled);
                SentBy::Stranger
            }
        }
    }

    /// Whether an unknown sender is a host that an earlier coordinator admitted without anybody else
    /// hearing of it; or a life that was over long ago, of which the coordinator has given the number
    /// to another one.
    fn is_of_the_past(&self, cx: &Cx<'_>, coordinates: bool, header: &Header) -> bool {
        let term = cx.shell.view.term;
        header.from.is_valid() && (header.term < term || coordinates && header.term == term)
    }

    /// *INV-fenced*: a datagram of a coordinator of an older term than this node believes in counts
    /// for nothing; and a coordinator that meets a newer term is none any more.
    fn sent_by_living(&self, cx: &mut Cx<'_>, coordinates: bool, header: &Header) -> SentBy {
        if coordinates && header.term > cx.shell.view.term {
            return SentBy::Successor;
        }
        if header.term < self.fence(cx) && is_coordinator(header) {
            cx.emit(Event::OldCoordinator { node: header.from });
            return SentBy::Stranger;
        }
        SentBy::Member
    }
}

fn is_coordinator(header: &Header) -> bool {
    header.from == header.term.coordinator()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effects;
    use crate::shell::Shell;
    use crate::time::Time;
    use pagemesh_wire::{Incarnation, NodeId, PublicKey, Term};

    /// The sender of a heartbeat, and the messages that it is answered by.
    fn sent(
        shell: &mut Shell,
        coordinates: bool,
        change: impl FnOnce(&mut Header),
    ) -> (SentBy, Vec<Message>) {
        let mut membership = Membership::new();
        membership.standing = Standing::Member;
        let mut effects = Effects::default();
        let mut cx = Cx {
            now: Time(0),
            shell,
            effects: &mut effects,
        };
        let view = &cx.shell.view;
        let sender = view.member(NodeId(3)).unwrap().clone();
        let mut header = cx.header(cx.me());
        (header.from, header.incarnation) = (sender.id, sender.incarnation);
        change(&mut header);
        let message = Message::Heartbeat { epoch: 1 };
        let from = (sender.address, sender.key);
        let by = membership.sender(&mut cx, coordinates, from, (&header, &message));
        let answers = effects.drain().filter_map(|effect| match effect {
            Effect::Send { message, .. } => Some(*message),
            _ => None,
        });
        (by, answers.collect())
    }

    fn after(term: Term, node: u16) -> Term {
        term.next(NodeId(node)).unwrap()
    }

    fn shell(health: Health) -> Shell {
        let mut shell = Shell::of_four(NodeId(2));
        let mut view = shell.view.clone();
        view.term = after(Term::FIRST, 1);
        view.members[2].health = health;
        view.members[2].key = PublicKey([7; 32]);
        shell.set_view(view);
        shell
    }

    #[test]
    fn a_living_member_is_heard_unless_it_coordinated_before() {
        let mut shell = shell(Health::Alive);
        let old = after(Term::FIRST, 3);
        assert_eq!(sent(&mut shell, false, |_| ()), (SentBy::Member, vec![]));
        let (by, _) = sent(&mut shell, false, |header| header.to = NodeId(4));
        assert_eq!(by, SentBy::Stranger);
        shell.view.term = after(old, 1);
        let (by, _) = sent(&mut shell, false, |header| header.term = old);
        assert_eq!(by, SentBy::Stranger);
    }

    #[test]
    fn the_dead_are_told_so_unless_they_follow_a_newer_coordinator() {
        let mut shell = shell(Health::Dead);
        let told = (SentBy::Stranger, vec![Message::Expelled]);
        assert_eq!(sent(&mut shell, false, |_| ()), told);
        let newer = after(shell.view.term, 4);
        let (by, answers) = sent(&mut shell, false, |header| header.term = newer);
        assert_eq!((by, answers), (SentBy::Successor, vec![]));
    }

    #[test]
    fn an_unknown_life_is_told_by_who_knows_that_it_is_over() {
        let mut shell = shell(Health::Alive);
        let other = |header: &mut Header| header.incarnation = Incarnation(99);
        let (by, answers) = sent(&mut shell, false, other);
        assert_eq!((by, answers), (SentBy::Stranger, vec![]));
        let (by, answers) = sent(&mut shell, true, other);
        assert_eq!((by, answers), (SentBy::Stranger, vec![Message::Expelled]));
    }

    #[test]
    fn a_coordinator_that_meets_a_newer_term_is_none_any_more() {
        let mut shell = shell(Health::Alive);
        let newer = after(shell.view.term, 4);
        let later = |header: &mut Header| header.term = newer;
        assert_eq!(sent(&mut shell, true, later).0, SentBy::Successor);
        assert_eq!(sent(&mut shell, false, later).0, SentBy::Member);
    }
}
