//! The coordinator finds out which numbers it may give to new lives (decision 34).
//!
//! It gives the member view a new *generation*. A member that learns of that drops the names of
//! lives that are over where it can do without, and answers with those that it still names
//! anywhere. A number that nobody names is free: its last life leaves the member view. From its
//! answer on, a member drops datagrams that were sent before their sender had answered and that name
//! such a life, so no name comes back (*INV-number-forgotten*).

use super::Coordinator;
use crate::limits::{CHECK_AGAIN, CHECK_AGAIN_AT_LAST, NUMBERS_LOW};
use crate::time::Time;
use core::time::Duration;
use pagemesh_wire::peer::{Health, MemberView, Reply};
use pagemesh_wire::{NodeId, NodeSet};
use serde::{Deserialize, Serialize};

/// A name check under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct NameCheck {
    pub(crate) generation: u64,
    /// The lives that are over.
    lives: NodeSet,
    /// Members that have not answered.
    missing: NodeSet,
    /// Lives that are named by members which have answered.
    named: NodeSet,
}

/// When the coordinator checks names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct NameChecks {
    pub(crate) under_way: Option<NameCheck>,
    /// When the last one ended.
    ended: Option<Time>,
    /// How long to wait until the next one if numbers are low.
    wait: Duration,
    /// The last one freed no number, and no life has ended since.
    fruitless: bool,
}

impl Default for NameChecks {
    fn default() -> Self {
        Self {
            under_way: None,
            ended: None,
            wait: CHECK_AGAIN,
            fruitless: false,
        }
    }
}

impl NameChecks {
    /// Whether a number may become free although there is none now.
    pub(crate) fn may_free(&self, view: &MemberView) -> bool {
        self.under_way.is_some() || !self.fruitless && !view.over().is_empty()
    }

    /// Whether it is time for one: few numbers below `numbers` are free, and lives are over.
    pub(crate) fn is_due(&self, now: Time, view: &MemberView, numbers: u16) -> bool {
        let free = usize::from(numbers - 1).saturating_sub(view.members.len());
        if self.under_way.is_some() || free > NUMBERS_LOW || view.over().is_empty() {
            return false;
        }
        let wait = if free == 0 { CHECK_AGAIN } else { self.wait };
        self.ended.is_none_or(|ended| now - ended >= wait)
    }

    /// A member is gone: its number may be free soon, and it answers no more.
    pub(crate) fn member_gone(&mut self, node: NodeId) {
        self.fruitless = false;
        if let Some(check) = &mut self.under_way {
            check.missing.remove(node);
        }
    }

    /// A member has answered, or this node itself.
    pub(crate) fn answered(&mut self, from: NodeId, generation: u64, named: NodeSet) {
        if let Some(check) = &mut self.under_way
            && check.generation == generation
            && check.missing.remove(from)
        {
            check.named = check.named.union(&named);
        }
    }

    /// A member has told which lives it names.
    pub(crate) fn told(&mut self, from: NodeId, reply: &Reply) {
        let (generation, named) = match reply {
            Reply::Names { generation, names } => (*generation, NodeSet::from_near_bytes(names)),
            Reply::FarNames { generation, names } => (*generation, NodeSet::from_words(names)),
            _ => return,
        };
        // A member that says nonsense may name anybody.
        let named = named.unwrap_or_else(|| (1..NodeId::LIMIT).map(NodeId).collect());
        self.answered(from, generation, named);
    }

    /// If all have answered: the view without the lives that nobody names, if there are any.
    pub(crate) fn conclude(&mut self, now: Time, view: &MemberView) -> Option<MemberView> {
        let check = self.under_way.take_if(|check| check.missing.is_empty())?;
        let free = check.lives.without(&check.named);
        self.ended = Some(now);
        self.fruitless = free.is_empty();
        if free.is_empty() {
            self.wait = (self.wait * 2).min(CHECK_AGAIN_AT_LAST);
            return None;
        }
        self.wait = CHECK_AGAIN;
        let mut view = view.clone();
        view.epoch += 1;
        view.members.retain(|member| {
            let freed = free.contains(member.id);
            let died = !matches!(member.health, Health::Alive | Health::Left);
            view.deaths += u64::from(freed && died);
            !freed
        });
        Some(view)
    }
}

impl Coordinator {
    /// Begins a name check, if it is time: the view of the new generation, for all members. `peers`
    /// are those that must answer, beside this node; numbers below `numbers` are given.
    pub(crate) fn begin_check(
        &mut self,
        now: Time,
        view: &MemberView,
        mut peers: NodeSet,
        (me, numbers): (NodeId, u16),
    ) -> Option<MemberView> {
        if !self.checks.is_due(now, view, numbers) {
            return None;
        }
        peers.insert(me);
        let mut view = view.clone();
        view.epoch += 1;
        view.generation += 1;
        self.checks.under_way = Some(NameCheck {
            generation: view.generation,
            lives: view.over(),
            missing: peers,
            named: NodeSet::EMPTY,
        });
        Some(view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::Shell;

    const ME: NodeId = NodeId(1);
    const NOW: Time = Time(1_000_000_000);

    /// A view in which 126 numbers have been given, and all but the first three are of lives that
    /// left.
    fn full() -> MemberView {
        let mut view = Shell::of_four(ME).view;
        let model = view.members[3].clone();
        view.members.truncate(3);
        for id in 4..NodeId::NEAR - 1 {
            let mut member = model.clone();
            (member.id, member.health) = (NodeId(id), Health::Left);
            member.address.set_port(id);
            view.members.push(member);
        }
        view
    }

    fn peers() -> NodeSet {
        [NodeId(2), NodeId(3)].into_iter().collect()
    }

    #[test]
    fn a_number_that_anybody_names_is_held_back() {
        let mut coordinator = Coordinator::default();
        let asked = coordinator
            .begin_check(NOW, &full(), peers(), (ME, NodeId::NEAR))
            .unwrap();
        assert_eq!((asked.generation, asked.epoch), (1, 2));
        let checks = &mut coordinator.checks;
        assert!(checks.conclude(NOW, &asked).is_none());
        checks.answered(ME, 1, NodeSet::only(NodeId(7)));
        checks.answered(NodeId(2), 0, NodeSet::EMPTY);
        checks.answered(NodeId(3), 1, NodeSet::only(NodeId(9)));
        assert!(
            checks.conclude(NOW, &asked).is_none(),
            "n2 has not answered"
        );
        checks.answered(NodeId(2), 1, NodeSet::EMPTY);
        let freed = checks.conclude(NOW, &asked).unwrap();
        let ids: Vec<_> = freed.members.iter().map(|member| member.id.0).collect();
        assert_eq!(ids, [1, 2, 3, 7, 9]);
        assert_eq!((freed.deaths, freed.generation, freed.epoch), (0, 1, 3));
    }

    #[test]
    fn a_member_that_dies_is_not_waited_for_and_a_newcomer_not_asked() {
        let mut coordinator = Coordinator::default();
        let asked = coordinator
            .begin_check(NOW, &full(), peers(), (ME, NodeId::NEAR))
            .unwrap();
        let checks = &mut coordinator.checks;
        checks.answered(ME, 1, NodeSet::EMPTY);
        checks.answered(NodeId(2), 1, NodeSet::EMPTY);
        checks.answered(NodeId(4), 1, NodeSet::only(NodeId(5)));
        checks.member_gone(NodeId(3));
        assert_eq!(checks.conclude(NOW, &asked).unwrap().members.len(), 3);
    }

    #[test]
    fn only_lives_that_are_over_are_asked_about() {
        let mut view = full();
        for member in &mut view.members[3..] {
            member.health = match member.id.0 {
                10..20 => Health::Dead,
                20..30 => Health::Revoked,
                30..40 => Health::Forgotten,
                _ => member.health,
            };
        }
        // The host of the twelfth is back.
        view.members[1].address = view.member(NodeId(12)).unwrap().address;
        let mut coordinator = Coordinator::default();
        let asked = coordinator.begin_check(NOW, &view, NodeSet::EMPTY, (ME, NodeId::NEAR));
        let checks = &mut coordinator.checks;
        checks.answered(ME, 1, NodeSet::EMPTY);
        let freed = checks.conclude(NOW, &asked.unwrap()).unwrap();
        let held: Vec<_> = freed.members[3..]
            .iter()
            .map(|member| member.id.0)
            .collect();
        let expected: Vec<_> = (10..30).filter(|id| *id != 12).collect();
        assert_eq!(held, expected);
        assert_eq!(freed.deaths, 11, "one that is back, ten forgotten");
    }

    #[test]
    fn what_frees_nothing_is_repeated_ever_less_often() {
        let view = full();
        let mut coordinator = Coordinator::default();
        let mut now = NOW;
        let mut waits = Vec::new();
        for _ in 0..9 {
            let asked = coordinator
                .begin_check(now, &view, NodeSet::EMPTY, (ME, NodeId::NEAR))
                .unwrap();
            let generation = asked.generation;
            coordinator.checks.answered(ME, generation, view.over());
            assert!(coordinator.checks.conclude(now, &asked).is_none());
            assert!(!coordinator.checks.may_free(&view));
            let began = now;
            while !coordinator.checks.is_due(now, &view, NodeId::NEAR) {
                now = now + Duration::from_secs(1);
            }
            waits.push((now - began).as_secs());
        }
        assert_eq!(waits, [2, 4, 8, 16, 32, 60, 60, 60, 60]);
        let mut none_free = view.clone();
        none_free.members.push(view.members[3].clone());
        let soon = now + CHECK_AGAIN;
        coordinator.checks.ended = Some(now);
        assert!(!coordinator.checks.is_due(soon, &view, NodeId::NEAR));
        assert!(
            coordinator.checks.is_due(soon, &none_free, NodeId::NEAR),
            "a host waits"
        );
        coordinator.checks.member_gone(NodeId(2));
        assert!(coordinator.checks.may_free(&view));
    }

    #[test]
    fn nothing_is_asked_while_numbers_are_plenty() {
        let mut view = full();
        view.members
            .truncate(usize::from(NodeId::NEAR) - 2 - NUMBERS_LOW);
        let mut coordinator = Coordinator::default();
        assert!(
            coordinator
                .begin_check(NOW, &view, peers(), (ME, NodeId::NEAR))
                .is_none()
        );
    }
}
