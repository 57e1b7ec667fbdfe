//! How members of a cluster with far numbers are told of each other (decision 53).
//!
//! A view of a thousand members fits no datagram, and telling a thousand members of each of a
//! thousand joins would take a million messages. So a member is told what has changed since the
//! epoch that it has acknowledged, and of nothing else until it has answered: what changes
//! meanwhile is told together.

use pagemesh_sorted::SortedMap;
use pagemesh_wire::NodeId;
use pagemesh_wire::peer::{MemberView, ViewChange};

/// What has changed, and who knows of it. It is no part of a daemon's state, since no daemon
/// is in a cluster with far numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Changes {
    /// In which epoch the entry of each member changed last; at a node that was told of several
    /// epochs together, in the last of these.
    changed: SortedMap<NodeId, u64>,
    /// The same of free numbers, whose last lives left the view.
    freed: SortedMap<NodeId, u64>,
    /// What each member knows that this node tells of changes.
    told: SortedMap<NodeId, Told>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Told {
    /// The newest epoch that it is known to know; 0 if none.
    epoch: u64,
    /// It has not answered yet.
    under_way: bool,
    /// It is to be told more when it has answered.
    more: bool,
}

impl Changes {
    /// The view has changed.
    pub(super) fn note(&mut self, before: &MemberView, after: &MemberView) {
        let (known, known_after) = (before.numbered(), after.numbered());
        let is_new = |id| known.member(id) != known_after.member(id);
        let ids = after.members.iter().map(|member| member.id);
        let changed: Vec<_> = ids.filter(|id| is_new(*id)).collect();
        let ids = before.members.iter().map(|member| member.id);
        let freed: Vec<_> = ids.filter(|id| known_after.member(*id).is_none()).collect();
        self.note_all(after.epoch, &changed, &freed);
    }

    /// This node is told of a change.
    pub(super) fn note_told(&mut self, change: &ViewChange) {
        let changed = change.view.members.iter().map(|member| member.id);
        let changed: Vec<_> = changed.collect();
        self.note_all(change.view.epoch, &changed, &change.freed);
    }

    fn note_all(&mut self, epoch: u64, changed: &[NodeId], freed: &[NodeId]) {
        for id in freed {
            self.changed.remove(id);
            self.freed.insert(*id, epoch);
        }
        for id in changed {
            self.changed.insert(*id, epoch);
            self.freed.remove(id);
        }
    }

    /// A member is gone: nothing is told to it, and the next life of its number knows nothing.
    pub(super) fn member_gone(&mut self, node: NodeId) {
        self.told.remove(&node);
    }

    /// Whether this node has told this member of changes, or has heard what it knows.
    pub(super) fn has_told(&self, node: NodeId) -> bool {
        self.told.contains_key(&node)
    }

    /// Whether a member is known to know the view of this epoch.
    pub(super) fn knows(&self, node: NodeId, epoch: u64) -> bool {
        self.told.get(&node).is_some_and(|told| told.epoch == epoch)
    }

    /// A member says that it knows the view of this epoch. Returns whether it said so before: then
    /// what it lacks is not on its way from another node.
    pub(super) fn says(&mut self, node: NodeId, epoch: u64) -> bool {
        let told = self.told.entry(node).or_default();
        let again = told.epoch == epoch;
        if !told.under_way {
            told.epoch = epoch;
        }
        again
    }

    /// The next change to tell a member, if it has answered the last one and does not know all.
    pub(super) fn next_for(&mut self, node: NodeId, view: &MemberView) -> Option<ViewChange> {
        let told = self.told.entry(node).or_default();
        if told.under_way || told.epoch >= view.epoch {
            told.more |= told.under_way;
            return None;
        }
        let since = told.epoch;
        let mut changed: Vec<(u64, NodeId)> = Vec::new();
        for (member, epoch) in self.changed.iter().filter(|(_, epoch)| **epoch > since) {
            changed.push((*epoch, *member));
        }
        changed.sort_unstable();
        let part = part_of(&changed);
        let more = part < changed.len();
        let last = changed[..part].last().filter(|_| more);
        let epoch = last.map_or(view.epoch, |(epoch, _)| *epoch);
        let members = view.numbered();
        let members = changed[..part]
            .iter()
            .filter_map(|(_, id)| members.member(*id));
        let freed = self.freed.iter();
        let freed = freed.filter(|(_, freed)| (since + 1..=epoch).contains(*freed));
        (told.under_way, told.more) = (true, more);
        Some(ViewChange {
            since,
            freed: freed.map(|(node, _)| *node).collect(),
            more,
            view: MemberView {
                epoch,
                members: members.cloned().collect(),
                term: view.term,
                standby: view.standby,
                generation: view.generation,
                deaths: view.deaths,
            },
        })
    }

    /// A member knows the view of this epoch; or it has none to which the change could be applied,
    /// and must be told everything. Returns whether it is to be told more.
    pub(super) fn answered(&mut self, node: NodeId, epoch: u64, taken: bool) -> bool {
        let Some(told) = self.told.get_mut(&node) else {
            return false;
        };
        told.under_way = false;
        told.epoch = if taken { told.epoch.max(epoch) } else { 0 };
        core::mem::take(&mut told.more) || !taken
    }
}

/// How many of these changes go into one message: none of an epoch, or all of it, so that they make
/// all of the view of an earlier epoch.
fn part_of(changed: &[(u64, NodeId)]) -> usize {
    let Some((next, _)) = changed.get(ViewChange::LIMIT) else {
        return changed.len();
    };
    let earlier = changed.partition_point(|(epoch, _)| epoch < next);
    match earlier {
        0 => changed.partition_point(|(epoch, _)| epoch <= next),
        earlier => earlier,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::Shell;
    use pagemesh_wire::peer::Health;

    const ME: NodeId = NodeId(1);
    const YOU: NodeId = NodeId(2);

    /// A coordinator's view, from the first member on, and what has changed in it.
    fn grown(members: u16) -> (MemberView, Changes) {
        let mut view = Shell::of_four(ME).view;
        let model = view.members[3].clone();
        view.members.truncate(1);
        view.epoch = 1;
        let mut changes = Changes::default();
        changes.note(&MemberView::default(), &view);
        for id in 2..=members {
            let before = view.clone();
            let mut member = model.clone();
            (member.id, member.incarnation.0) = (NodeId(id), u64::from(id));
            view.epoch += 1;
            view.members.push(member);
            changes.note(&before, &view);
        }
        (view, changes)
    }

    /// What a member knows after it was told everything, and how many messages that took.
    fn tell(
        changes: &mut Changes,
        view: &MemberView,
        mut known: MemberView,
    ) -> (MemberView, usize) {
        let mut parts = 0;
        while let Some(change) = changes.next_for(YOU, view) {
            assert_eq!(changes.next_for(YOU, view), None, "one at a time");
            assert!(change.view.members.len() <= ViewChange::LIMIT);
            let epoch = change.view.epoch;
            assert!(change.since <= known.epoch && known.epoch < epoch);
            known = change.applied_to(&known);
            changes.answered(YOU, epoch, true);
            parts += 1;
        }
        (known, parts)
    }

    #[test]
    fn parts_make_the_whole_view() {
        let (mut view, mut changes) = grown(1000);
        let introduction = view.introduction(YOU);
        assert_eq!(introduction.members.len(), 2);
        let (known, parts) = tell(&mut changes, &view, introduction);
        let (known_parts, whole) = (parts, known.numbered());
        assert_eq!(known_parts, 10);
        assert!(
            view.members
                .iter()
                .all(|member| whole.member(member.id) == Some(member))
        );
        assert_eq!((known.members.len(), known.age()), (1000, view.age()));
        // Deaths, a generation, and numbers that are free again take one message.
        let before = view.clone();
        view.epoch += 1;
        view.members[500].health = Health::Dead;
        changes.note(&before, &view);
        let before = view.clone();
        (view.epoch, view.generation, view.deaths) = (view.epoch + 1, 1, 1);
        view.members.remove(500);
        changes.note(&before, &view);
        let (known, parts) = tell(&mut changes, &view, known);
        assert_eq!((parts, known.members.len(), known.generation), (1, 999, 1));
        assert!(known.member(NodeId(501)).is_none());
    }

    #[test]
    fn who_cannot_take_a_change_is_told_everything() {
        let (view, mut changes) = grown(3);
        let (known, _) = tell(&mut changes, &view, view.introduction(YOU));
        let mut later = view.clone();
        later.epoch += 1;
        changes.note(&view, &later);
        assert_eq!(changes.next_for(YOU, &later).map(|one| one.since), Some(3));
        changes.answered(YOU, later.epoch, false);
        assert_eq!(changes.next_for(YOU, &later).map(|one| one.since), Some(0));
        assert_eq!(known.members.len(), 3);
    }

    #[test]
    fn who_was_told_of_epochs_together_tells_them_together() {
        let (view, mut all) = grown(250);
        let mut relay = Changes::default();
        // A relay hears of all in three parts, and tells another member that knows as much as it knew.
        while let Some(change) = all.next_for(ME, &view) {
            relay.note_told(&change);
            all.answered(ME, change.view.epoch, true);
        }
        let mut epochs: Vec<_> = relay.changed.values().copied().collect();
        epochs.dedup();
        assert_eq!(epochs, [100, 200, 250]);
        assert!(!relay.says(YOU, 100), "it may be on its way");
        assert!(relay.says(YOU, 100));
        let change = relay.next_for(YOU, &view).unwrap();
        assert_eq!(
            (change.since, change.view.epoch, change.more),
            (100, 200, true)
        );
        assert!(relay.answered(YOU, 200, true));
        let change = relay.next_for(YOU, &view).unwrap();
        assert_eq!((change.view.members.len(), change.more), (50, false));
        assert!(!relay.answered(YOU, 250, true));
    }

    #[test]
    fn what_comes_while_a_member_has_not_answered_is_told_then() {
        let (view, mut changes) = grown(3);
        assert!(changes.next_for(YOU, &view).is_some());
        let mut later = view.clone();
        later.epoch += 1;
        changes.note(&view, &later);
        assert_eq!(changes.next_for(YOU, &later), None);
        assert!(changes.answered(YOU, view.epoch, true));
        assert!(changes.next_for(YOU, &later).is_some());
        assert!(!changes.answered(YOU, later.epoch, true));
    }
}
