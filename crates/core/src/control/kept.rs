//! What a coordinator or its standby has on its disk.

use super::DecisionCopy;
use pagemesh_wire::peer::{Decision, Health, MemberView};
use pagemesh_wire::{ClusterId, NodeId, NodeSet, SegmentId, Term};
use serde::{Deserialize, Serialize};

/// One entry of the file of a coordinator or standby. It says how something is now, so a file may
/// be written anew from its contents.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KeptEntry {
    /// A coordinator begins to write as this node. One that goes on writes it before it sends
    /// anything, so that no two of its lives have the same term.
    Life {
        /// The cluster.
        cluster: ClusterId,
        /// The number of the node.
        node: NodeId,
        /// The term in which it coordinates.
        term: Term,
    },
    /// A standby begins to write; what was there before counts for nothing.
    Standby {
        /// The cluster.
        cluster: ClusterId,
        /// The number of the node.
        node: NodeId,
    },
    /// The members.
    View(MemberView),
    /// Decisions of one input of the coordinator, which count together or not at all.
    Decisions(Vec<Decision>),
}

impl KeptEntry {
    /// Whether everything follows in the same batch.
    #[must_use]
    pub fn begins(&self) -> bool {
        !matches!(self, Self::View(_) | Self::Decisions(_))
    }

    /// The term of the life that begins here.
    #[must_use]
    pub fn term(&self) -> Option<Term> {
        match self {
            Self::Life { term, .. } => Some(*term),
            _ => None,
        }
    }
}

/// The contents of the file of a coordinator or standby.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Kept {
    cluster: ClusterId,
    /// The numbers of the daemons that wrote this, but for those that the view counts as gone.
    mine: NodeSet,
    /// The terms in which they coordinated, or tried to, after that of the view.
    lives: Vec<Term>,
    view: MemberView,
    pub(crate) copy: DecisionCopy,
}

/// The last free numbers, which are left to coordinators and standbys that go on.
const RESERVED: usize = 2;

impl Kept {
    /// Takes the next entry.
    pub fn apply(&mut self, entry: KeptEntry) {
        match entry {
            KeptEntry::Life {
                cluster,
                node,
                term,
            } => {
                self.cluster = cluster;
                self.mine.insert(node);
                if term > self.view.term && !self.lives.contains(&term) {
                    self.lives.push(term);
                }
            }
            KeptEntry::Standby { cluster, node } => {
                *self = Self {
                    cluster,
                    mine: NodeSet::only(node),
                    ..Self::default()
                };
            }
            KeptEntry::View(view) => {
                for node in self.forgotten_in(&view).iter() {
                    self.mine.remove(node);
                    self.copy.life_forgotten(node);
                }
                for member in &view.members {
                    if member.health != Health::Alive {
                        self.mine.remove(member.id);
                        self.copy.member_gone(member.id);
                    }
                }
                self.lives.retain(|term| *term > view.term);
                self.view = view;
            }
            KeptEntry::Decisions(decisions) => self.copy.decided(decisions),
        }
    }

    /// Entries from which the same contents come.
    #[must_use]
    pub fn entries(&self) -> Vec<KeptEntry> {
        let cluster = self.cluster;
        let life = |node, term| KeptEntry::Life {
            cluster,
            node,
            term,
        };
        let standby = |node| KeptEntry::Standby { cluster, node };
        let mut before = self.mine.clone();
        for term in &self.lives {
            before.remove(term.coordinator());
        }
        let mut entries: Vec<_> = match self.has_coordinated() {
            true => before.iter().map(|node| life(node, Term::NONE)).collect(),
            false => before.iter().map(standby).collect(),
        };
        entries.push(KeptEntry::View(self.view.clone()));
        let lives = self.lives.iter();
        entries.extend(lives.map(|term| life(term.coordinator(), *term)));
        entries.push(KeptEntry::Decisions(self.copy.decisions()));
        entries
    }

    /// The cluster whose coordinator or standby wrote this.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// The members when this was written.
    #[must_use]
    pub fn view(&self) -> &MemberView {
        &self.view
    }

    /// Whether there is a cluster to go on with.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.view.members.is_empty() && (self.has_coordinated() || self.is_standby_of(&self.view))
    }

    /// Whether the standby wrote this that the view names.
    pub(crate) fn is_standby_of(&self, view: &MemberView) -> bool {
        let other = self.forgotten_in(view).contains(view.standby);
        self.mine.contains(view.standby) && !other
    }

    /// The numbers that are free in a later view, or that other lives have there: everybody has
    /// forgotten the lives that are written here (decision 34).
    pub(crate) fn forgotten_in(&self, view: &MemberView) -> NodeSet {
        let here = self.view.members.iter();
        let gone = here.filter(|here| {
            let there = view.member(here.id);
            there.is_none_or(|there| there.incarnation != here.incarnation)
        });
        gone.map(|member| member.id).collect()
    }

    /// The decisions, without those of lives that are forgotten in a later view.
    pub(crate) fn copy_in(&self, view: &MemberView) -> DecisionCopy {
        let mut copy = self.copy.clone();
        for node in self.forgotten_in(view).iter() {
            copy.life_forgotten(node);
        }
        copy
    }

    /// Takes a batch of entries of a coordinator in a store that all nodes share. What former
    /// coordinators wrote there counts until the first batch of the next one, which has everything.
    pub fn apply_batch(&mut self, entries: Vec<KeptEntry>) {
        if entries.iter().any(KeptEntry::begins) {
            *self = Self::default();
        }
        for entry in entries {
            self.apply(entry);
        }
    }

    /// Whether the coordinator wrote this, and no standby.
    #[must_use]
    pub fn has_coordinated(&self) -> bool {
        self.mine.contains(self.view.term.coordinator())
    }

    /// Whether this segment has a name.
    #[must_use]
    pub fn has_segment(&self, segment: SegmentId) -> bool {
        self.copy.directory.get(segment).is_some()
    }

    /// The number of segments with a name.
    #[must_use]
    pub fn names(&self) -> usize {
        self.copy.directory.list("", usize::MAX).len()
    }

    /// The number and term of a daemon that goes on from here. Nothing of its former lives is left
    /// but what is written here, so they count as dead, and their numbers stay theirs. `None` if
    /// all numbers or terms are used up.
    #[must_use]
    pub fn next_life(&self) -> Option<(NodeId, Term)> {
        // Coordinator and standby take different numbers should both go on at once.
        let skip = usize::from(!self.has_coordinated());
        let free = |node: &NodeId| self.view.member(*node).is_none() && !self.mine.contains(*node);
        let node = (1..NodeId::NEAR).rev().map(NodeId).filter(free).nth(skip)?;
        Some((node, self.fence().next(node)?))
    }

    /// The newest term known here.
    fn fence(&self) -> Term {
        let lives = self.lives.iter().copied().max();
        self.view.term.max(lives.unwrap_or(Term::NONE))
    }

    /// Terms after that of the view in which this daemon coordinated, or tried to.
    pub(crate) fn lives(&self) -> &[Term] {
        &self.lives
    }

    /// The former lives of the daemon.
    pub(crate) fn mine(&self) -> NodeSet {
        self.mine.clone()
    }
}

/// The number of the next node, if there is one: the least that no node has had. If the cluster has
/// disks, the last free ones are left to coordinators that go on from there. All are below `numbers`.
pub(crate) fn next_number(view: &MemberView, disks: bool, numbers: u16) -> Option<NodeId> {
    let reserved = if disks { RESERVED } else { 0 };
    let taken: NodeSet = view.members.iter().map(|member| member.id).collect();
    let mut free = (1..numbers)
        .map(NodeId)
        .filter(|node| !taken.contains(*node));
    let next = free.next()?;
    (free.count() >= reserved).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::peer::Member;
    use pagemesh_wire::{Incarnation, PublicKey};

    const ME: NodeId = NodeId(1);

    fn view(term: Term, nodes: &[(u16, Health)]) -> MemberView {
        let members = nodes.iter().map(|(id, health)| Member {
            id: NodeId(*id),
            name: String::new(),
            address: ([127, 0, 0, 1], 1).into(),
            incarnation: Incarnation(u64::from(*id)),
            key: PublicKey::NONE,
            health: *health,
            program: pagemesh_wire::Program::default(),
        });
        MemberView {
            epoch: 4,
            members: members.collect(),
            term,
            standby: NodeId::NONE,
            generation: 0,
            deaths: 0,
        }
    }

    fn life(node: NodeId, term: Term) -> KeptEntry {
        KeptEntry::Life {
            cluster: ClusterId(7),
            node,
            term,
        }
    }

    fn standby(node: NodeId) -> KeptEntry {
        let cluster = ClusterId(7);
        KeptEntry::Standby { cluster, node }
    }

    fn written(entries: impl IntoIterator<Item = KeptEntry>) -> Kept {
        let mut kept = Kept::default();
        entries.into_iter().for_each(|entry| kept.apply(entry));
        kept
    }

    #[test]
    fn each_life_has_a_number_and_a_term_of_its_own() {
        let mut kept = Kept::default();
        assert!(!kept.is_whole());
        kept.apply(life(ME, Term::FIRST));
        let members = [(1, Health::Alive), (2, Health::Alive)];
        kept.apply(KeptEntry::View(view(Term::FIRST, &members)));
        assert!(kept.is_whole() && kept.has_coordinated());
        let (first, one) = kept.next_life().unwrap();
        assert_eq!((first, one.count()), (NodeId(NodeId::NEAR - 1), 2));
        kept.apply(life(first, one));
        let (second, two) = kept.next_life().unwrap();
        assert_eq!((second, two.count()), (NodeId(NodeId::NEAR - 2), 3));
        assert!(kept.lives() == [one] && two > one);
        let written_anew = written(kept.entries());
        assert_eq!(written_anew, kept);
        // The first of them has taken over.
        let members = [
            (1, Health::Dead),
            (2, Health::Alive),
            (first.0, Health::Alive),
        ];
        kept.apply(KeptEntry::View(view(one, &members)));
        assert_eq!(kept.mine(), NodeSet::only(first));
        assert_eq!(kept.next_life().unwrap().0, second);
        assert_eq!(written(kept.entries()), kept);
    }

    #[test]
    fn a_standby_takes_another_number_than_its_coordinator() {
        let members = [(1, Health::Alive), (2, Health::Alive)];
        let mut view = view(Term::FIRST, &members);
        view.standby = NodeId(2);
        let of = |first| written([first, KeptEntry::View(view.clone())]);
        let coordinator = of(life(ME, Term::FIRST));
        let mut second = of(standby(NodeId(2)));
        assert!(second.is_whole() && !second.has_coordinated());
        assert_ne!(second.next_life(), coordinator.next_life());
        assert_eq!(written(second.entries()), second);
        view.standby = NodeId(3);
        second.apply(KeptEntry::View(view));
        assert!(!second.is_whole(), "another node is the standby");
    }

    #[test]
    fn a_forgotten_life_is_not_taken_for_the_next_one_of_its_number() {
        let members = [(1, Health::Alive), (2, Health::Alive), (3, Health::Left)];
        let mut before = view(Term::FIRST, &members);
        before.standby = NodeId(2);
        let mut kept = written([standby(NodeId(2)), KeptEntry::View(before.clone())]);
        let answered = |node| Decision::Answered {
            node: NodeId(node),
            call: pagemesh_wire::CallId(4),
            floor: pagemesh_wire::CallId(4),
            reply: pagemesh_wire::peer::Reply::Done,
        };
        kept.apply(KeptEntry::Decisions(vec![answered(1), answered(2)]));
        let mut after = before.clone();
        after.members.retain(|member| member.id != NodeId(3));
        after.members[1].incarnation = Incarnation(99);
        assert!(kept.is_standby_of(&before) && !kept.is_standby_of(&after));
        let forgotten: Vec<_> = kept.forgotten_in(&after).iter().collect();
        assert_eq!(forgotten, [NodeId(2), NodeId(3)]);
        kept.apply(KeptEntry::View(after));
        assert!(kept.mine().is_empty() && !kept.is_whole());
        let left: Vec<_> = kept.copy.answered.keys().copied().collect();
        assert_eq!(left, [ME], "the other calls were those of the former life");
    }

    #[test]
    fn the_last_numbers_are_left_to_those_who_go_on() {
        let members: Vec<_> = (1..NodeId::NEAR - 3).map(|id| (id, Health::Dead)).collect();
        let next = next_number(&view(Term::FIRST, &members), true, NodeId::NEAR);
        assert_eq!(next, Some(NodeId(NodeId::NEAR - 3)));
        let members: Vec<_> = (1..NodeId::NEAR - 2).map(|id| (id, Health::Dead)).collect();
        let view = view(Term::FIRST, &members);
        assert_eq!(next_number(&view, true, NodeId::NEAR), None);
        assert_eq!(
            next_number(&view, false, NodeId::NEAR),
            Some(NodeId(NodeId::NEAR - 2))
        );
    }
}
