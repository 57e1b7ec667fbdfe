//! In a large cluster, signs of life and news of membership go by way of relays (decision 59).
//!
//! The coordinator of a thousand members would answer two thousand heartbeats a second, and send a
//! thousand messages for each death. There the members of the lowest numbers are *relays*: each
//! passes the signs of life of its share of the others on with its own, and answers and news of
//! membership back. So each node exchanges them with [`RELAYS`] others, however many there are.
//!
//! A relay decides nothing. The coordinator says which members live, a member knows by the time in
//! its sign which one was heard ([`Doubt`](super::Doubt)), and it turns to the coordinator itself
//! if no answer comes. A new generation is told by the coordinator alone, because it counts the
//! answers ([`name_check`](super::name_check)).

use super::Membership;
use super::changes::Changes;
use super::views::changed;
use crate::event::Event;
use crate::limits::{RELAY_SILENT, RELAYS};
use crate::on_reply::OnReply;
use crate::shell::Cx;
use crate::steps::Step;
use crate::time::Time;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::{Call, MemberView, Message, Refusal, Reply, ViewChange};
use pagemesh_wire::{NodeId, NodeSet};

/// What this node passes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Relay {
    /// What others are told of changes of the membership by this node.
    changes: Changes,
    /// The members whose signs have come since this node's last ones, and when they sent them.
    came: SortedMap<NodeId, u64>,
    /// Those whose signs left with this node's last ones ...
    passed: SortedMap<NodeId, u64>,
    /// ... and when.
    sent: u64,
}

impl Relay {
    /// This node's signs leave now: those of which members they have to pass on.
    fn pass_on(&mut self, now: u64) -> NodeSet {
        if self.came.is_empty() {
            return NodeSet::EMPTY;
        }
        self.passed = core::mem::take(&mut self.came);
        self.sent = now;
        self.passed.keys().copied().collect()
    }

    /// The coordinator answers the signs that left then, and these members live. Returns them, and
    /// when they had sent their signs.
    fn heard(&mut self, sent: u64, living: &NodeSet) -> Vec<(NodeId, u64)> {
        if sent != self.sent {
            return Vec::new();
        }
        let passed = core::mem::take(&mut self.passed).into_iter();
        passed.filter(|(node, _)| living.contains(*node)).collect()
    }
}

/// The relays of a cluster.
struct Relays {
    coordinator: NodeId,
    /// None in a small cluster.
    nodes: Vec<NodeId>,
}

impl Relays {
    fn of(cx: &Cx<'_>) -> Self {
        let (coordinator, alive) = (cx.coordinator(), &cx.shell.alive);
        let is_large = cx.shell.config.far_numbers && alive.len() > RELAYS + 1;
        let others = alive.iter().filter(|node| *node != coordinator);
        Self {
            coordinator,
            nodes: others.take(if is_large { RELAYS } else { 0 }).collect(),
        }
    }

    /// The relay of a member; none if it speaks with the coordinator itself.
    fn of_member(&self, node: NodeId) -> Option<NodeId> {
        let share = usize::from(node.0).checked_rem(self.nodes.len())?;
        let is_one = node == self.coordinator || self.nodes.contains(&node);
        (!is_one).then(|| self.nodes[share])
    }

    /// The node that tells this member of changes.
    fn teller(&self, node: NodeId) -> NodeId {
        self.of_member(node).unwrap_or(self.coordinator)
    }
}

impl Membership {
    /// Says that this node lives, and that those do whose signs it passes on.
    pub(super) fn say_alive(&mut self, cx: &mut Cx<'_>) {
        let (epoch, sent, coordinator) = (cx.shell.view.epoch, cx.now.0, cx.coordinator());
        let of = self.relay.pass_on(sent);
        if let Some(relay) = Relays::of(cx).of_member(cx.me()) {
            let of = NodeSet::EMPTY;
            cx.send(relay, Message::Signs { epoch, sent, of });
            if cx.now - self.coordinator_heard <= cx.pace().heartbeat * RELAY_SILENT {
                return;
            }
        }
        self.doubt.sent(cx.now);
        let message = match of.is_empty() {
            true => Message::Heartbeat { epoch },
            false => Message::Signs { epoch, sent, of },
        };
        cx.send(coordinator, message);
    }

    /// The signs of a member have come, which left then by its clock, and are to be passed on.
    pub(crate) fn sign_came(&mut self, from: NodeId, sent: u64) {
        self.relay.came.insert(from, sent);
    }

    /// The coordinator has heard the signs of this node that left then, and those of these members.
    pub(crate) fn signs_heard(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        sent: u64,
        living: &NodeSet,
    ) {
        let comes_back = from == Relays::of(cx).teller(cx.me()) || from == cx.coordinator();
        if !comes_back || !self.doubt.heard(cx.now, Time(sent)) {
            return cx.emit(Event::Stale {});
        }
        self.follow(cx.now);
        for (node, sent) in self.relay.heard(sent, living) {
            let of = NodeSet::EMPTY;
            cx.send(node, Message::SignsHeard { sent, of });
        }
    }

    /// A member is gone: nothing of it is passed on.
    pub(crate) fn member_gone(&mut self, node: NodeId) {
        self.relay.changes.member_gone(node);
        self.relay.came.remove(&node);
    }

    /// At the coordinator: the view has changed from this one. A member with a relay hears of it there,
    /// unless it knows no other member yet, or has to answer.
    pub(crate) fn tell_changes(&mut self, cx: &Cx<'_>, before: &MemberView) -> Vec<Step> {
        let view = &cx.shell.view;
        let (relays, me) = (Relays::of(cx), cx.me());
        let changes = &mut self.relay.changes;
        changes.note(before, view);
        let all = before.generation != view.generation;
        let peers = cx.shell.peers();
        let told = peers.iter().filter(|node| {
            let by_me = relays.teller(*node) == me;
            all || by_me || !changes.has_told(*node)
        });
        let told: Vec<_> = told.collect();
        self.tell_each(cx, told)
    }

    /// A node tells of a change: the view that it leads to, if that is news.
    ///
    /// # Errors
    /// If the change is not about members that this node knows.
    pub(crate) fn told_change(
        &mut self,
        cx: &Cx<'_>,
        from: NodeId,
        change: ViewChange,
    ) -> Result<Option<MemberView>, Refusal> {
        let known = &cx.shell.view;
        let from_coordinator = from == change.view.term.coordinator();
        if !from_coordinator && !cx.shell.config.far_numbers {
            let why = "only the coordinator tells of members";
            return Err(Refusal::Invalid(why.into()));
        }
        if !from_coordinator && change.view.generation != known.generation {
            return Ok(None);
        }
        if cx.shell.config.far_numbers {
            self.relay.changes.note_told(&change);
        }
        changed(known, change)
    }

    /// The view of this epoch has become the next one: this node tells its share of the others.
    pub(crate) fn tell_on(&mut self, cx: &Cx<'_>, before: u64) -> Vec<Step> {
        let (relays, me) = (Relays::of(cx), cx.me());
        if !relays.nodes.contains(&me) {
            return Vec::new();
        }
        let changes = &self.relay.changes;
        let peers = cx.shell.peers();
        let told = peers.iter().filter(|node| relays.teller(*node) == me);
        let told: Vec<_> = told.filter(|node| changes.knows(*node, before)).collect();
        self.tell_each(cx, told)
    }

    /// A member says that it knows the view of this epoch. It is told what it lacks, unless that may be
    /// on its way.
    pub(crate) fn knows_epoch(&mut self, cx: &Cx<'_>, node: NodeId, epoch: u64) -> Option<Step> {
        let lacks = epoch < cx.shell.view.epoch;
        let lacks = self.relay.changes.says(node, epoch) && lacks;
        lacks.then(|| self.tell(cx, node)).flatten()
    }

    /// A member has answered to a change that leads to this epoch. It is told the rest, and what
    /// came meanwhile if this is the node that tells it.
    pub(crate) fn change_answered(
        &mut self,
        cx: &Cx<'_>,
        (node, epoch): (NodeId, u64),
        reply: &Reply,
    ) -> Option<Step> {
        if !cx.shell.config.far_numbers || !cx.is_alive(node) {
            return None;
        }
        let taken = !matches!(reply, Reply::Refused(_));
        let more = self.relay.changes.answered(node, epoch, taken);
        let by_me = Relays::of(cx).teller(node) == cx.me();
        (more || by_me).then(|| self.tell(cx, node)).flatten()
    }

    fn tell_each(&mut self, cx: &Cx<'_>, nodes: Vec<NodeId>) -> Vec<Step> {
        let told = nodes.into_iter().filter_map(|node| self.tell(cx, node));
        told.collect()
    }

    /// Tells a member what it does not know of the others, unless it has been told something that
    /// it has not answered yet.
    fn tell(&mut self, cx: &Cx<'_>, node: NodeId) -> Option<Step> {
        let change = self.relay.changes.next_for(node, &cx.shell.view)?;
        let then = OnReply::KnowsView(change.view.epoch);
        let call = Call::MembersChange(Box::new(change));
        Some(Step::Call(node, call, then))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effects;
    use crate::shell::Shell;
    use core::time::Duration;
    use pagemesh_wire::peer::Health;

    const COORDINATOR: NodeId = NodeId::FIRST;

    /// What a member of a cluster of 100 does, and what it sends.
    struct Member {
        shell: Shell,
        membership: Membership,
        now: Time,
    }

    impl Member {
        fn new(me: u16) -> Self {
            let mut shell = Shell::of_four(NodeId(me));
            shell.config.far_numbers = true;
            let mut view = shell.view.clone();
            for id in 5..=100 {
                let mut member = view.members[3].clone();
                (member.id, member.incarnation.0) = (NodeId(id), u64::from(id));
                view.members.push(member);
            }
            shell.set_view(view);
            let mut membership = Membership::new();
            let now = Time::ZERO + Duration::from_secs(100);
            membership.doubt = super::super::Doubt::begin(now);
            membership.follow(now);
            Self {
                shell,
                membership,
                now,
            }
        }

        fn does(
            &mut self,
            work: impl FnOnce(&mut Membership, &mut Cx<'_>),
        ) -> Vec<(NodeId, Message)> {
            let mut effects = Effects::default();
            work(
                &mut self.membership,
                &mut Cx {
                    now: self.now,
                    shell: &mut self.shell,
                    effects: &mut effects,
                },
            );
            effects.drain_sent()
        }

        fn after(&mut self, ms: u64) -> u64 {
            self.now = self.now + Duration::from_millis(ms);
            self.now.0
        }

        /// Its heartbeat.
        fn lives(&mut self) -> Vec<(NodeId, Message)> {
            self.does(Membership::say_alive)
        }

        fn hears(&mut self, from: NodeId, sent: u64, of: &NodeSet) -> Vec<(NodeId, Message)> {
            self.does(|membership, cx| membership.signs_heard(cx, from, sent, of))
        }
    }

    fn signs(to: u16, sent: u64, of: &[u16]) -> Vec<(NodeId, Message)> {
        let of = of.iter().copied().map(NodeId).collect();
        let epoch = 1;
        vec![(NodeId(to), Message::Signs { epoch, sent, of })]
    }

    #[test]
    fn each_of_the_others_has_a_relay_and_no_relay_too_many() {
        let mut member = Member::new(60);
        member.does(|_, cx| {
            let relays = Relays::of(cx);
            assert_eq!(relays.nodes, (2..=33).map(NodeId).collect::<Vec<_>>());
            let mut shares = vec![0; 34];
            for node in (1..=100).map(NodeId) {
                match relays.of_member(node) {
                    None => assert!(node.0 <= 33),
                    Some(relay) => shares[usize::from(relay.0)] += 1,
                }
            }
            assert_eq!(shares.iter().sum::<usize>(), 67);
            assert!(shares.into_iter().max() <= Some(3));
            cx.shell.config.far_numbers = false;
            assert!(Relays::of(cx).nodes.is_empty());
        });
    }

    #[test]
    fn signs_go_to_the_coordinator_with_those_of_the_relay_and_answers_back() {
        let (mut relay, mut member) = (Member::new(30), Member::new(60));
        let sent = member.after(100);
        assert_eq!(member.lives(), signs(30, sent, &[]));
        relay.membership.sign_came(NodeId(60), sent);
        relay.membership.sign_came(NodeId(92), 7);
        let passed = relay.after(200);
        assert_eq!(relay.lives(), signs(1, passed, &[60, 92]));
        let living = NodeSet::only(NodeId(60));
        assert_eq!(relay.hears(NodeId(2), passed, &living), []);
        let back = relay.hears(COORDINATOR, passed, &living);
        let of = NodeSet::EMPTY;
        assert_eq!(back, [(NodeId(60), Message::SignsHeard { sent, of })]);
        assert_eq!(relay.hears(COORDINATOR, passed, &living), [], "once");
        member.after(300);
        member.hears(NodeId(30), sent, &NodeSet::EMPTY);
        assert_eq!(member.membership.coordinator_heard, member.now);
    }

    #[test]
    fn an_answer_to_earlier_signs_is_not_passed_on() {
        let mut relay = Member::new(30);
        relay.membership.sign_came(NodeId(60), 5);
        let first = relay.after(500);
        relay.lives();
        relay.membership.sign_came(NodeId(60), 6);
        relay.after(500);
        relay.lives();
        let living = NodeSet::only(NodeId(60));
        assert_eq!(relay.hears(COORDINATOR, first, &living), []);
    }

    #[test]
    fn a_member_without_an_answer_speaks_to_the_coordinator_itself() {
        let mut member = Member::new(60);
        member.after(1000);
        assert_eq!(member.lives().len(), 1);
        let sent = member.after(500);
        let mut both = signs(30, sent, &[]);
        both.push((COORDINATOR, Message::Heartbeat { epoch: 1 }));
        assert_eq!(member.lives(), both);
    }

    #[test]
    fn a_relay_tells_its_share_what_the_coordinator_told_it() {
        let mut relay = Member::new(30);
        let mut change = ViewChange {
            since: 1,
            freed: Vec::new(),
            more: false,
            view: relay.shell.view.clone(),
        };
        let dead = change.view.members[49].clone();
        (change.view.epoch, change.view.members) = (2, vec![dead]);
        change.view.members[0].health = Health::Dead;
        relay.does(|membership, cx| {
            for node in [60, 61].map(NodeId) {
                assert_eq!(membership.knows_epoch(cx, node, 1), None);
            }
            let view = membership.told_change(cx, COORDINATOR, change.clone());
            cx.shell.set_view(view.unwrap().unwrap());
            let told = membership.tell_on(cx, 1);
            let [Step::Call(node, Call::MembersChange(passed), _)] = &told[..] else {
                panic!("{told:?}");
            };
            assert_eq!((*node, &**passed), (NodeId(60), &change));
            // One that lacks it after two signs has not got it from another node.
            assert_eq!(membership.knows_epoch(cx, NodeId(92), 1), None);
            assert!(membership.knows_epoch(cx, NodeId(92), 1).is_some());
        });
    }

    #[test]
    fn only_the_coordinator_tells_of_a_generation() {
        let mut member = Member::new(60);
        let change = ViewChange {
            since: 1,
            freed: Vec::new(),
            more: false,
            view: MemberView {
                epoch: 2,
                generation: 1,
                members: Vec::new(),
                ..member.shell.view.clone()
            },
        };
        member.does(|membership, cx| {
            let by_relay = membership.told_change(cx, NodeId(30), change.clone());
            assert_eq!(by_relay, Ok(None));
            let view = membership.told_change(cx, COORDINATOR, change.clone());
            assert_eq!(view.unwrap().map(|view| view.generation), Some(1));
            cx.shell.config.far_numbers = false;
            assert!(membership.told_change(cx, NodeId(30), change).is_err());
        });
    }
}
