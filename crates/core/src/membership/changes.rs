//! How the coordinator of a cluster with far numbers tells members of each other (decision 53).
//!
//! A view of a thousand members fits no datagram, and telling a thousand members of each of a
//! thousand joins would take a million messages. So a member is told what has changed since the
//! epoch that it has acknowledged, and of nothing else until it has answered: what changes
//! meanwhile is told together.

use pagemesh_sorted::SortedMap;
use pagemesh_wire::NodeId;
use pagemesh_wire::peer::{Member, MemberView, ViewChange};

/// What has changed, and who knows of it. It is no part of a daemon's state, since no daemon
/// coordinates a cluster with far numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Changes {
    /// In which epoch the entry of each member changed last.
    changed: SortedMap<NodeId, u64>,
    /// In which epoch the last life of each free number left the view.
    freed: SortedMap<NodeId, u64>,
    /// What each member knows.
    told: SortedMap<NodeId, Told>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Told {
    /// The newest epoch that it has acknowledged; 0 if none.
    epoch: u64,
    /// It has not answered yet.
    under_way: bool,
}

impl Changes {
    /// The view has changed.
    pub(crate) fn note(&mut self, before: &MemberView, after: &MemberView) {
        let (known, known_after) = (before.numbered(), after.numbered());
        for member in &after.members {
            if known.member(member.id) != Some(member) {
                self.changed.insert(member.id, after.epoch);
                self.freed.remove(&member.id);
            }
        }
        for member in &before.members {
            if known_after.member(member.id).is_none() {
                self.changed.remove(&member.id);
                self.freed.insert(member.id, after.epoch);
            }
        }
    }

    /// A member is gone: nothing is told to it, and the next life of its number knows nothing.
    pub(crate) fn member_gone(&mut self, node: NodeId) {
        self.told.remove(&node);
    }

    /// The next change to tell a member, if it has answered the last one and does not know all.
    pub(crate) fn next_for(&mut self, node: NodeId, view: &MemberView) -> Option<ViewChange> {
        let told = self.told.entry(node).or_default();
        if told.under_way || told.epoch >= view.epoch {
            return None;
        }
        told.under_way = true;
        let since = told.epoch;
        let news = |member: &&Member| self.changed.get(&member.id).filter(|epoch| **epoch > since);
        let changed = view.members.iter().filter(|member| news(member).is_some());
        let mut changed: Vec<_> = changed
            .map(|member| (news(&member).copied().unwrap_or(view.epoch), member))
            .collect();
        changed.sort_by_key(|(epoch, _)| *epoch);
        let more = changed.len() > ViewChange::LIMIT;
        // Each epoch changes one member, so the part is all of the view of an earlier epoch.
        changed.truncate(ViewChange::LIMIT);
        let last = changed.last().filter(|_| more);
        let epoch = last.map_or(view.epoch, |(epoch, _)| *epoch);
        let freed = self.freed.iter();
        let freed = freed.filter(|(_, freed)| (since + 1..=epoch).contains(*freed));
        Some(ViewChange {
            since,
            freed: freed.map(|(node, _)| *node).collect(),
            more,
            view: MemberView {
                epoch,
                members: changed
                    .into_iter()
                    .map(|(_, member)| member.clone())
                    .collect(),
                term: view.term,
                standby: view.standby,
                generation: view.generation,
                deaths: view.deaths,
            },
        })
    }

    /// A member knows the view of this epoch; or it has none to which the change could be applied,
    /// and must be told everything.
    pub(crate) fn answered(&mut self, node: NodeId, epoch: u64, taken: bool) {
        if let Some(told) = self.told.get_mut(&node) {
            told.under_way = false;
            told.epoch = if taken { told.epoch.max(epoch) } else { 0 };
        }
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
}
